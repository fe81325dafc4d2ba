"""Importing a folder of Markdown files."""

import asyncio
import hashlib
import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from stepwell.errors import DocumentExists, DocumentNotFound, InvalidArgument
from stepwell.knowledge.documents import Knowledge

Progress = Callable[[int, int, str], None]


class Imported(NamedTuple):
    """What an import did; `skipped` names files that are not UTF-8 or cannot be read."""

    created: int
    updated: int
    unchanged: int
    skipped: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON."""
        return self._asdict()


async def import_folder(base: Knowledge, folder: str, progress: Progress | None = None) -> Imported:
    """Create or update a document for every `.md` file below a folder; unchanged ones are left alone.

    The id is the path below the folder's name, so importing again updates the same documents.

    Raises:
        InvalidArgument: there is no such folder.
    """
    root = Path(folder)
    if not os.path.isdir(folder):  # noqa: PTH112  (Path.is_dir raises for a name that is too long)
        raise InvalidArgument(f"{folder} is not a folder", argument="folder")
    files = sorted(path for path in root.rglob("*.md") if path.is_file())
    counts = {"created": 0, "updated": 0, "unchanged": 0}
    skipped: list[str] = []
    for done, path in enumerate(files, start=1):
        # Names of files are bytes; those that are no UTF-8 are told by their escapes.
        name = os.fsencode(path.relative_to(root).as_posix()).decode("utf-8", "backslashreplace")
        try:
            markdown = (await asyncio.to_thread(path.read_bytes)).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError):
            skipped.append(name)
        else:
            counts[await put_document(base, document_id_of(root.resolve().name, name), markdown, Path(name).stem)] += 1
        if progress is not None:
            progress(done, len(files), name)
    return Imported(counts["created"], counts["updated"], counts["unchanged"], skipped)


async def put_document(base: Knowledge, document_id: str, markdown: str, name: str) -> str:
    """Create, update or leave a document: `created`, `updated` or `unchanged`."""
    title = title_of(markdown, name)
    while True:
        try:
            known = await base.get_document(document_id)
            if known.markdown == markdown and known.title == title:
                return "unchanged"
            await base.edit_document(document_id, title=title, markdown=markdown)
        except DocumentNotFound:
            # Somebody else may create or delete it in between: then look again.
            with suppress(DocumentExists):
                await base.create_document(title, markdown, document_id)
                return "created"
        else:
            return "updated"


def document_id_of(collection: str, name: str) -> str:
    """A document id for a file of a collection: its path where that fits the rules, with a hash where it does not.

    >>> document_id_of("docs", "guide/first.md")
    'docs.guide.first'
    """
    path = f"{collection}/{name}".removesuffix(".md")
    plain = re.sub(r"[^A-Za-z0-9._-]+", ".", path).strip(".")
    # A dot in the path itself could be mistaken for a separator, so only dotless paths go without the hash.
    if plain == path.replace("/", ".") and "." not in path and len(plain) <= 128:
        return plain
    return f"{plain[:100]}.{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def title_of(markdown: str, name: str) -> str:
    """The first heading or front-matter title of a text, else the file's name."""
    found = re.search(r"^(?:#{1,3}\s+|title:\s*)(\S.*)$", markdown[:4_000], re.MULTILINE)
    title = found[1].replace("\x00", " ").strip().strip("\"'") if found else ""
    return " ".join(title.split())[:300] or name
