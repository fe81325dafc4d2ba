"""A change that is asked for more than once, and done once: its commit has an id that the database remembers."""

from collections.abc import Sequence

from stepwell.store.backend import Backend, Lease
from stepwell.store.entries import NO_SOURCE, Check, Committed, Namespace, Source, Write
from stepwell.store.forwarding import ForwardingBackend
from stepwell.store.postgres import PostgresBackend


class CommitOnce(ForwardingBackend):
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

    def _target(self) -> Backend:
        return self._backend

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

    async def clear(self, ns: Namespace, *, source: Source = NO_SOURCE) -> int:
        return await self._backend.clear(ns, source=source, commit_id=self._commit_id, repeat=self._repeat)
