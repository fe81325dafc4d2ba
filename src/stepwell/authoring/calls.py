"""How a node call runs inside a run: its path, record, attempts, replay.

The position in the tree of calls travels in a context variable, so branches started with `asyncio.gather` or a
`TaskGroup` nest correctly. What a call needs from its run is the `Session` protocol; `stepwell.runtime` implements it.
"""

import asyncio
import contextlib
import inspect
import random
import traceback
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, Protocol

from stepwell.authoring.hooks import NodeCall, NodeHook, hooked
from stepwell.authoring.threads import WorkerThreads, current_bridge, in_thread
from stepwell.errors import ExitInRun, NodeTimeout, ReplayMismatch, RunClosed, StepwellError

FIRST_RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 30.0


class NodeSpec(NamedTuple):
    """How a node is declared. `timeout` is in seconds, `retries` counts further attempts after the first.

    `details` are further JSON fields of its `node.started` event.
    """

    name: str
    kind: str
    retries: int
    timeout: float | None
    durable: bool
    replay: bool
    returns: Any
    details: Mapping[str, Any] = {}


class Frame:
    """One place in the tree of calls: the run itself, or a node that is running.

    `fresh` says that what is called from here is not looked up in the record of a resumed run. `is_body` marks the body
    of a workflow: a resumed run goes through it again although it had been there. `watches` get the texts of output
    items of nodes that are given back from the record.
    """

    __slots__ = ("counts", "fresh", "is_body", "path", "session", "watches")

    def __init__(
        self,
        session: "Session",
        path: str,
        *,
        fresh: bool = False,
        is_body: bool = False,
        watches: "tuple[Watch, ...]" = (),
    ) -> None:
        self.session = session
        self.path = path
        self.fresh = fresh
        self.is_body = is_body
        self.watches = watches
        self.counts: dict[str, int] = {}

    def child_path(self, name: str) -> str:
        """The path of the next child of that name: `name`, then `name#2`, …, behind this frame's own path."""
        count = self.counts[name] = self.counts.get(name, 0) + 1
        own = name if count == 1 else f"{name}#{count}"
        return f"{self.path}/{own}" if self.path else own

    def free_path(self, name: str, taken: Container[str]) -> str:
        """The path of the next child of that name that is not taken."""
        while (path := self.child_path(name)) in taken:
            pass
        return path


class Watch(Protocol):
    """Follows the output of a workflow within a run."""

    async def replayed(self, path: str) -> None:
        """The node of that path was given back from the record."""
        ...


class Recorded(NamedTuple):
    """A value as it is recorded: bounded and redacted; `fingerprint` is of the whole.

    `exact` says that the value can be had again from it, `spilled` that it is a reference to a file.
    """

    value: Any
    fingerprint: str
    exact: bool
    spilled: bool


class Found(NamedTuple):
    """What a resumed run has of a call: its result, or how often it was begun and why it has to run again."""

    path: str
    is_replayed: bool
    result: Any = None
    attempt: int = 1
    rerun: str | None = None


