"""The strict JSON codec."""

import datetime
import decimal
import enum
import json
import math
import re
import uuid
from dataclasses import dataclass

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.errors import InvalidJson, ValueNotSerializable, ValueTooLarge
from stepwell.jsontext import decode, decode_untrusted, encode

texts = st.text(st.characters())  # with surrogates
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
    max_leaves=30,
)


PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def all_texts(value):
    """Every text inside, keys too, on its own."""
    if isinstance(value, str):
        yield f"{value}\n"
    elif isinstance(value, list):
        for child in value:
            yield from all_texts(child)
    elif isinstance(value, dict):
        for key, child in value.items():
            yield from (*all_texts(key), *all_texts(child))


def same(one, other) -> bool:
    """Equal in type, order and sign too."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return one == other


@given(values)
def test_what_goes_in_comes_out(value):
    if PAIR.search("".join(all_texts(value))):
        with pytest.raises(ValueNotSerializable, match="surrogates"):
            encode(value)
        return
    text = encode(value)
    assert same(decode(text), value)
    assert same(decode_untrusted(text), value)
    assert same(decode_untrusted(text.encode()), value)
    json.loads(text, parse_constant=lambda _: pytest.fail("not JSON"))


@pytest.mark.parametrize(
    "value", [10**4000 - 1, -(10**4000) + 1, 2**53 + 1, -0.0, 1e-320, "\x00", "\ud800", {"\udfff": 1}, (1, (2,))]
)
def test_edges_that_fit(value):
    back = decode(encode(value))
    assert back == (json.loads(json.dumps(value)) if isinstance(value, tuple) else value)


class Colour(enum.Enum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


class Name(str):
    __slots__ = ()


class Fraction(float):
    __slots__ = ()


@dataclass
class Point:
    x: int = 1


class Model(pydantic.BaseModel):
    x: int = 1


@pytest.mark.parametrize(
    "culprit",
    [
        math.nan, math.inf, -math.inf, b"x", bytearray(b"x"), {1}, frozenset(), datetime.datetime(2026, 1, 1),
        datetime.date(2026, 1, 1), uuid.uuid4(), decimal.Decimal(1), Colour.RED, Number.ONE, Name("x"), Fraction(1.0),
        Point(), Model(), object(), 10**4000, "\ud83d\ude00", {1: 2}, {None: 1}, {(1,): 1}, {True: 1}, range(3),
        (part for part in "ab"), lambda: 1, 1j,
    ],
    ids=lambda culprit: type(culprit).__name__,
)  # fmt: skip
def test_what_would_not_come_back_is_refused_by_path(culprit):
    for value, path in ((culprit, "$"), ({"a": [0, culprit]}, "$.a[1]"), ([{"b c": (culprit,)}], '$[0]["b c"][0]')):
        with pytest.raises(ValueNotSerializable) as caught:
            encode(value)
        assert caught.value.data["path"] == path


def test_nesting_and_circles():
    deep: list = []
    for _ in range(255):
        deep = [deep]
    encode(deep)
    for broken in ([deep], {"a": [deep]}):
        with pytest.raises(ValueNotSerializable) as caught:
            encode(broken)
        assert len(str(caught.value)) < 500
    circle: dict = {}
    circle["x"] = {"me": [circle, circle]}
    with pytest.raises(ValueNotSerializable, match="circular"):
        encode(circle)
    very_deep: list = []
    for _ in range(100_000):
        very_deep = [very_deep]
    with pytest.raises(ValueNotSerializable):
        encode(very_deep)
    while very_deep:  # taken apart gently: freeing it at once would recurse
        very_deep = very_deep[0]


@pytest.mark.parametrize("limit", [10, 100])
def test_the_limit_is_in_bytes_of_utf8(limit):
    encode("x" * (limit - 2), max_bytes=limit)
    for long in ("x" * (limit - 1), "é" * (limit // 2), "\ud800" * (limit // 6 + 1)):
        with pytest.raises(ValueTooLarge) as caught:
            encode(long, max_bytes=limit)
        assert caught.value.data["limit"] == limit


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}', '{"a":{"b":1,"b":1}}', "NaN", "[Infinity]", "-Infinity", "1e999", "[-1e999]", "9" * 4_001,
        "[" * 100_000, '{"a":' * 5_000, "", "{", "{}{}", "[1,]", "{'a':1}", "```json\n{}\n```", "// c\n1", b"\xff", b"\xc3(",
        "01", "+1", "nul", '"\n"', '"\\x"', "[" * 257 + "]" * 257,
    ],
)  # fmt: skip
def test_text_from_outside_is_refused_clearly(text):
    with pytest.raises(InvalidJson) as caught:
        decode_untrusted(text, what="the body")
    assert caught.value.message.startswith("the body ")
    assert len(caught.value.message) < 300


def test_text_from_outside_that_is_fine():
    assert decode_untrusted("\ufeff {} ") == {}
    assert decode_untrusted(b"\xef\xbb\xbf[1]") == [1]
    assert decode_untrusted('"' + "9" * 5_000 + '"') == "9" * 5_000
    assert decode_untrusted("[" * 256 + "]" * 256)
    assert decode_untrusted("9" * 4_000) == int("9" * 4_000)
