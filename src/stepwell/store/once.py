"""A change that is asked for more than once, and done once: its commit has an id that the database remembers."""

from collections.abc import AsyncGenerator, Sequence

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
from stepwell.store.postgres import PostgresBackend


class CommitOnce:
    """A backend for one change: its commit gets an id. See `stepwell.store.backend.Backend`.

    Args:
        backend: the database.
        commit_id: a UUID.
        repeat: true if the change may have been made before.
    """

    def __init__(self, backend: PostgresBackend, commit_id: str, *, repeat: bool) -> None:
        self._backend = backend
        self._commit_id = commit_id
        self._repeat = repeat

    async def is_done(self, ns: Namespace) -> bool:
        """True if the change was made before."""
        return self._repeat and await self._backend.is_committed(ns, self._commit_id)

    async def commit(
        self,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        *,
        source: Source = NO_SOURCE,
        lease: Lease | None = None,
    ) -> Committed:
        return await self._backend.commit(
            ns, checks, writes, source=source, lease=lease, commit_id=self._commit_id, repeat=self._repeat
        )

    async def text(self, ns: Namespace, key: str) -> str | None:
        return await self._backend.text(ns, key)

    async def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        return await self._backend.read(ns, keys)

    async def scan(
        self, ns: Namespace, span: Span, *, after: str | None = None, limit: int = 200, reverse: bool = False
    ) -> list[Record]:
        return await self._backend.scan(ns, span, after=after, limit=limit, reverse=reverse)

    async def lock(self, ns: Namespace, *, timeout: float, holder: Holder) -> Lease:
        return await self._backend.lock(ns, timeout=timeout, holder=holder)

    def watch(self, ns: Namespace, span: Span) -> AsyncGenerator[Change, None]:
        return self._backend.watch(ns, span)

    async def namespaces(
        self,
        *,
        project_id: str | None = None,
        domain: Domain | None = None,
        scope: Scope | None = None,
        after: tuple[int, Namespace] | None = None,
        limit: int = 200,
    ) -> list[NamespaceInfo]:
        return await self._backend.namespaces(
            project_id=project_id, domain=domain, scope=scope, after=after, limit=limit
        )

    async def clear(self, ns: Namespace, *, source: Source = NO_SOURCE) -> int:
        return await self._backend.clear(ns, source=source, commit_id=self._commit_id, repeat=self._repeat)

    async def close(self) -> None:
        """Nothing: the database stays open."""
