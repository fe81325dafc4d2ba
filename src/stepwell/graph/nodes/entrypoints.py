"""The project's own code as nodes: its entrypoints and its tools."""

import inspect
import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from stepwell.authoring.calls import NodeSpec, call, call_user_code, current_frame
from stepwell.authoring.schema import to_json, validate
from stepwell.errors import EntrypointNotFound, InvalidArgument
from stepwell.graph.node_context import NodeContext
from stepwell.graph.ports import Anything, Json, without_effect
from stepwell.graph.registry import node_type
from stepwell.graph.similar import closest
from stepwell.jsontext import decode_untrusted

_NO_SKILLS = "there are the tools that the project's executor declares, and no skills"


@node_type("workflow/run", title="Python workflow", is_tool=True)
class WorkflowRun:
    """Runs a Python entrypoint of the project inside this run, with its input checked, and gives what it returns."""

    class Inputs(BaseModel):
        entrypoint: str
        input: Anything = None

    class Outputs(BaseModel):
        output: Json
        entrypoint: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        known = ctx.run.entrypoints
        point = known.get(inputs.entrypoint)
        if point is None or inputs.entrypoint.startswith("workflow:"):
            names = [name for name in known if not name.startswith("workflow:")]
            close = closest(inputs.entrypoint, names, limit=1)
            raise EntrypointNotFound(
                f"there is no Python entrypoint {inputs.entrypoint!r:.80}",
                hint=f"did you mean {close[0]}?" if close else f"there are: {', '.join(names)}",
            )
        frame = current_frame()
        assert frame is not None  # noqa: S101  (only called inside a run)
        value = point.checked_input(inputs.input if inputs.input is not None else {})
        workflow = point.workflow

        async def run_workflow(input: Any) -> Any:  # noqa: A002
            made = await call_user_code(frame.session, workflow.function, workflow.arguments(input, ctx.run), {})
            what = f"the output of {point.id!r}"
            return to_json(validate(workflow.output_type, made, what), what)

        spec = NodeSpec("run-workflow", "code", 0, None, durable=False, replay=True, returns=None)
        result = await call(spec, run_workflow, inspect.signature(run_workflow), (value,), {})
        return {"output": result, "entrypoint": point.id}


@node_type("tools/tool_hub", title="Project tools", is_tool=True)
class ToolHub:
    """Lists the tools that the project's executor declares, or calls one; manual ones wait for approval."""

    class Inputs(BaseModel):
        action: Literal["list_tools", "execute"]
        tool: str | None = None
        operation: str | None = None
        arguments: str | None = None
        enabled_tools: list[Any] | None = None
        mode: Annotated[Literal["user", "skill"], without_effect(_NO_SKILLS)] = "user"
        skill_name: Annotated[str | None, without_effect(_NO_SKILLS)] = None

    class Outputs(BaseModel):
        status: str
        result: Any
        tools: list[Any]
        unavailable_tools: list[Any]
        errors: list[Any]
        error_details: str
        mode: str
        warnings: list[Any]
        approval: dict[str, Any]

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        toolbox = ctx.run.tools
        offered = toolbox.offered()
        if inputs.enabled_tools is not None:
            offered = {name: tool for name, tool in offered.items() if name in inputs.enabled_tools}
        wanted = [str(name) for name in inputs.enabled_tools or ()]
        emitted: dict[str, Any] = {
            "approval": {"modes": {name: toolbox.mode(tool) for name, tool in offered.items()}},
            "mode": inputs.mode, "unavailable_tools": [name for name in wanted if name not in offered],
            "tools": [{"name": t.name, "description": t.description, "schema": t.schema} for t in offered.values()],
        }  # fmt: skip
        if inputs.action == "list_tools":
            return emitted | {"status": "ok"}
        name = inputs.tool or inputs.operation
        if not name:
            raise InvalidArgument("tools/tool_hub needs the name of a tool to execute", argument="tool")
        arguments = decode_untrusted(inputs.arguments, what="arguments") if inputs.arguments else {}
        outcome = await toolbox.attempt(offered.get(name), name, arguments, f"{ctx.node.id}")
        if outcome.is_error:
            return emitted | {"status": "error", "errors": [outcome.content], "error_details": outcome.content}
        return emitted | {"status": "ok", "result": _read(outcome.content)}


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
