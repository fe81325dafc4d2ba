"""The seam of run journals: rows of runs and their ordered events."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol

from stepwell.store.approvals import ApprovalStore
from stepwell.store.file_lock import LockFile


class RunRow(NamedTuple):
    """A run as the journal keeps it. Times are microseconds; JSON columns are JSON texts."""

    id: str
    project_id: str
    entrypoint: str
    conversation_id: str | None
    status: str
    created_at: int
    started_at: int | None
    ended_at: int | None
    input: str
    label: str
    report: str | None
    cancel_requested: int


class EventRow(NamedTuple):
    """One event: `seq` counts from 1 without gaps within its run; `data` is a JSON text."""

    seq: int
    at: int
    type: str
    data: str


class RunFilter(NamedTuple):
    """Which runs to list; None means any. `text` is looked for in the label and the ids."""

    status: str | None = None
    entrypoint: str | None = None
    conversation_id: str | None = None
    text: str | None = None


class Journal(Protocol):
    """The journal of one project's runs. Reads are brief; writes resolve when durable."""

    @property
    def approvals(self) -> ApprovalStore:
        """What the runs ask people for."""
        ...

    def locks(self) -> LockFile:
        """Locks that say which runs have a living process."""
        ...

    def create(self, row: RunRow, events: Sequence[EventRow]) -> "Future[None]":
        """Insert a run with its first events; RunStateConflict if there is one of its id."""
        ...

    def append(self, run_id: str, events: Sequence[EventRow], changes: dict[str, Any] | None = None) -> "Future[None]":
        """Add events, and change columns of the run, in one transaction."""
        ...

    def get(self, run_id: str) -> RunRow | None:
        """A run by id."""
        ...

    def is_cancel_requested(self, run_id: str) -> bool:
        """True if somebody asked for the run to stop."""
        ...

    def events(self, run_id: str, *, after: int = 0, limit: int = 500) -> list[EventRow]:
        """Up to `limit` events behind `after`, in order."""
        ...

    def list(self, which: RunFilter, *, before: tuple[int, str] | None, limit: int) -> "list[RunRow]":
        """Runs, newest first, older than `before` = (created_at, id)."""
        ...

    def count(self, which: RunFilter) -> int:
        """How many runs there are."""
        ...

    def turn(self, conversation_id: str, number: int) -> str | None:
        """The id of a conversation's run by its number from 1, oldest first; those that were deleted keep theirs."""
        ...

    def was_deleted(self, run_id: str) -> bool:
        """True if there was a run of that id, and somebody deleted it."""
        ...

    def delete(self, run_id: str) -> "Future[bool]":
        """Delete a run and its events; its ids and its time stay. False if there was none."""
        ...

    def close(self) -> None:
        """Finish what was accepted and close."""
        ...
