"""Looking at runs, and acting on them from any process."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from stepwell.errors import InvalidArgument, InvalidCursor, RunNotFound, RunStateConflict
from stepwell.identifiers import now_micros
from stepwell.jsontext import encode
from stepwell.runtime.events import FINAL, Event
from stepwell.runtime.replay import history_of
from stepwell.runtime.report import Report, closing_of, report_of
from stepwell.store.file_lock import Ticket, offset_of
from stepwell.store.journal import EventRow, Journal, RunFilter, RunRow

if TYPE_CHECKING:
    from stepwell.runtime.host import Host

ENDED = frozenset({"completed", "failed", "cancelled"})
STATUSES = ("queued", "running", "waiting_input", "completed", "failed", "cancelled")
FOLLOW_SECONDS = 0.05


class Runs:
    """The runs of one project."""

    def __init__(self, host: "Host", project_id: str) -> None:
        self._host = host
        self._journal = host.journal(project_id)

    def row(self, run_id: str) -> RunRow:
        """A run's journal row.

        Raises:
            RunNotFound: no such run is stored here.
        """
        row = self._journal.get(run_id) if run_id.isascii() else None
        if row is None:
            raise RunNotFound(f"there is no run {run_id!r:.80} of this project", run_id=run_id)
        return row

    def get(self, run_id: str) -> Report:
        """A run's report; of a run that has not ended, what is known so far."""
        row = self.row(run_id)
        return report_of(row, interrupted=self._is_interrupted(row))

    def all_events(self, run_id: str) -> list[Event]:
        """Every event so far."""
        events: list[Event] = []
        while True:
            rows = self._journal.events(run_id, after=events[-1].seq if events else 0)
            if not rows:
                return events
            events += [Event.of(run_id, row) for row in rows]

    def list(
        self, which: RunFilter = RunFilter(), *, limit: int = 50, cursor: str | None = None  # noqa: B008
    ) -> tuple[list[tuple[Report, str]], str | None]:  # fmt: skip
        """A page of runs with their labels, newest first, and the cursor of the next page.

        Raises:
            InvalidArgument: an unknown status, or text with lone surrogates.
            InvalidCursor: not one that this call gave out.
        """
        if which.status is not None and which.status not in STATUSES:
            raise InvalidArgument(f"status {which.status!r:.40} is not one of {', '.join(STATUSES)}", argument="status")
        for name, wanted in which._asdict().items():
            if isinstance(wanted, str) and any("\ud800" <= character <= "\udfff" for character in wanted):
                raise InvalidArgument(f"{name} {wanted!r:.80} has a lone surrogate", argument=name)
        before = None if cursor is None else _open_cursor(cursor)
        rows = self._journal.list(which, before=before, limit=limit + 1)
        items = [(report_of(row, interrupted=self._is_interrupted(row)), row.label) for row in rows[:limit]]
        if len(rows) <= limit:
            return items, None
        position = json.dumps([rows[limit - 1].created_at, rows[limit - 1].id]).encode()
        return items, base64.urlsafe_b64encode(position).decode().rstrip("=")

    def count(self, which: RunFilter) -> int:
        """How many runs there are."""
        return self._journal.count(which)

    def turn(self, conversation_id: str, number: int) -> str | None:
        """The id of the run that was a conversation's turn of that number, counted from 1; None if there was none.

        A run that was deleted keeps its number, so that the others keep theirs.
        """
        if any("\ud800" <= character <= "\udfff" for character in conversation_id):
            return None
        return self._journal.turn(conversation_id, number)

    def was_deleted(self, run_id: str) -> bool:
        """True if there was a run of that id and it was deleted."""
        return run_id.isascii() and self._journal.was_deleted(run_id)

    async def events(self, run_id: str, *, after: int = 0, follow: bool = False) -> AsyncIterator[Event]:
        """A run's events behind sequence `after`; with `follow`, on to its end, live from any process."""
        self.row(run_id)
        while True:
            rows = self._journal.events(run_id, after=after)
            for row in rows:
                event = Event.of(run_id, row)
                yield event
                if event.type in FINAL:
                    return
            if rows:
                after = rows[-1].seq
            elif not follow:
                return
            else:
                row_now = self.row(run_id)
                if row_now.status in ENDED or self._has_no_process(row_now):
                    if not self._journal.events(run_id, after=after, limit=1):
                        return
                    continue
                await asyncio.sleep(FOLLOW_SECONDS)

    async def cancel(self, run_id: str, reason: str = "cancelled by a person") -> Report:
        """Ask a run to stop, whichever process executes it; a run whose process is gone is closed here.

        Raises:
            RunStateConflict: it has ended already.
        """
        row = self.row(run_id)
        if row.status in ENDED:
            raise RunStateConflict(f"the run {run_id} has ended: {row.status}", status=row.status)
        try:
            ticket = take_run(self._journal, run_id)
        except RunStateConflict:
            await asyncio.wrap_future(self._journal.append(run_id, (), {"cancel_requested": 1}))
            return self.get(run_id)
        try:
            if self.row(run_id).status not in ENDED:  # it may have ended just before the lock was free
                await self._close_dead(run_id, reason)
        finally:
            self._journal.locks().release(ticket)
        return self.get(run_id)

    async def _close_dead(self, run_id: str, reason: str) -> None:
        """Write the end of a run whose process is gone."""
        history = await asyncio.to_thread(lambda: history_of(self.all_events(run_id)))
        closing = closing_of(tokens=history.usage_total, nodes=history.counts)
        data = {"reason": reason, "tokens": closing["tokens"], "nodes": closing["nodes"]}
        now = now_micros()
        event = EventRow(history.last_seq + 1, now, "run.cancelled", encode(data))
        changes = {"status": "cancelled", "ended_at": now, "cancel_requested": 1, "report": encode(closing)}
        await asyncio.wrap_future(self._journal.append(run_id, (event,), changes))
        await asyncio.wrap_future(self._journal.approvals.withdraw(run_id))

    async def delete(self, run_id: str) -> int:
        """Delete a run, its events and its files; returns how many files there were.

        That there was a run of this id, in which conversation and when, stays known: so nobody takes another for it.

        Raises:
            RunStateConflict: a process is executing it.
        """
        self.row(run_id)
        try:
            ticket = take_run(self._journal, run_id)
        except RunStateConflict as conflict:
            raise RunStateConflict(conflict.message, hint=f"`stepwell runs cancel {run_id}` first") from None
        try:
            await asyncio.wrap_future(self._journal.delete(run_id))
            return await asyncio.to_thread(self._host.files.delete_run, run_id)
        finally:
            self._journal.locks().release(ticket)

    def _is_interrupted(self, row: RunRow) -> bool:
        """True if the run should be executing and no process holds its lock."""
        if row.status in ENDED or row.status in ("queued", "waiting_input"):
            return False
        return self._has_no_process(row)

    def _has_no_process(self, row: RunRow) -> bool:
        """True if no process holds the run's lock; one that waits for a person needs none."""
        return row.status != "queued" and self._journal.locks().is_free(offset_of(f"run {row.id}"))


def take_run(journal: Journal, run_id: str) -> Ticket:
    """The lock that says a process is executing the run; it dies with the process.

    Raises:
        RunStateConflict: a process has it, this one or another.
    """
    locks = journal.locks()
    ticket = locks.enqueue(offset_of(f"run {run_id}"), lambda: None)
    if not ticket.granted or not locks.try_take(ticket):
        locks.release(ticket)
        raise RunStateConflict(f"the run {run_id} is being executed by a process", run_id=run_id)
    return ticket


def _open_cursor(cursor: str) -> tuple[int, str]:
    try:
        created_at, run_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        if not isinstance(created_at, int) or not isinstance(run_id, str):
            raise ValueError("other types")  # noqa: TRY301, TRY004
    except (ValueError, TypeError):
        raise InvalidCursor(f"{cursor!r:.60} is not a cursor of this list") from None
    return created_at, run_id
