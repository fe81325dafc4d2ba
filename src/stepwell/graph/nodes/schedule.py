"""Tasks for later."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from stepwell.errors import EntryNotFound, InvalidArgument
from stepwell.graph.node_context import NodeContext
from stepwell.graph.ports import Json, without_effect
from stepwell.graph.registry import node_type
from stepwell.graph.scheduling import Schedule

_FIELDS = (
    "workflow_id", "task_text", "params", "label", "run_at", "frequency", "custom_cron", "timezone", "priority",
    "max_retries", "target_node_id",
)  # fmt: skip


@node_type("tools/schedule", title="Schedule", is_tool=True, kind="tool")
class ScheduleNode:
    """Plans runs of workflows: once (`run_at`, e.g. 30m), by frequency, or by cron in a time zone; future times only.

    `stepwell workflows due --run` runs what is due; let cron or a systemd timer call it.
    """

    class Inputs(BaseModel):
        action: Literal[
            "list_tasks", "get_task", "create_task", "update_task", "pause_task", "resume_task", "cancel_task"
        ] = "list_tasks"
        id: int | None = None
        workflow_id: str | None = None
        task_text: str | None = None
        params: dict[str, Any] | None = None
        label: str | None = None
        run_at: str | None = None
        frequency: Literal["once", "every_minute", "hourly", "daily", "weekly", "monthly", "custom"] | None = None
        custom_cron: str | None = None
        timezone: str | None = None
        priority: int | None = None
        max_retries: int | None = None
        target_node_id: str | None = None
        status: Literal["pending", "running", "completed", "failed", "cancelled", "paused"] | None = None
        limit: int = 50
        offset: int = 0
        mode: Annotated[
            Literal["manual", "llm"], without_effect("an agent that has the node as a tool gives what is left open")
        ] = "manual"

    class Outputs(BaseModel):
        status: str
        data: Json
        count: int
        total: int
        error: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        schedule, now = Schedule(ctx.run.storage.host.kv), datetime.now(UTC)
        fields = {name: value for name in _FIELDS if (value := getattr(inputs, name)) is not None}
        if inputs.action == "list_tasks":
            tasks = await schedule.all(inputs.status)
            offset = max(0, inputs.offset)
            page = tasks[offset : offset + max(1, min(inputs.limit, 200))]
            return {"status": "ok", "data": page, "count": len(page), "total": len(tasks)}
        if inputs.action == "create_task":
            if inputs.workflow_id:
                ctx.services.folder.get(inputs.workflow_id)
            return {"status": "ok", "data": await schedule.create(fields, now)}
        if inputs.id is None:
            raise InvalidArgument(f"tools/schedule needs id to {inputs.action}", argument="id")
        try:
            if inputs.action == "get_task":
                task = await schedule.get(inputs.id)
            elif inputs.action == "update_task":
                task = await schedule.update(inputs.id, fields, now)
            elif inputs.action == "pause_task":
                task = await schedule.set_status(inputs.id, "paused", allowed=("pending",))
            elif inputs.action == "resume_task":
                task = await schedule.set_status(inputs.id, "pending", allowed=("paused",))
            else:
                task = await schedule.set_status(inputs.id, "cancelled", allowed=("pending", "paused", "running"))
        except EntryNotFound as error:
            return {"status": "not_found", "data": None, "error": error.message}
        return {"status": "ok", "data": task}
