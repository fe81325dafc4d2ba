"""Keys, the edited input, growing Markdown and the layout: what needs no terminal to be tried."""

import pytest

from stepwell.cli.chat.commands import Choice
from stepwell.cli.chat.editor import Editor
from stepwell.cli.chat.keys import Key, Keys
from stepwell.cli.chat.markdown import Blocks, rendered
from stepwell.cli.chat.screen import laid_out, wrapped

MENU = [Choice("/title", "TEXT", ""), Choice("/stop", "", "")]


def editor(*history: str) -> Editor:
    return Editor(lambda text: [choice for choice in MENU if choice.text.startswith(text)], history)


def typed(made: Editor, text: str) -> list[str]:
    """Type what a terminal would send; returns what was asked for beyond editing."""
    return [wanted for key in Keys().feed(text) if (wanted := made.press(key))]


def test_keys_come_whole_though_they_come_in_pieces():
    keys = Keys()
    assert keys.feed("a\x1b[") == [Key("text", "a")]
    assert keys.feed("A") == [Key("up")]
    assert keys.feed("\x1b[200~one\r\ntw") == []
    assert keys.feed("o\x07\x1b[201~\r") == [Key("text", "one\ntwo"), Key("enter")]
    assert keys.feed("\x1b") == [Key("escape")]
    assert keys.feed("\x1b[99;9~\x00é中") == [Key("text", "é中")]


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("hello\x1b[D\x1b[D\x7fX", "heXlo"),
        ("one two\x17three", "one three"),
        ("abc\x01\x0bd", "d"),
        ("a\x1b\rb", "a\nb"),
        ("a\\\rb", "a\nb"),
        ("ab\ncd\x1b[A!", "ab!\ncd"),
        ("e\u0301x\x1b[D\x7f", "x"),
        ("👩\u200d👧x\x1b[D\x7f", "x"),
        ("ab\x1b[D\x04", "a"),
    ],
)
def test_editing(keys: str, text: str):
    made = editor()
    assert typed(made, keys) == []
    assert made.text == text


def test_history_goes_back_and_forth_and_keeps_what_was_being_written():
    made = editor("first", "second")
    typed(made, "third\x1b[A\x1b[A\x1b[A")
    assert made.text == "first"
    typed(made, "\x1b[B\x1b[B")
    assert made.text == "third"
    assert made.take() == "third"
    assert made.history[-1] == "third"
    typed(made, "\x1b[A")
    assert made.text == "third"


def test_enter_takes_a_choice_and_sends_only_what_needs_nothing_more():
    made = editor()
    assert typed(made, "/\r") == []
    assert made.text == "/title "
    made.put("")
    assert typed(made, "/\x1b[B\r") == ["submit"]
    assert made.text == "/stop"
    made.put("")
    assert typed(made, "/ti\x1b\r") == []  # Alt-Enter
    assert made.text == "/ti\n"


def test_finished_blocks_leave_and_code_stays_whole():
    blocks, text = Blocks(), "# A\n\ntext\n\n```py\na = 1\n\nb = 2\n```\nrest"
    done = [block for character in text for block in blocks.add(character)]
    assert done == ["# A\n\n", "text\n\n", "```py\na = 1\n\nb = 2\n```\n"]
    assert blocks.rest == "rest"
    assert "".join(done) + blocks.finish() == text


def test_without_colours_markdown_has_no_escape_sequences():
    shown = rendered("# Head\n\n**bold** [a](http://x.test)\n\n```python\nx = 1\n```", 60, colors=False)
    assert "\x1b" not in shown
    assert "bold" in shown
    assert "http://x.test" in shown


def test_rows_have_room_for_wide_characters():
    assert wrapped("ab中中", 4) == ["ab中", "中"]
    rows, row, column = laid_out("> ", "ab\n中中中", 5, 6)
    assert rows == ["> ab", "  中中", "  中"]
    assert (row, column) == (2, 2)
