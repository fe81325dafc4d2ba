"""`ctx.tools`: calling tools as nodes of the run, and asking people where a tool's mode says so."""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stepwell.authoring.calls import NodeSpec, call, call_user_code, current_frame
from stepwell.authoring.schema import dump
from stepwell.errors import (
    InvalidArgument,
    NodeTimeout,
    ReplayMismatch,
    RunClosed,
    StepwellError,
    ToolArgumentsInvalid,
    ToolDenied,
    ToolDisabled,
    ToolNotFound,
)
from stepwell.tools.approval import ApprovalAsk, Decision
from stepwell.tools.declaration import Tool, tool_of

if TYPE_CHECKING:
    from stepwell.authoring.context import Context

MAX_RESULT_CHARS = 100_000
MAX_SHOWN_CHARS = 10_000
GATE_HOLD_SECONDS = 60.0


class ToolServices(Protocol):
    """What tools need from their run."""

    def emit(self, event: str, /, **data: Any) -> None:
        """Add an event to the run's stream."""
        ...

    def tool_mode(self, tool: str) -> str | None:
        """The mode that was set for a tool in this project, if any."""
        ...

    async def ask(self, ask: ApprovalAsk) -> Decision:
        """Wait for a person's answer; the run may be released meanwhile."""
        ...

    async def asked(self, decision: Decision) -> None:
        """What was decided is done and recorded."""
        ...


class ToolOutcome(NamedTuple):
    """What a model is told of a call: the result as text, or what went wrong."""

    content: str
    is_error: bool = False


