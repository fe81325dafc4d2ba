"""The sieve never loses a document, and folded text is found where it is: against folding everything naively."""

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from stepwell.jsontext import encode
from stepwell.knowledge import folding
from stepwell.knowledge.folding import ALPHABET, Alphabet, Sieve, alphabet_of, find_folded

HOSTILE = (
    "aAsSkKfFiIlLtTnNjJhwyßẞſ\u212aİıŉǰẖẗẘẙẚﬀﬁﬂﬃﬄﬅﬆʼʾ\u0307\u030c\u0331\u0308\u030aσςΣéÉe\u0301яЯ𐐀𐐨ǅǆꭰᎠ"
    '中文検索ですか설정😀👨\u200d\U0001f3fd"\\/\u0000\u0001\u001f\t\b\f\x7f\x0b\x1c\x85\u2028\ud800\udfff{}[],:nu0019d 8%_-'
)
TEXTS = st.text(alphabet=st.one_of(st.sampled_from(HOSTILE), st.characters()), max_size=30)
QUERIES = st.text(
    alphabet=st.one_of(st.sampled_from(HOSTILE), st.characters(exclude_characters="\r\n")), min_size=1, max_size=5
)


def storable(text: str) -> bool:
    """Surrogates that form a pair are refused when a document is saved."""
    return not re.search("[\ud800-\udbff][\udc00-\udfff]", text)


def stored(text: str, title: str = "t") -> bytes:
    return encode({ALPHABET: int(alphabet_of(text)), "id": "d", "title": title, "markdown": text}).encode()


@given(TEXTS, QUERIES, TEXTS)
@example("ﬁ", "i", "")
@example("\u212a中", "k", "")
@example("ŉ", "ʼ", "")
@example("ŉ", "n中", "")
@example("中ß文", "中ss文", "")
@example("\\", "\\", "")
@example('é"', '"', "")
@example("\ud800é", "\ud800", "")
@example("İ", "\u0307", "")
@example("Σ\n", "ς", "")
def test_the_sieve_admits_every_document_that_has_the_query(text: str, query: str, title: str) -> None:
    assume(storable(text) and storable(title) and storable(query))
    if query.casefold() in text.casefold():
        assert Sieve(query).admits(stored(text, title))


@given(TEXTS, QUERIES, st.data())
def test_a_query_taken_from_the_text_is_admitted_in_any_case(text: str, query: str, data: st.DataObject) -> None:
    assume(storable(text))
    lines = [line for line in text.replace("\r", "\n").split("\n") if line]
    assume(lines)
    line = data.draw(st.sampled_from(lines))
    start = data.draw(st.integers(0, len(line) - 1))
    piece = line[start : data.draw(st.integers(start + 1, len(line)))]
    for spelling in (piece, piece.upper(), piece.lower(), piece.title(), piece.casefold(), piece.swapcase()):
        if spelling.casefold() in text.casefold():
            assert Sieve(spelling).admits(stored(text))


FIXED = st.text(alphabet="中文検索#%", min_size=1, max_size=3)


@given(st.lists(st.one_of(FIXED, TEXTS), max_size=5).map("".join), FIXED)
def test_without_letters_the_sieve_is_exact(text: str, query: str) -> None:
    assume(storable(text))
    assert Sieve(query).admits(stored(text, "")) == (query in text)


@given(st.text(alphabet="qQzxjaA!#é\u212a", max_size=200), st.text(alphabet="qQzxjaA!#", min_size=1, max_size=4))
def test_rare_characters(text: str, query: str) -> None:
    if query.casefold() in text.casefold():
        assert Sieve(query).admits(stored(text))
    elif text.isascii() and query.casefold().encode() not in stored("").lower():
        assert not Sieve(query).admits(stored(text))


@given(TEXTS)
def test_alphabets(text: str) -> None:
    made_ascii = any(character >= "\x80" and any(part < "\x80" for part in character.casefold()) for character in text)
    if text.isascii():
        assert alphabet_of(text) is Alphabet.ASCII
    else:
        assert alphabet_of(text) is (Alphabet.MAKERS if made_ascii else Alphabet.NO_MAKERS)


@pytest.mark.parametrize("piece", [1, 2, 3, 1_000])
@given(line=TEXTS, query=QUERIES)
def test_finding_in_pieces(piece: int, line: str, query: str) -> None:
    needle = query.casefold()
    patch = pytest.MonkeyPatch()
    patch.setattr(folding, "PIECE_CHARS", piece)
    try:
        found = find_folded(line, needle)
    finally:
        patch.undo()
    at = line.casefold().find(needle)
    if at < 0:
        assert found == -1
        return
    before = len(line[:found].casefold())
    assert before <= at < before + len(line[found].casefold())


def test_the_facts_about_unicode_that_folding_relies_on() -> None:
    for code in range(0x110000):
        character = chr(code)
        folded = character.casefold()
        if folded == character:
            continue
        assert code < 0x20000, "a cased character beyond those that are looked at"
        assert folded, "a character that folds to nothing"
        assert not set(folded) & set('\r\n"\\'), "a folding that JSON would escape, or that makes a line end"
        assert all(part >= " " for part in folded)
        assert all(part.casefold() == part for part in folded), "folding twice is not folding once"
