"""How a node call runs inside a run: its path, record, attempts, replay.

The position in the tree of calls travels in a context variable, so branches started with `asyncio.gather` or a
`TaskGroup` nest correctly. What a call needs from its run is the `Session` protocol; `stepwell.runtime` implements it.
"""

import asyncio
import inspect
import random
import traceback
from collections.abc import Awaitable, Callable
from contextvars import ContextVar, copy_context
from time import monotonic
from typing import Any, NamedTuple, Protocol

from stepwell.errors import ExitInRun, NodeTimeout, StepwellError

FIRST_RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 30.0


class NodeSpec(NamedTuple):
    """How a node is declared. `timeout` is in seconds, `retries` counts further attempts after the first."""

    name: str
    kind: str
    retries: int
    timeout: float | None
    durable: bool
    replay: bool
    returns: Any


class Frame:
    """One place in the tree of calls: the run itself, or a node that is running."""

    __slots__ = ("counts", "path", "session")

    def __init__(self, session: "Session", path: str) -> None:
        self.session = session
        self.path = path
        self.counts: dict[str, int] = {}

    def child_path(self, name: str) -> str:
        """The path of the next child of that name: `name`, then `name#2`, …, behind this frame's own path."""
        count = self.counts[name] = self.counts.get(name, 0) + 1
        own = name if count == 1 else f"{name}#{count}"
        return f"{self.path}/{own}" if self.path else own


class Replayed(NamedTuple):
    """A node's recorded result."""

    result: Any


class Session(Protocol):
    """What a node call needs from its run."""

    def replayed(self, parent: str, path: str, spec: NodeSpec, fingerprint: str) -> Replayed | None:
        """The recorded result of a call of a resumed run, if it has one.

        Raises:
            ReplayMismatch: the journal recorded another path through the code.
        """
        ...

    def check_consumed(self, path: str) -> None:
        """A frame of a resumed run is about to complete: raise ReplayMismatch if recorded children were not called."""
        ...

    async def record(self, value: Any) -> tuple[Any, str, bool]:
        """What to record of a value (bounded, redacted), the fingerprint of the whole, and whether it is exact."""
        ...

    async def breathe(self) -> None:
        """Let others have the event loop now and then."""
        ...

    def emit(self, event: str, /, **data: Any) -> None:
        """Add an event to the run's stream."""
        ...

    async def flush(self) -> None:
        """Wait until every event so far is durable."""
        ...

    async def in_thread(self, function: Callable[[], Any]) -> Any:
        """Run a blocking function in the run's thread pool."""
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
    _frame.set(Frame(session, ""))


def call(spec: NodeSpec, function: Callable[..., Any], signature: inspect.Signature, args: Any, kwargs: Any) -> Any:
    """Call a node: an awaitable inside a run, the plain function outside.

    From a synchronous node (a worker thread of the run) the call blocks and returns the result itself.
    """
    frame = _frame.get()
    if frame is None:
        return function(*args, **kwargs)
    coroutine = _run_node(frame, spec, function, signature, args, kwargs)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run_coroutine_threadsafe(coroutine, frame.session.loop()).result()
    return coroutine


async def _run_node(
    parent: Frame, spec: NodeSpec, function: Callable[..., Any], signature: inspect.Signature, args: Any, kwargs: Any
) -> Any:
    session = parent.session
    path = parent.child_path(spec.name)  # before anything waits: calls are numbered in the order they are made
    await session.breathe()
    shown, fingerprint, _ = await session.record(_inputs(signature, args, kwargs))
    replayed = session.replayed(parent.path, path, spec, fingerprint)
    if replayed is not None:
        return replayed.result
    session.emit(
        "node.started", node=path, parent=parent.path, name=spec.name, kind=spec.kind, input=shown,
        fingerprint=fingerprint,
    )  # fmt: skip
    started = monotonic()
    token = _frame.set(frame := Frame(session, path))
    try:
        result = await _attempts(frame, spec, lambda: _once(session, spec, function, args, kwargs))
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
    shown, _, exact = await session.record(result)
    session.emit(
        "node.completed", node=path, duration_ms=_since(started), output=shown, replayable=exact and spec.replay
    )
    if spec.durable or spec.kind in ("llm", "tool", "output"):
        await session.flush()
    return result


async def _attempts(frame: Frame, spec: NodeSpec, once: Callable[[], Awaitable[Any]]) -> Any:
    delay = FIRST_RETRY_SECONDS
    for attempt in range(1, spec.retries + 2):
        # Each attempt numbers its children afresh, so that a retried call finds its own records.
        frame.counts.clear()
        try:
            return await once()
        except Exception as error:
            if attempt > spec.retries or (isinstance(error, StepwellError) and error.code == "replay_mismatch"):
                raise
            pause = delay * (0.5 + random.random())
            frame.session.emit(
                "node.retrying", node=frame.path, attempt=attempt, error=describe_error(error),
                delay_ms=round(pause * 1000),
            )  # fmt: skip
            await asyncio.sleep(pause)
            delay = min(delay * 2, MAX_RETRY_SECONDS)
    raise AssertionError("unreachable")


async def _once(session: Session, spec: NodeSpec, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    try:
        async with asyncio.timeout(spec.timeout) as limit:
            return await call_user_code(session, function, args, kwargs)
    except TimeoutError:
        if limit.expired():
            raise NodeTimeout(f"{spec.name} did not finish within {spec.timeout:g} s", node=spec.name) from None
        raise


async def call_user_code(session: Session, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a function of the project: on the event loop if it is async, in a worker thread if not.

    Raises:
        ExitInRun: it tried to end the process; asyncio would let that through every other run.
    """
    try:
        if inspect.iscoroutinefunction(function):
            return await function(*args, **kwargs)
        context = copy_context()
        return await session.in_thread(lambda: context.run(function, *args, **kwargs))
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
        cause.stepwell_node = path  # type: ignore[attr-defined]


def _since(started: float) -> float:
    return round((monotonic() - started) * 1000, 3)
