"""The four workflow tools for an executor: `Executor(tools=[*workflow_tools(), …])`."""

import asyncio
from collections.abc import Mapping
from typing import Any

from stepwell.graph.answers import Sources
from stepwell.graph.folder import WorkflowFolder
from stepwell.graph.registry import default_registry
from stepwell.graph.toolbox import TOOLS, WorkflowTools
from stepwell.tools.declaration import BoundTool, Tool


class _WorkflowTool(BoundTool):
    """A workflow tool that works on the project of the run it is called in."""

    def bind(self, checked: Mapping[str, Any], context: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments, and the run."""
        return ({"arguments": dict(checked), "context": context},), {}


def workflow_tools(*, import_mode: str = "auto") -> tuple[Tool, ...]:
    """`workflow_inspect`, `import_workflow`, `get_execution_trace` and `read_artifact` as tools of an executor.

    Args:
        import_mode: `auto`, `manual` (a person approves each import) or `disabled`; the others only read.
    """
    registry = default_registry()
    made = []
    for name in TOOLS:
        node_type = registry.get(f"tools/{name}")
        assert node_type is not None  # noqa: S101  (core types)
        mode = import_mode if name == "import_workflow" else "auto"
        made.append(_WorkflowTool(name, node_type.description, node_type.input_schema, _caller(name), mode=mode))
    return tuple(made)


def _caller(name: str) -> Any:
    async def call(given: dict[str, Any]) -> dict[str, Any]:
        ctx = given["context"]
        sources = Sources(WorkflowFolder(ctx.project.folder), default_registry(), ctx.runs, ctx.files.store.read)
        tools = WorkflowTools(sources, ctx.files.store)
        return await asyncio.to_thread(tools.call, name, given["arguments"])

    return call