class Toolbox:
    """The tools of a run.

    Args:
        context: given to tools that take one.
        declared: the executor's tools, by name.
        services: the run.
    """

    def __init__(self, context: "Context", declared: Mapping[str, Tool], services: ToolServices) -> None:
        self._context = context
        self._declared = declared
        self._services = services

    def mode(self, tool: Any) -> str:
        """How calls of a tool are treated now: auto, manual or disabled."""
        found = self.tool(tool)
        return self._services.tool_mode(found.name) or found.mode

    def tool(self, given: Any) -> Tool:
        """A tool: by name, or what was given.

        Raises:
            ToolNotFound: the executor declares none of that name.
        """
        if not isinstance(given, str):
            return tool_of(given)
        if given not in self._declared:
            raise ToolNotFound(
                f"there is no tool {given!r:.80}", hint=f"there are: {', '.join(self._declared) or 'none'}", tool=given
            )
        return self._declared[given]

    def offered(self, given: Iterable[Any] | None = None) -> dict[str, Tool]:
        """The tools that may be called now, by name: those given (the executor's without) that are not disabled."""
        tools = list(self._declared.values()) if given is None else [self.tool(one) for one in given]
        names = [tool.name for tool in tools]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise InvalidArgument(f"two tools are called {', '.join(sorted(twice))}", argument="tools")
        return {tool.name: tool for tool in tools if self.mode(tool) != "disabled"}

    async def call(self, given: Any, /, **arguments: Any) -> Any:
        """Call a tool as a node; a manual one first waits for approval.

        Raises:
            ToolDisabled, ToolDenied, ToolArgumentsInvalid: it was not called. Otherwise what the tool itself raises.
        """
        tool = self.tool(given)
        decisions: list[Decision] = []

        async def invoke(**arguments: Any) -> Any:
            return await self._invoke(tool, arguments, decisions)

        result = await call(self._spec(tool), invoke, inspect.signature(invoke), (), arguments)
        await self._finish(decisions)
        return result

    async def attempt(self, tool: Tool | None, name: str, arguments: Any, call_id: str) -> ToolOutcome:
        """Make the call of a model. What goes wrong is part of the outcome: the model can act on it.

        Args:
            tool: None where the model wants one that is not on offer.
            arguments: an object, or the text that is none.
        """
        decisions: list[Decision] = []

        async def invoke(**arguments: Any) -> dict[str, Any]:
            outcome = await self._outcome(tool, name, arguments, decisions)
            frame = current_frame()
            self._services.emit(
                "tool.completed", node=frame.path if frame else "", tool=name, call_id=call_id,
                is_error=outcome.is_error, result=outcome.content[:2_000],
            )  # fmt: skip
            return outcome._asdict()

        shown = arguments if isinstance(arguments, dict) else {"__text__": arguments}
        spec = self._spec(tool) if tool is not None else NodeSpec("unknown_tool", "tool", 0, None, True, True, None)
        recorded = await call(spec._replace(returns=None), invoke, inspect.signature(invoke), (), shown)
        await self._finish(decisions)
        return ToolOutcome(**recorded)

    async def approval(
        self, what: str, arguments: Mapping[str, Any] | None = None, *, timeout: float | None = None, hold: float = 0.0
    ) -> Decision:
        """Ask a person, for something that is no tool.

        Args:
            what: shown as the name of what is asked for.
            arguments: shown, and may be edited.
            timeout: seconds after which nobody's answer counts as a denial.
            hold: seconds that the process stays although nothing else goes on in the run.
        """
        frame = current_frame()
        node = frame.path if frame is not None else ""
        item = frame.child_path(f"@{what}") if frame is not None else f"@{what}"
        return await self._services.ask(ApprovalAsk(item, node, what, dict(arguments or {}), timeout, hold))

    def gate(self, default: str, timeout: float | None, hold: float) -> "Gate":
        """See `create_tool_approval_gate`."""

        async def ask(tool: str, arguments: Mapping[str, Any]) -> Decision:
            declared = self._declared.get(tool)
            mode = self._services.tool_mode(tool) or (declared.mode if declared is not None else default)
            if mode == "disabled":
                return Decision(False, dict(arguments), "the tool is disabled in this project")
            if mode == "auto":
                return Decision(True, dict(arguments))
            return await self.approval(tool, arguments, timeout=timeout, hold=hold)

        return ask

    def _spec(self, tool: Tool) -> NodeSpec:
        return NodeSpec(tool.name, "tool", 0, None, True, True, tool.returns)

    async def _finish(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            await self._services.asked(decision)

    async def _outcome(self, tool: Tool | None, name: str, arguments: Any, decisions: list[Decision]) -> ToolOutcome:
        try:
            if tool is None:
                return ToolOutcome(f"There is no tool {name!r}.", True)
            if set(arguments) == {"__text__"}:
                return ToolOutcome(f"The arguments are not a JSON object: {arguments['__text__']!r:.200}", True)
            return ToolOutcome(result_text(await self._invoke(tool, arguments, decisions)))
        except (ReplayMismatch, RunClosed):
            raise
        except ToolDenied as error:  # a decision and no failure: models try again after failures
            return ToolOutcome(f"{error.message}. Do not try it again unless you are asked to.")
        except StepwellError as error:
            return ToolOutcome(error.message, True)
        except Exception as error:  # noqa: BLE001  (the tool's own failure: the model is told)
            return ToolOutcome(f"{type(error).__name__}: {error}"[:4_000], True)

    async def _invoke(self, tool: Tool, arguments: Mapping[str, Any], decisions: list[Decision]) -> Any:
        frame = current_frame()
        node = frame.path if frame is not None else ""
        mode = self.mode(tool)
        if mode == "disabled":
            raise ToolDisabled(f"the tool {tool.name} is disabled in this project", tool=tool.name)
        checked = tool.checked(arguments)
        if mode == "manual":
            ask = ApprovalAsk(node, node, tool.name, dump(dict(arguments)), tool.approval_timeout)
            decision = await self._services.ask(ask)
            decisions.append(decision)
            if not decision.approved:
                told = f": {decision.reason}" if decision.reason else ""
                raise ToolDenied(f"the call of {tool.name} was denied{told}", tool=tool.name, reason=decision.reason)
            if decision.edited:
                checked = tool.checked(decision.arguments)
        else:
            # What is long stands in `node.started`, as a file if need be.
            shown = dict(arguments) if len(str(arguments)) <= MAX_SHOWN_CHARS else None
            self._services.emit(
                "tool.requested", node=node, tool=tool.name, mode="auto", request_id=None, arguments=shown
            )
        return await self._run(tool, checked)

    async def _run(self, tool: Tool, arguments: dict[str, Any]) -> Any:
        frame = current_frame()
        positional, named = tool.bind(arguments, self._context)
        try:
            async with asyncio.timeout(tool.timeout) as limit:
                if frame is None:
                    made = tool.function(*positional, **named)
                    return await made if inspect.isawaitable(made) else made
                return await call_user_code(frame.session, tool.function, positional, named)
        except TimeoutError:
            if limit.expired():
                raise NodeTimeout(f"{tool.name} did not finish within {tool.timeout:g} s", node=tool.name) from None
            raise


def result_text(result: Any) -> str:
    """A tool's result as a model reads it; a very long one is cut, and says so."""
    if isinstance(result, str):
        text = result
    elif result is None:
        text = "done"
    else:
        text = json.dumps(dump(result), ensure_ascii=False, default=str)
    if len(text) > MAX_RESULT_CHARS:
        return f"{text[:MAX_RESULT_CHARS]}\n[cut: the result has {len(text):,} characters]"
    return text


Gate = Callable[[str, Mapping[str, Any]], Awaitable[Decision]]


def create_tool_approval_gate(
    ctx: "Context", *, default: str = "manual", timeout: float | None = None, hold: float = GATE_HOLD_SECONDS
) -> Gate:
    """The same approval for the tools of an external agent SDK: `decision = await gate(tool_name, arguments)`.

    Modes that were set for the project count for these tools as well, by name. Repeating a call in a resumed run finds
    the answer it was given.

    Args:
        default: the mode of a tool that the executor does not declare and nobody set one for.
        timeout: seconds after which nobody's answer counts as a denial.
        hold: seconds that the process stays for an answer, because an SDK in the middle of its turn cannot be released
            without repeating the turn.

    Returns:
        A function that answers with a `Decision`: `approved`, the `arguments` to use, `reason`.
    """
    return ctx.tools.gate(default, timeout, hold)


def arguments_problem(tool: Tool | None, arguments: Mapping[str, Any]) -> ToolArgumentsInvalid | None:
    """What is wrong with edited arguments, before anybody is told that they were approved."""
    try:
        if tool is not None:
            tool.checked(arguments)
    except ToolArgumentsInvalid as problem:
        return problem
    return None
