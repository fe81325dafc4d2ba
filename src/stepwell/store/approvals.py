"""The seam of what a project's runs ask people for, and of the modes of its tools.

It lives beside the journal and not among the entries: what an agent may write must not be able to answer its own
requests.
"""

from concurrent.futures import Future
from typing import NamedTuple, Protocol

OPEN = "pending"


class ApprovalRow(NamedTuple):
    """A request for approval. Times are microseconds; `arguments` and `answer` are JSON texts.

    `item` is where in the run it was asked. `status` is pending, approved, denied, expired or withdrawn (the run went
    another way, or ended). `taken_at` is when the run read the answer, `used_at` when it was done with it.
    """

    id: str
    run_id: str
    item: str
    tool: str
    arguments: str
    status: str
    created_at: int
    expires_at: int | None
    answer: str | None
    answered_at: int | None
    taken_at: int | None
    used_at: int | None


class ApprovalStore(Protocol):
    """Requests for approval of one project. Reads are brief; writes resolve when durable."""

    def request(self, row: ApprovalRow) -> "Future[ApprovalRow]":
        """Store a request, and return it; where the same was asked at the same place before, that one.

        A request for something else at that place is withdrawn.
        """
        ...

    def answer(self, request_id: str, status: str, answer: str, at: int) -> "Future[bool]":
        """Answer a request that is pending and not expired at `at`; False, and nothing changed, if it is not."""
        ...

    def mark(self, request_id: str, column: str, at: int) -> "Future[None]":
        """Set `taken_at` or `used_at`."""
        ...

    def withdraw(self, run_id: str) -> "Future[None]":
        """Withdraw what is pending of a run."""
        ...

    def get(self, request_id: str) -> ApprovalRow | None:
        """A request by id."""
        ...

    def list(self, *, run_id: str | None, status: str | None, before: str | None, limit: int) -> "list[ApprovalRow]":
        """Requests, newest first, with ids below `before`."""
        ...

    def modes(self) -> dict[str, str]:
        """The modes that were set, by tool."""
        ...

    def set_mode(self, tool: str, mode: str | None) -> "Future[None]":
        """Set a tool's mode; None goes back to the declared one."""
        ...
