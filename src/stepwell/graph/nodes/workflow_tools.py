"""The four workflow tools as node types; their inputs are the arguments of the tools everywhere."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel

from stepwell.graph.answers import Sources
from stepwell.graph.artifacts import read_artifact
from stepwell.graph.importing import import_workflow
from stepwell.graph.inspecting import workflow_inspect
from stepwell.graph.node_context import NodeContext
from stepwell.graph.ports import Anything, typed
from stepwell.graph.registry import node_type
from stepwell.graph.tracing import get_execution_trace

Mode = Literal["manual", "llm"]


async def _ask(tool: Callable[..., dict[str, Any]], inputs: BaseModel, ctx: NodeContext) -> dict[str, Any]:
    """Call a tool in a thread (it reads files), and keep of its answer what the type has ports for."""
    files = ctx.run.files.store
    arguments = inputs.model_dump(exclude_unset=True)
    if tool is read_artifact:
        answer = await asyncio.to_thread(read_artifact, files, arguments)
    else:
        sources = Sources(ctx.services.folder, ctx.services.registry, ctx.run.runs, files.read)
        answer = await asyncio.to_thread(partial(tool, sources, arguments))
    return {port: value for port, value in answer.items() if ctx.type.output_port(port) is not None}


@node_type("tools/workflow_inspect", title="Inspect workflows", is_tool=True, kind="tool")
class WorkflowInspect:
    """Finds workflows and node types, shows schemas and ports, validates drafts, explains executions. Read-only.

    Actions: list_workflows, find_workflows_by_node_type, get_workflow, list_node_types, get_node_schema, list_ports,
    find_replacements, validate_workflow, get_execution, list_executions.
    """

    class Inputs(BaseModel):
        mode: Mode = "manual"
        action: str = ""
        workflow_id: str | None = None
        view: Literal["both", "summary", "full"] = "both"
        name_filter: str | None = None
        tag_filter: str | None = None
        limit: int = 50
        offset: int = 0
        node_type: str | None = None
        compact: bool = False
        category_filter: str | None = None
        node_filter: str | None = None
        node_types: list[Any] | None = None
        execution_id: str | None = None
        definition: dict[str, Any] | None = None
        verbose: bool = False
        sort_by: Literal["created_at", "updated_at", "name", "node_count"] | None = None
        execution_node_filter: str | None = None
        node_status_filter: Literal["waiting", "ready", "running", "completed", "failed", "skipped"] | None = None

    class Outputs(BaseModel):
        status: str
        data: Anything
        count: int
        total: int
        categories: list[Any]
        candidates: Anything
        hint: str
        truncated: bool
        next_offset: int
        error: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        return await _ask(workflow_inspect, inputs, ctx)


@node_type("tools/import_workflow", title="Import workflow", is_tool=True, kind="tool")
class ImportWorkflow:
    """Creates or changes a workflow in one call: name, nodes and edges by keys of your own, or a whole file as content.

    It is written only if it is valid; the answer has the report and the ids.
    """

    class Inputs(BaseModel):
        workflow_key: str
        name: str | None = None
        description: str | None = None
        nodes: list[Any] | None = None
        edges: list[Any] | None = None
        content: str | None = None

    class Outputs(BaseModel):
        workflow_id: str
        outcome: str
        source_path: str
        node_ids: Anything
        validation: Anything
        warnings: list[Any]
        error_code: str
        error: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        return await _ask(import_workflow, inputs, ctx)


@node_type("tools/get_execution_trace", title="Execution trace", is_tool=True, kind="tool")
class GetExecutionTrace:
    """Reads what a run did: a summary, each tool call, or bounded results too."""

    class Inputs(BaseModel):
        trace_key: str | None = None
        archive_ref: str | None = None
        mode: Literal["summary", "tool_calls", "detail"] | None = None

    class Outputs(BaseModel):
        content: str
        found: bool
        unavailable_reason: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        return await _ask(get_execution_trace, inputs, ctx)


@node_type("tools/read_artifact", title="Read artifact", is_tool=True, kind="tool")
class ReadArtifact:
    """Reads a window of a text artifact by its reference: by bytes, or by lines."""

    class Inputs(BaseModel):
        artifact: typed("any", dict[str, Any] | str | None) = None  # type: ignore[valid-type]
        start_byte: int = 0
        max_bytes: int = 16_384
        start_line: int | None = None
        max_lines: int | None = None
        snapshot_path: str | None = None

    class Outputs(BaseModel):
        content: str
        source_artifact: dict[str, Any]
        bytes_read: int
        total_bytes: int
        truncated: bool
        next_offset: int
        warning: str
        error: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        return await _ask(read_artifact, inputs, ctx)
