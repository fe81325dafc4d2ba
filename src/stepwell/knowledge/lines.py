"""Lines of a document: one rule for search, reading and context.

A line ends at a line feed, a carriage return, or both together; at nothing else. (`str.splitlines` also breaks at
form feeds, U+2028 and others, and then two tools disagree about where line 12 is.) A final line end adds no empty
line, and an empty text has no line.

Everything but `normalise` takes a normalised text. A text may have millions of lines, or one line of millions of
characters, so it is worked through block by block: each step is short, and other threads get their turn.
"""

from collections.abc import Iterator

BLOCK_CHARS = 65_536


def normalise(text: str) -> str:
    """The same lines, each ended by a line feed.

    >>> normalise("a\\nb\\r\\nc\\rd\\x0ce\\n")
    'a\\nb\\nc\\nd\\x0ce\\n'
    """
    if "\r" not in text:
        return text
    pieces = []
    start = 0
    while start < len(text):
        end = start + BLOCK_CHARS
        if text[end - 1 : end + 1] == "\r\n":
            end += 1  # never between the two characters of one line end
        pieces.append(text[start:end].replace("\r\n", "\n").replace("\r", "\n"))
        start = end
    return "".join(pieces)


def split_lines(text: str) -> list[str]:
    """The lines of a normalised text, without their ends.

    >>> split_lines("a\\n\\nb\\n")
    ['a', '', 'b']
    """
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def blocks(text: str) -> Iterator[tuple[int, int]]:
    """The text in pieces of whole lines, as `(start, end)`: some 64 K characters each, or one longer line."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + BLOCK_CHARS) + 1 or len(text)
        yield start, end
        start = end


def line_count(text: str) -> int:
    """How many lines a normalised text has."""
    return text.count("\n") + (0 if not text or text.endswith("\n") else 1)


def read_lines(text: str, start: int, end: int) -> tuple[list[str], int]:
    """Lines `start` to `end` (1-based, inclusive) as far as they exist, and how many lines there are.

    >>> read_lines("a\\nb\\nc", 2, 9)
    (['b', 'c'], 3)
    """
    found: list[str] = []
    above = 0
    for first, last in blocks(text):
        here = line_count(text[first:last]) if last == len(text) else text.count("\n", first, last)
        if above + here >= start and above < end:
            found += split_lines(text[first:last])[max(start - above - 1, 0) : end - above]
        above += here
    return found, above


def lines_before(text: str, position: int, number: int, longest: int) -> list[str]:
    """Up to `number` lines before the line that starts at `position`, each cut to `longest` characters."""
    found: list[str] = []
    while position > 0 and len(found) < number:
        end = position - 1
        position = text.rfind("\n", 0, end) + 1
        found.append(shorten(text, position, end, longest))
    return found[::-1]


def lines_after(text: str, position: int, number: int, longest: int) -> list[str]:
    """Up to `number` lines after the line that ends at `position`, each cut to `longest` characters."""
    found: list[str] = []
    while position + 1 < len(text) and len(found) < number:
        start = position + 1
        position = text.find("\n", start)
        if position < 0:
            position = len(text)
        found.append(shorten(text, start, position, longest))
    return found


def shorten(text: str, start: int, end: int, longest: int, around: int = 0) -> str:
    """`text[start:end]`; of more than `longest` characters only those around an offset, with `…` where it was cut."""
    if end - start <= longest:
        return text[start:end]
    first = start + max(0, min(around - longest // 4, end - start - longest))
    last = first + longest
    return f"{'…' if first > start else ''}{text[first:last]}{'…' if last < end else ''}"
