"""A run that waits for a person: the request is durable, the process may go, and the answer may come from anywhere.

The answer is a row in the journal's file, the event about it is the run's own: it alone writes its stream. While a run
waits and something else goes on in it, it looks for the answer. When nothing else goes on it is *released*: its code is
unwound, its status stays `waiting_input`, its process is free. Resuming it comes to the same request again.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from stepwell.errors import StepwellError
from stepwell.identifiers import new_id, now_micros
from stepwell.jsontext import decode, encode
from stepwell.store.approvals import OPEN, ApprovalRow, ApprovalStore
from stepwell.tools.approval import ApprovalAsk, Decision

POLL_SECONDS = 0.05
RELEASE_SECONDS = 0.25
"""How long a run has to do nothing but wait before it is released."""

_SECOND = 1_000_000


class RunReleased(StepwellError):
    """Unwinds a run that only waits; never shown to anybody."""

    code = "run_released"


class WaitingSession(Protocol):
    """What waiting needs from its run."""

    run_id: str
    active: set[str]
    recording: Any

    def emit(self, event: str, /, **data: Any) -> None: ...

    def recorded_mark(self, event: str, path: str) -> dict[str, Any] | None: ...

    def break_off(self, why: BaseException) -> None: ...

    async def flush(self) -> None: ...


class Waiting:
    """The requests for approval of one run.

    Args:
        session: the run.
        store: where requests are kept.
        mask: masks secrets: a request is shown to people.
    """

    def __init__(self, session: WaitingSession, store: ApprovalStore, mask: Callable[[Any], Any]) -> None:
        self._session = session
        self._store = store
        self._mask = mask
        self._waiting: dict[str, tuple[str, float]] = {}

    def mode(self, tool: str) -> str | None:
        """The mode that was set for a tool in this project, if any."""
        return self._store.modes().get(tool)

    async def ask(self, ask: ApprovalAsk) -> Decision:
        """Wait for a person's answer.

        The run is broken off (`RunReleased`) when nothing else goes on in it; resumed, it comes here again.
        """
        row = await self._request(ask)
        loop = asyncio.get_running_loop()
        self._waiting[ask.item] = (ask.node, loop.time() + ask.hold)
        try:
            row = await self._answered(row)
        finally:
            del self._waiting[ask.item]
        decision = _decision(row, ask)
        await asyncio.wrap_future(self._store.mark(row.id, "taken_at", now_micros()))
        self._show(row, ask, decision)
        if not self._waiting:
            await self._session.recording.write({"status": "running"})
        return decision

    async def done(self, decision: Decision) -> None:
        """What was approved is done and recorded: asking at the same place again is a new question."""
        if decision.request_id is not None:
            await self._session.flush()
            await asyncio.wrap_future(self._store.mark(decision.request_id, "used_at", now_micros()))

    async def withdraw(self) -> None:
        """The run has ended: nothing of it can be answered any more."""
        await asyncio.wrap_future(self._store.withdraw(self._session.run_id))

    async def _request(self, ask: ApprovalAsk) -> ApprovalRow:
        now = now_micros()
        shown = encode(self._mask(dict(ask.arguments)))
        expires = None if ask.timeout is None else now + round(ask.timeout * _SECOND)
        row = await asyncio.wrap_future(
            self._store.request(
                ApprovalRow(
                    new_id(),
                    self._session.run_id,
                    ask.item,
                    ask.tool,
                    shown,
                    OPEN,
                    now,
                    expires,
                    None,
                    None,
                    None,
                    None,
                )
            )
        )
        recorded = self._session.recorded_mark("tool.requested", ask.node)
        if recorded is None or recorded.get("request_id") != row.id:
            self._session.emit(
                "tool.requested", node=ask.node, tool=ask.tool, mode="manual", request_id=row.id,
                arguments=decode(row.arguments), timeout=ask.timeout,
            )  # fmt: skip
        await self._session.recording.write({"status": "waiting_input"})
        return row

    async def _answered(self, row: ApprovalRow) -> ApprovalRow:
        idle_since: float | None = None
        while True:
            now = asyncio.get_running_loop().time()
            current = self._store.get(row.id)
            if current is None or current.status == "withdrawn":
                return row._replace(status="withdrawn")
            if current.status != OPEN:
                return current
            if current.expires_at is not None and current.expires_at <= now_micros():
                told = encode({"reason": "nobody answered in time"})
                await asyncio.wrap_future(self._store.answer(row.id, "expired", told, now_micros()))
                continue
            idle_since = (idle_since or now) if self._is_idle(now) else None
            if idle_since is not None and now - idle_since >= RELEASE_SECONDS:
                self._session.break_off(RunReleased("the run waits for approval"))
                await asyncio.Event().wait()  # until the run unwinds this
            await asyncio.sleep(POLL_SECONDS)

    def _is_idle(self, now: float) -> bool:
        """True if every node that is active only waits, itself or through a node within it, and none is held."""
        if any(hold > now for _, hold in self._waiting.values()):
            return False
        nodes = [node for node, _ in self._waiting.values()]
        return all(any(node == path or node.startswith(f"{path}/") for node in nodes) for path in self._session.active)

    def _show(self, row: ApprovalRow, ask: ApprovalAsk, decision: Decision) -> None:
        asked = decode(row.arguments)
        recorded = self._session.recorded_mark("tool.approved" if decision.approved else "tool.denied", ask.node)
        if recorded is not None and recorded.get("request_id") == row.id:
            return
        if decision.approved:
            used = self._mask(decision.arguments)
            changed = {"edited": True, "requested_arguments": asked} if decision.edited else {"edited": False}
            self._session.emit(
                "tool.approved", node=ask.node, tool=ask.tool, request_id=row.id, arguments=used,
                reason=decision.reason, **changed,
            )  # fmt: skip
        else:
            self._session.emit(
                "tool.denied", node=ask.node, tool=ask.tool, request_id=row.id, arguments=asked,
                reason=decision.reason, status=row.status,
            )  # fmt: skip


def _decision(row: ApprovalRow, ask: ApprovalAsk) -> Decision:
    answer: dict[str, Any] = decode(row.answer) if row.answer else {}
    reason = answer.get("reason")
    if row.status == "withdrawn":
        reason = reason or "the request was withdrawn"
    edited = answer.get("arguments")
    if row.status != "approved":
        return Decision(False, dict(ask.arguments), reason, request_id=row.id)
    # What was not edited is the run's own: the stored arguments may be masked.
    used = dict(ask.arguments) if edited is None else dict(edited)
    return Decision(True, used, reason, edited is not None, row.id)
