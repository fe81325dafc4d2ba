"""`Context`: what a run offers to its workflow and nodes."""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from stepwell.authoring.agent import Agent, AgentParts, Limits
from stepwell.authoring.calls import Watch, current_frame
from stepwell.authoring.cancellation import Cancellation
from stepwell.authoring.models import Llm, Models
from stepwell.authoring.nested import Handler, Modes, run_nested
from stepwell.authoring.output import Output, OutputSession, OutputWatch
from stepwell.authoring.threads import current_bridge
from stepwell.authoring.toolbox import Toolbox, ToolServices
from stepwell.conversation.state import Conversation, NoConversation
from stepwell.errors import InvalidArgument, RunClosed
from stepwell.files.run_files import RunFiles
from stepwell.knowledge import Knowledge, knowledge_of
from stepwell.storage.location import Storage
from stepwell.storage.scopes import ScopedKeyValue
from stepwell.tools.declaration import Tool
from stepwell.usage.totals import NoTokenUsage, TokenUsage

T = TypeVar("T")

LEVELS = ("debug", "info", "warning", "error")


class ProjectInfo(NamedTuple):
    """The project of a run."""

    id: str
    name: str
    folder: Path


class RunServices(OutputSession, ToolServices, Protocol):
    """What a context needs from its run."""

    def background(self, coroutine: Coroutine[Any, Any, Any], name: str | None) -> "asyncio.Task[Any]":
        """Start a task that the run waits for."""
        ...

    def loop(self) -> asyncio.AbstractEventLoop:
        """The run's event loop."""
        ...


class OutputBridge(OutputWatch, Watch, Protocol):
    """What follows the output of a workflow within a run."""


class Parts(NamedTuple):
    """What a context is made of."""

    run_id: str
    project: ProjectInfo
    entrypoint: str
    conversation_id: str | None
    storage: Storage
    conversation: Conversation | NoConversation
    token_usage: TokenUsage | NoTokenUsage
    files: RunFiles
    cancelled: Cancellation
    services: RunServices
    models: Models
    runs: Any = None
    tools: Mapping[str, Tool] = {}
    entrypoints: Mapping[str, Any] = {}
    watches: "tuple[OutputBridge, ...]" = ()
    hidden_by: str | None = None


