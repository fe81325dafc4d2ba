"""The chat itself: what is sent, what runs, what waits for an answer. How it looks is a front's business.

Every input goes through the conversation's queue, so it is written down before it runs. One worker runs what is there:
jobs (a resume, a compaction) first, then the queue, one after the other.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stepwell.conversation.default_input import Attachment, InputToSend, attachment_of, read_draft, write_draft
from stepwell.conversation.inputs import Attachments
from stepwell.conversation.queue import RESTORED, InputQueue, QueuedInput, Receipt, take_conversation
from stepwell.conversation.slash import current_values, footer_lines
from stepwell.conversation.state import Conversation
from stepwell.errors import ApprovalNotFound, EntrypointNotFound, InputInvalid, RunStateConflict, StepwellError
from stepwell.files.store import conversation_of
from stepwell.runtime.events import Event
from stepwell.runtime.report import Report
from stepwell.runtime.runs import ENDED
from stepwell.store.journal import RunFilter

if TYPE_CHECKING:
    from stepwell.project.loader import Project
    from stepwell.runtime.host import Host
    from stepwell.runtime.runner import RunHandle

POLL_SECONDS = 0.1


class Ask(NamedTuple):
    """A call that waits for a person."""

    request_id: str
    run_id: str
    tool: str
    arguments: dict[str, Any]


class Front(Protocol):
    """What shows a chat: called on the event loop, and must return quickly."""

    def event(self, event: Event) -> None:
        """An event of a run."""
        ...

    def asks(self, ask: Ask) -> None:
        """A call waits for approval."""
        ...

    def news(self, name: str, text: str, **data: Any) -> None:
        """Something of the chat itself: `name` and `data` for programs, `text` for people."""
        ...

    def problem(self, error: StepwellError) -> None:
        """Something went wrong; the chat goes on."""
        ...

    def ended(self, report: Report) -> None:
        """A run has ended."""
        ...


class Chat:
    """One conversation of a project. `await open()` first, `await close()` in the end.

    Args:
        host, project: where it runs.
        conversation: with whom.
        front: who shows it.
        entrypoint: the one that gets the inputs; the project's default one without.
    """

    def __init__(
        self, host: "Host", project: "Project", conversation: Conversation, front: Front, entrypoint: str | None = None
    ) -> None:
        declared = project.executor.conversation
        assert declared is not None  # noqa: S101  (the command looked)
        self.declared = declared
        self.takes = Attachments(**dict.fromkeys(declared.attachments, True))
        self.host = host
        self.project = project
        self.conversation = conversation
        self.queue = InputQueue(conversation)
        self.front = front
        self.active: str | None = None
        self.asked: dict[str, Ask] = {}
        self.attachments: list[Attachment] = []
        self.parameters: dict[str, str | bool] = {}
        self.text = ""
        self.interrupted: str | None = None
        self.last: Report | None = None
        self._entrypoint = entrypoint
        self._jobs: list[Callable[[], Awaitable[None]]] = []
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._changed = asyncio.Event()
        self._handle: RunHandle | None = None
        self._resumed: RunHandle | None = None
        self._answering = 0
        self._seq = 0
        self._ticket: Any = None
        self.worker: asyncio.Task[None] | None = None

    @property
    def project_id(self) -> str:
        """The project's id."""
        return self.project.manifest.project_id

    @property
    def busy(self) -> bool:
        """True while anything runs, waits for an answer, or is about to run."""
        return not self._idle.is_set()

    @property
    def only_waits(self) -> bool:
        """True while all that is left is a run that was released and waits for a person."""
        return self.active is not None and self._handle is None and bool(self.asked) and not self._answering

    @property
    def footer(self) -> list[str]:
        """The footer's lines under the present parameters."""
        return footer_lines(self.declared.footer, self.parameters)

    async def open(self) -> None:
        """Become the one who sends this conversation's inputs, and find out what an earlier chat left.

        Raises:
            ConversationBusy: somebody else is. EntrypointNotFound: there is no such entrypoint.
        """
        self.project.entrypoint(self._entrypoint)
        locks = self.host.journal(self.project_id).locks()
        self._ticket = take_conversation(locks, self.conversation.conversation_id)
        draft = await read_draft(self.conversation)
        self.text, self.attachments = draft.message, list(draft.attachments)
        self.parameters = current_values(self.declared.parameters, draft.parameters)
        await self._restore()
        self.worker = asyncio.create_task(self._work(), name="chat worker")
        self._wake.set()

    async def close(self) -> None:
        """Keep the draft and let others send. A run that goes on is cancelled with the host."""
        if self.worker is not None:
            self.worker.cancel()
            await asyncio.wait({self.worker})
        if self._ticket is not None:
            with contextlib.suppress(StepwellError):
                await self.keep_draft()
            self.host.journal(self.project_id).locks().release(self._ticket)
            self._ticket = None

    async def _restore(self) -> None:
        runs = self.host.runs(self.project_id)
        for item in await self.queue.waiting():
            if self.host.journal(self.project_id).get(item.run_id) is not None:  # begun, and not noted any more
                await self.queue.taken(item.request_id)
        if await self.queue.hold(RESTORED):
            waiting = await self.queue.waiting()
            self.front.news(
                "held", f"{len(waiting)} inputs wait from last time; they run after your next one (/queue shows them)",
                reason=RESTORED, waiting=[item.to_dict() for item in waiting],
            )  # fmt: skip
        for status in ("waiting_input", "running"):
            which = RunFilter(status=status, conversation_id=self.conversation.conversation_id)
            for report, _ in runs.list(which, limit=20)[0]:
                if not self._is_known(report.entrypoint):
                    continue
                if status == "waiting_input" and not self._jobs:
                    self._jobs.append(lambda run_id=report.run_id: self._adopt(run_id))  # type: ignore[misc]
                elif report.interrupted and self.interrupted is None:
                    self.interrupted = report.run_id
                    self.front.news(
                        "interrupted", "the last run was cut off: /resume goes on with it", run_id=report.run_id
                    )

    def _is_known(self, entrypoint: str) -> bool:
        try:
            self.project.entrypoint(entrypoint)
        except StepwellError:
            return False
        return True

    # -- sending -----------------------------------------------------------------------------------------------------

    async def send(self, text: str, *, request_id: str | None = None, entrypoint: str | None = None) -> Receipt:
        """Send an input: the text, what is attached, and the parameters.

        Raises:
            RunStateConflict: a run is active, and the project queues no inputs. What `InputQueue.add` raises.
        """
        given = InputToSend(text, tuple(self.attachments), self.parameters, entrypoint)
        known = None if request_id is None else await self.queue.receipt(request_id)
        if known is None and self.busy and not self.declared.input_queue:
            raise RunStateConflict(
                "a run is active, and this conversation queues no inputs",
                hint="wait for its end or /stop it; Conversation(input_queue=True) takes inputs meanwhile",
            )
        is_waiting = self.active is not None
        receipt = await self.queue.add(given, request_id)
        self.attachments, self.text = [], ""
        await self.keep_draft()
        text = "queued: it runs when the run has ended" if is_waiting and not receipt.repeated else ""
        self.front.news("accepted", text, **receipt.to_dict())
        self._go()
        return receipt

    async def attach(self, path: str) -> Attachment:
        """Store a file and put it into the draft.

        Raises:
            FileRejected: it cannot be read, or the conversation takes no such file.
        """
        mine = conversation_of(self.project_id, self.conversation.conversation_id)
        stored = await asyncio.to_thread(lambda: self.host.files.put_path(path, conversation=mine))
        made = attachment_of(stored, self.takes)
        self.attachments.append(made)
        await self.keep_draft()
        return made

    async def keep_draft(self) -> None:
        """Write down what is not sent yet."""
        defaults = current_values(self.declared.parameters, {})
        chosen = {name: value for name, value in self.parameters.items() if value != defaults[name]}
        await write_draft(self.conversation, InputToSend(self.text, tuple(self.attachments), chosen))

    def later(self, job: Callable[[], Awaitable[None]]) -> None:
        """Let the worker do something, before the inputs that wait."""
        self._jobs.append(job)
        self._go()

    def _go(self) -> None:
        self._idle.clear()
        self._wake.set()

    async def change(self) -> None:
        """Wait until the chat comes to rest, or to a call that waits for a person."""
        await self._changed.wait()
        self._changed.clear()

    # -- running -----------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._jobs:
                    await self._jobs.pop(0)()
                while (item := await self.queue.next()) is not None:
                    await self._run(item)
            except StepwellError as error:
                self.active, self._handle = None, None
                self.front.problem(error)
                with contextlib.suppress(StepwellError):
                    await self.queue.hold("failed")
            if not self._wake.is_set():
                self._idle.set()
                self._changed.set()
                self.front.news("idle", "")

    async def _run(self, item: QueuedInput) -> None:
        self.active = item.run_id
        try:
            handle = await self.host.start(
                self.project, item.input.entrypoint or self._entrypoint, args=item.input.args(),
                conversation_id=self.conversation.conversation_id, on_event=self._on_event, run_id=item.run_id,
            )  # fmt: skip
        except (InputInvalid, EntrypointNotFound) as error:
            await self.queue.remove(item.request_id)
            self.active = None
            self.front.problem(error)
            await self._hold("failed")
            return
        await self.queue.taken(item.request_id)
        self.front.news("started", "", request_id=item.request_id, run_id=item.run_id, message=item.input.message)
        await self.follow(handle)

    async def follow(self, handle: "RunHandle") -> Report | None:
        """Follow a run to its end, over all answers it waits for; None where that cannot be known."""
        self.active, self._handle = handle.run_id, handle
        try:
            report = await handle.report()
            while report.status == "waiting_input":
                report = await self._until_answered(report.run_id)
        except StepwellError as error:
            self.front.problem(error)
            await self._hold("failed")
            return None
        finally:
            self.active, self._handle = None, None
            self.asked.clear()
        self.last = report
        self.front.ended(report)
        if report.status != "completed":
            await self._hold(report.status)
        return report

    async def _hold(self, reason: str) -> None:
        if await self.queue.hold(reason):
            waiting = await self.queue.waiting()
            self.front.news(
                "held", f"the queue waits ({len(waiting)}): it goes on after your next input", reason=reason,
                waiting=[item.to_dict() for item in waiting],
            )  # fmt: skip

    async def _until_answered(self, run_id: str) -> Report:
        """Wait for a run that was released: for an answer, given here or elsewhere, or until it is too late for one."""
        self._handle = None
        self._changed.set()
        self.front.news("waiting", "", run_id=run_id)
        runs, approvals = self.host.runs(self.project_id), self.host.approvals(self.project_id)
        while True:
            if self._resumed is not None:
                self._handle, self._resumed = self._resumed, None
                return await self._handle.report()
            row = runs.row(run_id)
            if not self._answering and row.status != "waiting_input":
                async for event in runs.events(run_id, after=self._seq, follow=row.status not in ENDED):
                    self._on_event(event)
                return runs.get(run_id)
            if not self._answering and not approvals.list(run_id=run_id, status="pending", limit=1)[0]:
                # Answered or expired, and nobody has gone on with it: unless somebody else begins to just now.
                with contextlib.suppress(RunStateConflict):
                    self._resumed = await self.host.resume(self.project, run_id, on_event=self._on_event)
                    continue
            await asyncio.sleep(POLL_SECONDS)

    async def _adopt(self, run_id: str) -> None:
        """Take over a run that waits for a person since an earlier chat."""
        self.active = run_id
        self._show_again(run_id)
        asked, _ = self.host.approvals(self.project_id).list(run_id=run_id, status="pending")
        self.asked = {ask.id: Ask(ask.id, ask.run_id, ask.tool, ask.arguments) for ask in reversed(asked)}
        for ask in self.asked.values():
            self.front.asks(ask)
        self._changed.set()
        report = await self._until_answered(run_id)
        while report.status == "waiting_input":
            report = await self._until_answered(run_id)
        self.active, self._handle, self.last = None, None, report
        self.asked.clear()
        self.front.ended(report)

    def _show_again(self, run_id: str) -> None:
        """Show what a run did before this chat."""
        for event in self.host.runs(self.project_id).all_events(run_id):
            self._seq = event.seq
            if event.type.startswith("output."):
                self.front.event(event)

    def resume(self) -> None:
        """Go on with the run that was cut off.

        Raises:
            InputInvalid: there is none.
        """
        run_id = self.interrupted
        if run_id is None:
            raise InputInvalid("no run of this conversation was cut off")
        self.interrupted = None

        async def job() -> None:
            self._show_again(run_id)
            await self.follow(await self.host.resume(self.project, run_id, on_event=self._on_event))

        self.later(job)

    def _on_event(self, event: Event) -> None:
        self._seq = event.seq
        self.front.event(event)
        request_id = event.data.get("request_id")
        if event.type == "tool.requested" and request_id is not None:
            ask = Ask(request_id, event.run_id, event.data["tool"], event.data["arguments"])
            self.asked[request_id] = ask
            self._changed.set()
            self.front.asks(ask)
        elif event.type in ("tool.approved", "tool.denied") and request_id is not None:
            self.asked.pop(request_id, None)

    # -- acting on the run -------------------------------------------------------------------------------------------

    async def stop(self) -> bool:
        """Cancel the run; False where none is active."""
        if self._handle is not None:
            self._handle.cancel("stopped in the chat")
        elif self.active is not None:
            await self.host.runs(self.project_id).cancel(self.active, "stopped in the chat")
        else:
            return False
        return True

    async def answer(
        self, *, approved: bool, request_id: str | None = None, arguments: Any = None, reason: str | None = None
    ) -> None:
        """Approve or deny a call; the one that was asked first where `request_id` is None.

        Raises:
            ApprovalNotFound, ApprovalConflict, ToolArgumentsInvalid: nothing was changed.
        """
        chosen = request_id or next(iter(self.asked), None)
        if chosen is None:
            raise ApprovalNotFound("nothing waits for approval here")
        approvals = self.host.approvals(self.project_id)
        tool = self.project.executor.tools.get(approvals.get(chosen).tool)
        if arguments is not None and tool is not None:
            tool.checked(arguments)
        self._answering += 1
        try:
            if approved:
                await approvals.approve(chosen, arguments=arguments, reason=reason)
            else:
                await approvals.deny(chosen, reason=reason)
            self.asked.pop(chosen, None)
            handle = await approvals.settle(self.project, chosen, on_event=self._on_event)
            if handle is not None:
                self._resumed = handle
        except StepwellError:
            if approvals.get(chosen).status != "pending":
                self.asked.pop(chosen, None)
            raise
        finally:
            self._answering -= 1
