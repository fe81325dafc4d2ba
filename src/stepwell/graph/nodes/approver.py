"""A person's word in a graph."""

from typing import Any, Literal

from pydantic import BaseModel

from stepwell.graph.node_context import NodeContext
from stepwell.graph.registry import node_type


@node_type("utils/approver", title="Approval")
class Approver:
    """Waits for a person, the run being `waiting_input` meanwhile; `approved_out` fires only if it was granted."""

    class Inputs(BaseModel):
        action_name: str = "approve"
        description: str | None = None
        param_summary: str | None = None
        risk_level: Literal["low", "medium", "high", "critical"] = "medium"
        timeout_secs: float = 300
        extra_whitelist: str | None = None

    class Outputs(BaseModel):
        approved: bool
        approved_out: bool
        outcome: str
        reason: str
        request_id: str
        scope: str
        whitelist_hit: bool

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        allowed = {part.strip() for part in (inputs.extra_whitelist or "").replace(",", "\n").splitlines()} - {""}
        if inputs.action_name in allowed:
            return {
                "approved": True, "approved_out": True, "outcome": "approved", "whitelist_hit": True,
                "reason": "the workflow allows it", "scope": "workflow",
            }  # fmt: skip
        asked = {
            "description": inputs.description or "", "parameters": inputs.param_summary or "",
            "risk_level": inputs.risk_level,
        }  # fmt: skip
        timeout = inputs.timeout_secs if inputs.timeout_secs > 0 else None
        decision = await ctx.run.tools.approval(inputs.action_name, asked, timeout=timeout)
        emitted: dict[str, Any] = {
            "approved": decision.approved, "outcome": "approved" if decision.approved else "rejected",
            "reason": decision.reason or "", "request_id": decision.request_id or "", "scope": "once",
            "whitelist_hit": False,
        }  # fmt: skip
        return emitted | ({"approved_out": True} if decision.approved else {})
