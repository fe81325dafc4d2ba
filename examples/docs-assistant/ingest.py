"""Import folders of Markdown files into Knowledge: unchanged files are skipped, removed ones deleted."""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

from stepwell import Context, node, workflow


@dataclass
class IngestInput:
    """The folders to import. A folder's name is its collection: importing it again replaces what it held."""

    folders: list[str]
    conversation_id: str | None = None


@dataclass
class IngestOutput:
    """How many documents were touched, over all folders."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    deleted: int = 0
    skipped: list[str] = field(default_factory=list)


def read_arguments(args: list[str], conversation_id: str | None) -> IngestInput:
    """Take the folders from the command line: `stepwell run . -e ingest -- docs ../more-docs`."""
    folders = [argument for argument in args if argument != "--folder"]
    if not folders:
        raise ValueError("name at least one folder of Markdown files, for example: -- docs")
    return IngestInput(folders, conversation_id)


@node
def list_files(folder: str) -> list[str]:
    """The Markdown files below a folder, as sorted relative paths."""
    root = Path(folder)
    if not root.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder")
    return sorted(str(path.relative_to(root)) for path in root.rglob("*.md") if path.is_file())


@node(replay=False)
async def import_file(folder: str, name: str, ctx: Context) -> str:
    """Import one file and say what happened: created, updated, unchanged or skipped."""
    raw = (Path(folder) / name).read_bytes()
    try:
        markdown = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return "skipped"
    document_id = id_of(folder, name)
    fingerprint = hashlib.sha256(raw).hexdigest()
    files = ctx.storage.host.kv
    known = await files.get_value(f"file:{document_id}")
    if known is not None and known["sha256"] == fingerprint and await exists(document_id, ctx):
        return "unchanged"
    title = title_of(markdown, name)
    if await exists(document_id, ctx):
        await ctx.knowledge.edit_document(document_id, title=title, markdown=markdown)
        outcome = "updated"
    else:
        await ctx.knowledge.create_document(title, markdown, id=document_id)
        outcome = "created"
    await files.set_value(
        f"file:{document_id}", {"collection": collection_of(folder), "name": name, "sha256": fingerprint}
    )
    return outcome


@node(replay=False)
async def delete_removed(folder: str, names: list[str], ctx: Context) -> int:
    """Delete the documents of files that are no longer in the folder."""
    files = ctx.storage.host.kv
    kept = {f"file:{id_of(folder, name)}" for name in names}
    gone = [
        entry.key
        async for entry in files.scan("file:")
        if entry.value["collection"] == collection_of(folder) and entry.key not in kept
    ]
    for key in gone:
        await ctx.knowledge.delete_document(key.removeprefix("file:"))
        await files.delete_value(key)
    return len(gone)


@workflow
async def ingest(data: IngestInput, ctx: Context) -> IngestOutput:
    """Bring Knowledge in line with the folders."""
    result = IngestOutput()
    for folder in data.folders:
        names = await list_files(folder)
        for done, name in enumerate(names, start=1):
            outcome = await import_file(folder, name, ctx)
            if outcome == "skipped":
                result.skipped.append(f"{folder}/{name}")
            else:
                setattr(result, outcome, getattr(result, outcome) + 1)
            ctx.progress(done, len(names), f"{collection_of(folder)}: {name}")
        result.deleted += await delete_removed(folder, names, ctx)
    async with ctx.output("summary") as out:
        await out.write(
            f"{result.created} created, {result.updated} updated, {result.unchanged} unchanged, "
            f"{result.deleted} deleted."
        )
        for name in result.skipped:
            await out.write(f"\nSkipped, not UTF-8: {name}")
    return result


def collection_of(folder: str) -> str:
    """The name a folder's documents are kept under."""
    return Path(folder).resolve().name


def id_of(folder: str, name: str) -> str:
    """A readable document id: the path where it fits the rules, made unique by a hash where it does not."""
    path = f"{collection_of(folder)}/{name}".removesuffix(".md")
    plain = re.sub(r"[^A-Za-z0-9._-]+", ".", path).strip(".")
    if plain == path.replace("/", ".") and len(plain) <= 128:
        return plain
    return f"{plain[:100]}.{hashlib.sha256(path.encode()).hexdigest()[:12]}"


def title_of(markdown: str, name: str) -> str:
    """The first heading or front-matter title, else the file's name."""
    found = re.search(r"^(?:#\s+|title:\s*)(.+)$", markdown[:4_000], re.MULTILINE)
    return found[1].strip().strip("\"'") if found else Path(name).stem


async def exists(document_id: str, ctx: Context) -> bool:
    """Is the document there? Reads one line, not the body."""
    from stepwell.errors import DocumentNotFound

    try:
        await ctx.knowledge.read_document_lines(document_id, 1, 1)
    except DocumentNotFound:
        return False
    return True
