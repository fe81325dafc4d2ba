"""Connections to PostgreSQL for one event loop: a pool, retries of what may be repeated, and errors in our terms."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Self, TypeVar

import psycopg
from psycopg import errors
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from stepwell.errors import InvalidArgument, StepwellError, StorageUnavailable

T = TypeVar("T")
Connection = psycopg.AsyncConnection[tuple[Any, ...]]

RETRY_SECONDS = 15.0  # a PostgreSQL that is restarted comes back within this
_WAIT_SECONDS = 10.0
_REFRESH_SECONDS = 1.0
_CONNECTING_SECONDS = 3.0  # closing a pool waits for it
# Prepared statements outlive the moment when a table was small: never settle for a sequential scan or a sort.
_SETTINGS = "SET enable_seqscan = off; SET enable_sort = off; SET jit = off"


class Connections:
    """A pool of connections, made on first use.

    Args:
        dsn: where PostgreSQL is.
        size: at most so many connections.
    """

    def __init__(self, dsn: str, size: int) -> None:
        self._pool: AsyncConnectionPool[Connection] = AsyncConnectionPool(
            dsn,
            min_size=1,
            max_size=size,
            open=False,
            timeout=_WAIT_SECONDS,
            max_idle=120,
            reconnect_timeout=RETRY_SECONDS,
            kwargs={"autocommit": True, "prepare_threshold": 2, "application_name": "stepwell"},
            connection_class=_Connection,
            name="stepwell",
        )
        self._opening: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self.loop = asyncio.get_running_loop()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection in autocommit mode.

        Raises:
            StorageUnavailable: none became free in time, or PostgreSQL cannot be reached.
        """
        if self._opening is None or (self._opening.done() and self._opening.cancelled()):
            self._opening = asyncio.create_task(self._pool.open())
        if not self._opening.done():
            await asyncio.shield(self._opening)
        async with self._pool.connection() as connection:
            yield connection

    async def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """The rows of a statement that may be repeated: it is, when the connection breaks.

        Raises:
            StorageUnavailable
        """

        async def run(connection: Connection) -> list[tuple[Any, ...]]:
            cursor = await connection.execute(statement, values)
            # `description` would make an object a column
            return await cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []

        return await self.repeated(run)

    async def change(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement that may be repeated, for the number of rows it changed."""

        async def run(connection: Connection) -> int:
            return (await connection.execute(statement, values)).rowcount

        return await self.repeated(run)

    async def repeated(self, work: Callable[[Connection], Awaitable[T]]) -> T:
        """Do work that may be done twice; again when the connection breaks, until it has been tried long enough."""
        deadline = monotonic() + RETRY_SECONDS
        pause = 0.02
        while True:
            try:
                async with self.connection() as connection:
                    return await work(connection)
            except psycopg.Error as error:
                if not is_lost(error) or monotonic() > deadline:
                    raise translated(error) from error
            await self.refresh()
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)

    async def refresh(self) -> None:
        """After a connection broke: replace idle ones that broke with it, so that not each has to fail in use."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._pool.check())
            self._refreshing.add_done_callback(lambda task: task.cancelled() or task.exception())
        await asyncio.wait({self._refreshing}, timeout=_REFRESH_SECONDS)

    async def close(self) -> None:
        """Close every connection."""
        await self._pool.close()


class _Connection(psycopg.AsyncConnection[tuple[Any, ...]]):
    """A connection that is tried again quickly: the pool's own pauses grow to many seconds."""

    @classmethod
    async def connect(cls, conninfo: str = "", **options: Any) -> Self:
        deadline = monotonic() + _CONNECTING_SECONDS
        while True:
            try:
                connection = await super().connect(conninfo, **options)
                try:
                    await connection.execute(_SETTINGS)
                except BaseException:
                    await connection.close()
                    raise
            except psycopg.Error as error:
                if not is_lost(error) or monotonic() > deadline:
                    raise
            else:
                return connection
            await asyncio.sleep(0.1)


def is_lost(error: BaseException) -> bool:
    """True if the connection broke, so that nobody knows whether the statement was done."""
    if isinstance(error, errors.AdminShutdown | errors.CrashShutdown | errors.CannotConnectNow | PoolTimeout):
        return True
    if isinstance(error, psycopg.OperationalError):
        return error.sqlstate is None or error.sqlstate.startswith("08")
    return isinstance(error, psycopg.InterfaceError)


def translated(error: psycopg.Error) -> StepwellError:
    """The error in our terms. Texts of the driver may hold the connection string: they are not passed on."""
    if isinstance(error, PoolTimeout):
        return StorageUnavailable(
            f"no connection to PostgreSQL became free within {_WAIT_SECONDS:g} s",
            hint="try again; if it lasts, see whether PostgreSQL runs and allows more connections",
        )
    state = error.sqlstate
    if isinstance(error, psycopg.DataError) and state is None:  # refused by the driver, before it was sent
        return InvalidArgument("a text has a NUL character, which PostgreSQL cannot store")
    if state is None or state.startswith(("08", "57")):
        return StorageUnavailable("PostgreSQL cannot be reached", hint="see whether it runs, then try again")
    reason = error.diag.message_primary or type(error).__name__
    return StorageUnavailable(f"PostgreSQL refused: {reason} ({state})", hint="see PostgreSQL's log", sqlstate=state)