class Context:
    """A run's context. Belongs to one run; used after the run ended, every part raises `RunClosed`."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def _open(self) -> Parts:
        parts = self._parts
        if parts.services.is_closed():
            raise RunClosed(f"the run {parts.run_id} has ended; its context can no longer be used")
        return parts

    @property
    def run_id(self) -> str:
        """This run's id (UUIDv7)."""
        return self._open().run_id

    @property
    def project(self) -> ProjectInfo:
        """The project: id, name, folder."""
        return self._open().project

    @property
    def entrypoint(self) -> str:
        """The id of the entrypoint that was started."""
        return self._open().entrypoint

    @property
    def conversation_id(self) -> str | None:
        """The conversation's id; None for a run without one."""
        return self._open().conversation_id

    @property
    def storage(self) -> Storage:
        """`storage.local` and `storage.server`, as the project declares; `storage.host` is where state lives."""
        return self._open().storage

    @property
    def kv(self) -> ScopedKeyValue:
        """Global KV of the workflow scope model, with `.workflow` and `.conversation`."""
        return self._open().storage.scopes.kv

    @property
    def persistent_value(self) -> ScopedKeyValue:
        """Global persistent values of the workflow scope model, always at the server."""
        return self._open().storage.scopes.persistent_value

    @property
    def conversation(self) -> Any:
        """Messages, values and title of the conversation (`Conversation`, or `NoConversation`)."""
        return self._open().conversation

    @property
    def knowledge(self) -> Knowledge:
        """The Knowledge base at the host location."""
        return knowledge_of(self._open().storage.host)

    @property
    def token_usage(self) -> TokenUsage | NoTokenUsage:
        """`await ctx.token_usage.report(input_tokens=…, output_tokens=…)`."""
        return self._open().token_usage

    def llm(self, name: Any = None) -> Llm:
        """A model: the project's default provider, one by name, or as `name:model` or `type:model`.

        `await ctx.llm().chat(messages)` and `async for text in ctx.llm().stream(messages)` are nodes of the run.

        Args:
            name: also a model of pydantic-ai itself.

        Raises:
            ProviderInvalid: it is not configured; the message names the missing setting.
        """
        parts = self._open()
        return Llm(parts.models.connection(name), parts.services, parts.token_usage)

    def agent(
        self,
        *,
        tools: Iterable[Any] | None = None,
        llm: Any = None,
        system: str | None = None,
        max_turns: int = 20,
        max_tokens: int | None = None,
        output: Any = None,
        name: str = "agent",
        **settings: Any,
    ) -> Agent:
        """A loop of model and tools, as a node: `result = await ctx.agent(tools=[look_up]).run("How is Bern?")`.

        Args:
            tools: tools, functions, or names of the executor's tools; all of the executor's without. Disabled ones are
                left out.
            llm: the model, as for `ctx.llm`.
            system: the system prompt.
            max_turns: the most calls of the model.
            max_tokens: the most tokens of all turns together; it is looked at before each turn.
            output: a type; the result's `output` is a value of it.
            name: of the node, and of the output item that its text is streamed to.
            **settings: for the model, such as `temperature`.

        Raises:
            ProviderInvalid, ToolNotFound, ToolInvalid, InvalidArgument
        """
        limits = Limits(max_turns, max_tokens)
        offered = self.tools.offered(tools)
        return Agent(AgentParts(self, self.llm(llm), offered, system, limits, output, name, settings))

    @property
    def tools(self) -> Toolbox:
        """The executor's tools: `await ctx.tools.call("delete_file", path=…)`; `approval()` asks a person."""
        parts = self._open()
        return Toolbox(self, parts.tools, parts.services)

    @property
    def files(self) -> RunFiles:
        """Attachments and artifacts, by reference."""
        return self._open().files

    @property
    def entrypoints(self) -> Mapping[str, Any]:
        """The executor's entrypoints, by id."""
        return self._open().entrypoints

    @property
    def runs(self) -> Any:
        """The project's runs: `get`, `list`, `count`, `all_events` (these read files: call them in a thread)."""
        return self._open().runs

    @property
    def cancelled(self) -> Cancellation:
        """True once the run is being cancelled."""
        return self._open().cancelled

    def output(self, name: str = "output", *, media_type: str = "text/markdown") -> Output:
        """An output item that is streamed: `async with ctx.output("answer") as out: await out.write(text)`."""
        parts = self._open()
        frame = current_frame()
        item = frame.child_path(f"@{name}") if frame is not None else f"@{name}"
        return Output(parts.services, item, name, media_type, parts.watches, parts.hidden_by)

    def progress(self, done: float, total: float | None = None, text: str = "") -> None:
        """Tell how far the work is: `done` of `total` (in any unit)."""
        self._open().services.emit("progress", node=_node(), done=done, total=total, text=text)

    def log(self, message: str, *, level: str = "info", **fields: Any) -> None:
        """Add a log line to the run's events.

        Args:
            level: debug, info, warning or error.
            **fields: JSON values that belong to it.
        """
        if level not in LEVELS:
            raise InvalidArgument(f"level {level!r:.40} is not one of {', '.join(LEVELS)}", argument="level")
        self._open().services.emit("log", node=_node(), level=level, message=str(message), fields=fields)

    def emit(self, name: str, data: Any = None) -> None:
        """Add an event of your own: its type is `custom.<name>`."""
        self._open().services.emit(f"custom.{name}", node=_node(), data=data)

    def background(self, coroutine: Coroutine[Any, Any, T], *, name: str | None = None) -> "asyncio.Task[T]":
        """Run a coroutine beside the workflow. It ends only after it; as soon as the coroutine fails, so does it.

        Start it in the body of a workflow: a resumed run that is given a node's result back does not start it again.
        """
        return self._open().services.background(coroutine, name)

    async def run_workflow(
        self,
        child: Any,
        input: Any = None,  # noqa: A002
        *,
        name: str | None = None,
        conversation_mode: Literal["shared", "shared-readonly"] = "shared",
        kv_mode: Literal["shared", "isolated"] = "shared",
        output_visibility: Literal["visible", "hidden"] = "visible",
        on_output: Handler | None = None,
        on_output_chunk: Handler | None = None,
    ) -> Any:
        """Run another workflow within this run, as one node, and return what it returns.

        Args:
            child: a workflow, an entrypoint, or the id of one of the executor's entrypoints.
            input: validated as an entrypoint's input is.
            name: shown; it changes nothing else.
            conversation_mode: with `shared-readonly` the child has a copy of the conversation: what it writes vanishes.
            kv_mode: with `isolated` the child has KV of its own for the project and the conversation, by its name.
            output_visibility: with `hidden` the child's output items are no part of what the run shows.
            on_output: called once with what the child returned, unless its chunks went to the other handler.
            on_output_chunk: called with every chunk that the child writes, in order. Handlers may be async.

        Raises:
            WorkflowNesting: it would be the 17th level of workflows within workflows.
            OutputBridgeFailed: a handler raised; the child was cancelled at once.
            InputInvalid, OutputInvalid, EntrypointNotFound, InvalidArgument. What the child raises.
        """
        modes = Modes(conversation_mode, kv_mode, output_visibility).checked()
        return await run_nested(self, self._open(), child, input, name, modes, on_output, on_output_chunk)

    @property
    def watches(self) -> tuple[OutputBridge, ...]:
        """What follows the output of the workflow that this context belongs to."""
        return self._open().watches

    def wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine from a synchronous node: `value = ctx.wait(ctx.storage.local.kv.get_value("k"))`.

        Raises:
            InvalidArgument: called on the event loop, where it would wait for itself; use `await` there.
        """
        loop = self._open().services.loop()
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not None:
            coroutine.close()
            raise InvalidArgument("ctx.wait() was called on the event loop", hint="use `await` in async functions")
        bridge = current_bridge()
        return bridge.wait(coroutine) if bridge else asyncio.run_coroutine_threadsafe(coroutine, loop).result()


def _node() -> str:
    frame = current_frame()
    return frame.path if frame is not None else ""