class Session(Protocol):
    """What a node call needs from its run."""

    @property
    def is_resumed(self) -> bool:
        """True if the run has a recorded past."""
        ...

    @property
    def hooks(self) -> tuple[NodeHook, ...]:
        """What goes around every node call."""
        ...

    @property
    def threads(self) -> WorkerThreads:
        """Where synchronous functions run."""
        ...

    async def find(self, parent: Frame, path: str, spec: NodeSpec, fingerprint: str) -> Found:
        """Look a call up in the past of a resumed run, where it may be recorded under another path.

        Raises:
            ReplayMismatch: the journal recorded another path through the code.
        """
        ...

    def recorded_mark(self, event: str, path: str) -> dict[str, Any] | None:
        """The data of an event about a node (`node.skipped`, `graph.started`) in a resumed run's past."""
        ...

    def shown_texts(self, beside: str) -> list[str]:
        """What a resumed run has recorded as shown, without the output items under the node at path `beside`."""
        ...

    def recorded_texts(self, path: str, hidden_from: str) -> list[str]:
        """What a resumed run has recorded of the output items under a node, in their order.

        Without what is hidden from the workflow at path `hidden_from`.
        """
        ...

    def recorded_copy(self, path: str) -> list[dict[str, Any]]:
        """The data of the `conversation.copy` events of a node in a resumed run's past."""
        ...

    def check_consumed(self, path: str) -> None:
        """A frame of a resumed run is about to complete: raise ReplayMismatch if recorded children were not called."""
        ...

    async def record(self, value: Any, annotation: Any = None) -> Recorded:
        """What to record of a value; the annotation, if there is one, is what it will be read back as."""
        ...

    async def record_aside(self, value: Any) -> Recorded:
        """What to record of a large value, worked out in a thread."""
        ...

    async def breathe(self) -> None:
        """Let others have the event loop now and then.

        Raises:
            RunClosed: the run has ended. ReplayMismatch, StorageUnavailable: it cannot go on.
        """
        ...

    def emit(self, event: str, /, **data: Any) -> None:
        """Add an event to the run's stream."""
        ...

    async def flush(self) -> None:
        """Wait until every event so far is durable."""
        ...

    def loop(self) -> asyncio.AbstractEventLoop:
        """The run's event loop."""
        ...


_frame: ContextVar[Frame | None] = ContextVar("stepwell_frame", default=None)


def current_frame() -> Frame | None:
    """The running node (or the run itself) of this task or thread; None outside a run."""
    return _frame.get()


def enter_run(session: Session) -> None:
    """Make this task the root of a run."""
    _frame.set(Frame(session, "", is_body=True))


@contextlib.contextmanager
def within(frame: Frame) -> Iterator[None]:
    """What is called here belongs to another place in the tree of calls."""
    token = _frame.set(frame)
    try:
        yield
    finally:
        _frame.reset(token)


OnReplay = Callable[[str], Awaitable[None]]


def call(
    spec: NodeSpec,
    function: Callable[..., Any],
    signature: inspect.Signature,
    args: Any,
    kwargs: Any,
    *,
    on_replay: OnReplay | None = None,
) -> Any:
    """Call a node: an awaitable inside a run, the plain function outside.

    From a synchronous node (a worker thread of the run) the call blocks and returns the result itself.

    Args:
        on_replay: awaited with the node's path where the result is given back from the record.
    """
    frame = _frame.get()
    if frame is None:
        return function(*args, **kwargs)
    coroutine = _run_node(frame, spec, function, signature, args, kwargs, on_replay)
    loop = frame.session.loop()
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        bridge = current_bridge()
        return bridge.wait(coroutine) if bridge else asyncio.run_coroutine_threadsafe(coroutine, loop).result()
    if running is loop:
        return coroutine
    # A loop that a synchronous node started in its thread: the run's bookkeeping stays on the run's own.
    return asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


async def _run_node(
    parent: Frame, spec: NodeSpec, function: Callable[..., Any], signature: inspect.Signature, args: Any, kwargs: Any,
    on_replay: OnReplay | None,
) -> Any:  # fmt: skip
    session = parent.session
    path = parent.child_path(spec.name)  # before anything waits: calls are numbered in the order they are made
    await session.breathe()
    arguments = _inputs(signature, args, kwargs)
    inputs = await session.record(arguments)
    noted: dict[str, Any] = {}
    if session.is_resumed and not parent.fresh:
        found = await session.find(parent, path, spec, inputs.fingerprint)
        if found.is_replayed:
            if on_replay is not None:
                await on_replay(found.path)
            for watch in parent.watches:
                await watch.replayed(found.path)
            return found.result
        path = found.path
        if found.attempt > 1:
            noted = {"attempt": found.attempt, "rerun": found.rerun}
    session.emit(
        "node.started", node=path, parent=parent.path, name=spec.name, kind=spec.kind, input=inputs.value,
        fingerprint=inputs.fingerprint, **spec.details, **noted,
    )  # fmt: skip
    started = monotonic()
    frame = Frame(session, path, fresh=parent.fresh or not spec.replay, watches=parent.watches)
    token = _frame.set(frame)
    try:
        run = partial(_attempts, frame, spec, lambda: _once(session, spec, function, args, kwargs))
        if session.hooks:
            result = await hooked(session.hooks, NodeCall(path, spec.name, spec.kind, arguments), run)
        else:
            result = await run()
        if not frame.fresh:
            session.check_consumed(path)
    except BaseException as error:
        if isinstance(error, asyncio.CancelledError):
            session.emit("node.cancelled", node=path, duration_ms=_since(started))
        else:
            _mark(error, path)
            session.emit(
                "node.failed", node=path, duration_ms=_since(started), error=describe_error(error),
                traceback="".join(traceback.format_exception(error))[-16_000:],
            )  # fmt: skip
        raise
    finally:
        _frame.reset(token)
    output = await session.record(result, spec.returns)
    session.emit(
        "node.completed", node=path, duration_ms=_since(started), output=output.value,
        replayable=output.exact and spec.replay, **({"spilled": True} if output.spilled else {}),
    )  # fmt: skip
    if spec.durable or spec.kind in ("llm", "tool", "output"):
        await session.flush()
    return result


