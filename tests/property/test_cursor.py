"""Cursors: what was sealed is opened, anything else is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import InvalidCursor
from stepwell.knowledge.cursor import open_cursor, seal

PARTS = st.one_of(st.none(), st.integers(), st.text(max_size=30))
POSITIONS = st.lists(PARTS, max_size=4)
QUERIES = st.lists(PARTS, max_size=6)
SECRETS = st.text(alphabet="0123456789abcdef", min_size=32, max_size=32)


@given(SECRETS, QUERIES, POSITIONS)
def test_round_trip(secret: str, query: list[object], position: list[object]) -> None:
    cursor = seal(secret, query, position)
    assert open_cursor(secret, query, cursor) == position
    assert set(cursor) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")


@given(SECRETS, SECRETS, QUERIES, QUERIES, POSITIONS)
def test_other_secrets_and_queries_do_not_open_it(
    secret: str, other: str, query: list[object], different: list[object], position: list[object]
) -> None:
    cursor = seal(secret, query, position)
    for wrong_secret, wrong_query in ((other, query), (secret, different), ("", query)):
        if (wrong_secret, wrong_query) != (secret, query):
            with pytest.raises(InvalidCursor):
                open_cursor(wrong_secret, wrong_query, cursor)


@given(SECRETS, QUERIES, POSITIONS, st.data())
def test_no_other_spelling_of_a_cursor_opens(
    secret: str, query: list[object], position: list[object], data: st.DataObject
) -> None:
    cursor = seal(secret, query, position)
    where = data.draw(st.integers(0, len(cursor)))
    change = data.draw(st.sampled_from(["", "A", "_", "=", " ", "\n", "!", "é", "\x00"]))
    width = data.draw(st.integers(0, 2))
    damaged = cursor[:where] + change + cursor[where + width :]
    if damaged != cursor:
        with pytest.raises(InvalidCursor):
            open_cursor(secret, query, damaged)


@given(st.one_of(st.text(), st.binary(), st.integers(), st.none(), st.lists(st.text(max_size=3), max_size=2)))
def test_anything_else_is_refused(anything: object) -> None:
    with pytest.raises(InvalidCursor):
        open_cursor("0" * 32, ["list"], anything)
