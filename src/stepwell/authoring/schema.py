"""Types at the boundary: validation, JSON forms and JSON Schemas of annotations (pydantic, loaded when needed)."""

import sys
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, NamedTuple, get_args, get_origin, get_type_hints, is_typeddict

from stepwell.errors import InputInvalid, OutputInvalid, StepwellError, ValueNotSerializable
from stepwell.jsontext import MAX_DEPTH, encode

UNLIMITED = 1 << 40
"""For texts whose size is bounded elsewhere: large ones become files."""


@lru_cache(maxsize=512)
def _adapter(annotation: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(_portable(annotation))


def _portable(annotation: Any) -> Any:
    """The annotation as pydantic takes it: before Python 3.12 it refuses `typing.TypedDict`, so that is made anew."""
    if sys.version_info >= (3, 12):
        return annotation
    if is_typeddict(annotation) and type(annotation).__module__ == "typing":
        from typing import NotRequired, Required

        from typing_extensions import TypedDict

        members = {
            name: (Required if name in annotation.__required_keys__ else NotRequired)[_portable(member)]
            for name, member in get_type_hints(annotation).items()
        }
        return TypedDict(annotation.__name__, members)  # type: ignore[operator]
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (list, dict, tuple, set) and arguments:
        return origin[tuple(_portable(argument) for argument in arguments)]
    return annotation


def adapter(annotation: Any) -> Any:
    """The pydantic TypeAdapter of an annotation."""
    try:
        return _adapter(annotation)
    except TypeError:  # unhashable annotations are rare; they are built each time
        from pydantic import TypeAdapter

        return TypeAdapter(_portable(annotation))


def is_any(annotation: Any) -> bool:
    """True for an annotation that allows everything."""
    return annotation is Any or annotation is None or annotation is ...


def validate(annotation: Any, value: Any, what: str) -> Any:
    """The value as the annotation wants it.

    Raises:
        InputInvalid: it does not fit; every problem with its place.
    """
    if is_any(annotation):
        return value
    from pydantic import ValidationError

    try:
        return adapter(annotation).validate_python(value)
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, part['loc'])) or '(whole)'}: {part['msg']}" for part in error.errors()]
        raise InputInvalid(
            f"{what} does not fit: " + "; ".join(problems),
            hint="`stepwell describe` shows its schema",
            problems=problems,
        ) from None


def to_json(value: Any, what: str) -> Any:
    """The JSON form of an output: models, dataclasses, dates and the like are dumped, the rest has to be JSON already.

    Raises:
        OutputInvalid: something inside is not JSON; the message says where.
    """
    try:
        encode(value, max_bytes=UNLIMITED)
    except ValueNotSerializable:
        value = dump(value)
        try:
            encode(value, max_bytes=UNLIMITED)
        except ValueNotSerializable as error:
            raise OutputInvalid(f"{what} is not JSON at {error.message}", path=error.data.get("path")) from None
    return value


def dump(value: Any, depth: int = 0) -> Any:
    """The value with models, dataclasses, dates, UUIDs and the like in their JSON form; plain values stay as they are.

    Keys that are no strings and numbers that are no JSON stay too, to be refused by name and not changed silently.
    """
    if isinstance(value, dict) and depth <= MAX_DEPTH:
        return {key: dump(child, depth + 1) for key, child in value.items()}
    if isinstance(value, (list, tuple)) and depth <= MAX_DEPTH:
        return [dump(child, depth + 1) for child in value]
    if value is None or type(value) in (str, int, float, bool):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: dump(getattr(value, field.name), depth + 1) for field in fields(value)}
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value)
    except PydanticSerializationError:
        return value


class Described(NamedTuple):
    """A value as it is recorded: its JSON form, that as text, and whether it is exact."""

    value: Any
    text: str
    exact: bool


def describe_value(value: Any) -> Described:
    """What to record of a value.

    Values without a JSON form are recorded by their type alone, never by `repr` (addresses differ between runs).
    """
    try:
        return Described(value, encode(value, max_bytes=UNLIMITED), exact=True)
    except ValueNotSerializable:
        return _inexactly(value)


def describe_result(annotation: Any, value: Any) -> Described:
    """What to record of a result: exact if it is JSON, or if its annotation makes an equal value of the record."""
    try:
        return Described(value, encode(value, max_bytes=UNLIMITED), exact=True)
    except ValueNotSerializable:
        if is_any(annotation):
            return _inexactly(value)
    try:
        recorded = adapter(annotation).dump_python(value, mode="json", warnings="error")
        text = encode(recorded, max_bytes=UNLIMITED)
        again = restore(annotation, recorded)
        if type(again) is type(value) and bool(again == value):
            return Described(recorded, text, exact=True)
    except (ValueError, TypeError, RuntimeError, StepwellError):  # whatever pydantic or the value's own == object to
        pass
    return _inexactly(value)


def _inexactly(value: Any) -> Described:
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        recorded = to_jsonable_python(value, fallback=lambda part: f"<{type(part).__qualname__}>")
        return Described(recorded, encode(recorded, max_bytes=UNLIMITED), exact=False)
    except (PydanticSerializationError, ValueNotSerializable, ValueError, TypeError):
        recorded = f"<{type(value).__qualname__}>"
        return Described(recorded, encode(recorded), exact=False)


def restore(annotation: Any, recorded: Any) -> Any:
    """A recorded JSON value as the annotated type. Raises ValueError if it no longer fits."""
    return recorded if is_any(annotation) else adapter(annotation).validate_python(recorded)


def json_schema(annotation: Any) -> dict[str, Any]:
    """The JSON Schema of an annotation; `{}` allows everything."""
    if is_any(annotation):
        return {}
    from pydantic.errors import PydanticInvalidForJsonSchema

    try:
        return dict(adapter(annotation).json_schema())
    except PydanticInvalidForJsonSchema:
        return {}
