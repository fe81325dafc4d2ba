"""The strict JSON codec: what goes in comes out equal, or is refused by name.

`encode` turns a Python value into JSON text and refuses everything that would not come back equal, naming the
place as a JSON path (`$.items[3].when`). `decode` reads text this codec wrote. `decode_untrusted` reads text
from outside (HTTP, files, arguments) and additionally refuses duplicate keys, NaN and numbers that overflow.

Text keeps its characters (no ASCII escaping), so a stored value costs what it weighs in UTF-8; only control
characters and lone surrogates are written as escapes.
"""

import json
import re
from math import inf, isfinite

from stepwell.errors import InvalidJson, ValueNotSerializable, ValueTooLarge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

MAX_DEPTH = 256
MAX_INT_DIGITS = 4_000
MAX_VALUE_BYTES = 16 * 1024 * 1024

_INT_BOUND = 10**MAX_INT_DIGITS
_SURROGATE = re.compile("[\ud800-\udfff]")
_SURROGATE_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_dumps = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode
_SCALARS = frozenset({str, int, float, bool, type(None)})


def encode(value: "Any", *, max_bytes: int = MAX_VALUE_BYTES) -> str:
    """The JSON text of a value.

    Args:
        value: dict with string keys, list, tuple (written as an array), str, int, float, bool or None.
        max_bytes: limit of the text in UTF-8 bytes.

    Raises:
        ValueNotSerializable: something inside is not JSON; the message and `path` name the place.
        ValueTooLarge: the text would be longer than `max_bytes`.

    >>> encode({"a": [1, 1.0, None, "é"]})
    '{"a":[1,1.0,null,"é"]}'
    """
    _check(value)
    text = _dumps(value)
    # 4 bytes is the most a character needs: most values are accepted without measuring them.
    if len(text) * 4 > max_bytes or not text.isascii():
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            text = _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
            size = len(text.encode())
        check_size(size, max_bytes)
    return text


def check_size(size: int, limit: int) -> None:
    """Refuse a value whose JSON text has too many UTF-8 bytes.

    Raises:
        ValueTooLarge
    """
    if size > limit:
        raise ValueTooLarge(f"the value is {size:,} bytes of JSON; the limit is {limit:,}", size=size, limit=limit)


decode = json.JSONDecoder().decode
"""Read JSON text that `encode` wrote."""


def decode_untrusted(text: str | bytes, *, what: str = "the text") -> "Any":
    """Read JSON text from outside.

    Args:
        text: JSON, as str or UTF-8 bytes (a byte order mark is accepted).
        what: how error messages call it.

    Raises:
        InvalidJson: not JSON, duplicate object keys, NaN or Infinity, a number that overflows, nesting over
            256, or an integer over 4,000 digits. The message says where.
    """
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise InvalidJson(f"{what} is not UTF-8: {error.reason} at byte {error.start}") from None
    elif text.startswith("\ufeff"):
        text = text[1:]
    try:
        value = _strict_decode(text)
    except json.JSONDecodeError as error:
        raise InvalidJson(
            f"{what} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}: "
            + _excerpt(text, error.pos),
            hint=_json_hint(text),
            line=error.lineno,
            column=error.colno,
        ) from None
    except RecursionError:
        raise InvalidJson(f"{what} is nested over {MAX_DEPTH} levels deep") from None
    except _Refused as refused:
        raise InvalidJson(f"{what} {refused.args[0]}") from None
    if _too_deep(value):
        raise InvalidJson(f"{what} is nested over {MAX_DEPTH} levels deep")
    return value


def _check(value: "Any") -> None:
    """Refuse what JSON text would not bring back equal.

    Walks with an explicit stack: depth is a limit we state, never the interpreter's recursion limit. Paths are
    only built once something is wrong, so that good values pay nothing for them.
    """
    kind = type(value)
    if kind in _SCALARS:
        if kind is str:
            if not value.isascii() and _SURROGATE_PAIR.search(value):
                _fail(value)
        elif (kind is float and not isfinite(value)) or (kind is int and not -_INT_BOUND < value < _INT_BOUND):
            _fail(value)
        return
    level = [value]
    depth = 0
    while level:
        depth += 1
        below: list[Any] = []
        for container in level:
            if isinstance(container, dict):
                for key in container:
                    if type(key) is not str or (not key.isascii() and _SURROGATE_PAIR.search(key)):
                        _fail(value)
                children = container.values()
            elif isinstance(container, (list, tuple)):
                children = container  # type: ignore[assignment]
            else:
                _fail(value)
            for child in children:
                kind = type(child)
                if kind is str:
                    if not child.isascii() and _SURROGATE_PAIR.search(child):
                        _fail(value)
                elif kind is int:
                    if not -_INT_BOUND < child < _INT_BOUND:
                        _fail(value)
                elif kind is float:
                    if not isfinite(child):
                        _fail(value)
                elif kind is not bool and child is not None:
                    below.append(child)
        if depth >= MAX_DEPTH and below:
            _fail(value)
        # A circular value widens level by level; each container needs one look a level.
        level = below if len(below) < 1_000 else list({id(child): child for child in below}.values())


