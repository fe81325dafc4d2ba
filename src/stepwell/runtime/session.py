"""A run while it is being executed: its events, what it records, its replay, its tasks."""

import asyncio
import contextlib
import hashlib
import traceback
from collections.abc import Callable, Coroutine
from typing import Any

from stepwell.authoring.background import BackgroundTasks
from stepwell.authoring.calls import Found, Frame, NodeSpec, Recorded, current_frame
from stepwell.authoring.cancellation import Cancellation
from stepwell.authoring.hooks import NodeHook
from stepwell.authoring.nested import NODE
from stepwell.authoring.output import Output, RecordedOutput
from stepwell.authoring.schema import UNLIMITED, describe_result, describe_value, restore
from stepwell.authoring.threads import WorkerThreads
from stepwell.conversation.state import AppendPlace
from stepwell.errors import FileMissing, ReplayMismatch, RunClosed, ValueNotSerializable
from stepwell.files.store import FileStore
from stepwell.identifiers import now_micros
from stepwell.jsontext import decode, encode
from stepwell.redaction import Redactor
from stepwell.runtime.events import Event
from stepwell.runtime.recording import Recording
from stepwell.runtime.replay import History
from stepwell.runtime.waiting import Waiting
from stepwell.store.journal import EventRow, Journal
from stepwell.tools.approval import ApprovalAsk, Decision
from stepwell.usage.report import TokenReport

INLINE_BYTES = 64 * 1024
OUTPUT_SECONDS = 0.04
BREATHE_SECONDS = 0.005
MAX_PLACE_CHARS = 200

OnEvent = Callable[[Event], None]

_NODE_ENDS = frozenset({"node.completed", "node.failed", "node.cancelled"})


