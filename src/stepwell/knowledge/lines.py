"""Lines of a document: one rule for search, reading and context.

A line ends at a line feed, a carriage return, or both together; at nothing else. (`str.splitlines` also breaks at
form feeds, U+2028 and others, and then two tools disagree about where line 12 is.)
"""

import re
from collections.abc import Sequence

_END = re.compile(r"\r\n|\n|\r")


def split_lines(text: str) -> list[str]:
    """The lines without their ends. A final line end adds no empty line; an empty text has no line.

    >>> split_lines("a\\nb\\r\\nc\\rd\\x0ce\\n")
    ['a', 'b', 'c', 'd\\x0ce']
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def read_lines(text: str, start: int, end: int) -> tuple[list[str], int]:
    """Lines `start` to `end` (1-based, inclusive) as far as they exist, and how many lines there are."""
    lines = split_lines(text)
    return lines[start - 1 : end], len(lines)


def context(lines: Sequence[str], index: int, before: int, after: int) -> tuple[list[str], list[str]]:
    """The lines around `lines[index]`."""
    return list(lines[max(0, index - before) : index]), list(lines[index + 1 : index + 1 + after])


def line_of(text: str, position: int) -> int:
    """The 0-based number of the line that holds a character position."""
    return sum(1 for _ in _END.finditer(text, 0, position))
