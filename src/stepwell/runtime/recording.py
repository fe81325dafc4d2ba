"""Getting a run's events into its journal: in order, in batches, without a gap."""

import asyncio
from collections.abc import Callable
from typing import Any

from stepwell.errors import StepwellError
from stepwell.store.journal import EventRow, Journal, RunRow

BATCH_SECONDS = 0.05


class Recording:
    """Writes what is added at the latest 50 ms later; one write at a time, so that no event overtakes another.

    Events whose write failed are kept and go first in the next one: the stream in the journal never has a gap.

    Args:
        run_id: the run.
        journal: where to.
        on_failure: called when a write failed; the run must stop.
    """

    def __init__(self, run_id: str, journal: Journal, on_failure: Callable[[BaseException], None]) -> None:
        self._run_id = run_id
        self._journal = journal
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._waiting: list[EventRow] = []
        self._added = 0
        self._durable = 0
        self._writing: asyncio.Future[None] | None = None
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, row: EventRow) -> None:
        """Take an event; it is written soon."""
        self._waiting.append(row)
        self._added += 1
        if self._timer is None and self._writing is None:
            self._timer = self._loop.call_later(BATCH_SECONDS, self._on_time)

    async def begin(self, row: RunRow) -> None:
        """Write the run itself with its first events.

        Raises:
            RunStateConflict: there is a run of that id already. StorageUnavailable: nothing was written.
        """
        events = self._take()
        await asyncio.wrap_future(self._journal.create(row, events))
        self._durable += len(events)

    async def flush(self) -> None:
        """Wait until everything added so far is durable.

        Raises:
            StorageUnavailable: the journal cannot be written.
        """
        if self._durable == self._added:
            return
        if self._writing is None:
            self._write()
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._waiters.append((self._added, waiter))
        await waiter

    async def write(self, changes: dict[str, Any]) -> None:
        """Write everything that waits together with changes of the run, in one transaction.

        Raises:
            StorageUnavailable: nothing of it was written.
        """
        while self._writing is not None:
            await asyncio.wait({self._writing})
        rows = self._take()
        try:
            await asyncio.wrap_future(self._journal.append(self._run_id, rows, changes))
        except BaseException:
            self._waiting = rows + self._waiting
            raise
        self._durable += len(rows)

    def _on_time(self) -> None:
        self._timer = None
        if self._waiting and self._writing is None:
            self._write()

    def _take(self) -> list[EventRow]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        return waiting

    def _write(self) -> None:
        rows = self._take()
        try:
            self._writing = asyncio.wrap_future(self._journal.append(self._run_id, rows))
        except StepwellError as error:  # the store is closed
            self._writing = self._loop.create_future()
            self._writing.set_exception(error)
        self._writing.add_done_callback(lambda done: self._written(rows, done))

    def _written(self, rows: list[EventRow], done: "asyncio.Future[None]") -> None:
        self._writing = None
        error = asyncio.CancelledError() if done.cancelled() else done.exception()
        if error is None:
            self._durable += len(rows)
        else:
            self._waiting = rows + self._waiting
        served, self._waiters = self._waiters, []
        for target, waiter in served:
            if waiter.done():
                continue
            if error is not None:
                waiter.set_exception(error)
            elif target <= self._durable:
                waiter.set_result(None)
            else:
                self._waiters.append((target, waiter))
        if error is not None:
            self._on_failure(error)
        elif self._waiters:
            self._write()
        elif self._waiting and self._timer is None:
            self._timer = self._loop.call_later(BATCH_SECONDS, self._on_time)
