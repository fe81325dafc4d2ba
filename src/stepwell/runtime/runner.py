"""Running: from an entrypoint and its input to a report."""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwell.authoring.calls import call_user_code, describe_error, enter_run, first_cause
from stepwell.authoring.context import Context, Parts, ProjectInfo
from stepwell.authoring.executor import Entrypoint
from stepwell.authoring.schema import UNLIMITED, describe_value, to_json, validate
from stepwell.conversation.state import Conversation, NoConversation
from stepwell.errors import OutputInvalid, RunStateConflict, StepwellError
from stepwell.files.run_files import RunFiles
from stepwell.identifiers import check_conversation_id, new_id, now_micros
from stepwell.jsontext import encode
from stepwell.project.loader import Project
from stepwell.runtime.events import Event
from stepwell.runtime.replay import History
from stepwell.runtime.report import Report, report_of
from stepwell.runtime.session import OnEvent, RunSession
from stepwell.storage.kv import KeyValue
from stepwell.storage.location import Storage
from stepwell.store.entries import Domain, Source
from stepwell.store.file_lock import Ticket, offset_of
from stepwell.store.journal import RunRow
from stepwell.usage.report import TokenReport
from stepwell.usage.totals import NoTokenUsage, TokenUsage

if TYPE_CHECKING:
    from stepwell.runtime.host import Host

CANCEL_POLL_SECONDS = 0.1
CANCEL_GRACE_SECONDS = 5.0


class RunHandle:
    """A run that was started in this process."""

    def __init__(self, run_id: str, session: RunSession, task: "asyncio.Task[Report]", host: "Host", project_id: str):
        self.run_id = run_id
        self._session = session
        self._task = task
        self._host = host
        self._project_id = project_id

    async def report(self) -> Report:
        """Wait for the run to end and return its report. Cancelling the wait does not cancel the run.

        Raises:
            ReplayMismatch: a resumed run took another path than recorded; the run stays as it was.
        """
        return await asyncio.shield(self._task)

    def cancel(self, reason: str = "cancelled by the caller") -> None:
        """Ask the run to stop; every running node sees it at once."""
        if not self._task.done() and not self._session.cancelled:
            self._session.cancelled.set(reason)

    def events(self, after: int = 0) -> AsyncIterator[Event]:
        """The run's events from its journal, following it to its end."""
        return self._host.runs(self._project_id).events(self.run_id, after=after, follow=True)


class RunRequest(NamedTuple):
    """Everything that decides a run."""

    run_id: str
    entrypoint: Entrypoint
    input: Any
    conversation_id: str | None
    history: History | None
    on_event: OnEvent | None


async def start(host: "Host", project: Project, request: RunRequest, ticket: Ticket) -> RunHandle:
    """Record a run as running and execute it in a task of its own.

    Args:
        ticket: the run's lock (`take_run`); it is released when the run ends, or when this fails.
    """
    journal = host.journal(project.manifest.project_id)
    session = RunSession(
        request.run_id, journal, host.files, host.redactor, host.threads,
        on_event=request.on_event, history=request.history,
    )  # fmt: skip
    try:
        now = now_micros()
        if request.history is None:
            shown, _, _ = await session.record(request.input)
            session.emit(
                "run.started", project=project.manifest.name, entrypoint=request.entrypoint.id,
                conversation_id=request.conversation_id, input=shown,
            )  # fmt: skip
            row = RunRow(
                request.run_id, project.manifest.project_id, request.entrypoint.id, request.conversation_id, "running",
                now, now, None, encode(_stored_input(request.input), max_bytes=UNLIMITED), label_of(shown), None, 0,
            )  # fmt: skip
            await asyncio.wrap_future(journal.create(row, session.take_waiting()))
        else:
            session.emit("run.resumed")
            await session.flush()
    except BaseException:
        journal.locks().release(ticket)
        raise
    task = asyncio.create_task(_supervise(host, project, request, session, ticket), name=f"run {request.run_id}")
    return RunHandle(request.run_id, session, task, host, project.manifest.project_id)


