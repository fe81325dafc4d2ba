"""Checks of arguments."""

from typing import Any, Final

from stepwell.errors import InvalidArgument

MAX_TITLE_CHARS: Final = 500


def check_count(value: Any, name: str, low: int, high: int | None) -> int:
    """A whole number within bounds.

    Raises:
        InvalidArgument: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
        bound = f"from {low}" if high is None else f"from {low} to {high}"
        raise InvalidArgument(f"{name} is {value!r:.40}: it must be a whole number {bound}", argument=name)
    return value


def check_lines(start: Any, end: Any) -> tuple[int, int]:
    """A range of lines, 1-based and inclusive.

    Raises:
        InvalidArgument: not whole numbers, `start` below 1, or after `end`.
    """
    start = check_count(start, "start", 1, None)
    end = check_count(end, "end", 1, None)
    if start > end:
        raise InvalidArgument(f"start ({start}) is after end ({end})", argument="start")
    return start, end


def check_title(title: Any) -> str:
    """A document's title in one line: white space folded, not empty, without NUL and lone surrogates.

    Raises:
        InvalidArgument: it breaks a rule.
    """
    folded = " ".join(title.split()) if isinstance(title, str) else ""
    if not folded or len(folded) > MAX_TITLE_CHARS:
        raise InvalidArgument(
            f"the title {title!r:.60} must be text of 1 to {MAX_TITLE_CHARS} characters", argument="title"
        )
    if "\x00" in folded or any("\ud800" <= character <= "\udfff" for character in folded):
        raise InvalidArgument(f"the title {title!r:.60} has a NUL character or a lone surrogate", argument="title")
    return folded


def check_markdown(markdown: Any) -> str:
    """A document's text.

    Raises:
        InvalidArgument: not text.
    """
    if not isinstance(markdown, str):
        raise InvalidArgument(f"markdown is {type(markdown).__name__}, not text", argument="markdown")
    return markdown
