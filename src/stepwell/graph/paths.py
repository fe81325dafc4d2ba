"""Dotted paths into JSON: `user.tags[0].name`, `user.tags.0.name`."""

import json
import re
from typing import Any

from stepwell.graph.ports import MISSING, same

_STEP = re.compile(r"\[(\d{1,9})\]")
OPERATORS = ("truthy", "exists", "equals", "not_equals", "contains", "greater_than", "less_than")


def at_path(value: Any, path: str) -> Any:
    """What stands at a path; MISSING where nothing does. A key that has dots itself is found before its parts."""
    if isinstance(value, dict) and path in value:
        return value[path]
    for step in _STEP.sub(r".\1", path).removeprefix(".").split("."):
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and step.isascii() and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return MISSING
    return value


def matches(found: Any, operator: str, wanted: Any) -> bool:
    """True if what was found meets a condition; a missing value meets none but `not_equals`."""
    if operator == "exists":
        return found is not MISSING
    if operator == "not_equals":
        return found is MISSING or not _equal(found, wanted)
    if found is MISSING:
        return False
    if operator == "truthy":
        return bool(found)
    if operator == "equals":
        return _equal(found, wanted)
    if operator == "contains":
        if isinstance(found, str):
            return isinstance(wanted, str) and wanted in found
        return any(same(part, wanted) for part in found) if isinstance(found, (list, dict)) else False
    left, right = _number(found), _number(wanted)
    if left is None or right is None:
        return False
    return left > right if operator == "greater_than" else left < right


def _equal(found: Any, wanted: Any) -> bool:
    if same(found, wanted):
        return True
    # A form gives every value as text: "3" is meant to equal 3.
    return isinstance(wanted, str) and not isinstance(found, (str, dict, list)) and _as_text(found) == wanted.strip()


def _as_text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)


def _number(value: Any) -> float | int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    try:
        return float(value) if isinstance(value, str) else None
    except ValueError:
        return None
