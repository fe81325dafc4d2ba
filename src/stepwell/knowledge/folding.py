"""Case-insensitive substring search over stored JSON text, without decoding what cannot match.

The rule is Unicode case folding of both sides, line by line (`str.casefold`). The sieve works on the stored UTF-8
bytes and may only err on the side of letting a document through:

- in an ASCII body, folding is ASCII lower-casing, so a lower-cased byte search is exact;
- in any other body a few characters fold to something with ASCII in it (K, ſ, ß, ﬁ …); where none of them occurs,
  the ASCII pieces of the query can still be searched as bytes;
- characters without case (Chinese, digits, most punctuation) are searched as they are.

What the sieve lets through is decoded and matched exactly.
"""

import json
from functools import cache

# Letters from rare to common in English text: which one to look for first is only a matter of speed.
_BY_FREQUENCY = "zqxjkvbpygfwmucldrhsnioate"


class Sieve:
    """Which stored bodies may contain a query.

    Args:
        query: the text searched for, not empty.
    """

    def __init__(self, query: str) -> None:
        self.folded = query.casefold()
        self._ascii = self.folded.isascii()
        self._surrogates = any("\ud800" <= character <= "\udfff" for character in self.folded)
        self._needle = _escaped(self.folded).lower()
        rarest = min(self.folded, key=lambda character: _BY_FREQUENCY.find(character) % 99)
        self._rarest = (rarest.encode("utf-8", "surrogatepass"), rarest.upper().encode("utf-8", "surrogatepass"))
        if not "a" <= rarest <= "z":
            self._rarest = (b"", b"")  # not a letter: JSON may escape it, so its mere presence tells nothing
        self._makers = _makers(frozenset(self.folded)) if self._ascii else {}
        # In a body that is not ASCII: one of these has to be there for the query's least ambiguous part to be.
        self._anchors = () if self._ascii or self._surrogates else _anchors(self.folded)

    def admits(self, body: bytes) -> bool:
        """False only if the document cannot contain the query.

        Args:
            body: the stored JSON text, UTF-8.
        """
        if self._surrogates:
            return True
        if self._ascii:
            # One byte is found many times faster than several, and most bodies lack the query's rarest letter.
            lower, upper = self._rarest
            if (lower in body or upper in body) and self._needle in body.lower():
                return True
            return bool(self._makers) and not body.isascii() and _has_any(body, self._makers)
        if body.isascii():
            return False
        return any(anchor in body for anchor in self._anchors)


def _escaped(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8", "surrogatepass")


def _anchors(folded: str) -> tuple[bytes, ...]:
    """Byte texts of which one must occur: the longest run without case, else the spellings of one character."""
    runs, current = [""], ""
    for character in folded:
        if character >= "\x80" and _preimages().get(character, ()) == () and character.casefold() == character:
            current += character
        else:
            runs.append(current)
            current = ""
    longest = max([*runs, current], key=len)
    if longest:
        return (_escaped(longest),)
    fewest = min((c for c in folded if c >= "\x80"), key=lambda c: len(_preimages().get(c, ())))
    return tuple(_escaped(spelling) for spelling in (fewest, *_preimages().get(fewest, ())))


@cache
def _preimages() -> dict[str, tuple[str, ...]]:
    """For every character: the other characters whose folding contains it."""
    found: dict[str, list[str]] = {}
    for code in range(0x80, 0x1F000):
        character = chr(code)
        folded = character.casefold()
        if folded != character:
            for part in set(folded):
                found.setdefault(part, []).append(character)
    return {part: tuple(characters) for part, characters in found.items()}


_Makers = dict[bytes, dict[bytes, list[bytes]]]


def _makers(characters: frozenset[str]) -> _Makers:
    """The characters beyond ASCII whose folding contains one of these, as UTF-8, by first byte and first two."""
    makers: _Makers = {}
    for maker in {other for character in characters for other in _preimages().get(character, ())}:
        raw = maker.encode()
        makers.setdefault(raw[:1], {}).setdefault(raw[:2], []).append(raw)
    return makers


def _has_any(body: bytes, makers: _Makers) -> bool:
    for first, by_two in makers.items():
        if first in body:
            for two, whole in by_two.items():
                if two in body and any(maker in body for maker in whole):
                    return True
    return False


_SLICE = 1_000_000


def fold(text: str) -> str:
    """`text.casefold()` in slices, so that a huge text does not hold the interpreter for long.

    Folding looks at one character at a time, so slices can be joined.
    """
    if len(text) <= _SLICE:
        return text.casefold()
    return "".join(text[start : start + _SLICE].casefold() for start in range(0, len(text), _SLICE))
