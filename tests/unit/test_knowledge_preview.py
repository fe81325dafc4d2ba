"""Previews: readable, bounded, and cheap on any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepwell.knowledge.preview import PREVIEW_CHARS, SCANNED_CHARS, preview


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("", ""),
        ("\n \t\n", ""),
        ("plain\r\ntext\rhere", "plain text here"),
        ("# Title\n\n- one\n* two\n+ three\n1. four", "Title one two three 1. four"),
        ("---\ntitle: x\ntags: [a]\n---\n# Real", "Real"),
        ("---\nnot closed", "not closed"),
        ("a **bold** _word_ and `code` ~~gone~~", "a bold word and code gone"),
        ("snake_case_name and 2 * 3", "snake_case_name and 2 3"),
        ("[text](https://x.y/z) ![alt](i.png) [ref][1]", "text alt ref"),
        ("[![badge](b.svg)](https://ci)", "badge"),
        ("> quoted\n>> twice", "quoted twice"),
        ("```python\nx = 1\n```\nafter", "x = 1 after"),
        ("| a | b |\n|---|:-:|\n| 1 | 2 |", "a b 1 2"),
        ("Head\n====\nbody\n\n---\nend", "Head body end"),
        ("<div class='x'>in</div><!-- out -->\n1 < 2", "in 1 < 2"),
        ("中文**粗体**内容", "中文粗体内容"),
        ("a\x00b\x1bc\u200bd\ufeffe\ud800f\u202eg", "a b cdefg"),
    ],
)
def test_what_is_shown(markdown: str, shown: str) -> None:
    assert preview(markdown) == shown


@given(st.text(alphabet=st.one_of(st.characters(), st.sampled_from("#*_`[]()<>|-=!~ \n\r\t")), max_size=400))
def test_always_one_short_line(markdown: str) -> None:
    shown = preview(markdown)
    assert len(shown) <= PREVIEW_CHARS
    assert shown == " ".join(shown.split())
    assert shown.encode() is not None
    assert not any(character in shown for character in "\r\n\x00")


def test_only_the_beginning_counts() -> None:
    start = "x " * (SCANNED_CHARS // 2)
    assert preview(start + "**tail**") == preview(start + "[other](tail)")
    assert preview("\n" * SCANNED_CHARS + "late") == ""


@pytest.mark.parametrize("piece", ["e\u0301", "👨\u200d👩\u200d👧", "👍🏽", "🇩🇪", "नि", "\u1112\u1161\u11ab", "각"])
def test_a_cut_leaves_characters_whole(piece: str) -> None:
    for lead in range(12):
        shown = preview("x" * lead + piece * 400)
        assert shown.endswith("…")
        kept = shown[lead:-1]
        whole = [piece * n for n in range(len(kept) // len(piece) + 1)]
        assert kept in whole, (lead, kept[-10:])


@pytest.mark.parametrize(
    "hostile",
    ["[", "![", "[]", "[a](", "<a", "<!--", "_", "a_", "_ ", "*", "`", "~", "-", "- ", " ", "\t", "|", "| ", "#", ">",
     "---\n", "=\n", "```\n", "[[](", "\u0301", "\u200d", "\n", "\r", "(", ")", "![](", "a_ ", "~~"],
)  # fmt: skip
@pytest.mark.timeout(20)
def test_hostile_beginnings_take_no_time(hostile: str) -> None:
    # Quadratic work on 16 K characters would take minutes for all these together; each is tried plain and embedded.
    for text in (hostile * SCANNED_CHARS, "x" + hostile * SCANNED_CHARS + "x", "---\n" + hostile * SCANNED_CHARS):
        for _ in range(5):
            assert len(preview(text)) <= PREVIEW_CHARS
