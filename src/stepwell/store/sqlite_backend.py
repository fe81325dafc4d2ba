"""The SQLite backend's asynchronous face.

Point reads run inline: they take microseconds and never wait for a writer. Writes go through the file's writer
thread, where those that wait together share one fsync. Bulk reads leave the event loop.
"""

import asyncio
import json
import os
import sqlite3
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import suppress
from time import monotonic
from typing import cast

from stepwell.errors import LockTimeout
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
from stepwell.store.file_lock import LockFile, Pause, Ticket, offset_of
from stepwell.store.sqlite import SqliteCore
from stepwell.store.sqlite_lease import NamespaceAdmission, SqliteLease
from stepwell.store.sqlite_writer import GroupWriter

_INLINE_KEYS = 16
_INLINE_ROWS = 200
_POLL_SECONDS = 0.05


class NamedLease(SqliteLease):
    """A held lock with a side file that tells waiters who holds it."""

    __slots__ = ("_sign",)

    def __init__(self, namespace: Namespace, locks: LockFile, ticket: Ticket, holder: Holder) -> None:
        super().__init__(namespace, locks, ticket)
        self._sign = _sign_of(locks, ticket.offset)
        with suppress(OSError):
            descriptor = os.open(self._sign, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                json.dump(holder, file)

    def unlock(self) -> None:
        """Give the lock back; harmless when repeated."""
        if self.locks.is_holder(self.ticket):
            with suppress(OSError):
                os.unlink(self._sign)
        super().unlock()


class SqliteBackend:
    """Entries in one SQLite file. See `stepwell.store.backend.Backend` for the contract.

    Args:
        path: the database file, created on first use.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.core = SqliteCore(path)
        self._writer = GroupWriter(self.core.file.transaction, "stepwell-entries")
        self._watchers: set[Callable[[], None]] = set()
        self._watchers_mutex = threading.Lock()

    async def text(self, ns: Namespace, key: str) -> str | None:
        return self.core.text(ns, key)

    async def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        if len(keys) <= _INLINE_KEYS:
            return self.core.read(ns, keys)
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
        if limit <= _INLINE_ROWS:
            return self.core.scan(ns, span, after=after, limit=limit, reverse=reverse)
        return await asyncio.to_thread(self.core.scan, ns, span, after=after, limit=limit, reverse=reverse)

    async def commit(
        self,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        *,
        source: Source = NO_SOURCE,
        lease: Lease | None = None,
    ) -> Committed:
        core = self.core

        def operation(connection: sqlite3.Connection) -> Committed:
            return core.apply(connection, ns, checks, writes, source)

        future = self._writer.submit(
            operation, NamespaceAdmission(core.file.locks(), ns, cast("SqliteLease | None", lease))
        )
        committed = await asyncio.wrap_future(future)
        self._notify()
        return committed

    async def clear(self, ns: Namespace, *, source: Source = NO_SOURCE) -> int:
        admission = NamespaceAdmission(self.core.file.locks(), ns, None)
        future = self._writer.submit(lambda connection: self.core.apply_clear(connection, ns), admission)
        count = await asyncio.wrap_future(future)
        self._notify()
        return count

    async def lock(self, ns: Namespace, *, timeout: float, holder: Holder) -> NamedLease:
        locks = self.core.file.locks()
        loop = asyncio.get_running_loop()
        deadline = monotonic() + timeout
        granted = asyncio.Event()
        ticket = locks.enqueue(offset_of(str(ns)), lambda: _wake(loop, granted))
        try:
            if not ticket.granted:
                async with asyncio.timeout(max(timeout, 0)):
                    await granted.wait()
            pause = Pause()
            while not locks.try_take(ticket):
                if monotonic() >= deadline:
                    raise TimeoutError  # noqa: TRY301  (one exit for both kinds of waiting)
                await asyncio.sleep(pause.next())
        except TimeoutError:
            locks.release(ticket)
            raise _lock_timeout(ns, timeout, _read_sign(locks, ticket.offset)) from None
        except BaseException:
            locks.release(ticket)
            raise
        return NamedLease(ns, locks, ticket, holder)

    def watch(self, ns: Namespace, span: Span) -> AsyncGenerator[Change, None]:
        return self._watch(ns, span, self.core.revision(ns))

    async def _watch(self, ns: Namespace, span: Span, since: int) -> AsyncGenerator[Change, None]:
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            _wake(loop, changed)

        with self._watchers_mutex:
            self._watchers.add(wake)
        try:
            while True:
                changed.clear()
                since, changes = self.core.changes(ns, since)
                for change in changes:
                    if change.key in span:
                        yield change
                # Writers of this process wake us; those of other processes are found by asking.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_SECONDS):
                        await changed.wait()
        finally:
            with self._watchers_mutex:
                self._watchers.discard(wake)

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
        self.core.close()


def _wake(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
        loop.call_soon_threadsafe(event.set)


def _lock_timeout(ns: Namespace, timeout: float, holder: Holder | None) -> LockTimeout:
    return LockTimeout(
        f"the lock of {ns} was not free within {timeout:g} s: held by {holder or 'another writer'}",
        holder=holder._asdict() if holder else None,
    )


def _sign_of(locks: LockFile, offset: int) -> str:
    return f"{locks.path}.{offset:x}"


def _read_sign(locks: LockFile, offset: int) -> Holder | None:
    try:
        with open(_sign_of(locks, offset), encoding="utf-8") as file:
            return Holder(*json.load(file))
    except (OSError, ValueError, TypeError):
        return None
