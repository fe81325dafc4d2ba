"""Our messages as pydantic-ai's, and its answers as ours.

A message is what a conversation stores: `role`, `content`, `tool_calls`, `tool_call_id`, `attachments`. What a provider
wants back as it was (signed reasoning, ids of items) travels in `provider_parts` of an assistant's message, and is sent
to that provider only.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic_ai import messages as ai
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.tools import ToolDefinition

from stepwell.llm.answer import Answer, Figures, ToolCall, parsed_arguments
from stepwell.llm.exchange import OUTPUT_TOOL, ReadFile, ToolSpec
from stepwell.llm.prices import cost_of

MAX_INLINE_TEXT = 200_000
_PARTS: TypeAdapter[list[ai.ModelResponsePart]] = TypeAdapter(list[ai.ModelResponsePart])


async def to_model(given: Sequence[Mapping[str, Any]], provider: str, read: ReadFile | None) -> list[ai.ModelMessage]:
    """The messages for a provider.

    Args:
        provider: its name; the provider parts of other providers are not sent to it.
        read: reads an attachment by reference.
    """
    sent: list[ai.ModelMessage] = []
    names: dict[str, str] = {}
    for message in given:
        if message["role"] == "assistant":
            parts = _assistant_parts(message, provider)
            names |= {part.tool_call_id: part.tool_name for part in parts if isinstance(part, ai.ToolCallPart)}
            if sent and isinstance(sent[-1], ai.ModelResponse):  # there are vendors that want the two to alternate
                parts = [*sent.pop().parts, *parts]
            sent.append(ai.ModelResponse(parts=parts, provider_name=provider))
            continue
        part = await _request_part(message, names, read)
        if sent and isinstance(sent[-1], ai.ModelRequest):
            sent[-1] = ai.ModelRequest(parts=[*sent[-1].parts, part])
        else:
            sent.append(ai.ModelRequest(parts=[part]))
    return sent


def _assistant_parts(message: Mapping[str, Any], provider: str) -> list[ai.ModelResponsePart]:
    kept = message.get("provider_parts")
    if isinstance(kept, Mapping) and kept.get("provider") == provider:
        return _PARTS.validate_python(kept["parts"])
    parts: list[ai.ModelResponsePart] = []
    text = _text_of(message.get("content"))
    if text:
        parts.append(ai.TextPart(content=text))
    for call in message.get("tool_calls") or ():
        parts.append(ai.ToolCallPart(tool_name=call["name"], args=call.get("arguments"), tool_call_id=call["id"]))
    return parts or [ai.TextPart(content="(nothing)")]


async def _request_part(message: Mapping[str, Any], names: Mapping[str, str], read: ReadFile | None) -> Any:
    if message["role"] == "system":
        return ai.SystemPromptPart(content=_text_of(message.get("content")))
    if message["role"] == "tool":
        call_id = message.get("tool_call_id", "")
        return ai.ToolReturnPart(
            tool_name=message.get("name") or names.get(call_id, "tool"),
            content=_text_of(message.get("content")),
            tool_call_id=call_id,
            outcome="failed" if message.get("is_error") else "success",
        )
    content: list[ai.UserContent] = [_text_of(message.get("content"))]
    for attachment in message.get("attachments") or ():
        content.append(await _attachment(attachment, read))
    return ai.UserPromptPart(content=content if len(content) > 1 else str(content[0]))


async def _attachment(attachment: Any, read: ReadFile | None) -> "ai.UserContent":
    described = attachment if isinstance(attachment, Mapping) else {"reference": attachment}
    reference = str(described.get("reference", described.get("url", described.get("path", ""))))
    name = described.get("name") or reference
    media_type = str(described.get("media_type") or "application/octet-stream")
    if read is None:
        return f"[attached: {name}, {media_type}]"
    if media_type.startswith(("image/", "audio/", "video/")) or media_type == "application/pdf":
        return ai.BinaryContent(data=await read(reference), media_type=media_type)
    if media_type.startswith("text/") or media_type == "application/json":
        text = (await read(reference)).decode("utf-8", "replace")
        return f"[attached: {name}]\n{text[:MAX_INLINE_TEXT]}"
    return f"[attached: {name}, {media_type}]"


def _text_of(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    if isinstance(content, list):
        return "\n".join(filter(None, (_text_of(part) for part in content)))
    if isinstance(content, Mapping) and isinstance(content.get("text"), str):
        return str(content["text"])
    return json.dumps(content, ensure_ascii=False)


def parameters_of(
    tools: Iterable[ToolSpec], output_schema: Mapping[str, Any] | None, mode: str
) -> ModelRequestParameters:
    """Tools and the wanted output, as the model layer takes them; `mode` is tool or native."""
    offered = [_definition(tool) for tool in tools]
    if output_schema is None:
        return ModelRequestParameters(function_tools=offered)
    name = str(output_schema.get("title") or "output")
    if mode == "native" and output_schema.get("type") == "object":
        wanted = OutputObjectDefinition(json_schema=dict(output_schema), name=name)
        return ModelRequestParameters(function_tools=offered, output_mode="native", output_object=wanted)
    told = "The final answer. Call this once everything is known."
    final = _definition(ToolSpec(OUTPUT_TOOL, told, output_wrapper(output_schema)))
    final.kind = "output"
    return ModelRequestParameters(
        function_tools=offered, output_mode="tool", output_tools=[final], allow_text_output=False
    )


def output_wrapper(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as one of an object: what is no object becomes its field `value`."""
    if schema.get("type") == "object":
        return dict(schema)
    inner = {name: value for name, value in schema.items() if name != "$defs"}
    wrapped: dict[str, Any] = {"type": "object", "properties": {"value": inner}, "required": ["value"]}
    return wrapped | ({"$defs": schema["$defs"]} if "$defs" in schema else {})


