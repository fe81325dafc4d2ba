"""What a terminal sends, as keys."""

import re
from typing import NamedTuple

_PASTE, _PASTE_END = "\x1b[200~", "\x1b[201~"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-9;?]*[@-~]|O[A-Za-z]|[^\[O])", re.DOTALL)
_NAMES = {
    "\r": "enter", "\n": "newline", "\t": "tab", "\x7f": "backspace", "\x08": "backspace", "\x01": "home",
    "\x05": "end", "\x02": "left", "\x06": "right", "\x10": "up", "\x0e": "down", "\x0b": "kill-end",
    "\x15": "kill-start", "\x17": "kill-word", "\x03": "interrupt", "\x04": "eof", "\x1a": "suspend", "\x0c": "redraw",
    "\x1b[A": "up", "\x1b[B": "down", "\x1b[C": "right", "\x1b[D": "left", "\x1b[H": "home", "\x1b[F": "end",
    "\x1bOA": "up", "\x1bOB": "down", "\x1bOC": "right", "\x1bOD": "left", "\x1bOH": "home", "\x1bOF": "end",
    "\x1b[1~": "home", "\x1b[7~": "home", "\x1b[4~": "end", "\x1b[8~": "end", "\x1b[3~": "delete", "\x1b[Z": "backtab",
    "\x1b[1;5C": "word-right", "\x1b[1;5D": "word-left", "\x1b[1;3C": "word-right", "\x1b[1;3D": "word-left",
    "\x1bf": "word-right", "\x1bb": "word-left", "\x1b\x7f": "kill-word", "\x1b\r": "newline", "\x1b\n": "newline",
    "\x1b[13;2u": "newline", "\x1b[27;2;13~": "newline", "\x1b[27;5;13~": "newline",
}  # fmt: skip


class Key(NamedTuple):
    """A key by name, or `text` that was typed or pasted."""

    name: str
    text: str = ""


class Keys:
    """Decodes what comes, also where it comes in pieces."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> list[Key]:
        """The keys in a piece of input. Sequences that are not known are dropped."""
        data, self._rest = self._rest + text, ""
        found: list[Key] = []
        while data:
            if data.startswith(_PASTE):
                pasted, end, behind = data[len(_PASTE) :].partition(_PASTE_END)
                if not end:
                    self._rest = data
                    break
                found.append(Key("text", clean(pasted)))
                data = behind
            elif data[0] == "\x1b":
                sequence = _SEQUENCE.match(data)
                if sequence is None:
                    if data == "\x1b":
                        found.append(Key("escape"))
                    else:
                        self._rest = data  # the other half comes
                    break
                if sequence[0] in _NAMES:
                    found.append(Key(_NAMES[sequence[0]]))
                data = data[sequence.end() :]
            elif data[0] in _NAMES:
                found.append(Key(_NAMES[data[0]]))
                data = data[1:]
            else:
                end_of_text = re.match(r"[^\x00-\x1f\x7f]+", data)
                if end_of_text is not None:
                    found.append(Key("text", end_of_text[0]))
                data = data[end_of_text.end() if end_of_text is not None else 1 :]
        return found


def clean(text: str) -> str:
    """Text as it may stand in a message: line feeds and tabs stay, other control characters go."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return re.sub("[\x00-\x08\x0b-\x1f\x7f]", "", text)
