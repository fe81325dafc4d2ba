"""The four workflow tools for whoever calls them by name: Python, the command line, MCP, agents."""

from typing import Any, NamedTuple

from stepwell.errors import InvalidArgument, StepwellError
from stepwell.files.store import FileStore
from stepwell.graph.answers import Sources
from stepwell.graph.arguments import tool_arguments
from stepwell.graph.artifacts import read_artifact
from stepwell.graph.importing import import_workflow
from stepwell.graph.inspecting import workflow_inspect
from stepwell.graph.registry import NodeType
from stepwell.graph.similar import closest
from stepwell.graph.tracing import get_execution_trace
from stepwell.jsontext import encode

_UNTRACED = {"found": False, "unavailable_reason": "not_available"}
TOOLS = ("workflow_inspect", "import_workflow", "get_execution_trace", "read_artifact")


class ToolInfo(NamedTuple):
    """A tool as it is offered: its arguments as a JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]


class WorkflowTools:
    """`tools.call("workflow_inspect", {"action": "list_workflows"})`. All calls block: they read and write files.

    Args:
        sources: the workflows, node types and runs of a project.
        files: where artifacts are stored.
    """

    def __init__(self, sources: Sources, files: FileStore) -> None:
        self._sources = sources
        self._files = files

    def tools(self) -> list[ToolInfo]:
        """The tools there are."""
        return [ToolInfo(name, self._type(name).description, self._type(name).input_schema) for name in TOOLS]

    def call(self, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Call a tool. Wrong arguments are part of the answer; unknown ones are named in its `warnings`.

        Raises:
            InvalidArgument: there is no tool of that name.
        """
        name = name.removeprefix("tools/")
        if name not in TOOLS:
            close = closest(name, TOOLS, limit=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(TOOLS)}"
            raise InvalidArgument(f"there is no tool {name!r:.60}", hint=hint, argument="name")
        if name == "import_workflow" and isinstance(arguments.get("workflow_key"), (int, list, dict)):
            return {"error_code": "INVALID_WORKFLOW_KEY", "error": "workflow_key is not a text", "warnings": []}
        try:
            encode(arguments, max_bytes=1 << 40)  # nested too deep, or no JSON at all: refused before anything walks it
            values, ignored = tool_arguments(self._type(name), arguments)
        except StepwellError as error:
            return self._refusal(name, error)
        if name == "read_artifact":
            answer = read_artifact(self._files, values)
        else:
            tool = {"workflow_inspect": workflow_inspect, "import_workflow": import_workflow}.get(
                name, get_execution_trace
            )
            answer = tool(self._sources, values)
        return answer | ({"warnings": [*answer.get("warnings", []), *ignored]} if ignored else {})

    def _type(self, name: str) -> NodeType:
        found = self._sources.registry.get(f"tools/{name}")
        assert found is not None  # noqa: S101  (core types)
        return found

    def _refusal(self, name: str, error: StepwellError) -> dict[str, Any]:
        made: dict[str, Any] = {"error": error.message}
        if error.hint:
            made["hint"] = error.hint
        if error.data.get("candidates"):
            made["candidates"] = error.data["candidates"]
        if name == "workflow_inspect":
            made["status"] = "error"
        elif name == "import_workflow":
            made |= {"error_code": "INVALID_CONTENT", "warnings": []}
        else:
            made |= {"content": ""} | (_UNTRACED if name == "get_execution_trace" else {})
        return made
