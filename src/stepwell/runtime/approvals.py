"""Requests for approval as people see them: list, show, answer, from any process."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwell.errors import ApprovalConflict, ApprovalNotFound, InvalidArgument, RunStateConflict
from stepwell.identifiers import iso_time, now_micros
from stepwell.jsontext import decode, encode
from stepwell.runtime.runs import ENDED
from stepwell.store.approvals import OPEN, ApprovalRow
from stepwell.tools.declaration import MODES

if TYPE_CHECKING:
    from stepwell.project.loader import Project
    from stepwell.runtime.host import Host
    from stepwell.runtime.runner import RunHandle
    from stepwell.runtime.session import OnEvent

STATUSES = ("pending", "approved", "denied", "expired", "withdrawn")
SETTLE_SECONDS = 0.05
MAX_REASON = 2_000


class Approval(NamedTuple):
    """A request for approval. Times are ISO-8601 UTC; `edited_arguments` is None where they were not changed."""

    id: str
    run_id: str
    node: str
    tool: str
    arguments: dict[str, Any]
    status: str
    created_at: str
    expires_at: str | None
    answered_at: str | None
    reason: str | None
    edited_arguments: dict[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """The request as JSON."""
        return self._asdict()

    @property
    def overdue(self) -> str | None:
        """What to do about a request whose time is over and whose run does not know it yet; None for all others."""
        if self.status != "expired" or self.answered_at is not None:
            return None
        return f"nobody answered in time: `stepwell runs resume {self.run_id}` goes on as after a denial"


class Approvals:
    """The requests of one project, and the modes of its tools."""

    def __init__(self, host: "Host", project_id: str) -> None:
        self._host = host
        self._project_id = project_id
        self._store = host.journal(project_id).approvals

    def get(self, request_id: str) -> Approval:
        """A request by id.

        Raises:
            ApprovalNotFound
        """
        return _approval(self._row(request_id))

    def list(
        self, *, run_id: str | None = None, status: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> tuple[list[Approval], str | None]:
        """A page of requests, newest first, and the cursor of the next one.

        Raises:
            InvalidArgument: an unknown status.
        """
        if status is not None and status not in STATUSES:
            raise InvalidArgument(f"status {status!r:.40} is not one of {', '.join(STATUSES)}", argument="status")
        stored = OPEN if status == "expired" else status  # whose time is over may not have been noticed by its run
        found: list[Approval] = []
        while len(found) <= limit:
            rows = self._store.list(run_id=run_id, status=stored, before=cursor, limit=limit + 1)
            found += [shown for shown in map(_approval, rows) if status in (None, shown.status)]
            if len(rows) <= limit:
                break
            cursor = rows[-1].id
        if status == "expired":
            noticed = self._store.list(run_id=run_id, status="expired", before=cursor, limit=limit + 1)
            found = sorted([*found, *map(_approval, noticed)], key=lambda shown: shown.id, reverse=True)
        return found[:limit], found[limit - 1].id if len(found) > limit else None

    async def approve(
        self, request_id: str, *, arguments: Mapping[str, Any] | None = None, reason: str | None = None
    ) -> Approval:
        """Approve a request, with other arguments where they are given.

        Raises:
            ApprovalNotFound, ApprovalConflict: nothing was changed.
            InvalidArgument: the arguments are no JSON object.
        """
        if arguments is not None and not isinstance(arguments, Mapping):
            raise InvalidArgument("the arguments are not a JSON object", argument="arguments")
        return await self._answer(request_id, "approved", arguments, reason)

    async def deny(self, request_id: str, *, reason: str | None = None) -> Approval:
        """Deny a request; the model is told the reason.

        Raises:
            ApprovalNotFound, ApprovalConflict: nothing was changed.
        """
        return await self._answer(request_id, "denied", None, reason)

    async def settle(
        self, project: "Project", request_id: str, *, on_event: "OnEvent | None" = None
    ) -> "RunHandle | None":
        """See to it that an answer reaches its run: resume the run, unless its process is there and has taken it.

        Returns:
            The resumed run; None where nothing had to be done.
        """
        while True:
            row = self._row(request_id)
            run = self._host.runs(self._project_id).row(row.run_id)
            if row.taken_at is not None or run.status in ENDED:
                return None
            try:
                return await self._host.resume(project, row.run_id, on_event=on_event)
            except RunStateConflict:  # a process has it: it takes the answer, or is about to leave
                await asyncio.sleep(SETTLE_SECONDS)

    def modes(self) -> dict[str, str]:
        """The modes that were set in this project, by tool."""
        return self._store.modes()

    async def set_mode(self, tool: str, mode: str | None) -> None:
        """Set how calls of a tool are treated in this project; None goes back to what the tool declares.

        Raises:
            InvalidArgument: no such mode.
        """
        if mode is not None and mode not in MODES:
            raise InvalidArgument(f"mode {mode!r:.40} is not one of {', '.join(MODES)}", argument="mode")
        await asyncio.wrap_future(self._store.set_mode(tool, mode))

    async def _answer(
        self, request_id: str, status: str, arguments: Mapping[str, Any] | None, reason: str | None
    ) -> Approval:
        if reason is not None and len(reason) > MAX_REASON:
            raise InvalidArgument(f"the reason is longer than {MAX_REASON} characters", argument="reason")
        self._check_answerable(request_id)
        answer: dict[str, Any] = {"reason": reason}
        if arguments is not None and dict(arguments) != decode(self._row(request_id).arguments):
            answer["arguments"] = dict(arguments)
        changed = await asyncio.wrap_future(self._store.answer(request_id, status, encode(answer), now_micros()))
        if not changed:  # somebody else was first
            self._check_answerable(request_id)
        return self.get(request_id)

    def _check_answerable(self, request_id: str) -> None:
        shown = self.get(request_id)
        if shown.status != OPEN:
            what = {
                "approved": "was approved already", "denied": "was denied already", "expired": "has expired",
                "withdrawn": "was withdrawn by its run",
            }[shown.status]  # fmt: skip
            raise ApprovalConflict(
                f"the request {request_id} {what}", hint=shown.overdue, status=shown.status, run_id=shown.run_id
            )
        run = self._host.runs(self._project_id).row(shown.run_id)
        if run.status in ENDED:
            raise ApprovalConflict(f"the run of the request {request_id} has ended: {run.status}", run_id=run.id)

    def _row(self, request_id: str) -> ApprovalRow:
        row = self._store.get(request_id) if request_id.isascii() else None
        if row is None:
            raise ApprovalNotFound(f"there is no request for approval {request_id!r:.80}", id=request_id)
        return row


def _approval(row: ApprovalRow) -> Approval:
    answer: dict[str, Any] = decode(row.answer) if row.answer else {}
    is_over = row.status == OPEN and row.expires_at is not None and row.expires_at <= now_micros()
    return Approval(
        row.id, row.run_id, row.item, row.tool, decode(row.arguments), "expired" if is_over else row.status,
        iso_time(row.created_at), None if row.expires_at is None else iso_time(row.expires_at),
        None if row.answered_at is None else iso_time(row.answered_at), answer.get("reason"), answer.get("arguments"),
    )  # fmt: skip
