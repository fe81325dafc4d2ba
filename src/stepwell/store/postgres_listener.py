"""One connection that stays: it hears of commits, and its advisory lock shows that this process lives."""

import asyncio
import random
from typing import Any

import psycopg

from stepwell.store import postgres_statements as sql
from stepwell.store.postgres_connections import is_lost, translated

_PAUSE_SECONDS = 0.2


class Listener:
    """Wakes watchers of namespaces that were written; keeps the leases of this process alive.

    Args:
        dsn: a direct connection, not one through a pooler that shares sessions.
    """

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self._connecting = asyncio.Lock()
        self._watchers: dict[int, set[asyncio.Event]] = {}
        self.presence = random.randrange(1, 2**31)

    async def ready(self) -> None:
        """Connect, unless that is done.

        Raises:
            StorageUnavailable
        """
        async with self._connecting:
            if self._task is None or self._task.done():
                try:
                    await self._connect()
                except psycopg.Error as error:
                    raise translated(error) from error
                self._task = asyncio.create_task(self._run(), name="stepwell-listener")

    def add(self, namespace_id: int, event: asyncio.Event) -> None:
        """Set `event` at every commit on that namespace, and whenever some may have been missed."""
        self._watchers.setdefault(namespace_id, set()).add(event)

    def discard(self, namespace_id: int, event: asyncio.Event) -> None:
        """Undo `add`."""
        events = self._watchers.get(namespace_id, set())
        events.discard(event)
        if not events:
            self._watchers.pop(namespace_id, None)

    def wake_all(self) -> None:
        """Let every watcher look."""
        for events in self._watchers.values():
            for event in events:
                event.set()

    async def close(self) -> None:
        """Hang up: leases of this process end."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    async def _connect(self) -> None:
        connection = await psycopg.AsyncConnection.connect(
            self._dsn, autocommit=True, application_name="stepwell listener", keepalives_idle=30, keepalives_interval=10
        )
        try:
            await connection.execute(sql.BE_PRESENT, (self.presence,))
            await connection.execute(sql.LISTEN)
        except BaseException:
            await connection.close()
            raise
        self._connection = connection

    async def _run(self) -> None:
        while True:
            connection = self._connection
            if connection is not None:
                try:
                    async for notice in connection.notifies():
                        for event in self._watchers.get(int(notice.payload), ()):
                            event.set()
                except psycopg.Error as error:
                    if not is_lost(error):
                        raise
                await connection.close()
            try:
                await self._connect()
            except psycopg.Error:
                self._connection = None
                await asyncio.sleep(_PAUSE_SECONDS)
            self.wake_all()
