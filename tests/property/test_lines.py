"""Lines: one rule, whatever the text and however it is cut into blocks."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.knowledge import lines as module
from stepwell.knowledge.lines import (
    blocks,
    line_count,
    lines_after,
    lines_before,
    normalise,
    read_lines,
    shorten,
    split_lines,
)

TEXTS = st.text(alphabet="\r\n\r\nab\f\x0b\x1c\x85\u2028é中", max_size=60)


def oracle(text: str) -> list[str]:
    """The rule, said with a pattern."""
    parts = re.split(r"\r\n|\r|\n", text)
    return parts[:-1] if parts[-1] == "" else parts


@pytest.fixture(autouse=True, scope="module")
def _small_blocks() -> object:
    patch = pytest.MonkeyPatch()
    patch.setattr(module, "BLOCK_CHARS", 7)
    yield
    patch.undo()


@given(TEXTS)
def test_split_and_count(text: str) -> None:
    normal = normalise(text)
    assert "\r" not in normal
    assert split_lines(normal) == oracle(text)
    assert line_count(normal) == len(oracle(text))


@given(TEXTS, st.integers(1, 70), st.integers(0, 70))
def test_ranges(text: str, start: int, more: int) -> None:
    assert read_lines(normalise(text), start, start + more) == (
        oracle(text)[start - 1 : start + more],
        len(oracle(text)),
    )


@given(TEXTS)
def test_blocks_are_whole_lines_and_leave_nothing_out(text: str) -> None:
    normal = normalise(text)
    pieces = [normal[start:end] for start, end in blocks(normal)]
    assert "".join(pieces) == normal
    assert all(piece.endswith("\n") for piece in pieces[:-1])
    assert [line for piece in pieces for line in split_lines(piece)] == oracle(text)


@given(TEXTS, st.integers(0, 5), st.integers(0, 5))
def test_context(text: str, before: int, after: int) -> None:
    normal, expected = normalise(text), oracle(text)
    start = 0
    for number, line in enumerate(expected):
        assert lines_before(normal, start, before, 100) == expected[max(0, number - before) : number]
        assert lines_after(normal, start + len(line), after, 100) == expected[number + 1 : number + 1 + after]
        start += len(line) + 1


@given(st.text(max_size=40), st.integers(1, 50), st.integers(0, 39))
def test_shortened_lines_show_the_character_asked_for(text: str, longest: int, around: int) -> None:
    shown = shorten(text, 0, len(text), longest, around)
    assert len(shown) <= longest + 2
    if len(text) <= longest:
        assert shown == text
    else:
        inner = shown[1:] if not text.startswith(shown[:longest]) else shown
        assert inner.removesuffix("…")[:longest] in text
        if around < len(text):
            assert text[around] in shown
