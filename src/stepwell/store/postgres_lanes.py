"""Commits on their way: those of one namespace that wait together share one transaction, and so one flush to disk."""

import asyncio
from collections import deque
from time import monotonic
from typing import Any, NamedTuple

import psycopg
from psycopg.errors import UniqueViolation

from stepwell.errors import InvalidArgument
from stepwell.store.entries import Namespace
from stepwell.store.postgres_connections import RETRY_SECONDS, Connection, Connections, is_lost, translated

_BATCH = 64
_BATCH_BYTES = 8_000_000

Row = tuple[Any, ...]


class Order(NamedTuple):
    """A commit that waits: the statement, its values (with a `repeat` flag in the third place), its weight in bytes."""

    statement: str
    values: list[Any]
    weight: int
    done: "asyncio.Future[Row]"


class Lanes:
    """One lane a namespace; a lane runs its orders in the order they came."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._waiting: dict[Namespace, deque[Order]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def submit(self, ns: Namespace, statement: str, values: list[Any], weight: int) -> "asyncio.Future[Row]":
        """Run a commit statement exactly once. The answer comes whether or not the caller still waits for it."""
        order = Order(statement, values, weight, asyncio.get_running_loop().create_future())
        lane = self._waiting.get(ns)
        if lane is not None:
            lane.append(order)
        else:
            self._waiting[ns] = deque((order,))
            task = asyncio.create_task(self._run(ns))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return order.done

    async def drain(self) -> None:
        """Wait until everything submitted is over."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, ns: Namespace) -> None:
        lane = self._waiting[ns]
        batch: list[Order] = []
        try:
            while lane:
                batch = [lane.popleft()]
                weight = batch[0].weight
                while lane and len(batch) < _BATCH and weight + lane[0].weight <= _BATCH_BYTES:
                    batch.append(lane.popleft())
                    weight += batch[-1].weight
                await self._together(batch)
                batch = []
        finally:
            del self._waiting[ns]
            for order in (*batch, *lane):
                order.done.cancel()

    async def _together(self, batch: list[Order]) -> None:
        if len(batch) > 1:
            try:
                async with self._connections.connection() as connection, connection.pipeline():
                    async with connection.transaction():
                        cursors = [await connection.execute(order.statement, order.values) for order in batch]
                    rows = [await cursor.fetchone() for cursor in cursors]
            except psycopg.Error as error:  # each is tried alone, and then gets its own answer
                if is_lost(error):
                    for order in batch:
                        order.values[2] = True
                    await self._connections.refresh()
            else:
                for order, row in zip(batch, rows, strict=True):
                    _answer(order, row or ())
                return
        for order in batch:
            await self._alone(order)

    async def _alone(self, order: Order) -> None:
        deadline = monotonic() + RETRY_SECONDS
        pause = 0.02
        while True:
            try:
                async with self._connections.connection() as connection:
                    _answer(order, await _one(connection, order))
                    return
            except UniqueViolation:
                if order.values[2]:  # not in this namespace's log either
                    if not order.done.done():
                        order.done.set_exception(_taken())
                    return
            except psycopg.Error as error:
                if not is_lost(error) or monotonic() > deadline:
                    if not order.done.done():
                        order.done.set_exception(translated(error))
                    return
            # Whether it (or an earlier sending of it) landed is not known: the log of commits knows, and tells.
            order.values[2] = True
            await self._connections.refresh()
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)


async def _one(connection: Connection, order: Order) -> Row:
    cursor = await connection.execute(order.statement, order.values)
    return await cursor.fetchone() or ()


def _taken() -> InvalidArgument:
    return InvalidArgument(
        "the commit id belongs to a commit elsewhere", hint="make a new UUID for each commit", argument="commit_id"
    )


def _answer(order: Order, row: Row) -> None:
    if not order.done.done():
        order.done.set_result(row)
