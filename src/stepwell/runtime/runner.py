"""Running: from an entrypoint and its input to a report."""

import asyncio
import contextlib
import traceback
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwell.authoring.calls import call_user_code, describe_error, enter_run, first_cause
from stepwell.authoring.context import Context, Parts, ProjectInfo
from stepwell.authoring.executor import Entrypoint
from stepwell.authoring.models import Models
from stepwell.authoring.schema import UNLIMITED, to_json, validate
from stepwell.conversation.state import Conversation, NoConversation
from stepwell.errors import OutputInvalid, RunFailed, StepwellError, StorageUnavailable
from stepwell.files.run_files import RunFiles
from stepwell.identifiers import check_conversation_id, new_id, now_micros
from stepwell.jsontext import encode
from stepwell.project.loader import Project
from stepwell.runtime.events import Event
from stepwell.runtime.guarding import RunStores
from stepwell.runtime.related import NO_FOLDERS, Folders, LocalRelated
from stepwell.runtime.replay import History
from stepwell.runtime.report import Report, closing_of, report_of
from stepwell.runtime.session import OnEvent, RunSession
from stepwell.runtime.turns import conversation_turn
from stepwell.runtime.waiting import RunReleased
from stepwell.storage.kv import KeyValue
from stepwell.storage.location import Storage
from stepwell.storage.related import RelatedPlace
from stepwell.store.entries import Domain, Source
from stepwell.store.file_lock import Ticket
from stepwell.store.journal import Journal, RunRow
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
            StorageUnavailable: the journal could not be written; the run can be resumed when it can.
        """
        return await asyncio.shield(self._task)

    async def payload(self) -> Any:
        """Wait for the run to end and return its output as JSON: exactly, where the report shows it redacted.

        Raises:
            RunFailed: it did not complete.
        """
        report = await self.report()
        if report.status != "completed":
            told = f": {report.error['message']}" if report.error else ""
            raise RunFailed(
                f"the run of {report.entrypoint!r} ended as {report.status}{told}",
                hint=f"its run id is {report.run_id}",
                run_id=report.run_id,
                status=report.status,
            )
        return self._session.payload

    def cancel(self, reason: str = "cancelled by the caller") -> None:
        """Ask the run to stop; every running node sees it at once."""
        if not self._task.done() and not self._session.cancelled:
            self._session.cancel(reason)

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
    related: Folders = NO_FOLDERS


async def start(host: "Host", project: Project, request: RunRequest, ticket: Ticket) -> RunHandle:
    """Record a run as running and execute it in a task of its own.

    Args:
        ticket: the run's lock (`take_run`); it is released when the run ends, or when this fails.
    """
    journal = host.journal(project.manifest.project_id)
    session = RunSession(
        request.run_id, journal, host.files, host.redactor, host.threads,
        on_event=request.on_event, history=request.history, hooks=project.executor.node_hooks,
    )  # fmt: skip
    try:
        if request.history is None:
            await _record_start(project, request, session)
        else:
            session.emit("run.resumed")
            await session.recording.write({"cancel_requested": 0, "status": "running"})
    except BaseException:
        journal.locks().release(ticket)
        raise
    task = asyncio.create_task(_supervise(host, project, request, session, ticket), name=f"run {request.run_id}")
    host.keep(session, task)
    return RunHandle(request.run_id, session, task, host, project.manifest.project_id)


async def _record_start(project: Project, request: RunRequest, session: RunSession) -> None:
    recorded = await session.record(request.input, request.entrypoint.workflow.input_type)
    session.emit(
        "run.started", project=project.manifest.name, entrypoint=request.entrypoint.id,
        conversation_id=request.conversation_id, input=recorded.value,
    )  # fmt: skip
    stored = {"value": recorded.value, "exact": recorded.exact, "spilled": recorded.spilled}
    if request.related is None:
        stored["called"] = True  # by a related project: a resumed run must not have more access than before
    now = now_micros()
    await session.recording.begin(
        RunRow(
            request.run_id, project.manifest.project_id, request.entrypoint.id, request.conversation_id, "running",
            now, now, None, encode(stored, max_bytes=UNLIMITED), label_of(recorded.value), None, 0,
        )
    )  # fmt: skip


def label_of(shown: Any) -> str:
    """A short line that stands for a run's input in lists."""
    if isinstance(shown, dict):
        for name in ("message", "text", "query", "name", "title"):
            if isinstance(shown.get(name), str) and shown[name].strip():
                return _storable(" ".join(shown[name].split())[:120])
    return "" if shown is None else _storable(encode(shown, max_bytes=UNLIMITED)[:120])


