"""`ctx.files`: a run's attachments and artifacts."""

import asyncio
import os

from stepwell.files.store import FileRecord, FileStore


class RunFiles:
    """Files of one run, by reference.

    Args:
        store: where they are kept.
        run_id: the run they belong to; deleting the run deletes them.
    """

    def __init__(self, store: FileStore, run_id: str) -> None:
        self._store = store
        self._run_id = run_id

    @property
    def store(self) -> FileStore:
        """The store itself, for code in threads: its calls block."""
        return self._store

    async def attach(
        self, path: str | os.PathLike[str], *, name: str | None = None, media_type: str | None = None
    ) -> FileRecord:
        """Copy a file into the store; put the returned record's `reference` into messages and values.

        Raises:
            FileRejected: not a regular file, or its name, size or media type is not allowed.
        """
        return await asyncio.to_thread(
            self._store.put_path, path, name=name, media_type=media_type, run_id=self._run_id
        )

    async def write(self, name: str, content: bytes | str, *, media_type: str | None = None) -> FileRecord:
        """Store an artifact; text is written as UTF-8."""
        raw = content.encode() if isinstance(content, str) else content
        return await asyncio.to_thread(
            self._store.put_bytes, raw, name=name, media_type=media_type, run_id=self._run_id
        )

    async def read(self, reference: str) -> bytes:
        """The content behind a reference.

        Raises:
            FileMissing, StorageCorrupt: there is none, or it is damaged.
        """
        return await asyncio.to_thread(self._store.read, reference)

    async def record(self, reference: str) -> FileRecord:
        """Name, size, media type and hash of a reference."""
        return await asyncio.to_thread(self._store.record, reference)

    async def list(self) -> "list[FileRecord]":
        """The run's files."""
        return await asyncio.to_thread(lambda: list(self._store.records(self._run_id)))
