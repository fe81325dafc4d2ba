"""Calling tools in words, for models that have no function calling: what the model is told, and what it answers."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from stepwell.errors import InvalidJson
from stepwell.jsontext import decode_untrusted
from stepwell.llm.answer import ToolCall
from stepwell.tools.declaration import Tool

_TOLD = """You can call tools. To call some, answer with this JSON object and nothing else:
{"tool_calls": [{"name": "NAME", "arguments": {}}]}
You are then told the results. Once you need no more calls, answer in plain text. The tools, with the JSON Schema of \
their arguments:"""


def described(tools: Iterable[Tool]) -> str:
    """What a model is told of the tools."""
    lines = [f"- {tool.name}: {tool.description}\n  {json.dumps(tool.schema, ensure_ascii=False)}" for tool in tools]
    return "\n".join([_TOLD, *lines])


def read_calls(text: str, turn: int) -> list[ToolCall]:
    """The calls in an answer; none where it is no such JSON object, also inside a code fence."""
    bare = text.strip()
    if bare.startswith("```") and bare.endswith("```") and "\n" in bare:
        bare = bare[bare.index("\n") : -3].strip()
    if not bare.startswith("{"):
        return []
    try:
        read = decode_untrusted(bare)
    except InvalidJson:
        return []
    listed = read.get("tool_calls") if isinstance(read, dict) else None
    made = [item for item in listed if isinstance(item, dict)] if isinstance(listed, list) else []
    return [
        ToolCall(f"call_{turn}_{number}", str(item.get("name", "")), _arguments(item.get("arguments")))
        for number, item in enumerate(made, start=1)
    ]


def _arguments(given: Any) -> dict[str, Any] | str:
    return {} if given is None else given if isinstance(given, dict) else json.dumps(given)


def told_results(results: Sequence[dict[str, Any]]) -> str:
    """The results of calls as the next message to the model."""
    lines = [f"{result['name']}{' failed' if result['is_error'] else ''}: {result['content']}" for result in results]
    return "\n".join(["Results of the calls:", *lines])