def _definition(tool: ToolSpec) -> ToolDefinition:
    return ToolDefinition(name=tool.name, description=tool.description, parameters_json_schema=dict(tool.schema))


def figures_of(response: ai.ModelResponse, url: str | None) -> Figures:
    """The canonical counts of a response. Counts that contradict each other are raised to what they include."""
    usage = response.usage
    cache_read, cache_write = max(usage.cache_read_tokens, 0), max(usage.cache_write_tokens, 0)
    reasoning = max(usage.output_reasoning_tokens, 0)
    return Figures(
        input=max(usage.input_tokens, cache_read + cache_write),
        output=max(usage.output_tokens, reasoning),
        reasoning=reasoning,
        cache_read=cache_read,
        cache_write=cache_write,
        measured=usage.unmeasured_requests == 0 and usage.has_values(),
        cost_usd=cost_of(usage, response.model_name or "", response.provider_name, url),
    )


def answer_of(response: ai.ModelResponse, provider: str, url: str | None, *, partial: bool = False) -> Answer:
    """Our answer of a response."""
    calls = [part for part in response.parts if isinstance(part, ai.ToolCallPart)]
    text = "".join(part.content for part in response.parts if isinstance(part, ai.TextPart))
    thoughts = "".join(part.content for part in response.parts if isinstance(part, ai.ThinkingPart))
    # A call whose stream broke off in the middle of it is no call.
    made = () if partial else _calls(calls)
    is_exact = not partial and [call.id for call in made] == [part.tool_call_id for part in calls]
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if made:
        message["tool_calls"] = [call.to_dict() for call in made]
    if is_exact and any(_is_particular(part) for part in response.parts):
        message["provider_parts"] = {
            "provider": provider, "parts": _PARTS.dump_python(list(response.parts), mode="json", exclude_defaults=True)
        }  # fmt: skip
        for part, dumped in zip(response.parts, message["provider_parts"]["parts"], strict=True):
            dumped["part_kind"] = part.part_kind
    finish = "stopped" if partial else response.finish_reason
    return Answer(
        text, made, message, figures_of(response, url), provider, response.model_name or "", finish, thoughts, partial
    )  # fmt: skip


def _calls(parts: Sequence[ai.ToolCallPart]) -> tuple[ToolCall, ...]:
    """The calls, each with an id of its own: there are servers that give all of them the same."""
    calls: dict[str, ToolCall] = {}
    for number, part in enumerate(parts, 1):
        own = part.tool_call_id if part.tool_call_id and part.tool_call_id not in calls else f"call_{number}"
        calls[own] = ToolCall(own, part.tool_name, parsed_arguments(part.args))
    return tuple(calls.values())


def _is_particular(part: Any) -> bool:
    """True for a part that says more than its text or its call."""
    if not isinstance(part, (ai.TextPart, ai.ToolCallPart)):
        return True
    return bool(part.provider_details or part.id)
