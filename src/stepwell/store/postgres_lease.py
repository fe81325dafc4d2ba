"""Held locks of the PostgreSQL backend."""

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from stepwell.identifiers import new_id
from stepwell.store.entries import Namespace
from stepwell.store.lock_line import Turn
from stepwell.store.postgres_lanes import Row

if TYPE_CHECKING:
    from stepwell.store.postgres import PostgresBackend

LEASE_SECONDS = 30.0  # a lease ends with its process at once; this ends one that could not be given back


class PostgresLease:
    """A held lock of the PostgreSQL backend."""

    __slots__ = ("_backend", "_beat", "_releasing", "_turn", "id", "namespace", "namespace_id", "pending")

    def __init__(self, backend: "PostgresBackend", namespace: Namespace, turn: Turn) -> None:
        self._backend = backend
        self._turn = turn
        self._beat: asyncio.TimerHandle | None = None
        self._releasing: asyncio.Task[None] | None = None
        self.namespace = namespace
        self.namespace_id = 0
        self.id = new_id()
        self.pending: set[asyncio.Future[Row]] = set()

    def beat(self) -> None:
        """Keep the lease alive until it is released."""
        self._beat = asyncio.get_running_loop().call_later(LEASE_SECONDS / 3, self._renew)

    def _renew(self) -> None:
        self._backend.keep(asyncio.create_task(self._backend.renew(self.namespace, self.id, LEASE_SECONDS)))
        self.beat()

    async def release(self) -> None:
        """Give the lock back; harmless when repeated. A cancelled caller's lock is given back all the same."""
        if self._releasing is None:
            if self._beat is not None:
                self._beat.cancel()
            self._releasing = asyncio.create_task(self._backend.give_back(self, self._turn))
            self._backend.keep(self._releasing)
        await asyncio.shield(self._releasing)


class LeaseToken(NamedTuple):
    """A lease held by somebody else's handle: enough to commit with it, or to give it back."""

    namespace: Namespace
    id: str
