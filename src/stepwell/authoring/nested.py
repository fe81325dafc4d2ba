"""`ctx.run_workflow()`: a workflow within a run, as one node that holds the nodes of the other.

The child works with its parent's run: its storage, conversation, token usage, files, models, cancellation and hooks, so
far as the modes do not say otherwise. It is replayed like any node, and where it was cut off it goes on within.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwell.authoring.background import BackgroundTasks
from stepwell.authoring.calls import Frame, NodeSpec, call, call_user_code, current_frame, within
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.executor import Entrypoint
from stepwell.authoring.schema import validate
from stepwell.conversation.snapshot import snapshot_of
from stepwell.conversation.state import Conversation
from stepwell.errors import (
    EntrypointNotFound,
    InvalidArgument,
    OutputBridgeFailed,
    OutputInvalid,
    ReplayMismatch,
    RunClosed,
    StepwellError,
    WorkflowNesting,
)

if TYPE_CHECKING:
    from stepwell.authoring.context import Context, Parts, RunServices

NODE = "run-workflow"
MAX_NESTING = 16

Handler = Callable[[Any], Awaitable[Any] | Any]

_SIGNATURE = inspect.Signature(
    [
        inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY)
        for name in ("workflow", "input", "conversation_mode", "kv_mode", "output_visibility")
    ]
)

_chain: ContextVar[tuple[str, ...]] = ContextVar("stepwell_workflow_chain", default=())


class Modes(NamedTuple):
    """What a child shares with its parent; see `Context.run_workflow`."""

    conversation: str
    kv: str
    output: str

    def checked(self) -> "Modes":
        """The same modes, if there are such."""
        for what, given, allowed in (
            ("conversation_mode", self.conversation, ("shared", "shared-readonly")),
            ("kv_mode", self.kv, ("shared", "isolated")),
            ("output_visibility", self.output, ("visible", "hidden")),
        ):
            if given not in allowed:
                raise InvalidArgument(f"{what} {given!r:.60} is not {' or '.join(allowed)}", argument=what)
        return self


async def run_nested(
    context: "Context",
    parts: "Parts",
    child: Any,
    given: Any,
    name: str | None,
    modes: Modes,
    on_output: Handler | None,
    on_output_chunk: Handler | None,
) -> Any:
    """Run a workflow within the current place of a run; see `Context.run_workflow`."""
    workflow = _workflow_of(child, parts)
    value = validate(workflow.input_type, given, f"the input of {workflow.name!r}")
    chain = _chain.get()
    if len(chain) >= MAX_NESTING:
        names = [*chain, workflow.name]
        raise WorkflowNesting(
            f"{workflow.name!r:.80} would be level {len(names)} of workflows within workflows, and {MAX_NESTING} are "
            f"allowed: {' > '.join(names)}",
            chain=names,
        )
    above = current_frame()
    if above is None:
        raise RunClosed("ctx.run_workflow() was called outside of a run")
    replayed: list[_Bridge] = []

    async def work(*_: Any) -> Any:
        frame = current_frame()
        assert frame is not None  # noqa: S101  (this is a node's function)
        nested = _Nested(context, parts, frame, _Bridge(frame.path, above, on_output, on_output_chunk))
        return await nested.run(workflow, value, modes, (*chain, workflow.name))

    async def on_replay(path: str) -> None:
        replayed.append(_Bridge(path, above, on_output, on_output_chunk))
        for text in above.session.recorded_texts(path, path):
            await replayed[0].hand_on(text)

    details = {"workflow": workflow.name, "title": name or workflow.name}
    spec = NodeSpec(NODE, "workflow", 0, None, True, True, workflow.output_type, details)
    recorded = (workflow.name, value, *modes)
    result = await call(spec, work, _SIGNATURE, recorded, {}, on_replay=on_replay)
    for bridge in replayed:
        await bridge.payload(result)
    return result


def _workflow_of(child: Any, parts: "Parts") -> Workflow:
    """The workflow that is meant: itself, an entrypoint, or the id of one of the executor's."""
    if isinstance(child, str):
        if child not in parts.entrypoints:
            raise EntrypointNotFound(
                f"there is no entrypoint {child!r:.80}", hint=f"there are: {', '.join(parts.entrypoints)}"
            )
        child = parts.entrypoints[child]
    if isinstance(child, Entrypoint):
        child = child.workflow
    if not isinstance(child, Workflow):
        raise InvalidArgument(
            f"{child!r:.80} is no workflow", hint="decorate the function with @workflow", argument="child"
        )
    return child


