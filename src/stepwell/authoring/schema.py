"""Types at the boundary: validation, JSON forms and JSON Schemas of annotations (pydantic, loaded when needed)."""

from functools import lru_cache
from typing import Any

from stepwell.errors import InputInvalid, OutputInvalid, ValueNotSerializable
from stepwell.jsontext import encode


@lru_cache(maxsize=512)
def _adapter(annotation: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(annotation)


def adapter(annotation: Any) -> Any:
    """The pydantic TypeAdapter of an annotation."""
    try:
        return _adapter(annotation)
    except TypeError:  # unhashable annotations are rare; they are built each time
        from pydantic import TypeAdapter

        return TypeAdapter(annotation)


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
    """The JSON form of an output: models and dataclasses are dumped, the rest has to be JSON already.

    Raises:
        OutputInvalid: something inside is not JSON; the message says where.
    """
    if not isinstance(value, (str, int, float, bool, type(None), list, dict, tuple)):
        value = dump(value)
    try:
        encode(value, max_bytes=1 << 40)
    except ValueNotSerializable as plain:
        try:
            dumped = dump(value)
            encode(dumped, max_bytes=1 << 40)
        except (ValueNotSerializable, ValueError, TypeError):
            raise OutputInvalid(f"{what} is not JSON at {plain.message}", path=plain.data.get("path")) from None
        return dumped
    return value


def dump(value: Any) -> Any:
    """The JSON form of models, dataclasses, dates and the like.

    Raises:
        ValueError: there is none.
    """
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value, inf_nan_mode="constants")
    except PydanticSerializationError as error:
        raise ValueError(str(error)) from None


def describe_value(value: Any) -> tuple[Any, bool]:
    """What to record of a value: its JSON form, and whether that is exact.

    Values without a JSON form are recorded by their type alone, never by `repr` (addresses differ between runs).
    """
    try:
        encode(value, max_bytes=1 << 40)
    except ValueNotSerializable:
        pass
    else:
        return value, True
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        recorded = to_jsonable_python(value, fallback=lambda part: f"<{type(part).__qualname__}>")
        encode(recorded, max_bytes=1 << 40)
    except (PydanticSerializationError, ValueNotSerializable, ValueError, TypeError):
        return f"<{type(value).__qualname__}>", False
    return recorded, False


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
