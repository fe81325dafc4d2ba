"""Output items: what a run shows while it works, streamed in order.

An item is identified by where it is opened and in which turn. In a resumed run an item that was already recorded as
a whole is not shown again; one that was cut off continues where its record ends, as long as the same text is
written again, and starts over (`output.restarted`) when it is another.
"""

from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from stepwell.errors import InvalidArgument, RunClosed

COALESCE_SECONDS = 0.04
MAX_CHUNK_CHARS = 16_384


class RecordedOutput(NamedTuple):
    """What the journal of a resumed run holds of an output item.

    `hidden_by` is the path of the workflow within the run that hid it, if one did.
    """

    text: str
    completed: bool
    hidden_by: str | None = None


class OutputWatch(Protocol):
    """Follows the output of a workflow within a run."""

    async def chunk(self, text: str) -> None:
        """An item was given that text."""
        ...


class OutputSession(Protocol):
    """What an output item needs from its run."""

    def recorded_output(self, item: str) -> RecordedOutput | None:
        """What was recorded of the item before the run was cut off."""
        ...

    def is_new_item(self, item: str) -> bool:
        """True the first time that the run opens it."""
        ...

    def is_closed(self) -> bool:
        """True once the run has ended."""
        ...

    def emit(self, event: str, /, **data: Any) -> None:
        """Add an event."""
        ...

    async def flush(self) -> None:
        """Wait until the events are durable."""
        ...

    def later(self, output: "Output") -> None:
        """Call `output.push()` in a moment."""
        ...


class Output:
    """`async with ctx.output("answer") as out: await out.write(chunk)`.

    Args:
        session: the run.
        item: identifies the item within the run.
        name: shown.
        media_type: of the whole text.
        watches: told every chunk as it is written.
        hidden_by: the path of the workflow within the run that hides its output: then the item is no part of what the
            run shows, and its record is one `output.hidden` event.
    """

    def __init__(
        self,
        session: OutputSession,
        item: str,
        name: str,
        media_type: str,
        watches: tuple[OutputWatch, ...] = (),
        hidden_by: str | None = None,
    ) -> None:
        self._session = session
        self._watches = watches
        self._hidden_by = hidden_by
        self.item = item
        self.name = name
        self._media_type = media_type
        self._parts: list[str] = []
        self._pending = ""
        self._shown_at = 0.0
        self._recorded: RecordedOutput | None = None
        self._open = False
        self._is_due = False
        self._length = 0

    async def __aenter__(self) -> Self:
        self._recorded = self._session.recorded_output(self.item)
        self._open = True
        if self._recorded is None and self._hidden_by is None:
            event = "output.started" if self._session.is_new_item(self.item) else "output.restarted"
            self._session.emit(event, item=self.item, name=self.name, media_type=self._media_type)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.push()
        self._open = False
        recorded = self._recorded
        if recorded is not None and recorded.completed and self.text == recorded.text:
            return
        if self._hidden_by is not None:
            self._session.emit(
                "output.hidden", item=self.item, name=self.name, media_type=self._media_type, text=self.text,
                hidden_by=self._hidden_by, interrupted=kind is not None,
            )  # fmt: skip
            return
        if recorded is not None and self.text != recorded.text:
            self._restart()
        self._session.emit("output.completed", item=self.item, interrupted=kind is not None)
        if kind is None:
            await self._session.flush()

    async def write(self, chunk: str) -> None:
        """Add text. Chunks in quick succession are shown together, at most 40 ms late."""
        if not isinstance(chunk, str):
            raise InvalidArgument(f"an output takes text, not {type(chunk).__name__}", argument="chunk")
        if self._session.is_closed():
            raise RunClosed(f"the run of the output {self.name!r} has ended")
        if not self._open:
            raise InvalidArgument(f"the output {self.name!r} is closed", hint="write inside its `async with` block")
        if not chunk:
            return
        self._parts.append(chunk)
        if self._recorded is not None and self._hidden_by is None:
            self._catch_up(self._recorded, chunk)
        elif self._hidden_by is None:
            self._pending += chunk
            if monotonic() - self._shown_at >= COALESCE_SECONDS or len(self._pending) >= MAX_CHUNK_CHARS:
                self.push()
            elif not self._is_due:
                self._is_due = True
                self._session.later(self)
        self._length += len(chunk)
        for watch in self._watches:
            await watch.chunk(chunk)

    @property
    def text(self) -> str:
        """Everything written so far."""
        return "".join(self._parts)

    def push(self) -> None:
        """Show what is waiting."""
        self._is_due = False
        while self._pending:
            chunk, self._pending = self._pending[:MAX_CHUNK_CHARS], self._pending[MAX_CHUNK_CHARS:]
            self._session.emit("output.chunk", item=self.item, text=chunk)
        self._shown_at = monotonic()

    def _catch_up(self, recorded: RecordedOutput, chunk: str) -> None:
        """A chunk of an item that is recorded: known already, the first news behind the record, or another text."""
        known = recorded.text[self._length : self._length + len(chunk)]
        if known == chunk:
            return
        if chunk.startswith(known) and not recorded.completed:
            self._recorded = None
            self._pending = chunk[len(known) :]
            self.push()
        else:
            self._restart()

    def _restart(self) -> None:
        self._recorded = None
        self._session.emit("output.restarted", item=self.item, name=self.name, media_type=self._media_type)
        self._pending = self.text
        self.push()
