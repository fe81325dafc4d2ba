"""The memory backend: for tests and scratch runs. Same contract, nothing kept."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence

from stepwell.errors import Conflict, LockTimeout, StorageUnavailable
from stepwell.identifiers import now_micros
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
from stepwell.store.lock_line import Line, Turn
from stepwell.store.loop_event import LoopEvent

_FOREIGN_LOCK_SECONDS = 30.0
_DELETIONS_KEPT = 10_000  # commits, for watchers that come late


class _Entries:
    """One namespace's entries, and the line of those who want its lock."""

    __slots__ = ("holder", "lease", "line", "records", "revision", "tombstones", "updated_at")

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.tombstones: dict[str, int] = {}  # oldest first
        self.revision = 0
        self.updated_at = 0
        self.line = Line()
        self.lease: MemoryLease | None = None
        self.holder: Holder | None = None


class MemoryLease:
    """A held lock of the memory backend."""

    __slots__ = ("_backend", "_turn", "namespace")

    def __init__(self, backend: "MemoryBackend", namespace: Namespace, turn: Turn) -> None:
        self._backend = backend
        self._turn = turn
        self.namespace = namespace

    async def release(self) -> None:
        """Give the lock back; harmless when repeated."""
        self._backend._release(self, self._turn)  # noqa: SLF001  (the lease is the backend's own other half)


class MemoryBackend:
    """Entries in a dict. See `stepwell.store.backend.Backend` for the contract."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._namespaces: dict[Namespace, _Entries] = {}
        self._watchers: set[Callable[[], None]] = set()
        self._closed = False

    async def text(self, ns: Namespace, key: str) -> str | None:
        record = self._entries(ns).records.get(key)
        return None if record is None else record.text

    async def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        with self._mutex:
            records = self._entries(ns).records
            return {key: records[key] for key in keys if key in records}

    def load(self, ns: Namespace, records: Sequence[Record]) -> None:
        """Take entries over as they are, with revisions and times; those that are here already stay."""
        with self._mutex:
            entries = self._entries(ns)
            for record in records:
                entries.records.setdefault(record.key, record)
                entries.revision = max(entries.revision, record.revision)

    def is_known(self, ns: Namespace, key: str) -> bool:
        """True if the key is here, or was and has been removed."""
        with self._mutex:
            entries = self._entries(ns)
            return key in entries.records or key in entries.tombstones

    async def scan(
        self, ns: Namespace, span: Span, *, after: str | None = None, limit: int = 200, reverse: bool = False
    ) -> list[Record]:
        with self._mutex:
            records = self._entries(ns).records
            keys = sorted((key for key in records if key in span), reverse=reverse)
            if after is not None:
                keys = [key for key in keys if (key < after if reverse else key > after)]
            return [records[key] for key in keys[:limit]]

    async def commit(
        self,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        *,
        source: Source = NO_SOURCE,
        lease: Lease | None = None,
    ) -> Committed:
        return await self._change(ns, lease, lambda entries: _apply(entries, checks, writes, source))

    async def clear(self, ns: Namespace, *, source: Source = NO_SOURCE) -> int:
        def apply(entries: _Entries) -> Committed:
            return _apply(entries, (), [Write(key, None) for key in entries.records], source)

        return len((await self._change(ns, None, apply)).removed)

    async def _change(self, ns: Namespace, lease: Lease | None, apply: Callable[[_Entries], Committed]) -> Committed:
        """Run `apply` as soon as nobody else holds the namespace's lock."""
        await asyncio.sleep(0)  # like every backend that does real work, let others run
        entries = self._entries(ns)
        if lease is not None:
            with self._mutex:
                if entries.lease is not lease:
                    raise LockTimeout(f"the lock of {ns} was lost before the commit")
                committed = apply(entries)
        else:
            turn = await self._turn(ns, _FOREIGN_LOCK_SECONDS, shared=True)
            with self._mutex:
                try:
                    committed = apply(entries)
                finally:
                    entries.line.leave(turn)
        for wake in tuple(self._watchers):
            wake()
        return committed

    async def lock(self, ns: Namespace, *, timeout: float, holder: Holder) -> MemoryLease:
        turn = await self._turn(ns, timeout, shared=False)
        lease = MemoryLease(self, ns, turn)
        entries = self._entries(ns)
        entries.lease, entries.holder = lease, holder
        return lease

    async def _turn(self, ns: Namespace, timeout: float, *, shared: bool) -> Turn:
        """Wait in the namespace's line until it is our turn."""
        entries = self._entries(ns)
        ready = LoopEvent()
        turn = Turn(ready.set, shared=shared)
        try:
            with self._mutex:
                entries.line.join(turn)
            if not turn.granted and not await ready.wait(timeout):
                holder = entries.holder
                raise LockTimeout(  # noqa: TRY301  (leaves the line like every other failure)
                    f"the lock of {ns} was not free within {timeout:g} s: held by {holder or 'another writer'}",
                    holder=holder._asdict() if holder else None,
                    seconds=timeout,
                )
            self._entries(ns)  # refuses when the backend was closed meanwhile
        except BaseException:
            with self._mutex:
                entries.line.leave(turn)
            raise
        return turn

    def _release(self, lease: MemoryLease, turn: Turn) -> None:
        with self._mutex:
            entries = self._namespaces[lease.namespace]
            if entries.lease is lease:
                entries.lease = entries.holder = None
                entries.line.leave(turn)

    def watch(self, ns: Namespace, span: Span) -> AsyncGenerator[Change, None]:
        return self._watch(ns, span, self._entries(ns).revision)

    async def _watch(self, ns: Namespace, span: Span, since: int) -> AsyncGenerator[Change, None]:
        changed = LoopEvent()
        self._watchers.add(changed.set)
        try:
            while True:
                changed.clear()
                with self._mutex:
                    entries = self._entries(ns)
                    news = [Change(r.key, r.revision, False) for r in entries.records.values() if r.revision > since]
                    news += [Change(k, number, True) for k, number in entries.tombstones.items() if number > since]
                    since = entries.revision
                for change in sorted(news, key=lambda change: (change.revision, change.key)):
                    if change.key in span:
                        yield change
                await changed.wait(None)
        finally:
            self._watchers.discard(changed.set)

    async def namespaces(
        self,
        *,
        project_id: str | None = None,
        domain: Domain | None = None,
        scope: Scope | None = None,
        after: tuple[int, Namespace] | None = None,
        limit: int = 200,
    ) -> list[NamespaceInfo]:
        with self._mutex:
            self._check_open()
            found = [
                NamespaceInfo(ns, entries.revision, entries.updated_at, len(entries.records))
                for ns, entries in self._namespaces.items()
                if entries.records
                and (project_id is None or ns.project_id == project_id)
                and (domain is None or ns.domain == domain)
                and (scope is None or ns.scope == scope)
            ]
        found.sort(key=lambda info: _newest_first(info.updated_at, info.namespace))
        if after is not None:
            found = [info for info in found if _newest_first(info.updated_at, info.namespace) > _newest_first(*after)]
        return found[:limit]

    async def close(self) -> None:
        self._closed = True
        for wake in tuple(self._watchers):
            wake()

    def _entries(self, ns: Namespace) -> _Entries:
        self._check_open()
        entries = self._namespaces.get(ns)
        return self._namespaces.setdefault(ns, _Entries()) if entries is None else entries

    def _check_open(self) -> None:
        if self._closed:
            raise StorageUnavailable("the memory store is closed")