class _Bridge:
    """Hands a child's output on to the handlers of its parent, in order.

    Handlers are called from the parent's place in the tree of calls: a node that they call is the parent's.
    """

    def __init__(self, path: str, above: Frame, on_output: Handler | None, on_chunk: Handler | None) -> None:
        self._path = path
        self._above = above
        self._on_output = on_output
        self._on_chunk = on_chunk
        self._order = asyncio.Lock()
        self._streamed = False
        self.fail: Callable[[BaseException], None] | None = None
        self.failed: OutputBridgeFailed | None = None

    async def chunk(self, text: str) -> None:
        """A text was written in the child. Where a handler fails, the child is cancelled: this does not return."""
        if self._on_chunk is None:
            return
        was_failed = self.failed is not None
        try:
            await self.hand_on(text)
        except OutputBridgeFailed as failure:
            if self.fail is None or was_failed:  # code that swallowed its cancellation writes again
                raise
            self.fail(failure)
            await asyncio.Event().wait()

    async def replayed(self, path: str) -> None:
        """A node of the child was given back from the record: what it wrote is handed on again."""
        for text in self._above.session.recorded_texts(path, self._path):
            await self.chunk(text)

    async def hand_on(self, text: str) -> None:
        """Give a chunk to its handler.

        Raises:
            OutputBridgeFailed: it raised.
        """
        if self._on_chunk is not None:
            async with self._order:
                if self.failed is not None:
                    raise self.failed
                self._streamed = True
                try:
                    await self._handle(self._on_chunk, text, "on_output_chunk")
                except OutputBridgeFailed as failure:
                    self.failed = failure
                    raise

    async def payload(self, result: Any) -> None:
        """The child returned: hand its result on, unless its chunks were."""
        if self._on_output is not None and not self._streamed:
            await self._handle(self._on_output, result, "on_output")

    async def _handle(self, handler: Handler, what: Any, name: str) -> None:
        try:
            with within(self._above):
                made = handler(what)
                if inspect.isawaitable(made):
                    await made
        except (ReplayMismatch, RunClosed):
            raise
        except Exception as error:
            raise OutputBridgeFailed(
                f"{name} raised {type(error).__name__}: {error}"[:4_000], handler=name, output_bridge_failed=True
            ) from error


class _Nested:
    """One run of a child."""

    def __init__(self, context: "Context", parts: "Parts", frame: Frame, bridge: _Bridge) -> None:
        self._context = context
        self._parts = parts
        self._frame = frame
        self._bridge = bridge
        self._failure: BaseException | None = None
        self._work: asyncio.Task[Any] | None = None
        bridge.fail = self._fail

    async def run(self, workflow: Workflow, value: Any, modes: Modes, chain: tuple[str, ...]) -> Any:
        """Run the workflow; whatever fails beside its own code cancels that and is raised."""
        services = ChildServices(self._parts.services, self._fail)
        context = type(self._context)(await self._parts_of(workflow, modes, services))
        self._frame.is_body = True
        self._frame.watches = context.watches
        token = _chain.set(chain)
        try:
            self._work = asyncio.create_task(self._body(workflow, value, context, services))
            try:
                result = await self._work
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if self._failure is None or (task is not None and task.cancelling()):
                    raise
            if self._failure is not None:
                raise self._failure
            await self._bridge.payload(result)
            return result
        finally:
            _chain.reset(token)
            services.close()
            await services.tasks.cancel()

    async def _body(self, workflow: Workflow, value: Any, context: "Context", services: "ChildServices") -> Any:
        arguments = workflow.arguments(value, context)
        result = await call_user_code(self._frame.session, workflow.function, arguments, {})
        await services.tasks.finish()
        try:
            return validate(workflow.output_type, result, f"the output of {workflow.name!r}")
        except StepwellError as error:
            raise OutputInvalid(error.message, **error.data) from None

    async def _parts_of(self, workflow: Workflow, modes: Modes, services: "ChildServices") -> "Parts":
        parts = self._parts
        conversation = parts.conversation
        if modes.conversation == "shared-readonly" and isinstance(conversation, Conversation):
            session, path = self._frame.session, self._frame.path

            def on_commit(following: int, writes: list[list[str | None]]) -> None:
                session.emit("conversation.copy", node=path, following=following, writes=writes)

            recorded = [] if self._frame.fresh else session.recorded_copy(path)
            conversation = await snapshot_of(conversation, on_commit, recorded)
        hidden = modes.output == "hidden"
        return parts._replace(
            conversation=conversation,
            storage=parts.storage.with_own_kv(workflow.name) if modes.kv == "isolated" else parts.storage,
            services=services,
            watches=(self._bridge,) if hidden else (self._bridge, *parts.watches),
            hidden_by=self._frame.path if hidden else parts.hidden_by,
        )

    def _fail(self, error: BaseException) -> None:
        if self._failure is None:
            self._failure = error
            if self._work is not None:
                self._work.cancel()


class ChildServices:
    """What a child's context needs from the run: the run's own, with background tasks that end with the child."""

    def __init__(self, services: "RunServices", on_failure: Callable[[BaseException], None]) -> None:
        self._services = services
        self._closed = False
        self.tasks = BackgroundTasks(services.loop(), on_failure)
        self.recorded_output = services.recorded_output
        self.is_new_item = services.is_new_item
        self.emit = services.emit
        self.flush = services.flush
        self.later = services.later
        self.tool_mode = services.tool_mode
        self.ask = services.ask
        self.asked = services.asked
        self.loop = services.loop
        self.background = self.tasks.start

    def is_closed(self) -> bool:
        """True once the child or the run has ended."""
        return self._closed or self._services.is_closed()

    def close(self) -> None:
        """The child has ended: its context can no longer be used."""
        self._closed = True
