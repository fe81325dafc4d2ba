"""The four workflow tools as node types; their inputs are the arguments of the tools everywhere."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from pydantic import BaseModel, Field

from stepwell.graph.answers import Sources
from stepwell.graph.artifacts import read_artifact
from stepwell.graph.importing import import_workflow
from stepwell.graph.inspecting import ACTIONS, workflow_inspect
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
    """Finds workflows and node types, shows schemas and ports, validates drafts, explains executions. Read-only."""

    class Inputs(BaseModel):
        mode: Mode = "manual"
        action: str = Field("", description=f"one of {', '.join(ACTIONS)}")
        workflow_id: str | None = Field(None, description="a workflow's id, key or path")
        view: Literal["both", "summary", "full"] = Field(
            "both", description="of get_workflow: the summary, the definition that can be imported, or both"
        )
        name_filter: str | None = Field(None, description="of list_workflows; fuzzy")
        tag_filter: str | None = Field(None, description="of list_workflows; exact")
        limit: int = Field(50, description="at most 200")
        offset: int = Field(0, description="the next_offset of the page before")
        node_type: str | None = Field(None, description="e.g. ai/llm")
        compact: bool = Field(False, description="of get_node_schema: only the names of the fields")
        category_filter: str | None = Field(None, description="of list_node_types")
        node_filter: str | None = Field(None, description="of list_node_types: fuzzy, in type, name and description")
        node_types: list[Any] | None = Field(None, description="of find_replacements: names of types")
        execution_id: str | None = Field(None, description="of get_execution: a run's id")
        definition: dict[str, Any] | None = Field(
            None,
            description="of validate_workflow: a draft {nodes: [{nodeId, nodeType, config}], edges: [{sourceNode, "
            "sourcePort, targetNode, targetPort}]}, with ids of any form",
        )
        verbose: bool = Field(False, description="of list_node_types: with description, version and is_tool_node")
        sort_by: Literal["created_at", "updated_at", "name", "node_count"] | None = Field(
            None, description="of lists of workflows; created_at without; all but name descending"
        )
        execution_node_filter: str | None = Field(
            None, description="of get_execution: a part of node ids, by case; shows a record of each node"
        )
        node_status_filter: Literal["waiting", "ready", "running", "completed", "failed", "skipped"] | None = Field(
            None, description="of get_execution: shows a record of each node in that status"
        )

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
        workflow_key: str = Field(description="the workflow's folder: lower-case words joined by dashes")
        name: str | None = Field(None, description="shown to people; not with content")
        description: str | None = None
        nodes: list[Any] | None = Field(
            None,
            description="[{key, nodeType, name?, position?, config?}]: your own keys, ids are made; not with content",
        )
        edges: list[Any] | None = Field(
            None, description="[{sourceKey, sourcePort, targetKey, targetPort}], by node keys; not with content"
        )
        content: str | None = Field(None, description="the text of a whole V1 workflow.json, instead of all the others")

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
        trace_key: str | None = Field(None, description="session_id:turn; turns count from 1")
        archive_ref: str | None = Field(None, description="a run's id")
        mode: Literal["summary", "tool_calls", "detail"] | None = Field(
            None,
            description="summary (counts, tool names), tool_calls (each with status and arguments) or detail (results)",
        )

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
        artifact: typed("any", dict[str, Any] | str | None) = Field(  # type: ignore[valid-type]
            None, description="a reference artifact://<uuid>, or an object with one; never a path"
        )
        start_byte: int = 0
        max_bytes: int = Field(16_384, description="at most 1048576")
        start_line: int | None = Field(None, description="reads lines, from this one; the first is 1")
        max_lines: int | None = None
        snapshot_path: str | None = Field(
            None, description="one text file of a source snapshot, as its manifest names it"
        )

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