def _apply(entries: _Entries, checks: Sequence[Check], writes: Sequence[Write], source: Source) -> Committed:
    records = entries.records
    current = {key: records[key].revision if key in records else 0 for key, _ in checks}
    failed = {key: current[key] for key, revision in checks if current[key] != revision}
    if failed:
        raise Conflict(f"changed since it was read: {next(iter(failed))!r}", keys=list(failed), current=failed)
    removed = frozenset(key for key, text in writes if text is None and key in records)
    if not removed and all(text is None for _, text in writes):
        return Committed(entries.revision, entries.updated_at, {}, removed)
    entries.revision += 1
    entries.updated_at = now = now_micros()
    created = {}
    for key, text in writes:
        if text is not None:
            created[key] = records[key].created_at if key in records else now
            records[key] = Record(key, text, entries.revision, created[key], now, source)
            entries.tombstones.pop(key, None)
        elif key in removed:
            del records[key]
            entries.tombstones[key] = entries.revision
    while entries.tombstones:
        key, number = next(iter(entries.tombstones.items()))
        if number > entries.revision - _DELETIONS_KEPT:
            break
        del entries.tombstones[key]
    return Committed(entries.revision, now, created, removed)


def _newest_first(updated_at: int, ns: Namespace) -> tuple[object, ...]:
    return (-updated_at, *("" if part is None else str(part) for part in ns))
