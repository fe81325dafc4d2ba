"""Case-insensitive search: finding folded text, and a sieve that spares decoding most documents.

The rule is Unicode case folding (`str.casefold`) of both sides. Folding looks at one character at a time and never
makes or loses a line end, so pieces can be folded alone.

The sieve works on stored JSON text as bytes and may only err on the side of letting a document through. A piece of
the folded query that occurs in a folded document was written there in one of few ways:

- a character that folds to itself and that no other character folds to (Chinese, digits, punctuation, …) was
  written as it is: it is *fixed*;
- an ASCII letter was written in either case, or came from one of 19 other characters (K, ſ, ß, İ, ﬁ, …): a *maker*.

So a piece of fixed characters and ASCII letters must occur in the lower-cased bytes, unless the document has makers;
and a piece of fixed characters alone must always occur. Whether a document has makers is found out once, when it is
saved: its `Alphabet` is the first thing in the stored text.
"""

import json
import re
from collections.abc import Callable
from enum import IntEnum
from functools import cache
from typing import Final, NamedTuple

ALPHABET: Final = "alphabet"
PIECE_CHARS: Final = 65_536
_RARE: Final = "~^%$@&!?+;|#zqxj"
_MAX_LOOKS: Final = 40
_FOLDED_AT_ONCE: Final = 4_000_000
_CASED_END: Final = 0x20000
_ASCII: Final = b'{"alphabet":0,'
_NO_MAKERS: Final = b'{"alphabet":1,'
_SURROGATE = re.compile("[\ud800-\udfff]")


class Alphabet(IntEnum):
    """What characters a text has, as far as folding is concerned."""

    ASCII = 0
    NO_MAKERS = 1
    MAKERS = 2


def alphabet_of(text: str) -> Alphabet:
    """The alphabet of a text of any length."""
    if text.isascii():
        return Alphabet.ASCII
    # One character at a time is found many times faster than one of a set.
    for start in range(0, len(text), PIECE_CHARS):
        piece = text[start : start + PIECE_CHARS]
        if not piece.isascii() and any(maker in piece for maker in _folding().makers):
            return Alphabet.MAKERS
    return Alphabet.NO_MAKERS


def find_folded(line: str, needle: str) -> int:
    """The index in `line` of the character where the first match begins; -1 if there is none.

    Args:
        line: any text without line ends, of any length.
        needle: folded text, not empty.
    """
    # A character folds to at least one, so a match comes from no more characters than it has.
    for start in range(0, len(line) or 1, PIECE_CHARS):
        piece = line[start : start + PIECE_CHARS + len(needle)]
        folded = piece.casefold()
        at = folded.find(needle)
        if at >= 0:
            return start + (at if len(folded) == len(piece) else _unfolded(piece, at))
    return -1


def _unfolded(text: str, at: int) -> int:
    """The index of the character whose folding holds the index `at` of the folded text."""
    reached = 0
    for index, character in enumerate(text):
        reached += len(character.casefold())
        if reached > at:
            return index
    return len(text)


class Sieve:
    """Which stored documents may contain a query.

    Args:
        query: the text searched for, not empty, without line ends.
    """

    def __init__(self, query: str) -> None:
        self.folded: Final = query.casefold()
        self._needle = escaped(self.folded)
        fixed = max(_runs(self.folded, _is_fixed), key=len, default="")
        loose = max(_runs(self.folded, lambda c: c < "\x80" or _is_fixed(c)), key=len, default="")
        self._fixed = _Piece(fixed)
        self._loose = _Piece(loose)
        self._without_letters = fixed == loose
        other = {c for c in self.folded if c >= "\x80" and not _is_fixed(c)}
        spellings = [(c, *_folding().sources.get(c, ())) for c in sorted(other)]
        self._spellings = [escaped(c) for c in min(spellings, key=len, default=())]

    def admits(self, body: bytes) -> bool:
        """False only if the document cannot contain the query.

        Args:
            body: the stored JSON text in UTF-8, which begins with the alphabet.
        """
        ascii_only = body.startswith(_ASCII)
        if self._without_letters or not (ascii_only or body.startswith(_NO_MAKERS)):
            if not self._fixed.is_in(body):
                return False
        elif not self._loose.is_in(body):
            return False
        if not self._spellings:
            return True
        # Cased letters beyond ASCII, such as é or я: the letter must be there, and only then is the body folded.
        if ascii_only or not any(spelling in body for spelling in self._spellings):
            return False
        return len(body) > _FOLDED_AT_ONCE or self._needle.decode() in body.decode().casefold()


class _Piece:
    """A piece of a folded query as bytes, found in either case of its ASCII letters.

    One byte is found many times faster than several: a piece with a character that is rare in any text is looked for
    there only.
    """

    def __init__(self, text: str) -> None:
        self._bytes = escaped(text)
        self._letters = self._bytes.lower() != self._bytes.upper()
        rarest = min((c for c in text if c in _RARE), key=_RARE.index, default="")
        self._spellings = sorted({rarest.encode(), rarest.upper().encode()}) if rarest else []
        self._offset = self._bytes.index(rarest.encode())

    def is_in(self, body: bytes) -> bool:
        """True if the body has the piece."""
        looks = 0
        for spelling in self._spellings:
            at = body.find(spelling)
            while at >= 0:
                start = at - self._offset
                if start >= 0 and body[start : start + len(self._bytes)].lower() == self._bytes:
                    return True
                looks += 1
                if looks > _MAX_LOOKS:  # not rare here
                    return self._bytes in (body.lower() if self._letters else body)
                at = body.find(spelling, at + 1)
        return not self._spellings and self._bytes in (body.lower() if self._letters else body)


def escaped(text: str) -> bytes:
    """A text as it stands inside stored JSON text, in UTF-8."""
    inner = json.dumps(text, ensure_ascii=False)[1:-1]
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", inner).encode()


def _runs(text: str, belongs: Callable[[str], bool]) -> list[str]:
    runs = [""]
    for character in text:
        if belongs(character):
            runs[-1] += character
        else:
            runs.append("")
    return [run for run in runs if run]


def _is_fixed(character: str) -> bool:
    return character not in _folding().sources and not _SURROGATE.match(character)


class _Folding(NamedTuple):
    """`sources`: the other characters whose folding has a character in it. `makers`: what folds to ASCII."""

    sources: dict[str, list[str]]
    makers: list[str]


@cache
def _folding() -> _Folding:
    sources: dict[str, list[str]] = {letter: [letter.upper()] for letter in "abcdefghijklmnopqrstuvwxyz"}
    makers = []
    for start in range(0x80, _CASED_END, 128):
        block = "".join(map(chr, range(start, start + 128)))
        if block.casefold() == block:
            continue
        for character in block:
            folded = character.casefold()
            if folded != character:
                for part in set(folded):
                    sources.setdefault(part, []).append(character)
                if any(map(str.isascii, folded)):
                    makers.append(character)
    return _Folding(sources, makers)