async def _attempts(frame: Frame, spec: NodeSpec, once: Callable[[], Awaitable[Any]]) -> Any:
    delay = FIRST_RETRY_SECONDS
    for attempt in range(1, spec.retries + 2):
        try:
            return await once()
        except Exception as error:
            if attempt > spec.retries or isinstance(error, (ReplayMismatch, RunClosed)):
                raise
            pause = delay * (0.5 + random.random())
            frame.session.emit(
                "node.retrying", node=frame.path, attempt=attempt, error=describe_error(error),
                delay_ms=round(pause * 1000),
            )  # fmt: skip
            await asyncio.sleep(pause)
            delay = min(delay * 2, MAX_RETRY_SECONDS)
            # The next attempt numbers its children afresh and calls them for real: what they returned did not do.
            frame.counts.clear()
            frame.fresh = True
    raise AssertionError("unreachable")


async def _once(session: Session, spec: NodeSpec, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        async with asyncio.timeout(spec.timeout) as limit:
            return await call_user_code(session, function, args, kwargs)
    except TimeoutError:
        if limit.expired():
            shown = spec.details.get("title", spec.name)  # the nodes of a graph are named by an id
            raise NodeTimeout(f"{shown} did not finish within {spec.timeout:g} s", node=spec.name) from None
        raise


async def call_user_code(session: Session, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function of the project: on the event loop if it is async, in a worker thread if not.

    Raises:
        ExitInRun: it tried to end the process; asyncio would let that through every other run.
    """
    try:
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        result = await in_thread(session.threads, partial(function, *args, **kwargs))
        return await result if inspect.isawaitable(result) else result
    except (SystemExit, KeyboardInterrupt) as error:
        raise ExitInRun(f"the code of the run raised {error!r}") from error


def _inputs(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    from stepwell.authoring.context import Context

    bound = signature.bind(*args, **kwargs).arguments
    return {name: value for name, value in bound.items() if not isinstance(value, Context)}


def describe_error(error: BaseException) -> dict[str, Any]:
    """An exception for events and reports: type, message, and the code of our own errors. Groups by first cause."""
    error = first_cause(error)
    described: dict[str, Any] = {"type": type(error).__name__, "message": str(error)[:4_000]}
    if isinstance(error, StepwellError):
        described |= error.to_dict() | {"type": type(error).__name__}
    return described


def first_cause(error: BaseException) -> BaseException:
    """The first exception of a group that is not a cancellation; the exception itself otherwise."""
    while isinstance(error, BaseExceptionGroup):
        real = [part for part in error.exceptions if not isinstance(part, asyncio.CancelledError)]
        error = (real or list(error.exceptions))[0]
    return error


def _mark(error: BaseException, path: str) -> None:
    cause = first_cause(error)
    if not hasattr(cause, "stepwell_node"):
        with contextlib.suppress(AttributeError):  # an exception class may close itself to new attributes
            cause.stepwell_node = path  # type: ignore[attr-defined]


def _since(started: float) -> float:
    return round((monotonic() - started) * 1000, 3)
