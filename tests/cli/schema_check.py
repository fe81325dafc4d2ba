"""The part of JSON Schema that our published schemas use."""

import re
from typing import Any

TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
KNOWN = {
    "$schema", "type", "properties", "required", "items", "anyOf", "enum", "additionalProperties", "minimum", "minLength",
    "minItems", "maxItems", "pattern", "format", "default",
}  # fmt: skip


def misfits(schema: dict[str, Any], value: Any, path: str = "$") -> list[str]:
    """Where a value does not fit a schema. Properties that the schema does not name are misfits too: publish them."""
    assert set(schema) <= KNOWN, f"{path}: teach this check {set(schema) - KNOWN}"
    if "anyOf" in schema:
        tried = [misfits(choice, value, path) for choice in schema["anyOf"]]
        return [] if [] in tried else tried[0]
    found = []
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    fits = [isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool)) for name in types]
    if types and not any(fits):
        return [f"{path}: {value!r} is not {types}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{path}: {value!r} is not in {schema['enum']}")
    if "pattern" in schema and not re.search(schema["pattern"], value):
        found.append(f"{path}: {value!r} does not match")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{path}: {value!r} is too small")
    if isinstance(value, dict) and "object" in types:
        found += [f"{path}: {name} is missing" for name in schema.get("required", ()) if name not in value]
        extra = schema.get("additionalProperties", False if "properties" in schema else {})
        for name, part in value.items():
            inner = schema.get("properties", {}).get(name, extra)
            found += [f"{path}: {name} is not published"] if inner is False else misfits(inner, part, f"{path}.{name}")
    if isinstance(value, list) and "items" in schema:
        for number, part in enumerate(value):
            found += misfits(schema["items"], part, f"{path}[{number}]")
    return found
