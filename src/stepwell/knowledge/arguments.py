"""Checks of arguments."""

from typing import Any

from stepwell.errors import InvalidArgument


def check_count(value: Any, name: str, low: int, high: int | None) -> int:
    """A whole number within bounds.

    Raises:
        InvalidArgument: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        bound = f"from {low}" if high is None else f"from {low} to {high}"
        raise InvalidArgument(f"{name} is {value!r:.40}: it must be a whole number {bound}", argument=name)
    return value
