"""A run while it is being executed: its events, their journal, its replay, its tasks."""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor as ThreadPool
from concurrent.futures import Future
from typing import Any

from stepwell.authoring.calls import NodeSpec, Replayed, current_frame
from stepwell.authoring.cancellation import Cancellation
from stepwell.authoring.output import Output, RecordedOutput
from stepwell.authoring.schema import UNLIMITED, describe_value, restore
from stepwell.errors import ReplayMismatch, ValueNotSerializable
from stepwell.files.store import FileStore
from stepwell.identifiers import now_micros
from stepwell.jsontext import decode, encode
from stepwell.redaction import Redactor
from stepwell.runtime.events import Event
from stepwell.runtime.replay import History
from stepwell.store.journal import EventRow, Journal
from stepwell.usage.report import TokenReport

INLINE_BYTES = 64 * 1024
BATCH_SECONDS = 0.05
OUTPUT_SECONDS = 0.04
BREATHE_SECONDS = 0.005

OnEvent = Callable[[Event], None]


class RunSession:
    """Implements what node calls, output items and the context need from their run.

    Events get their number at once and are shown to subscribers at once; they are written in batches, at the latest
    50 ms later, and `flush` waits for that.
    """

    def __init__(
        self,
        run_id: str,
        journal: Journal,
        files: FileStore,
        redactor: Redactor,
        threads: ThreadPool,
        *,
        on_event: OnEvent | None = None,
        history: History | None = None,
    ) -> None:
        self.run_id = run_id
        self.cancelled = Cancellation()
        self.mismatch: ReplayMismatch | None = None
        self.node_counts: dict[str, int] = dict(history.counts) if history else {}
        self._journal = journal
        self._files = files
        self._redactor = redactor
        self._threads = threads
        self._subscribers: list[OnEvent] = [on_event] if on_event else []
        self._history = history
        self._usage_left = dict(history.usage_by_node) if history else {}
        self._seq = history.last_seq if history else 0
        self._waiting: list[EventRow] = []
        self._writes: set[Future[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._breathed = self._loop.time()
        self._background: set[asyncio.Task[Any]] = set()

    # -- events --------------------------------------------------------------------------------------------------

    def emit(self, event: str, /, **data: Any) -> None:
        """Add an event. From a worker thread it is handed to the run's event loop."""
        if not self._on_loop():
            self._loop.call_soon_threadsafe(lambda: self.emit(event, **data))
            return
        if self._closed or self.mismatch is not None:
            return
        if event.startswith("node."):
            self.node_counts[event] = self.node_counts.get(event, 0) + 1
        self._add(event, data)
        if self._timer is None:
            self._timer = self._loop.call_later(BATCH_SECONDS, self._write_batch)

    def _add(self, event: str, data: dict[str, Any]) -> EventRow:
        self._seq += 1
        row = EventRow(self._seq, now_micros(), event, self._event_text(data))
        self._waiting.append(row)
        if self._subscribers:
            shown = Event.of(self.run_id, row)
            for subscriber in self._subscribers:
                subscriber(shown)
        return row

    def _event_text(self, data: dict[str, Any]) -> str:
        try:
            return encode(self._redactor.value(data), max_bytes=UNLIMITED)
        except ValueNotSerializable:
            return encode(self._redactor.value(describe_value(data).value), max_bytes=UNLIMITED)

    def add_final(self, event: str, **data: Any) -> list[EventRow]:
        """Number the last event and return everything that still has to be written, for the closing transaction."""
        self._add(event, data)
        self._closed = True
        return self.take_waiting()

    def take_waiting(self) -> list[EventRow]:
        """Take the events that are not on their way to the journal yet, to write them together with something else."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = self._waiting, []
        return waiting

    async def drain(self) -> None:
        """Wait for the writes that are under way."""
        for write in tuple(self._writes):
            await asyncio.wrap_future(write)

    def _write_batch(self) -> None:
        self._timer = None
        if self._waiting and self.mismatch is None:
            waiting, self._waiting = self._waiting, []
            write = self._journal.append(self.run_id, waiting)
            self._writes.add(write)
            write.add_done_callback(self._writes.discard)

    async def flush(self) -> None:
        """Wait until every event so far is durable.

        Raises:
            StorageUnavailable: the journal cannot be written.
        """
        if self._timer is not None:
            self._timer.cancel()
        self._write_batch()
        await self.drain()

    # -- values ----------------------------------------------------------------------------------------------------

    async def record(self, value: Any) -> tuple[Any, str, bool]:
        """What to record of a value (bounded, redacted), the fingerprint of the whole, and whether it is exact."""
        recorded, text, exact = describe_value(value)
        fingerprint = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()
        redacted = self._redactor.value(recorded)
        exact = exact and redacted is recorded
        if len(text) * 4 > INLINE_BYTES:
            raw = (text if redacted is recorded else encode(redacted, max_bytes=UNLIMITED)).encode()
            if len(raw) > INLINE_BYTES:
                stored = await asyncio.to_thread(
                    self._files.put_bytes, raw, name="value.json", media_type="application/json", run_id=self.run_id
                )
                return {"$artifact": stored.reference, "size": stored.size}, fingerprint, exact
        return redacted, fingerprint, exact

    async def breathe(self) -> None:
        """Let others have the event loop now and then: a chain of quick nodes would keep it to itself."""
        now = self._loop.time()
        if now - self._breathed > BREATHE_SECONDS:
            await asyncio.sleep(0)
            self._breathed = self._loop.time()

    def replayed(self, parent: str, path: str, spec: NodeSpec, fingerprint: str) -> Replayed | None:
        """The recorded result of a call of a resumed run, if it has one."""
        if self.mismatch is not None:
            raise self.mismatch
        if self._history is None:
            return None
        try:
            record = self._history.take(parent, path, fingerprint)
        except ReplayMismatch as mismatch:
            self.mismatch = mismatch
            raise
        if record is None or not spec.replay:
            return None
        output = record.output
        if isinstance(output, dict) and "$artifact" in output:
            output = decode(self._files.read(output["$artifact"]).decode())
        try:
            return Replayed(restore(spec.returns, output))
        except ValueError:
            return None  # the return type changed since: run it again

    def check_consumed(self, path: str) -> None:
        """A frame is about to complete: every recorded child must have been called."""
        if self._history is not None:
            try:
                self._history.check_consumed(path)
            except ReplayMismatch as mismatch:
                self.mismatch = mismatch
                raise

    def recorded_output(self, item: str) -> RecordedOutput | None:
        """What was recorded of an output item before the run was cut off."""
        return self._history.outputs.get(item) if self._history is not None else None

    # -- usage and titles --------------------------------------------------------------------------------------------

    def already_reported(self) -> bool:
        """True for a token report that the workflow's own body makes again while it is replayed."""
        frame = current_frame()
        path = frame.path if frame is not None else ""
        if path == "" and self._usage_left.get("", 0) > 0:
            self._usage_left[""] -= 1
            return True
        return False

    async def token_report(self, report: TokenReport, sequence: int, total: dict[str, int]) -> None:
        """A token report was counted."""
        frame = current_frame()
        fields = {name: value for name, value in report._asdict().items() if value is not None}
        self.emit(
            "token_usage.reported", node=frame.path if frame else "", sequence=sequence, report=fields, total=total
        )

    async def title_changed(self, title: str | None) -> None:
        """The conversation's title changed."""
        self.emit("title.changed", title=title)

    # -- tasks -------------------------------------------------------------------------------------------------------

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        """Run a blocking function in the host's thread pool."""
        return await self._loop.run_in_executor(self._threads, function)

    def background(self, coroutine: Coroutine[Any, Any, Any], name: str | None) -> "asyncio.Task[Any]":
        """Start a task that the run waits for."""
        task = self._loop.create_task(coroutine, name=name)
        self._background.add(task)
        return task

    async def finish_background(self) -> None:
        """Wait for background tasks; the first failure is raised and the others are cancelled."""
        while self._background:
            done, _ = await asyncio.wait(self._background, return_when=asyncio.FIRST_COMPLETED)
            self._background -= done
            for task in done:
                if not task.cancelled() and task.exception() is not None:
                    raise task.exception()  # type: ignore[misc]

    async def cancel_background(self) -> None:
        """Cancel background tasks and wait for them."""
        tasks, self._background = self._background, set()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=1)

    def later(self, output: Output) -> None:
        """Show what an output item holds back, in a moment."""
        self._loop.call_later(OUTPUT_SECONDS, output.push)

    def loop(self) -> asyncio.AbstractEventLoop:
        """The run's event loop."""
        return self._loop

    def is_closed(self) -> bool:
        """True once the run has ended."""
        return self._closed

    def _on_loop(self) -> bool:
        with contextlib.suppress(RuntimeError):
            return asyncio.get_running_loop() is self._loop
        return False
