"""One budget for every answer of the tools: it stays under 20 KB, and says exactly what was left out."""

import json
from typing import Any

from stepwell.graph.diagnostics import escaped

MAX_ANSWER_BYTES = 20_000
MAX_TEXT_CHARS = 500
MAX_ITEMS = 50


def size_of(value: Any) -> int:
    """The bytes of a value as JSON."""
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"))


def fit_list(items: list[Any], *, room: int = MAX_ANSWER_BYTES - 2_000) -> list[Any]:
    """As many of the first items as fit into `room` bytes; at least one."""
    used = 0
    for number, item in enumerate(items):
        used += size_of(item) + 2
        if used > room and number:
            return items[:number]
    return items


def preview(value: Any, *, chars: int = MAX_TEXT_CHARS, items: int = MAX_ITEMS, depth: int = 4) -> Any:
    """A value cut to a size that can be read: long texts and lists end with what was left out, as data."""
    if isinstance(value, str):
        shown = escaped_data(value)
        return shown if len(shown) <= chars else f"{shown[:chars]}… (+{len(shown) - chars} chars)"
    if isinstance(value, dict):
        if depth == 0:
            return f"{{… {len(value)} fields}}"
        kept = list(value.items())[:items]
        made = {
            escaped_data(str(key))[:80]: preview(child, chars=chars, items=items, depth=depth - 1)
            for key, child in kept
        }
        return made if len(kept) == len(value) else {**made, "…": f"+{len(value) - len(kept)} fields"}
    if isinstance(value, list):
        if depth == 0:
            return f"[… {len(value)} items]"
        shown_items = [preview(child, chars=chars, items=items, depth=depth - 1) for child in value[:items]]
        return shown_items if len(value) <= items else [*shown_items, f"… +{len(value) - items} items"]
    return value


def bounded(value: Any, room: int) -> Any:
    """A preview of at most about `room` bytes: coarser and coarser until it fits."""
    for chars, items, depth in ((500, 50, 5), (200, 20, 4), (100, 8, 3), (60, 4, 2), (40, 2, 1)):
        shown = preview(value, chars=chars, items=items, depth=depth)
        if size_of(shown) <= room:
            return shown
    return preview(value, chars=40, items=2, depth=0)


def escaped_data(text: str) -> str:
    """Text of a workflow or a run as it is handed to an agent: control and bidirectional characters as escapes."""
    return "\n".join("\t".join(escaped(cell) for cell in line.split("\t")) for line in text.split("\n"))
