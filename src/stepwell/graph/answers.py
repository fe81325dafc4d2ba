"""What the answers of the tools have in common: sources, pages, errors, the budget."""

from collections.abc import Callable
from typing import Any, NamedTuple

from stepwell.errors import InvalidArgument
from stepwell.graph.budget import MAX_ANSWER_BYTES, bounded, fit_list, size_of
from stepwell.graph.executions import RunReader
from stepwell.graph.folder import WorkflowFolder
from stepwell.graph.registry import Registry

DEFAULT_LIMIT = 50
MAX_LIMIT = 200

Answer = dict[str, Any]


class Sources(NamedTuple):
    """Where the tools look: the workflows of a project, the node types, its runs and stored files."""

    folder: WorkflowFolder
    registry: Registry
    runs: RunReader | None = None
    read_file: Callable[[str], bytes] | None = None


def failed_answer(message: str, hint: str | None = None, *, status: str = "error", candidates: Any = None) -> Answer:
    """An answer that says what went wrong."""
    made: Answer = {"status": status, "error": message}
    if hint:
        made["hint"] = hint
    return made | ({"candidates": list(candidates)} if candidates else {})


def within_budget(answer: Answer) -> Answer:
    """The answer, cut to 20 KB; a list by whole items."""
    data = answer.get("data")
    if isinstance(data, list) and data:
        kept = fit_list(data)
        if len(kept) < len(data):
            left = f"{len(data) - len(kept)} items were left out to keep the answer short: ask for fewer at once"
            answer = answer | {"data": kept, "count": len(kept), "truncated": True, "hint": left}
    elif size_of(answer) > MAX_ANSWER_BYTES:
        answer = {**answer, "data": bounded(data, MAX_ANSWER_BYTES - 2_000)}
        answer.setdefault("hint", "the answer was cut: ask for less with filters, view or compact")
    return answer


def page(items: list[Any], arguments: dict[str, Any], shown: Callable[[Any], Any]) -> Answer:
    """A page of a list, cut to the budget too, with exact counts."""
    limit, offset = window(arguments)
    page = fit_list([shown(item) for item in items[offset : offset + limit]])
    made: Answer = {"status": "ok", "data": page, "count": len(page), "total": len(items)}
    behind = offset + len(page)
    made["truncated"] = behind < len(items)
    if made["truncated"]:
        made["next_offset"] = behind
        if len(page) < limit:
            made["hint"] = f"the answer was cut to 20 KB: go on with offset={behind}"
    return made


def window(arguments: dict[str, Any]) -> tuple[int, int]:
    """How many items are asked for, at most 200, and from which on.

    Raises:
        InvalidArgument: `limit` is below 1, or `offset` below 0.
    """
    limit, offset = arguments.get("limit", DEFAULT_LIMIT), arguments.get("offset", 0)
    for name, value, least in (("limit", limit, 1), ("offset", offset, 0)):
        if value < least:
            raise InvalidArgument(f"{name} is {value}: it is a whole number from {least}", argument=name)
    return min(limit, MAX_LIMIT), offset


def needed(arguments: dict[str, Any], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str) or not value.strip():
        raise InvalidArgument(
            f"{arguments['action']} needs {name}", hint=f'e.g. {{"action": "{arguments["action"]}", "{name}": "…"}}',
            argument=name,
        )  # fmt: skip
    return value