def take_run(host: "Host", project_id: str, run_id: str) -> Ticket:
    """The lock that says a process is executing the run; it dies with the process.

    Raises:
        RunStateConflict: another process has it.
    """
    locks = host.journal(project_id).locks()
    ticket = locks.enqueue(offset_of(f"run {run_id}"), lambda: None)
    if not ticket.granted or not locks.try_take(ticket):
        locks.release(ticket)
        raise RunStateConflict(f"the run {run_id} is being executed by a process", run_id=run_id)
    return ticket


def label_of(shown: Any) -> str:
    """A short line that stands for a run's input in lists."""
    if isinstance(shown, dict):
        for name in ("message", "text", "query", "name", "title"):
            if isinstance(shown.get(name), str) and shown[name].strip():
                return " ".join(shown[name].split())[:120]
    return "" if shown is None else encode(shown, max_bytes=UNLIMITED)[:120]


async def _supervise(
    host: "Host", project: Project, request: RunRequest, session: RunSession, ticket: Ticket
) -> Report:
    """Execute, watch for cancellation from anywhere, and close the run whatever happened."""
    journal = host.journal(project.manifest.project_id)
    usage = _usage(project, request, session, storage := _storage(host, project, request))
    context = _context(host, project, request, session, storage, usage)
    work = asyncio.create_task(_execute(request, session, context), name=f"work {request.run_id}")
    try:
        output, error = None, None
        try:
            await _until_done(work, session, journal, request.run_id)
            output, shown = work.result()
            status = "completed"
        except asyncio.CancelledError as cancelled:
            session.cancelled.set(str(cancelled) or "cancelled")
            await _stop(work)
            status, shown = "cancelled", None
        except BaseException as failure:  # noqa: BLE001  (a run's failure is data; it goes into the report)
            if session.mismatch is not None:
                raise session.mismatch from None
            status, shown, error = "failed", None, failure
        await session.cancel_background()
        if session.mismatch is not None:
            raise session.mismatch
        with contextlib.suppress(StepwellError):
            await usage.close()
        return await _close(host, project, request, session, usage, status, output, shown, error)
    finally:
        work.cancel()
        journal.locks().release(ticket)


async def _until_done(work: "asyncio.Task[Any]", session: RunSession, journal: Any, run_id: str) -> None:
    """Wait for the work; raise CancelledError once anyone asks for it: the handle, or another process."""
    while True:
        done, _ = await asyncio.wait({work}, timeout=CANCEL_POLL_SECONDS)
        if done:
            return
        if not session.cancelled:
            row = journal.get(run_id)
            if row is not None and row.cancel_requested:
                session.cancelled.set("cancelled from another process")
        if session.cancelled:
            raise asyncio.CancelledError(session.cancelled.reason)


async def _stop(work: "asyncio.Task[Any]") -> None:
    """Cancel the work. Code that swallows the cancellation is asked again every second and then given up."""
    deadline = asyncio.get_running_loop().time() + CANCEL_GRACE_SECONDS
    while not work.done() and asyncio.get_running_loop().time() < deadline:
        work.cancel()
        await asyncio.wait({work}, timeout=1)


async def _execute(request: RunRequest, session: RunSession, context: Context) -> tuple[Any, Any]:
    enter_run(session)
    workflow = request.entrypoint.workflow
    arguments = (request.input, context)[: workflow.parameter_count]
    result = await call_user_code(session, workflow.function, arguments, {})
    await session.finish_background()
    session.check_consumed("")
    what = f"the output of {request.entrypoint.id!r}"
    try:
        output = to_json(validate(workflow.output_type, result, what), what)
    except StepwellError as error:
        raise OutputInvalid(error.message, **error.data) from None
    shown, _, _ = await session.record(output)
    return output, shown


