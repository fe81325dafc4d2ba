"""Branches and joins of contexts."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from stepwell.errors import InvalidArgument, InvalidJson
from stepwell.graph.contexts import last_text, message, messages_of, rendered, with_messages
from stepwell.graph.node_context import NodeContext
from stepwell.graph.paths import OPERATORS, at_path, matches
from stepwell.graph.ports import MISSING, AgentContext, AgentContextOrNone, dynamic, typed, without_effect
from stepwell.graph.registry import node_type
from stepwell.jsontext import decode_untrusted


class _RouterInputs(BaseModel):
    branch_fields: dynamic("branch_")  # type: ignore[valid-type]
    context: AgentContextOrNone = None
    custom_data: typed("json") = None  # type: ignore[valid-type]
    generate_schema: bool = False
    payload_source: Literal["response", "context", "custom_data"] = "response"
    response: typed("json") = None  # type: ignore[valid-type]
    strict_mode: bool = False


@node_type("ai/llm_branch", title="Branch on a reply")
class LlmBranch:
    """Fires every branch whose field of the reply is true: `branch_0` holds a dotted path or a condition."""

    class Inputs(_RouterInputs):
        route_shortcut: Annotated[dict[str, Any] | None, without_effect("branch_0, branch_1, … say what fires")] = None

    class Outputs(BaseModel):
        branch_outputs: dynamic("branch_", port_type="agent_context")  # type: ignore[valid-type]
        context_out: AgentContext
        schema_hint: dict[str, Any]

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        payload = _payload(inputs)
        fired = _fired(inputs, payload)
        emitted = {f"branch_{number}": _handed_on(inputs, payload) for number in fired}
        return emitted | _beside(inputs, payload)


@node_type("utils/condition_router", title="Router")
class ConditionRouter:
    """Fires the branches whose conditions hold: all of them or the first, else the fallback."""

    class Inputs(_RouterInputs):
        fallback_mode: Literal["fallback_output", "none", "output0"] = "fallback_output"
        match_policy: Literal["first", "all"] = "all"
        mode: Annotated[
            Literal["simple", "advanced"], without_effect("a branch takes a path or a condition in either")
        ] = "advanced"

    class Outputs(BaseModel):
        branch_outputs: dynamic("branch_", port_type="agent_context")  # type: ignore[valid-type]
        context_out: AgentContext
        fallback_out: AgentContext
        schema_hint: dict[str, Any]

    @staticmethod
    def is_exclusive(config: dict[str, Any]) -> bool:
        """At most one branch fires where the first match decides."""
        return config.get("match_policy") == "first"

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        payload = _payload(inputs)
        fired = _fired(inputs, payload)
        if inputs.match_policy == "first":
            fired = fired[:1]
        value = _handed_on(inputs, payload)
        emitted = {f"branch_{number}": value for number in fired}
        if not fired and inputs.fallback_mode != "none":
            emitted["fallback_out" if inputs.fallback_mode == "fallback_output" else "branch_0"] = value
        return emitted | _beside(inputs, payload)


def _payload(inputs: Any) -> Any:
    """What the conditions are about; texts that are JSON are read, code fences around them dropped."""
    value = {"response": inputs.response, "context": inputs.context, "custom_data": inputs.custom_data}[
        inputs.payload_source
    ]
    if value is None and inputs.payload_source == "response" and inputs.context is not None:
        value = last_text(inputs.context, "assistant")
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("```") and text.endswith("```"):
        text = text.partition("\n")[2].removesuffix("```").strip()
    try:
        return decode_untrusted(text)
    except InvalidJson:
        if inputs.strict_mode:
            raise InvalidArgument("the payload is not JSON, and strict_mode is on", argument="response") from None
        return {"text": value}


def _fired(inputs: Any, payload: Any) -> list[int]:
    fired = []
    for number, slot in enumerate(inputs.branch_fields):
        condition = _condition(slot)
        if condition is None:
            continue
        path, operator, wanted = condition
        found = payload if path in ("", "$") else at_path(payload, path)
        if found is MISSING and inputs.strict_mode:
            raise InvalidArgument(f"branch_{number}: the payload has no {path!r:.80}", argument=f"branch_{number}")
        if matches(found, operator, wanted):
            fired.append(number)
    return fired


def _condition(slot: Any) -> tuple[str, str, Any] | None:
    """Path, operator and wanted value of a slot; None for an empty one."""
    if isinstance(slot, str) and slot.lstrip().startswith("{"):
        slot = decode_untrusted(slot, what="the branch condition")
    if isinstance(slot, dict):
        operator = slot.get("operator") or "truthy"
        if operator not in OPERATORS:
            raise InvalidArgument(
                f"the operator {operator!r:.40} is not one of {', '.join(OPERATORS)}", argument="operator"
            )
        return str(slot.get("field_name") or ""), operator, slot.get("match_value")
    return (slot.strip(), "truthy", None) if isinstance(slot, str) and slot.strip() else None


def _handed_on(inputs: Any, payload: Any) -> Any:
    """What goes into a branch: the context, else the payload."""
    if inputs.context is not None:
        return inputs.context
    if isinstance(payload, dict) and "messages" in payload:
        return payload
    text = payload.get("text") if isinstance(payload, dict) and set(payload) == {"text"} else None
    shown = text if isinstance(text, str) else json.dumps(payload, ensure_ascii=False)
    return {"messages": [message("user", shown)], "data": payload}


def _beside(inputs: Any, payload: Any) -> dict[str, Any]:
    emitted: dict[str, Any] = {"context_out": _handed_on(inputs, payload)}
    if inputs.generate_schema:
        conditions = [condition for slot in inputs.branch_fields if (condition := _condition(slot)) is not None]
        properties = {path: {"type": "boolean"} if operator == "truthy" else {} for path, operator, _ in conditions}
        emitted["schema_hint"] = {"type": "object", "properties": properties, "required": list(properties)}
    return emitted


@node_type("ai/context_merge", title="Merge contexts")
class ContextMerge:
    """Appends contexts in the order of the ports: input1, input2, input_0, input_1, …"""

    class Inputs(BaseModel):
        input1: AgentContextOrNone = None
        input2: AgentContextOrNone = None
        extra_inputs: dynamic("input_", port_type="agent_context")  # type: ignore[valid-type]
        extra_contexts: list[Any] = Field(default_factory=list)
        custom_session_id: str | None = None
        merge_mode: Annotated[str | None, without_effect("merge_strategy decides")] = None
        merge_strategy: Literal["append", "dedupe"] = "append"
        system_message: str | None = None

    class Outputs(BaseModel):
        context: AgentContext
        formatted_content: str
        reply: str
        stats: dict[str, Any]

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        contexts = [c for c in (inputs.input1, inputs.input2, *inputs.extra_inputs) if c is not None]
        contexts += [c for c in inputs.extra_contexts if isinstance(c, dict)]
        merged: dict[str, Any] = {}
        messages: list[dict[str, Any]] = []
        for context in contexts:
            merged |= context
            for found in messages_of(context):
                if inputs.merge_strategy == "append" or found not in messages:
                    messages.append(found)
        if inputs.system_message:
            messages.insert(0, message("system", inputs.system_message))
        merged = with_messages(merged | {"messages": []}, *messages)
        if inputs.custom_session_id:
            merged["session_id"] = inputs.custom_session_id
        return {
            "context": merged, "formatted_content": rendered(merged), "reply": last_text(merged, "assistant"),
            "stats": {"contexts": len(contexts), "messages": len(messages)},
        }  # fmt: skip
