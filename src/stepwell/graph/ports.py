"""Ports: their types, which types fit together, and how a value is made to fit."""

import json
import math
import re
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from stepwell.errors import InvalidJson
from stepwell.jsontext import decode_untrusted

TEXT_TYPES = frozenset({"string", "text", "markdown", "html", "url", "date", "color", "csv"})
MEDIA_TYPES = frozenset({"image", "audio", "video", "document"})
_INTEGER = re.compile(r"[+-]?\d{1,400}\Z")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")


class _Missing:
    """The type of MISSING."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()
"""No value at all, compared with `is`. `None` is JSON's null, which is a value."""


def typed(port_type: str, base: Any = Any, **extra: Any) -> Any:
    """An annotation whose port has a type of its own: `context: typed("agent_context") = None`."""
    added: Any = {"x-port-type": port_type, **extra}
    return Annotated[base, Field(json_schema_extra=added)]


AgentContext = typed("agent_context", dict[str, Any])
AgentContextOrNone = typed("agent_context", dict[str, Any] | None)
Anything = typed("any")
Json = typed("json")

WORKFLOW_ONLY = Field(json_schema_extra={"x-workflow-only": True})
"""Marks an input that an agent calling the node as a tool cannot set: `Annotated[bool, WORKFLOW_ONLY] = False`."""


def without_effect(why: str) -> Any:
    """Marks an input that files carry and that changes nothing here: `Annotated[bool, without_effect("…")] = False`.

    Validation tells who sets it to anything but its default; an agent is not offered it.

    Args:
        why: half a sentence: what decides instead.
    """
    return Field(json_schema_extra={"x-without-effect": why, "x-workflow-only": True})


def dynamic(prefix: str, *, port_type: str = "any", min_ports: int = 0, max_ports: int = 20) -> Any:
    """An array input that is wired through numbered ports: `prefix0`, `prefix1`, …"""
    extra: Any = {
        "x-dynamic-array": {
            "portPrefix": prefix, "minPorts": min_ports, "maxPorts": max_ports, "portType": port_type
        }
    }  # fmt: skip
    return Annotated[list[Any], Field(default_factory=list, json_schema_extra=extra)]


class Dynamic(NamedTuple):
    """The numbered ports of an array: `prefix0` up to `prefix<max_ports - 1>`, all of one type."""

    prefix: str
    min_ports: int
    max_ports: int
    type: str

    def number(self, port: str) -> int | None:
        """The number in a port's name; None if it is not one of these ports. It may be out of range."""
        digits = port.removeprefix(self.prefix)
        if not port.startswith(self.prefix) or not digits.isascii() or not digits.isdecimal() or len(digits) > 18:
            return None
        return int(digits) if digits == str(int(digits)) else None


class Port(NamedTuple):
    """An input or output of a node type.

    `default` is MISSING where there is none; `run_input` says that the run's own input goes here: `always`, or
    `missing` where the workflow gives no value. `workflow_only`: it says what the node may do, so no agent sets it.
    `without_effect`: why it changes nothing; empty where it does.
    """

    name: str
    type: str
    required: bool = False
    default: Any = MISSING
    nullable: bool = False
    enum: tuple[Any, ...] = ()
    description: str = ""
    dynamic: Dynamic | None = None
    run_input: str | None = None
    secret: bool = False
    workflow_only: bool = False
    without_effect: str = ""


def fits(source: str, target: str) -> bool:
    """True if a value of one port type may go into another; what is inside is only known when it comes."""
    if source == target or "any" in (source, target):
        return True
    if "json" in (source, target):
        return True
    if target in TEXT_TYPES:
        return source in TEXT_TYPES or source in ("array", "object", "agent_context")
    if target in ("array", "object"):
        return source in TEXT_TYPES or (target == "object" and source in ("agent_context", "file"))
    if {source, target} == {"integer", "number"}:
        return True
    if target in ("file", "binary"):
        return source in MEDIA_TYPES or source in ("file", "object")
    return target == "agent_context" and (source in TEXT_TYPES or source == "object")