async def _close(
    host: "Host", project: Project, request: RunRequest, session: RunSession, usage: TokenUsage | NoTokenUsage,
    status: str, output: Any, shown: Any, error: BaseException | None,
) -> Report:  # fmt: skip
    """Write the final event and the report in one transaction."""
    described = None
    if error is not None:
        cause = first_cause(error)
        described = host.redactor.value(describe_error(error) | {"node": getattr(cause, "stepwell_node", None)})
        session.emit("log", node="", level="error", message="the run failed", fields={
            "traceback": "".join(traceback.format_exception(error))[-16_000:]
        })  # fmt: skip
    counts = {
        name.removeprefix("node."): count for name, count in session.node_counts.items() if name != "node.started"
    }
    display_input = output.get("display_input") if isinstance(output, dict) else None
    tokens = usage.total if usage.enabled else None
    stored = {"output": shown, "display_input": display_input, "error": described, "tokens": tokens, "nodes": counts}
    final: dict[str, Any] = {"output": shown} if status == "completed" else {}
    if described is not None:
        final["error"] = described
    if status == "cancelled":
        final["reason"] = session.cancelled.reason
    events = session.add_final(f"run.{status}", tokens=tokens, nodes=counts, **final)
    ended = now_micros()
    journal = host.journal(project.manifest.project_id)
    changes = {"status": status, "ended_at": ended, "report": encode(host.redactor.value(stored), max_bytes=UNLIMITED)}
    await session.drain()
    await asyncio.wrap_future(journal.append(request.run_id, events, changes))
    row = journal.get(request.run_id)
    assert row is not None  # noqa: S101  (just written)
    return report_of(row)


def _storage(host: "Host", project: Project, request: RunRequest) -> Storage:
    manifest = project.manifest
    return Storage(
        local=host.local_stores,
        server=host.server_stores,
        project_id=manifest.project_id,
        workflow_name=request.entrypoint.workflow.name,
        conversation_id=request.conversation_id,
        data_storage=manifest.data_storage,
        scope_model=manifest.scope_model,
        source=_source(project, request),
    )


def _source(project: Project, request: RunRequest) -> Source:
    return Source(project.manifest.project_id, request.entrypoint.id, request.run_id, request.conversation_id)


def _usage(project: Project, request: RunRequest, session: RunSession, storage: Storage) -> TokenUsage | NoTokenUsage:
    if not request.entrypoint.token_usage.enabled:
        return NoTokenUsage()
    totals: list[KeyValue] = [storage.host.kv]
    if project.is_workflow_scoped:
        totals.append(storage.scopes.kv)
    history = request.history

    async def on_report(report: TokenReport, sequence: int) -> None:
        await session.token_report(report, sequence, usage.total)

    usage = TokenUsage(
        request.run_id, totals, storage.host.kv.conversation if request.conversation_id else None,
        on_report=on_report, already_reported=session.already_reported,
        sequence=history.usage_sequence if history else 0, total=history.usage_total if history else None,
    )  # fmt: skip
    return usage


def _context(
    host: "Host", project: Project, request: RunRequest, session: RunSession, storage: Storage,
    usage: TokenUsage | NoTokenUsage,
) -> Context:  # fmt: skip
    manifest = project.manifest
    conversation: Conversation | NoConversation = NoConversation()
    if project.executor.is_conversation and request.conversation_id is not None:
        conversation = Conversation(
            storage.host.backend(Domain.CONVERSATION), manifest.project_id, manifest.name, request.conversation_id,
            source=_source(project, request), on_title=session.title_changed,
        )  # fmt: skip
    info = ProjectInfo(manifest.project_id, manifest.name, project.folder)
    return Context(
        Parts(
            request.run_id, info, request.entrypoint.id, request.conversation_id, storage, conversation, usage,
            RunFiles(host.files, request.run_id), session.cancelled, session,
        )
    )  # fmt: skip


def choose_conversation_id(project: Project, explicit: str | None, value: Any) -> str | None:
    """The run's conversation id: explicit, else the input's own, else a generated one for conversation projects."""
    own = value.get("conversation_id") if isinstance(value, dict) else getattr(value, "conversation_id", None)
    chosen = explicit if explicit is not None else own or None
    if chosen is not None:
        return check_conversation_id(chosen)
    return new_id() if project.executor.is_conversation else None


def _stored_input(value: Any) -> Any:
    described = describe_value(value)
    return {"value": described.value, "exact": described.exact}