class RunSession:
    """Implements what node calls, output items and the context need from their run.

    Events get their number at once and are shown to subscribers at once; `Recording` writes them.
    """

    def __init__(
        self,
        run_id: str,
        journal: Journal,
        files: FileStore,
        redactor: Redactor,
        threads: WorkerThreads,
        *,
        on_event: OnEvent | None = None,
        history: History | None = None,
        hooks: tuple[NodeHook, ...] = (),
    ) -> None:
        self.run_id = run_id
        self.threads = threads
        self.hooks = hooks
        self.cancelled = Cancellation()
        self.stopping = asyncio.Event()
        self.broken: BaseException | None = None
        self.background_failure: BaseException | None = None
        self.payload: Any = None
        self.recording = Recording(run_id, journal, self.break_off)
        self.node_counts: dict[str, int] = dict(history.counts) if history else {}
        self.active: set[str] = set()
        self.waiting = Waiting(self, journal.approvals, redactor.value)
        self._files = files
        self._redactor = redactor
        self._subscribers: list[OnEvent] = [on_event] if on_event else []
        self._history = history
        self._delivery = history.delivery() if history else None
        self._usage_left = dict(history.usage_by_node) if history else {}
        self._seq = history.last_seq if history else 0
        self._items: set[str] = set()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._breathed = self._loop.time()
        self.tasks = BackgroundTasks(self._loop, self._background_failed)

    # -- events --------------------------------------------------------------------------------------------------

    def emit(self, event: str, /, **data: Any) -> None:
        """Add an event. From a worker thread it is handed to the run's event loop."""
        if not self._on_loop():
            self._loop.call_soon_threadsafe(lambda: self.emit(event, **data))
            return
        if self._closed or self.broken is not None:
            return
        if event.startswith("node."):
            self.node_counts[event] = self.node_counts.get(event, 0) + 1
            if event == "node.started":
                self.active.add(data["node"])
            elif event in _NODE_ENDS:
                self.active.discard(data["node"])
        self._add(event, data)

    def emit_waiting(self) -> None:
        """Add the event that says that the run was released: nothing goes on until somebody answers."""
        self._add("run.waiting", {})

    def emit_final(self, event: str, **data: Any) -> None:
        """Add the last event: the context is closed from here on."""
        self._add(event, data)
        self._closed = True

    def _add(self, event: str, data: dict[str, Any]) -> None:
        self._seq += 1
        row = EventRow(self._seq, now_micros(), event, self._event_text(data))
        self.recording.add(row)
        if self._subscribers:
            shown = Event.of(self.run_id, row)
            for subscriber in tuple(self._subscribers):
                try:
                    subscriber(shown)
                except Exception:  # noqa: BLE001  (who watches a run must not make it fail: the run goes on unwatched)
                    self._subscribers.remove(subscriber)
                    self._add("log", {
                        "node": "", "level": "warning", "message": "a subscriber raised and was removed",
                        "fields": {"traceback": traceback.format_exc()[-4_000:]},
                    })  # fmt: skip

    def _event_text(self, data: dict[str, Any]) -> str:
        try:
            return encode(self._redactor.value(data), max_bytes=UNLIMITED)
        except ValueNotSerializable:
            return encode(self._redactor.value(describe_value(data).value), max_bytes=UNLIMITED)

    async def flush(self) -> None:
        """Wait until every event so far is durable.

        Raises:
            StorageUnavailable: the journal cannot be written.
        """
        await self.recording.flush()

    # -- stopping --------------------------------------------------------------------------------------------------

    def cancel(self, reason: str) -> None:
        """Ask the run to stop, from any thread."""
        self.cancelled.set(reason)
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the run with it
            self._loop.call_soon_threadsafe(self.stopping.set)

    def break_off(self, why: BaseException) -> None:
        """Stop without an end, as if the process had died: the run can be resumed. Nothing more is recorded."""
        if self.broken is None and not self._closed:
            self.broken = why
            self.cancelled.set("the run was broken off")
            self.stopping.set()

    # -- values ----------------------------------------------------------------------------------------------------

    async def record(self, value: Any, annotation: Any = None) -> Recorded:
        """What to record of a value; the annotation, if there is one, is what it will be read back as."""
        return await self._kept(*self._measured(value, annotation))

    async def record_aside(self, value: Any) -> Recorded:
        """What to record of a large value, worked out in a thread: the event loop is for others meanwhile."""
        return await self._kept(*await asyncio.to_thread(self._measured, value, None))

    def _measured(self, value: Any, annotation: Any) -> tuple[Recorded, bytes | None]:
        """A value as it is recorded, and its text where that is too long for an event."""
        described = describe_value(value) if annotation is None else describe_result(annotation, value)
        text = described.text
        fingerprint = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        redacted = self._redactor.value(described.value)
        exact = described.exact and redacted is described.value
        recorded = Recorded(redacted, fingerprint, exact, spilled=False)
        if len(text) * 4 > INLINE_BYTES:
            raw = (text if redacted is described.value else encode(redacted, max_bytes=UNLIMITED)).encode()
            if len(raw) > INLINE_BYTES:
                return recorded, raw
        return recorded, None

    async def _kept(self, recorded: Recorded, raw: bytes | None) -> Recorded:
        if raw is None:
            return recorded
        stored = await asyncio.to_thread(
            self._files.put_bytes, raw, name="value.json", media_type="application/json", run_id=self.run_id
        )
        return recorded._replace(value={"$artifact": stored.reference, "size": stored.size}, spilled=True)

    async def breathe(self) -> None:
        """Let others have the event loop now and then: a chain of quick nodes would keep it to itself.

        Raises:
            RunClosed: the run has ended. ReplayMismatch, StorageUnavailable: it cannot go on.
        """
        if self._closed:
            raise RunClosed(f"the run {self.run_id} has ended; its nodes can no longer be called")
        if self.broken is not None:
            raise self.broken
        now = self._loop.time()
        if now - self._breathed > BREATHE_SECONDS:
            await asyncio.sleep(0)
            self._breathed = self._loop.time()

    # -- replay ----------------------------------------------------------------------------------------------------

    @property
    def is_resumed(self) -> bool:
        """True if the run has a recorded past."""
        return self._history is not None

    async def find(self, parent: Frame, path: str, spec: NodeSpec, fingerprint: str) -> Found:
        """Look a call up in the past of a resumed run, where it may be recorded under another path.

        Raises:
            ReplayMismatch: the journal recorded another path through the code; the run is broken off.
        """
        assert self._history is not None  # noqa: S101
        assert self._delivery is not None  # noqa: S101
        try:
            record = self._history.take(parent.path, path, spec.name, fingerprint)
        except ReplayMismatch as mismatch:
            self.break_off(mismatch)
            raise
        if record is None:
            taken = self._history.nodes
            return Found(parent.free_path(spec.name, taken) if path in taken else path, is_replayed=False)
        why = None
        if record.replayable and spec.replay:
            try:
                output = record.output
                if record.spilled:
                    output = decode((await asyncio.to_thread(self._files.read, output["$artifact"])).decode())
                result = restore(spec.returns, output)
            except FileMissing:
                why = "its recorded result is gone"
            except ValueError:
                why = "its recorded result is not what it returns now"
            else:
                await self._delivery.turn(record)
                return Found(record.path, is_replayed=True, result=result)
        elif record.completed:
            why = "its recorded result is not exact" if spec.replay else "it is declared with replay=False"
        self._delivery.skip(record)
        if why is None:
            why = "it failed before" if record.failed is not None else "it was cut off"
        return Found(record.path, is_replayed=False, attempt=record.begun + 1, rerun=why)

    def recorded_texts(self, path: str, hidden_from: str) -> list[str]:
        """What was recorded of the output items under a node before the run was cut off."""
        return self._history.texts(path, hidden_from) if self._history is not None else []

    def shown_texts(self, beside: str) -> list[str]:
        """What was recorded as shown before the run was cut off, without what stands under a node."""
        return self._history.shown(beside) if self._history is not None else []

    def recorded_copy(self, path: str) -> list[dict[str, Any]]:
        """What was recorded of the copy of the conversation that a workflow within the run wrote to."""
        return self._history.copies.get(path, []) if self._history is not None else []

    def recorded_mark(self, event: str, path: str) -> dict[str, Any] | None:
        """The data of an event about a node in a resumed run's past."""
        return self._history.marks.get((event, path)) if self._history is not None else None

    def check_consumed(self, path: str) -> None:
        """A frame is about to complete: every recorded child must have been called."""
        if self._history is not None:
            try:
                self._history.check_consumed(path)
            except ReplayMismatch as mismatch:
                self.break_off(mismatch)
                raise

    def recorded_output(self, item: str) -> RecordedOutput | None:
        """What was recorded of an output item before the run was cut off; asked for once."""
        recorded = self._history.outputs.pop(item, None) if self._history is not None else None
        if recorded is not None:
            self._items.add(item)
        return recorded

    def is_new_item(self, item: str) -> bool:
        """True the first time; False where a node that is tried again opens its output again."""
        is_new = item not in self._items
        self._items.add(item)
        return is_new

    # -- usage and titles --------------------------------------------------------------------------------------------

    def already_reported(self) -> bool:
        """True for a token report that a workflow's own body makes again while it is replayed."""
        frame, path = current_frame(), self.reporting_node()
        if (frame is None or (frame.is_body and not frame.fresh)) and self._usage_left.get(path, 0) > 0:
            self._usage_left[path] -= 1
            return True
        return False

    def reporting_node(self) -> str:
        """The path of the node that a token report is made in; of the workflow's own body it is empty."""
        frame = current_frame()
        return frame.path if frame is not None else ""

    def token_report(self, report: TokenReport, sequence: int, total: dict[str, int], node: str) -> None:
        """A token report was counted."""
        self.emit("token_usage.reported", node=node, sequence=sequence, report=report.fields(), total=total)

    def completed_report(self, node: str) -> None:
        """The totals had a report that the events had not: a body that makes it again is not counted again."""
        self._usage_left[node] = self._usage_left.get(node, 0) + 1

    def append_place(self) -> AppendPlace | None:
        """Where messages are appended now, if that is the body of a workflow: a resumed run goes through it again."""
        frame = current_frame()
        if frame is None or not frame.is_body or frame.fresh:
            return None
        path = frame.child_path("@message")

        def on_conflict() -> None:
            # Within a node that was tried again other messages may stand there; those stay.
            if all(part.partition("#")[0] == NODE for part in path.split("/")[:-1]):
                mismatch = ReplayMismatch(f"the code appends another message than before at {path!r}", node=frame.path)
                self.break_off(mismatch)
                raise mismatch

        place = f"{self.run_id}/{path}"
        if len(place) > MAX_PLACE_CHARS:
            place = f"{self.run_id}/{hashlib.blake2b(path.encode(), digest_size=16).hexdigest()}"
        return AppendPlace(place, on_conflict)

    async def title_changed(self, title: str | None) -> None:
        """The conversation's title changed."""
        self.emit("title.changed", title=title)

    # -- people ------------------------------------------------------------------------------------------------------

    def tool_mode(self, tool: str) -> str | None:
        """The mode that was set for a tool in this project, if any."""
        return self.waiting.mode(tool)

    async def ask(self, ask: ApprovalAsk) -> Decision:
        """Wait for a person's answer; the run may be released meanwhile."""
        return await self.waiting.ask(ask)

    async def asked(self, decision: Decision) -> None:
        """What was decided is done and recorded."""
        await self.waiting.done(decision)

    # -- tasks -------------------------------------------------------------------------------------------------------

    def background(self, coroutine: Coroutine[Any, Any, Any], name: str | None) -> "asyncio.Task[Any]":
        """Start a task that the run waits for; the run fails as soon as it does."""
        return self.tasks.start(coroutine, name)

    def _background_failed(self, error: BaseException) -> None:
        if not self.cancelled:
            self.background_failure = error
            self.cancelled.set("a background task failed")
            self.stopping.set()

    def later(self, output: Output) -> None:
        """Show what an output item holds back, in a moment."""
        self._loop.call_later(OUTPUT_SECONDS, output.push)

    def loop(self) -> asyncio.AbstractEventLoop:
        """The run's event loop."""
        return self._loop

    def close(self) -> None:
        """Let nothing of the run go on."""
        self._closed = True

    def is_closed(self) -> bool:
        """True once the run has ended."""
        return self._closed

    def _on_loop(self) -> bool:
        with contextlib.suppress(RuntimeError):
            return asyncio.get_running_loop() is self._loop
        return False