def _storable(text: str) -> str:
    """Without lone surrogates: JSON can carry them, a database column cannot."""
    return text.encode("utf-8", "replace").decode()


class _Outcome(NamedTuple):
    """How the work ended; `shown` is the output as it is recorded."""

    status: str
    shown: Any = None
    display_input: Any = None
    error: BaseException | None = None


async def _supervise(
    host: "Host", project: Project, request: RunRequest, session: RunSession, ticket: Ticket
) -> Report:
    """Execute, watch for cancellation from anywhere, and close the run whatever happened."""
    journal = host.journal(project.manifest.project_id)
    usage = _usage(project, request, session, storage := _storage(host, project, request, session))
    context = _context(host, project, request, session, storage, usage)
    work = asyncio.create_task(_in_turn(journal, request, session, context), name=f"work {request.run_id}")
    try:
        try:
            await _until_done(work, session, journal)
        except asyncio.CancelledError as cancelled:
            session.cancel(str(cancelled) or "the process is ending")
        if not work.done():
            await _stop(work)
            outcome = _Outcome("cancelled")
        else:
            outcome = _outcome_of(work, session)
        if outcome.status == "cancelled" and session.background_failure is not None:
            outcome = _Outcome("failed", error=session.background_failure)
        await session.tasks.cancel()
        if session.broken is not None:
            if isinstance(session.broken, RunReleased):
                return await _release(journal, session)
            with contextlib.suppress(StepwellError):  # what was done until then is done, and is kept if possible
                await session.flush()
            raise session.broken
        with contextlib.suppress(StepwellError):
            await usage.close()
            await session.waiting.withdraw()
        return await _close(host, project, request, session, usage, outcome)
    finally:
        session.close()
        work.cancel()
        journal.locks().release(ticket)


async def _release(journal: Journal, session: RunSession) -> Report:
    """Leave a run that only waits for a person; whoever answers resumes it."""
    session.emit_waiting()
    await session.recording.write({"status": "waiting_input"})
    row = journal.get(session.run_id)
    assert row is not None  # noqa: S101  (just written)
    return report_of(row)


