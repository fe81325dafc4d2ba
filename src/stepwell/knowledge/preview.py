"""The preview of a document: the beginning of its text in one line, without markup.

Looks at no more than the first 16 K characters, so that a document of many megabytes is saved and listed like any
other; every pattern takes linear time on any text.
"""

import re
import unicodedata
from typing import Final

SCANNED_CHARS: Final = 16_384
PREVIEW_CHARS: Final = 160

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?:(?!---)[^\n]*\n)*---[ \t]*(?:\n|\Z)")
# Each pattern stops where the next attempt would start (or does not give back), so hostile text costs no more.
_LINK = re.compile(r"!?\[([^\[\]\n]*)\](?:\([^()\n]*\)|\[[^\[\]\n]*\])")
_TAG = re.compile(r"<[!/A-Za-z][^<>]*>")
_LINE_START = re.compile(r"^[ \t]*+(?:```[^\n`]*$|~~~[^\n~]*$|[#>]+|[-*+](?=[ \t])|[-=:|* \t]+$)", re.MULTILINE)
_EMPHASIS = re.compile(r"\*+|`+|~~+|(?<!\w)_++|(?<!_)_++(?!\w)|\|")


def preview(markdown: str) -> str:
    """One line of at most 160 characters: words as they read, markup and line ends folded into single spaces.

    >>> preview("# Title\\n\\nSome *text* with a [link](x).")
    'Title Some text with a link.'
    """
    start = markdown[:SCANNED_CHARS].replace("\r\n", "\n").replace("\r", "\n")
    start = _FRONT_MATTER.sub("", start, count=1)
    start = _LINK.sub(r"\1", _LINK.sub(r"\1", start))  # twice: an image may be a link's text
    start = _TAG.sub(" ", start)
    start = _LINE_START.sub(" ", start)
    start = _EMPHASIS.sub("", start)
    # Shortened before the character-wise work; markup is gone, so nothing that follows can matter.
    words = " ".join("".join(map(_shown, start[: PREVIEW_CHARS * 8])).split())
    if len(words) <= PREVIEW_CHARS:
        return words
    end = PREVIEW_CHARS - 1
    while end > PREVIEW_CHARS // 2 and _joins(words[end - 1], words[end]):
        end -= 1
    return f"{words[:end].rstrip()}…"


def _shown(character: str) -> str:
    """Control characters separate words; surrogates and invisible marks (save joiners) are dropped."""
    category = unicodedata.category(character)
    if category in ("Cc", "Zl", "Zp"):
        return " "
    return "" if category == "Cs" or (category == "Cf" and character not in "\u200c\u200d") else character


def _joins(before: str, after: str) -> bool:
    """True if a cut between the two would split what is seen as one character."""
    if "\u200d" in (before, after) or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    if "\u1160" <= after <= "\u11ff":  # the vowels and finals of Hangul syllables written out
        return True
    return "\U0001f3fb" <= after <= "\U0001f3ff" or ("\U0001f1e6" <= before <= "\U0001f1ff" and before <= after)