class Misfit(Exception):
    """A value does not fit a port; the text says why."""


def fit(value: Any, port_type: str, *, nullable: bool = False, enum: tuple[Any, ...] = ()) -> Any:
    """The value as a port of this type takes it.

    Only changes of form are made that lose nothing: `50.0` and `"50"` are the integer 50, a text that is a JSON
    object is that object, an object becomes its JSON text. `true` is no number, and null never becomes a text.

    Raises:
        Misfit: it does not fit.
    """
    if port_type in ("any", "json"):
        fitted = value
    elif value is None:
        if not nullable:
            raise Misfit(f"null is not {_article(port_type)}")
        return None
    elif port_type in TEXT_TYPES:
        fitted = _text(value, port_type)
    elif port_type in ("integer", "number"):
        fitted = _number(value, port_type)
    elif port_type == "boolean":
        if not isinstance(value, bool):
            raise Misfit(f"{_shown(value)} is not a boolean")
        fitted = value
    elif port_type == "array":
        fitted = _structure(value, list, "an array")
    elif port_type == "agent_context":
        fitted = as_context(value)
    else:  # object, file, binary, media: references and records
        fitted = _structure(value, dict, "an object")
    if enum and not any(same(fitted, allowed) for allowed in enum):
        shown = ", ".join(json.dumps(allowed, ensure_ascii=False) for allowed in enum[:10])
        raise Misfit(f"{_shown(value)} is not one of {shown}")
    return fitted


def as_context(value: Any) -> dict[str, Any]:
    """An agent context: an object with `messages`. A text is what the user said.

    Raises:
        Misfit: it is neither.
    """
    if isinstance(value, str):
        return {"messages": [{"role": "user", "content": value}]}
    if not isinstance(value, dict):
        raise Misfit(f"{_shown(value)} is not an agent context")
    return value


def same(left: Any, right: Any) -> bool:
    """Equal as JSON: `true` is not 1."""
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def isolated(value: Any) -> Any:
    """A copy of a JSON value: what one node does to it, no other sees."""
    kind = type(value)
    if kind is dict:
        return {key: isolated(child) for key, child in value.items()}
    if kind in (list, tuple):
        return [isolated(child) for child in value]
    return value


def _text(value: Any, port_type: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False)
    raise Misfit(f"{_shown(value)} is not {_article(port_type)} (a utils/type_cast node converts it)")


def _number(value: Any, port_type: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise Misfit(f"{_shown(value)} is not {_article(port_type)}")
    number: Any = value
    if isinstance(value, str):
        text = value.strip()
        if _INTEGER.match(text):
            number = int(text)
        elif _NUMBER.match(text):
            number = float(text)
        else:
            raise Misfit(f"{_shown(value)} is not {_article(port_type)}")
    if isinstance(number, float):
        if not math.isfinite(number):
            raise Misfit(f"{_shown(value)} is not {_article(port_type)}")
        if port_type == "integer":
            if not number.is_integer():
                raise Misfit(f"{_shown(value)} is not an integer")
            return int(number)
    return number


def _structure(value: Any, wanted: type, what: str) -> Any:
    if isinstance(value, wanted):
        return value
    if isinstance(value, str):
        try:
            read = decode_untrusted(value)
        except InvalidJson:
            read = None
        if isinstance(read, wanted):
            return read
    raise Misfit(f"{_shown(value)} is not {what}")


def _article(port_type: str) -> str:
    if port_type in TEXT_TYPES:
        return "text"
    return f"an {port_type}" if port_type[0] in "aeiou" else f"a {port_type}"


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value)}"
    text = json.dumps(value, ensure_ascii=True, default=str)
    return text if len(text) <= 60 else f"{text[:59]}…"
