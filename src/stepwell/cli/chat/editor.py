"""The input line that is edited: several lines, history, and the menu of completions. It knows no terminal."""

import unicodedata
from collections.abc import Callable, Sequence

from stepwell.cli.chat.commands import Choice
from stepwell.cli.chat.keys import Key

MAX_HISTORY = 500

Completer = Callable[[str], Sequence[Choice]]


class Editor:
    """`press` keys; read `text`, `cursor` (an index into it) and `choices`.

    Args:
        completer: what may stand there instead of the present text, which begins alike.
        history: earlier texts, oldest first.
    """

    def __init__(self, completer: Completer, history: Sequence[str] = ()) -> None:
        self.text = ""
        self.cursor = 0
        self.choices: list[Choice] = []
        self.selected = 0
        self.history = list(history)
        self._completer = completer
        self._place: int | None = None
        self._kept = ""

    def put(self, text: str) -> None:
        """Replace everything."""
        self.text, self.cursor = text, len(text)
        self._place = None
        self._complete()

    def take(self) -> str:
        """Everything, which is then in the history and no longer here."""
        text = self.text
        if text.strip() and (not self.history or self.history[-1] != text):
            self.history = [*self.history, text][-MAX_HISTORY:]
        self.put("")
        return text

    def press(self, key: Key) -> str | None:
        """Take a key; returns what it asks for beyond editing: submit, interrupt, eof, suspend or redraw."""
        if key.name == "text":
            self._insert(key.text)
        elif key.name == "enter":
            return self._enter()
        elif key.name == "tab":
            self._accept(self.selected)
        elif key.name == "escape":
            self.choices = []
        elif key.name in ("interrupt", "suspend", "redraw"):
            return key.name
        elif key.name == "eof":
            if not self.text:
                return "eof"
            self._cut(self.cursor, self._next())
        elif key.name in ("up", "down", "backtab"):
            self._vertically(-1 if key.name != "down" else 1)
        else:
            self._edit(key.name)
        return None

    def _edit(self, name: str) -> None:
        line_start = self.text.rfind("\n", 0, self.cursor) + 1
        line_end = self.text.find("\n", self.cursor)
        line_end = len(self.text) if line_end < 0 else line_end
        moves = {
            "left": self._previous, "right": self._next, "home": lambda: line_start, "end": lambda: line_end,
            "word-left": self._word_left, "word-right": self._word_right,
        }  # fmt: skip
        if name in moves:
            self.cursor = moves[name]()
        elif name == "newline":
            self._insert("\n")
        elif name == "backspace":
            self._cut(self._previous(), self.cursor)
        elif name == "delete":
            self._cut(self.cursor, self._next())
        elif name == "kill-end":
            self._cut(self.cursor, line_end if line_end > self.cursor else min(line_end + 1, len(self.text)))
        elif name == "kill-start":
            self._cut(line_start, self.cursor)
        elif name == "kill-word":
            self._cut(self._word_left(), self.cursor)

    def _enter(self) -> str | None:
        if self.text.endswith("\\") and self.cursor == len(self.text):
            self._cut(self.cursor - 1, self.cursor)
            self._insert("\n")
            return None
        # A mention is completed by Tab only: a name may just be a name.
        if self.choices and self.text.startswith("/") and self.text.strip() not in {c.text for c in self.choices}:
            takes = self.choices[self.selected].takes
            self._accept(self.selected)
            return None if takes else "submit"
        return "submit"

    def _accept(self, number: int) -> None:
        if self.choices:
            choice = self.choices[number]
            self.put(f"{choice.text} " if choice.takes else choice.text)

    def _vertically(self, step: int) -> None:
        if self.choices:
            self.selected = (self.selected + step) % len(self.choices)
            return
        before = self.text[: self.cursor]
        column = len(before) - before.rfind("\n") - 1
        if step < 0 and "\n" in before:
            end = before.rfind("\n")
            start = before.rfind("\n", 0, end) + 1
            self.cursor = min(start + column, end)
        elif step > 0 and "\n" in self.text[self.cursor :]:
            start = self.text.find("\n", self.cursor) + 1
            end = self.text.find("\n", start)
            self.cursor = min(start + column, len(self.text) if end < 0 else end)
        else:
            self._recall(step)

    def _recall(self, step: int) -> None:
        place = len(self.history) if self._place is None else self._place
        wanted = place + step
        if not 0 <= wanted <= len(self.history) or not self.history:
            return
        if self._place is None:
            self._kept = self.text
        is_back = wanted == len(self.history)
        self.put(self._kept if is_back else self.history[wanted])
        self.choices = []
        self._place = None if is_back else wanted

    def _insert(self, text: str) -> None:
        self.text = self.text[: self.cursor] + text + self.text[self.cursor :]
        self.cursor += len(text)
        self._place = None
        self._complete()

    def _cut(self, start: int, end: int) -> None:
        self.text = self.text[:start] + self.text[end:]
        self.cursor = start
        self._place = None
        self._complete()

    def _complete(self) -> None:
        self.selected = 0
        self.choices = list(self._completer(self.text)) if self.cursor == len(self.text) and self.text else []

    def _previous(self) -> int:
        place = self.cursor - 1
        while place > 0 and (_joins(self.text[place]) or self.text[place - 1] == "\u200d"):
            place -= 1
        return max(place, 0)

    def _next(self) -> int:
        place = self.cursor + 1
        while place < len(self.text) and (_joins(self.text[place]) or self.text[place - 1] == "\u200d"):
            place += 1
        return min(place, len(self.text))

    def _word_left(self) -> int:
        place = self.cursor
        while place > 0 and self.text[place - 1].isspace():
            place -= 1
        while place > 0 and not self.text[place - 1].isspace():
            place -= 1
        return place

    def _word_right(self) -> int:
        place = self.cursor
        while place < len(self.text) and self.text[place].isspace():
            place += 1
        while place < len(self.text) and not self.text[place].isspace():
            place += 1
        return place


def _joins(character: str) -> bool:
    """True for what belongs to the character before it: marks, joiners, variation selectors, skin tones."""
    return (
        unicodedata.category(character) in ("Mn", "Me", "Mc")
        or character == "\u200d"
        or "\U0001f3fb" <= character <= "\U0001f3ff"
    )