def _fail(root: "Any") -> "NoReturn":
    """Find the first offence in document order and raise with its path."""
    stack: list[tuple[Any, str, tuple[int, ...]]] = [(root, "$", ())]
    while stack:
        value, path, above = stack.pop()
        problem = _problem(value, above)
        if problem is not None:
            raise ValueNotSerializable(f"{_shortened(path)}: {problem}", path=path)
        if not isinstance(value, (dict, list, tuple)):
            continue
        above = (*above, id(value))
        if isinstance(value, dict):
            children = [(child, f"{path}{_step(key)}", above) for key, child in value.items()]
        else:
            children = [(child, f"{path}[{index}]", above) for index, child in enumerate(value)]
        stack.extend(reversed(children))
    raise ValueNotSerializable("$: not JSON", path="$")


def _problem(value: "Any", above: "tuple[int, ...]") -> str | None:
    kind = type(value)
    if kind is str:
        return "surrogates that form a pair would come back as one character" if _SURROGATE_PAIR.search(value) else None
    if kind is float:
        return None if isfinite(value) else f"{value} is not JSON"
    if kind is int:
        return None if -_INT_BOUND < value < _INT_BOUND else f"integer of over {MAX_INT_DIGITS:,} digits"
    if kind is bool or value is None:
        return None
    if not isinstance(value, (dict, list, tuple)):
        return f"{kind.__name__} is not JSON{_conversion(value)}"
    if id(value) in above:
        return "circular reference"
    if len(above) >= MAX_DEPTH:
        return f"nested over {MAX_DEPTH} levels deep"
    for key in value if isinstance(value, dict) else ():
        if type(key) is not str:
            return f"key {key!r:.80} is {type(key).__name__}, JSON keys are strings"
        if _SURROGATE_PAIR.search(key):
            return "a key has surrogates that form a pair"
    return None


def _shortened(path: str) -> str:
    return path if len(path) <= 160 else f"{path[:100]}…{path[-50:]}"


def _conversion(value: "Any") -> str:
    if hasattr(value, "model_dump"):
        return ' (call .model_dump(mode="json"))'
    if hasattr(value, "__dataclass_fields__"):
        return " (call dataclasses.asdict)"
    if isinstance(value, (str, int, float)):
        return f" (convert it with {type(value).__mro__[-2].__name__}(...))"
    return ""


def _step(key: str) -> str:
    return f".{key}" if _IDENTIFIER.match(key) else f"[{json.dumps(key[:80])}]"


class _Refused(Exception):
    pass


def _refuse_constant(name: str) -> "NoReturn":
    raise _Refused(f"has {name}, which is not JSON")


def _parse_float(digits: str) -> float:
    number = float(digits)
    if number in (inf, -inf):
        raise _Refused(f"has the number {digits[:40]}, which overflows")
    return number


def _parse_int(digits: str) -> int:
    if len(digits.removeprefix("-")) > MAX_INT_DIGITS:
        raise _Refused(f"has an integer of over {MAX_INT_DIGITS:,} digits")
    return int(digits)


def _unique_keys(pairs: "list[tuple[str, Any]]") -> "dict[str, Any]":
    built = dict(pairs)
    if len(built) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _Refused(f"has the object key {json.dumps(key[:80])} twice")
            seen.add(key)
    return built


_strict_decode = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_constant=_refuse_constant,
    parse_float=_parse_float,
    parse_int=_parse_int,
).decode


def _too_deep(value: "Any") -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for container in level
            if isinstance(container, (dict, list))
            for child in (container.values() if isinstance(container, dict) else container)
        ]
        if not level:
            return False
    return any(isinstance(value, (dict, list)) for value in level)


def _excerpt(text: str, position: int) -> str:
    start = max(0, position - 20)
    return json.dumps(text[start : start + 40], ensure_ascii=False)


def _json_hint(text: str) -> str | None:
    stripped = text.lstrip()
    if stripped.startswith("```"):
        return "remove the code fence around the JSON"
    if stripped.startswith("'") or "{'" in stripped[:40]:
        return "JSON strings use double quotes"
    return None
