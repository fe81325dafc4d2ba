"""The SQLite backend's asynchronous face.

Point reads run inline: they take microseconds and never wait for a writer. Writes go through the file's writer
thread, where those that wait together share one fsync. Bulk reads leave the event loop.
"""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import cast

from stepwell.store.backend import Lease
from stepwell.store.entries import (
    NO_SOURCE,
    Change,
    Check,
    Committed,
    Domain,
    Holder,
    Namespace,
    NamespaceInfo,
    Record,
    Scope,
    Source,
    Span,
    Write,
)
from stepwell.store.file_lock import LockFile, Pause, Ticket
from stepwell.store.loop_event import LoopEvent
from stepwell.store.sqlite import SqliteCore, TooBulky
from stepwell.store.sqlite_lease import NamespaceAdmission, SqliteLease, lock_timeout, offset_of_namespace
from stepwell.store.sqlite_writer import GroupWriter

# What is read on the event loop: a page of 200 small records takes half a millisecond, a megabyte of text about one.
_INLINE_RECORDS = 200
_INLINE_CHARACTERS = 1_000_000
_POLL_SECONDS = 0.05
_PROMPT_SECONDS = 0.02
_SIGN_SECONDS = 0.02


class TimedLease(SqliteLease):
    """A lease that signs after a while; most are given back before."""

    __slots__ = ("_signing",)

    def __init__(self, namespace: Namespace, locks: LockFile, ticket: Ticket, holder: Holder) -> None:
        super().__init__(namespace, locks, ticket, holder)
        self._signing = asyncio.get_running_loop().call_later(_SIGN_SECONDS, self.sign)

    async def release(self) -> None:
        """Give the lock back; harmless when repeated."""
        self._signing.cancel()
        self.unlock()


class SqliteBackend:
    """Entries in one SQLite file. See `stepwell.store.backend.Backend` for the contract.

    Args:
        path: the database file, created on first use.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.core = SqliteCore(path)
        self._file = self.core.file
        self._writer = GroupWriter(self._file.transaction, "stepwell-entries")
        self._watchers: set[Callable[[], None]] = set()
        self._watchers_mutex = threading.Lock()

    async def text(self, ns: Namespace, key: str) -> str | None:
        if not self._file.ready:
            await self._open()
        return self.core.text(ns, key)

    async def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        await self._open()
        if len(keys) <= _INLINE_RECORDS:
            with suppress(TooBulky):
                return self.core.read(ns, keys, budget=_INLINE_CHARACTERS)
        return await asyncio.to_thread(self.core.read, ns, keys)

    async def bodies(self, ns: Namespace, keys: Sequence[str]) -> list[tuple[str, bytes]]:
        """The values of the keys that exist as UTF-8 JSON bytes, read off the event loop."""
        return await asyncio.to_thread(self.core.bodies, ns, keys)

    async def matching(self, ns: Namespace, span: Span, admits: Callable[[bytes], bool]) -> list[str]:
        """The keys of the span whose values, as UTF-8 JSON bytes, `admits` lets through; off the event loop."""
        return await asyncio.to_thread(self.core.matching, ns, span, admits)

    async def scan(
        self, ns: Namespace, span: Span, *, after: str | None = None, limit: int = 200, reverse: bool = False
    ) -> list[Record]:
        await self._open()
        if limit <= _INLINE_RECORDS:
            with suppress(TooBulky):
                return self.core.scan(ns, span, after=after, limit=limit, reverse=reverse, budget=_INLINE_CHARACTERS)
        return await asyncio.to_thread(self.core.scan, ns, span, after=after, limit=limit, reverse=reverse)

    async def _open(self) -> None:
        """Set the file up off the event loop: that syncs to disk, and may wait for another process."""
        if not self._file.ready:
            await asyncio.to_thread(self._file.open)

    async def commit(
        self,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        *,
        source: Source = NO_SOURCE,
        lease: Lease | None = None,
    ) -> Committed:
        await self._open()
        core = self.core

        def operation(connection: sqlite3.Connection) -> Committed:
            return core.apply(connection, ns, checks, writes, source)

        admission = NamespaceAdmission(self._file.locks(), ns, cast("SqliteLease | None", lease))
        committed = await asyncio.wrap_future(self._writer.submit(operation, admission))
        self._notify()
        return committed

    async def clear(self, ns: Namespace, *, source: Source = NO_SOURCE) -> int:
        await self._open()
        admission = NamespaceAdmission(self._file.locks(), ns, None)
        future = self._writer.submit(lambda connection: self.core.apply_clear(connection, ns), admission)
        count = await asyncio.wrap_future(future)
        self._notify()
        return count

    async def lock(self, ns: Namespace, *, timeout: float, holder: Holder) -> SqliteLease:
        await self._open()
        locks = self._file.locks()
        deadline = monotonic() + timeout
        turn = LoopEvent()
        ticket = locks.enqueue(offset_of_namespace(ns), turn.set)
        try:
            pause = Pause()
            first = True
            while not locks.try_take(ticket):
                left = deadline - monotonic()
                if left <= 0:
                    raise lock_timeout(ns, timeout, locks)  # noqa: TRY301  (leaves the line like every other failure)
                if not ticket.granted:
                    await turn.wait(left)  # our turn within this process is told to us
                elif first:
                    # Other processes have to be asked. The event loop's clock ticks in milliseconds, a thread's does
                    # not; but a long wait must not keep a thread.
                    first = False
                    await asyncio.to_thread(locks.take_from_others, ticket, min(left, _PROMPT_SECONDS))
                else:
                    await asyncio.sleep(min(left, pause.next()))
        except BaseException:
            locks.release(ticket)
            raise
        return TimedLease(ns, locks, ticket, holder)

    def watch(self, ns: Namespace, span: Span) -> AsyncGenerator[Change, None]:
        return self._watch(ns, span, self.core.revision(ns))

    async def _watch(self, ns: Namespace, span: Span, since: int) -> AsyncGenerator[Change, None]:
        changed = LoopEvent()
        with self._watchers_mutex:
            self._watchers.add(changed.set)
        try:
            while True:
                changed.clear()
                since, changes = self.core.changes(ns, since)
                for change in changes:
                    if change.key in span:
                        yield change
                # Writers of this process wake us; those of other processes are found by asking.
                await changed.wait(_POLL_SECONDS)
        finally:
            with self._watchers_mutex:
                self._watchers.discard(changed.set)

    def _notify(self) -> None:
        if self._watchers:
            with self._watchers_mutex:
                watchers = tuple(self._watchers)
            for wake in watchers:
                wake()

    async def namespaces(
        self,
        *,
        project_id: str | None = None,
        domain: Domain | None = None,
        scope: Scope | None = None,
        after: tuple[int, Namespace] | None = None,
        limit: int = 200,
    ) -> list[NamespaceInfo]:
        return await asyncio.to_thread(
            self.core.namespaces, project_id=project_id, domain=domain, scope=scope, after=after, limit=limit
        )

    async def close(self) -> None:
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self.core.close)  # folds the log into the file
