"""Values on their way: variables, conversions, lists, previews."""

import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from stepwell.errors import InvalidArgument, InvalidJson
from stepwell.graph.contexts import messages_of, rendered
from stepwell.graph.node_context import NodeContext
from stepwell.graph.paths import at_path
from stepwell.graph.ports import (
    MISSING,
    AgentContextOrNone,
    Anything,
    Json,
    Misfit,
    as_context,
    dynamic,
    fit,
    typed,
    without_effect,
)
from stepwell.graph.registry import node_type
from stepwell.jsontext import decode_untrusted

MAX_ITEMS = 100_000
PREVIEW_CHARS = 4_000
_VARIABLE = re.compile(r"\{\{\s*([\w.\[\]-]+)\s*\}\}")


@node_type("utils/smart_var", title="Variables")
class SmartVar:
    """Fills `{{name}}` in a template from wired values: objects by their fields, the others as input_0, input_1, …"""

    class Inputs(BaseModel):
        extract_mode: Literal["auto", "manual"] = "auto"
        output_vars: list[Any] | None = None
        template: str | None = None
        sources: dynamic("input_")  # type: ignore[valid-type]

    class Outputs(BaseModel):
        all_variables: list[Any]
        full_text: str
        preview_content: dict[str, Any]
        selected_vars: dict[str, Any]
        statistics: dict[str, Any]

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        known: dict[str, Any] = {}
        wired: dict[str, Any] = {}
        for number, source in enumerate(inputs.sources):
            if f"input_{number}" in ctx.given:
                wired[f"input_{number}"] = value = _parsed(source)
                known |= value if isinstance(value, dict) else {f"input_{number}": value}
        wanted = [str(name) for name in inputs.output_vars or ()] if inputs.extract_mode == "manual" else list(known)
        reachable = wired | known
        selected = {name: found for name in wanted if (found := at_path(reachable, name)) is not MISSING}
        missing = [name for name in wanted if name not in selected]

        def fill(match: re.Match[str]) -> str:
            value = at_path(reachable, match[1])
            if value is MISSING:
                missing.append(match[1])
                return match[0]
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

        text = _VARIABLE.sub(fill, inputs.template or "")
        return {
            "all_variables": [{"name": name, "value": value} for name, value in known.items()], "full_text": text,
            "selected_vars": selected, "preview_content": selected,
            "statistics": {"variables": len(known), "selected": len(selected), "missing": sorted(set(missing))},
        }  # fmt: skip


def _parsed(source: Any) -> Any:
    """A text that is a JSON or `name: value` object as that object; anything else as it is."""
    if not isinstance(source, str):
        return source
    try:
        read = decode_untrusted(source)
    except InvalidJson:
        read = _plain_yaml(source)
    return read if isinstance(read, (dict, list)) else source


