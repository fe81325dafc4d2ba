"""The preview of a document: the beginning of its text without markup, from at most its first 16 K characters."""

import re

SCANNED_CHARS = 16_384
PREVIEW_CHARS = 160

_FRONT_MATTER = re.compile(r"\A---\r?\n.*?\n---\r?\n", re.DOTALL)
_MARKUP = re.compile(r"```\w*|!?\[([^\]\n]*)\]\([^)\n]*\)|^[#>*+\-\s]+|[*_`|]+|</?[A-Za-z][^>\n]{0,200}>", re.MULTILINE)


def preview(markdown: str) -> str:
    """One line of at most 160 characters.

    >>> preview("# Title\\n\\nSome *text* with a [link](x).")
    'Title Some text with a link.'
    """
    start = _FRONT_MATTER.sub("", markdown[:SCANNED_CHARS], count=1)
    words = " ".join(_MARKUP.sub(lambda found: f" {found[1] or ''}" if found[1] else " ", start).split())
    words = re.sub(r" ([.,;:!?)])", r"\1", words)
    if len(words) <= PREVIEW_CHARS:
        return words
    cut = words[:PREVIEW_CHARS].rstrip("\u200d\ufe0f")
    return f"{cut.rstrip()}…"
