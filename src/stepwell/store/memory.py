"""The memory backend: for tests and scratch runs. Same contract, nothing kept."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from time import monotonic

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

_FOREIGN_LOCK_WAIT = 30.0


class _Entries:
    """One namespace's entries."""

    __slots__ = ("holder", "lease", "records", "revision", "tombstones", "updated_at")

    def __init__(self) -> None:
        self.records: dict[str, Record] = {}
        self.tombstones: dict[str, int] = {}
        self.revision = 0
        self.updated_at = 0
        self.lease: MemoryLease | None = None
        self.holder: Holder | None = None


class MemoryLease:
    """A held lock of the memory backend."""

    def __init__(self, backend: "MemoryBackend", namespace: Namespace) -> None:
        self._backend = backend
        self.namespace = namespace

    async def release(self) -> None:
        """Give the lock back."""
        self._backend._release(self)  # noqa: SLF001  (the lease is the backend's own other half)


class MemoryBackend:
    """Entries in a dict. See `stepwell.store.backend.Backend` for the contract."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._namespaces: dict[Namespace, _Entries] = {}
        self._watchers: set[Callable[[Namespace], None]] = set()
        self._closed = False

    def _entries(self, ns: Namespace) -> _Entries:
        if self._closed:
            raise StorageUnavailable("the memory store is closed")
        entries = self._namespaces.get(ns)
        if entries is None:
            entries = self._namespaces.setdefault(ns, _Entries())
        return entries

    async def text(self, ns: Namespace, key: str) -> str | None:
        record = self._entries(ns).records.get(key)
        return None if record is None else record.text

    async def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        with self._mutex:
            records = self._entries(ns).records
            return {key: records[key] for key in keys if key in records}

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
        deadline = monotonic() + _FOREIGN_LOCK_WAIT
        while True:
            with self._mutex:
                entries = self._entries(ns)
                if entries.lease is lease:
                    committed = self._apply(entries, checks, writes, source)
                    break
                if lease is not None or monotonic() > deadline:
                    raise LockTimeout(f"the lock of {ns} is held by {entries.holder}")
            await asyncio.sleep(0.002)
        if writes:
            self._notify(ns)
        return committed

    @staticmethod
    def _apply(entries: _Entries, checks: Sequence[Check], writes: Sequence[Write], source: Source) -> Committed:
        records = entries.records
        current = {key: records[key].revision if key in records else 0 for key, _ in checks}
        failed = [key for key, revision in checks if current[key] != revision]
        if failed:
            raise Conflict(
                f"changed since it was read: {failed[0]!r}",
                keys=failed,
                current={k: current[k] for k in failed},
            )
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
        return Committed(entries.revision, now, created, removed)

    async def lock(self, ns: Namespace, *, timeout: float, holder: Holder) -> MemoryLease:
        lease = MemoryLease(self, ns)
        deadline = monotonic() + timeout
        while True:
            with self._mutex:
                entries = self._entries(ns)
                if entries.lease is None:
                    entries.lease, entries.holder = lease, holder
                    return lease
                current = entries.holder
            if monotonic() >= deadline:
                raise LockTimeout(
                    f"the lock of {ns} was not free within {timeout:g} s: held by {current}",
                    holder=current._asdict() if current else None,
                )
            await asyncio.sleep(0.002)

    def _release(self, lease: MemoryLease) -> None:
        with self._mutex:
            entries = self._namespaces.get(lease.namespace)
            if entries is not None and entries.lease is lease:
                entries.lease = entries.holder = None

    async def watch(self, ns: Namespace, span: Span) -> AsyncGenerator[Change, None]:
        seen = self._entries(ns).revision
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake(touched: Namespace) -> None:
            if touched == ns:
                loop.call_soon_threadsafe(changed.set)

        self._watchers.add(wake)
        try:
            while True:
                changed.clear()
                with self._mutex:
                    entries = self._entries(ns)
                    news = [Change(r.key, r.revision, False) for r in entries.records.values() if r.revision > seen]
                    news += [Change(k, rev, True) for k, rev in entries.tombstones.items() if rev > seen]
                    seen = entries.revision
                for change in sorted(news, key=lambda change: (change.revision, change.key)):
                    if change.key in span:
                        yield change
                await changed.wait()
        finally:
            self._watchers.discard(wake)

    def _notify(self, ns: Namespace) -> None:
        for wake in tuple(self._watchers):
            wake(ns)

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

    async def clear(self, ns: Namespace, *, source: Source = NO_SOURCE) -> int:
        keys = list(self._entries(ns).records)
        committed = await self.commit(ns, (), [Write(key, None) for key in keys], source=source)
        return len(committed.removed)

    async def close(self) -> None:
        self._closed = True


def _newest_first(updated_at: int, ns: Namespace) -> tuple[object, ...]:
    return (-updated_at, *("" if part is None else str(part) for part in ns))