def _plain_yaml(text: str) -> dict[str, Any] | None:
    """`name: value` lines, the flat part of YAML; values are JSON where they are, text otherwise."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    found: dict[str, Any] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not re.fullmatch(r"[\w-]+", name.strip()) or line[:1].isspace():
            return None
        value = value.strip()
        try:
            found[name.strip()] = decode_untrusted(value) if value else None
        except InvalidJson:
            found[name.strip()] = value
    return found or None


@node_type("utils/type_cast", title="Convert")
class TypeCast:
    """Takes the first input that is given, in the order of the ports, and emits every form it can be put into."""

    class Inputs(BaseModel):
        agent_context: AgentContextOrNone = None
        array: list[Any] | None = None
        boolean: bool | None = None
        integer: int | None = None
        json_: Annotated[Any, Field(alias="json", json_schema_extra={"x-port-type": "json"})] = None
        number: float | int | None = None
        text: typed("any") = None  # type: ignore[valid-type]

    class Outputs(BaseModel):
        agent_context: typed("agent_context")  # type: ignore[valid-type]
        array: list[Any]
        boolean: bool
        integer: int
        json_: Annotated[Any, Field(serialization_alias="json", json_schema_extra={"x-port-type": "json"})]
        number: float
        source_type: str
        text: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        for port in ("agent_context", "array", "boolean", "integer", "json", "number", "text"):
            if port in ctx.given:
                value = getattr(inputs, "json_" if port == "json" else port)
                return _forms(value) | {"source_type": port}
        raise InvalidArgument("utils/type_cast was given no value", hint="connect one of its inputs")


def _forms(value: Any) -> dict[str, Any]:
    read = value
    if isinstance(value, str):
        try:
            read = decode_untrusted(value)
        except InvalidJson:
            read = value
    made: dict[str, Any] = {"json": read}
    if value is not None:
        made["text"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        made["array"] = read if isinstance(read, list) else [read]
        boolean = _truth(read)
        if boolean is not None:
            made["boolean"] = boolean
        made["agent_context"] = as_context(value if isinstance(value, (str, dict)) else made["text"])
    number: Any = int(read) if isinstance(read, bool) else read
    for port in ("number", "integer"):
        try:
            made[port] = fit(number, port)
        except Misfit:
            continue
    return made


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        lowered = value.strip().lower()
        if lowered in ("true", "yes", "on"):
            return True
        return False if lowered in ("false", "no", "off", "") else None
    return bool(value)


@node_type("utils/to_items", title="To items")
class ToItems:
    """Splits a value into a list: an array as it is, a text by lines, delimiter or size, or a range of numbers."""

    class Inputs(BaseModel):
        input: Anything = None
        mode: Literal["auto", "lines", "delimiter", "size", "range"] = "auto"
        splitBy: str = ","  # noqa: N815  (named so in the files)
        chunkSize: int = 1_000  # noqa: N815
        maxItems: int = 0  # noqa: N815
        rangeStart: int = 0  # noqa: N815
        rangeEnd: int = 0  # noqa: N815
        rangeStep: int = 1  # noqa: N815

    class Outputs(BaseModel):
        count: int
        items: list[Any]
        mode_used: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        mode, items = _items(inputs)
        limit = inputs.maxItems or MAX_ITEMS
        if len(items) > MAX_ITEMS and not inputs.maxItems:
            raise InvalidArgument(f"over {MAX_ITEMS:,} items", hint="set maxItems")
        return {"items": items[:limit], "count": len(items[:limit]), "mode_used": mode}


def _items(inputs: Any) -> tuple[str, list[Any]]:
    value = inputs.input
    if inputs.mode == "range":
        if inputs.rangeStep == 0:
            raise InvalidArgument("rangeStep is 0", argument="rangeStep")
        return "range", list(range(inputs.rangeStart, inputs.rangeEnd, inputs.rangeStep)[: MAX_ITEMS + 1])
    if inputs.mode == "auto":
        value = _parsed(value)
        if isinstance(value, list):
            return "array", value
        if isinstance(value, dict):
            return "object", [{"key": key, "value": child} for key, child in value.items()]
    if value is None:
        return inputs.mode, []
    if isinstance(value, list) and inputs.mode == "size":
        size = max(1, inputs.chunkSize)
        return "size", [value[at : at + size] for at in range(0, len(value), size)]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if inputs.mode == "delimiter":
        return "delimiter", [part.strip() for part in text.split(inputs.splitBy or ",")]
    if inputs.mode == "size":
        size = max(1, inputs.chunkSize)
        return "size", [text[at : at + size] for at in range(0, len(text), size)]
    return "lines", [line.removesuffix("\r") for line in text.split("\n") if line.strip()]


@node_type("utils/preview", title="Preview", kind="output")
class Preview:
    """Shows a value: a page of its text, cut to a length that can be read."""

    class Inputs(BaseModel):
        data: Anything = None
        context: Anything = None
        artifact: dict[str, Any] | None = None
        artifactUri: str | None = None  # noqa: N815
        artifacts: list[Any] | None = None
        currentPage: int = 1  # noqa: N815
        displayFormat: Annotated[str, without_effect("texts are shown as they are, the rest as JSON")] = (  # noqa: N815
            "auto"
        )
        pageLength: int = PREVIEW_CHARS  # noqa: N815
        showStats: bool = True  # noqa: N815

    class Outputs(BaseModel):
        original_data: Json
        pagination: dict[str, Any]
        preview_content: str
        statistics: dict[str, Any]

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        value: Any = None
        for port in ("data", "context", "artifact", "artifactUri", "artifacts"):
            if port in ctx.given:
                value = getattr(inputs, port)
                break
        if port == "context" and isinstance(value, dict) and messages_of(value):
            text = rendered(value)
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)
        size = max(1, inputs.pageLength)
        pages = max(1, -(-len(text) // size))
        page = min(max(1, inputs.currentPage), pages)
        emitted: dict[str, Any] = {
            "original_data": value, "preview_content": text[(page - 1) * size : page * size],
            "pagination": {"page": page, "pages": pages, "page_length": size},
        }  # fmt: skip
        if inputs.showStats:
            emitted["statistics"] = {
                "characters": len(text), "lines": text.count("\n") + 1, "type": type(value).__name__
            }  # fmt: skip
        return emitted
