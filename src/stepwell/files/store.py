"""The file store: bytes by content, known to the outside only by reference.

A blob lives at `blobs/<first two digits>/<sha256>`, a reference is `artifact://<uuid>` with a record (JSON) at
`refs/<uuid>.json`. No name that a user or model chose ever becomes part of a path, so none can leave the store.
"""

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

from stepwell.errors import FileMissing, FileRejected, StorageCorrupt, StorageUnavailable
from stepwell.identifiers import iso_time, new_id, now_micros

SCHEME = "artifact://"
MAX_NAME_CHARS = 255
DEFAULT_MAX_BYTES = 256 * 1024 * 1024

_CHUNK = 1024 * 1024
_REFERENCE = re.compile(r"artifact://([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\Z")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,62}/[a-z0-9][a-z0-9!#$&^_.+-]{0,62}\Z")


class FileRecord(NamedTuple):
    """What is known of a stored file. `size` is in bytes; `name` is shown, never used as a path.

    A file goes with its run, or with the conversation (`conversation_of`) in whose chat it was attached.
    """

    reference: str
    name: str
    media_type: str
    size: int
    sha256: str
    run_id: str | None
    created_at: str
    conversation: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON."""
        return self._asdict()


class FileStore:
    """Content-addressed files below one folder. All calls block: run them in a thread.

    Args:
        root: the store's own folder, created on first use with mode 0700.
        max_bytes: limit of one file.
    """

    def __init__(self, root: Path, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._root = root
        self._max_bytes = max_bytes

    def put_bytes(
        self, content: bytes, *, name: str, media_type: str | None = None, run_id: str | None = None
    ) -> FileRecord:
        """Store bytes and return their new reference.

        Raises:
            FileRejected: the name, media type or size is not allowed.
            StorageUnavailable: the disk is full or not writable; nothing is left behind.
        """
        return self.put_chunks((content,), name=name, media_type=media_type, run_id=run_id)

    def put_path(
        self, path: str | os.PathLike[str], *, name: str | None = None, media_type: str | None = None,
        run_id: str | None = None, conversation: str | None = None,
    ) -> FileRecord:  # fmt: skip
        """Copy a regular file into the store. Symbolic links, devices, pipes and folders are refused."""
        shown = os.fspath(path)
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(shown, flags)
        except (OSError, ValueError) as error:
            reason = "it is a symbolic link" if Path(shown).is_symlink() else getattr(error, "strerror", None) or error
            raise FileRejected(f"{shown!r:.200} cannot be read: {reason}", path=shown) from None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise FileRejected(f"{shown!r:.200} is not a regular file", path=shown)
        with os.fdopen(descriptor, "rb") as file:
            chunks = iter(lambda: file.read(_CHUNK), b"")
            return self.put_chunks(
                chunks, name=name or Path(shown).name, media_type=media_type, run_id=run_id, conversation=conversation
            )

    def put_chunks(
        self, chunks: Iterable[bytes], *, name: str, media_type: str | None = None, run_id: str | None = None,
        conversation: str | None = None,
    ) -> FileRecord:  # fmt: skip
        """Store a stream of bytes; stops at the size limit."""
        name = check_name(name)
        media_type = check_media_type(media_type, name)
        try:
            digest, size = self._store_blob(chunks)
            reference, now = f"{SCHEME}{new_id()}", iso_time(now_micros())
            record = FileRecord(reference, name, media_type, size, digest, run_id, now, conversation)
            self._write(self._record_path(record.reference), json.dumps(record.to_dict()).encode())
        except OSError as error:
            raise StorageUnavailable(
                f"the file {name!r} could not be stored: {error.strerror}", hint="free disk space and try again"
            ) from error
        return record

    def record(self, reference: str) -> FileRecord:
        """What is known of a reference.

        Raises:
            FileMissing: it is not a reference, or nothing is stored under it.
            StorageCorrupt: its record is damaged.
        """
        path = self._record_path(reference)
        try:
            return FileRecord(**json.loads(path.read_bytes()))
        except FileNotFoundError:
            raise FileMissing(f"no file is stored as {reference}", reference=reference) from None
        except (ValueError, TypeError):
            raise StorageCorrupt(f"the record of {reference} is damaged", path=str(path)) from None

    def open(self, reference: str) -> IO[bytes]:
        """Open a stored file for reading; the caller closes it."""
        record = self.record(reference)
        if not _SHA256.match(record.sha256):
            raise StorageCorrupt(f"the record of {reference} is damaged")
        try:
            file = self._blob_path(record.sha256).open("rb")
        except FileNotFoundError:
            raise FileMissing(f"the content of {reference} is gone", reference=reference) from None
        if os.fstat(file.fileno()).st_size != record.size:
            file.close()
            raise StorageCorrupt(f"the content of {reference} has another size than recorded")
        return file

    def read(self, reference: str) -> bytes:
        """The whole content of a stored file, verified against its hash."""
        with self.open(reference) as file:
            content = file.read()
        if hashlib.sha256(content).hexdigest() != self.record(reference).sha256:
            raise StorageCorrupt(f"the content of {reference} does not match its hash")
        return content

    def records(self, run_id: str | None = None) -> Iterator[FileRecord]:
        """Every stored record, or those of one run; damaged ones are left out."""
        for path in sorted((self._root / "refs").glob("*.json")):
            with suppress(FileMissing, StorageCorrupt):
                record = self.record(f"{SCHEME}{path.stem}")
                if run_id is None or record.run_id == run_id:
                    yield record

    def delete_run(self, run_id: str) -> int:
        """Delete a run's references, and the blobs nobody else refers to; returns how many references there were.

        A blob is kept whenever any record cannot be read: what is not understood is not deleted.
        """
        return self._delete(list(self.records(run_id)))

    def delete_conversation(self, conversation: str) -> int:
        """The same for what was attached in a conversation's chat, whether it was sent or not."""
        return self._delete([record for record in self.records() if record.conversation == conversation])

    def _delete(self, mine: list[FileRecord]) -> int:
        for record in mine:
            self._record_path(record.reference).unlink(missing_ok=True)
        try:
            kept = {self.record(f"{SCHEME}{path.stem}").sha256 for path in (self._root / "refs").glob("*.json")}
        except (FileMissing, StorageCorrupt):
            return len(mine)
        for digest in {record.sha256 for record in mine} - kept:
            self._blob_path(digest).unlink(missing_ok=True)
        return len(mine)

    def _store_blob(self, chunks: Iterable[bytes]) -> tuple[str, int]:
        temporary = self._folder("tmp") / new_id()
        digest, size = hashlib.sha256(), 0
        try:
            with _create(temporary) as file:
                for chunk in chunks:
                    size += len(chunk)
                    if size > self._max_bytes:
                        raise FileRejected(f"the file is over the limit of {self._max_bytes:,} bytes")
                    digest.update(chunk)
                    file.write(chunk)
                file.flush()
                os.fsync(file.fileno())
            name = digest.hexdigest()
            self._folder("blobs", name[:2])
            temporary.replace(self._blob_path(name))
        finally:
            temporary.unlink(missing_ok=True)
        return name, size

    def _write(self, path: Path, content: bytes) -> None:
        temporary = self._folder("tmp") / new_id()
        self._folder("refs")
        try:
            with _create(temporary) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def _folder(self, *parts: str) -> Path:
        folder = self._root.joinpath(*parts)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder

    def _blob_path(self, digest: str) -> Path:
        return self._root / "blobs" / digest[:2] / digest

    def _record_path(self, reference: str) -> Path:
        found = _REFERENCE.match(reference) if isinstance(reference, str) else None
        if found is None:
            raise FileMissing(
                f"{reference!r:.200} is not a file reference", hint="references look like artifact://<uuid>"
            )
        return self._root / "refs" / f"{found[1]}.json"


def conversation_of(project_id: str, conversation_id: str) -> str:
    """A conversation as files know it: projects share the store, and conversations of two may have one id."""
    return f"{project_id}/{conversation_id}"


def check_name(name: str) -> str:
    """A file's shown name: 1 to 255 characters, no separators, control or bidirectional characters.

    Raises:
        FileRejected: it breaks a rule.
    """
    if not isinstance(name, str) or not name.strip() or name in (".", "..") or len(name) > MAX_NAME_CHARS:
        raise FileRejected(f"the file name {name!r:.80} is empty, reserved or over {MAX_NAME_CHARS} characters")
    if re.search("[\x00-\x1f\x7f-\x9f/\\\\\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", name):
        raise FileRejected(f"the file name {name!r:.80} has a separator or control character")
    return name


def check_media_type(media_type: str | None, name: str) -> str:
    """The media type as given, or guessed from the name's ending.

    Raises:
        FileRejected: it has not the form type/subtype.
    """
    if media_type is None:
        import mimetypes

        return mimetypes.guess_type(name)[0] or "application/octet-stream"
    if not isinstance(media_type, str) or not _MEDIA_TYPE.match(media_type):
        raise FileRejected(f"the media type {media_type!r:.80} is not of the form type/subtype")
    return media_type


def _create(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
