"""What may stand in the place of what is being typed: commands, their values, paths."""

import os
import re

from stepwell.cli.chat.commands import Choice, menu, shown
from stepwell.cli.chat.engine import Chat

MAX_PATHS = 20

_MENTION = re.compile(r'(?:^|\s)@(?:"([^"\n]*)|([^\s"]*))\Z')


def completions(chat: Chat, text: str) -> list[Choice]:
    """The choices for a text whose end is being typed."""
    if text.startswith("/") and not text.startswith("//") and "\n" not in text:
        name, space, rest = text.partition(" ")
        if not space:
            return [choice for choice in menu(chat) if choice.text.startswith(name)]
        for parameter in chat.declared.parameters:
            if f"/{parameter.name}" == name:
                return [
                    Choice(f"{name} {value}", "", "now" if value == shown(chat.parameters[parameter.name]) else "")
                    for value in parameter.options or ("on", "off")
                    if value.startswith(rest)
                ]
        return [Choice(f"{name} {path}", "", "") for path in _paths(rest)] if name == "/attach" else []
    mention = _MENTION.search(text)
    if mention is None or not any(chat.takes):
        return []
    typed = mention[1] if mention[1] is not None else mention[2]
    before = text[: mention.end() - len(mention[0].lstrip())]
    return [Choice(f'{before}@"{path}"' if " " in path else f"{before}@{path}", "", "") for path in _paths(typed)]


def _paths(typed: str) -> list[str]:
    """Paths that begin as typed; folders end with a slash."""
    begin = typed.rpartition("/")[2]
    written = typed[: len(typed) - len(begin)]
    found = []
    try:
        with os.scandir(os.path.expanduser(written) or ".") as entries:
            for entry in entries:
                if entry.name.startswith(begin) and (begin.startswith(".") or not entry.name.startswith(".")):
                    found.append(f"{written}{entry.name}{'/' if entry.is_dir() else ''}")
    except OSError:
        return []
    return [path for path in sorted(found) if path.isprintable() and '"' not in path][:MAX_PATHS]