async def _until_done(work: "asyncio.Task[Any]", session: RunSession, journal: Journal) -> None:
    """Wait until the work is done or anyone wants the run to stop: the handle, another process, the run itself."""
    stopping = asyncio.create_task(session.stopping.wait())
    try:
        while not work.done() and not stopping.done():
            await asyncio.wait({work, stopping}, timeout=CANCEL_POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            with contextlib.suppress(StorageUnavailable):  # writing decides whether the run can go on
                if not session.cancelled and journal.is_cancel_requested(session.run_id):
                    session.cancel("cancelled from another process")
    finally:
        stopping.cancel()


async def _stop(work: "asyncio.Task[Any]") -> None:
    """Cancel the work. Code that swallows the cancellation is asked again every second and then given up."""
    deadline = asyncio.get_running_loop().time() + CANCEL_GRACE_SECONDS
    while not work.done() and asyncio.get_running_loop().time() < deadline:
        work.cancel()
        await asyncio.wait({work}, timeout=min(1, CANCEL_GRACE_SECONDS))
    work.add_done_callback(lambda task: task.cancelled() or task.exception())  # looked at: nobody needs it any more


def _outcome_of(work: "asyncio.Task[_Outcome]", session: RunSession) -> _Outcome:
    try:
        return work.result()
    except asyncio.CancelledError:
        session.cancelled.set("the code of the run cancelled itself")
        return _Outcome("cancelled")
    except BaseException as error:  # noqa: BLE001  (a run's failure is data; it goes into the report)
        return _Outcome("failed", error=error)


async def _in_turn(journal: Journal, request: RunRequest, session: RunSession, context: Context) -> _Outcome:
    """Execute; in a conversation when it is the run's turn."""
    if request.conversation_id is None or not isinstance(context.conversation, Conversation):
        return await _execute(request, session, context)

    def told() -> None:
        waits = "another run of the conversation is active: this one waits for its turn"
        session.emit("log", node="", level="info", message=waits, fields={})

    async with conversation_turn(journal.locks(), request.conversation_id, told):
        return await _execute(request, session, context)


async def _execute(request: RunRequest, session: RunSession, context: Context) -> _Outcome:
    enter_run(session)
    if request.history is not None and (node := await context.token_usage.complete()) is not None:
        session.completed_report(node)
    workflow = request.entrypoint.workflow
    result = await call_user_code(session, workflow.function, workflow.arguments(request.input, context), {})
    await session.tasks.finish()
    session.check_consumed("")
    what = f"the output of {request.entrypoint.id!r}"
    try:
        output = to_json(validate(workflow.output_type, result, what), what)
    except StepwellError as error:
        raise OutputInvalid(error.message, **error.data) from None
    session.payload = output
    recorded = await session.record(output)
    display_input = output.get("display_input") if isinstance(output, dict) else None
    return _Outcome("completed", recorded.value, display_input)


async def _close(
    host: "Host", project: Project, request: RunRequest, session: RunSession, usage: TokenUsage | NoTokenUsage,
    outcome: _Outcome,
) -> Report:  # fmt: skip
    """Write the final event and the report in one transaction."""
    described = None
    if outcome.error is not None:
        cause = first_cause(outcome.error)
        described = describe_error(outcome.error) | {"node": getattr(cause, "stepwell_node", None)}
        session.emit("log", node="", level="error", message="the run failed", fields={
            "traceback": "".join(traceback.format_exception(outcome.error))[-16_000:]
        })  # fmt: skip
    closing = host.redactor.value(
        closing_of(
            output=outcome.shown, display_input=outcome.display_input, error=described,
            tokens=usage.total if usage.enabled else None, nodes=session.node_counts,
        )
    )  # fmt: skip
    final = {name: closing[name] for name in ("tokens", "nodes")}
    if outcome.status == "completed":
        final["output"] = closing["output"]
    if described is not None:
        final["error"] = closing["error"]
    if outcome.status == "cancelled":
        final["reason"] = session.cancelled.reason
    session.emit_final(f"run.{outcome.status}", **final)
    await session.recording.write(
        {"status": outcome.status, "ended_at": now_micros(), "report": encode(closing, max_bytes=UNLIMITED)}
    )
    row = host.journal(project.manifest.project_id).get(request.run_id)
    assert row is not None  # noqa: S101  (just written)
    return report_of(row)


def _storage(host: "Host", project: Project, request: RunRequest, session: RunSession) -> Storage:
    manifest = project.manifest
    connected = host.server_stores(manifest)
    server = None if connected is None else RunStores(connected, session.is_closed)
    remote = None if server is None or request.related is None else server.remote
    over_there: RelatedPlace | None = None
    if remote is not None:
        from stepwell.runtime.server_related import ServerRelated  # httpx costs 0.1 s of every start

        over_there = ServerRelated(remote, manifest.project_id, _source(project, request))
    return Storage(
        local=RunStores(host.local_stores, session.is_closed),
        server=server,
        project_id=manifest.project_id,
        workflow_name=request.entrypoint.workflow.name,
        conversation_id=request.conversation_id,
        data_storage=manifest.data_storage,
        scope_model=manifest.scope_model,
        source=_source(project, request),
        related=LocalRelated(host, manifest, request.related, _source(project, request), session.is_closed),
        server_related=over_there,
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

    def on_report(report: TokenReport, sequence: int, node: str) -> None:
        session.token_report(report, sequence, usage.total, node)

    usage = TokenUsage(
        request.run_id, totals, storage.host.kv.conversation if request.conversation_id else None,
        on_report=on_report, settled=session.flush, node=session.reporting_node,
        already_reported=session.already_reported,
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
            source=_source(project, request), on_title=session.title_changed, place=session.append_place,
        )  # fmt: skip
    info = ProjectInfo(manifest.project_id, manifest.name, project.folder)
    files = RunFiles(host.files, request.run_id)
    return Context(
        Parts(
            request.run_id, info, request.entrypoint.id, request.conversation_id, storage, conversation, usage,
            files, session.cancelled, session, Models(host.models, manifest.providers, files.read),
            host.runs(manifest.project_id), project.executor.tools,
            project.executor.entrypoints,
        )
    )  # fmt: skip


def choose_conversation_id(project: Project, explicit: str | None, value: Any) -> str | None:
    """The run's conversation id: explicit, else the input's own, else a generated one for conversation projects."""
    own = value.get("conversation_id") if isinstance(value, dict) else getattr(value, "conversation_id", None)
    chosen = explicit if explicit is not None else own or None
    if chosen is not None:
        return check_conversation_id(chosen)
    return new_id() if project.executor.is_conversation else None
