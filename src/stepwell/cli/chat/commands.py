"""What a line that begins with `/` does, and the menu of these lines. `//text` sends a text that begins with `/`."""

import datetime as dt
import os
import re
import shlex
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

from stepwell.cli.chat.engine import Chat
from stepwell.conversation.default_input import Attachment
from stepwell.conversation.export import FORMATS, export_name, export_to
from stepwell.conversation.messages import derived_title
from stepwell.conversation.slash import BUILT_IN, SlashCommand
from stepwell.errors import InputInvalid, RunStateConflict
from stepwell.jsontext import decode_untrusted

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|(\S+))')


class Choice(NamedTuple):
    """A line of the menu: what is written, what it takes behind, what it does."""

    text: str
    takes: str
    title: str


async def send_line(chat: Chat, line: str, request_id: str | None = None) -> bool:
    """Do what a line says: a command, or a message with its `@path` attachments. False where it says to leave.

    Raises:
        StepwellError: it cannot be done; nothing was sent.
    """
    if line.startswith("/") and not line.startswith("//"):
        return await _command(chat, line)
    text = line[1:] if line.startswith("//") else line
    for quoted, plain in _MENTION.findall(text):
        path = os.path.expanduser(quoted or plain)
        if os.path.isfile(path):
            await chat.attach(path)
    await chat.send(text, request_id=request_id)
    return True


def menu(chat: Chat) -> list[Choice]:
    """Everything that `/` offers now, the project's own first."""
    choices = [
        Choice(
            f"/{parameter.name}", " ".join(parameter.options) or "on off",
            f"{parameter.title or parameter.name}: {shown(chat.parameters[parameter.name])}",
        )
        for parameter in chat.declared.parameters
    ]  # fmt: skip
    for command in chat.declared.commands:
        if isinstance(command, SlashCommand):
            choices.append(Choice(f"/{command.name}", "TEXT", command.title or f"Run {command.entrypoint}."))
        else:
            choices.append(Choice(f"/{command}", _BUILT_IN[command].takes, BUILT_IN[command]))
    return choices + [
        Choice(f"/{name}", own.takes, own.title)
        for name, own in _OWN.items()
        if (name not in ("attach", "detach") or any(chat.takes))
        and (name not in ("approve", "deny") or chat.asked)
        and (name != "resume" or chat.interrupted)
    ]


def shown(value: str | bool) -> str:
    """A parameter's value for people."""
    return value if isinstance(value, str) else "on" if value else "off"


def described(file: Attachment) -> str:
    """An attachment for people."""
    size = f"{file.size:,} B" if file.size < 10_000 else f"{file.size / 1000:,.0f} kB"
    return f"{file.name} ({file.media_type}, {size})"


async def _command(chat: Chat, line: str) -> bool:
    name, _, rest = line[1:].partition(" ")
    rest = rest.strip()
    for parameter in chat.declared.parameters:
        if parameter.name == name:
            value = parameter.parse(rest, chat.parameters[name])
            chat.parameters[name] = value
            await chat.keep_draft()
            chat.front.news("parameter", f"{name}: {shown(value)}", parameter=name, value=value)
            return True
    for command in chat.declared.commands:
        if isinstance(command, SlashCommand) and command.name == name:
            await chat.send(rest or line, entrypoint=command.entrypoint)
            return True
    offered = {**{known: _BUILT_IN[known] for known in chat.declared.commands if known in _BUILT_IN}, **_OWN}
    if name not in offered:
        from difflib import get_close_matches

        close = get_close_matches(f"/{name}", [choice.text for choice in menu(chat)], 1)
        hint = f"did you mean {close[0]}?" if close else "/help lists them; //… sends a text that begins with /"
        raise InputInvalid(f"there is no command /{name:.60}", hint=hint)
    return await offered[name].act(chat, rest) is not False


async def _attach(chat: Chat, rest: str) -> None:
    if not rest:
        raise InputInvalid("/attach needs a path")
    made = await chat.attach(os.path.expanduser(_unquoted(rest)))
    chat.front.news("attached", f"attached {described(made)}", attachment=made.to_dict())


async def _detach(chat: Chat, rest: str) -> None:
    place = _place(rest or str(len(chat.attachments)), len(chat.attachments), "attachment")
    removed = chat.attachments.pop(place - 1)
    await chat.keep_draft()
    chat.front.news("detached", f"detached {removed.name}", attachment=removed.to_dict())


async def _queue(chat: Chat, rest: str) -> None:
    waiting = await chat.queue.waiting()
    words = rest.split()
    if words[:1] == ["remove"] and len(words) == 2:
        item = waiting[_place(words[1], len(waiting), "input") - 1]
        await chat.queue.remove(item.request_id)
    elif words[:1] == ["move"] and len(words) == 3:
        item = waiting[_place(words[1], len(waiting), "input") - 1]
        await chat.queue.move(item.request_id, _place(words[2], len(waiting), "input"))
    elif words:
        raise InputInvalid("/queue takes nothing, remove N, or move N M", hint="/queue lists what waits, with numbers")
    waiting, held = await chat.queue.waiting(), await chat.queue.held()
    lines = []
    for number, item in enumerate(waiting, 1):
        files = f" (+{len(item.input.attachments)} files)" if item.input.attachments else ""
        lines.append(f"{number}. {item.input.message[:200]}{files}")
    if held:
        lines.append(f"({held}: goes on after your next input)")
    chat.front.news(
        "queue", "\n".join(lines) or "nothing waits", held=held, waiting=[item.to_dict() for item in waiting]
    )


async def _stop(chat: Chat, rest: str) -> None:
    if not await chat.stop():
        raise InputInvalid("no run is active")


async def _approve(chat: Chat, rest: str) -> None:
    request_id, rest = _request(chat, rest)
    arguments = decode_untrusted(rest, what="the arguments") if rest else None
    await chat.answer(approved=True, request_id=request_id, arguments=arguments)


async def _deny(chat: Chat, rest: str) -> None:
    request_id, rest = _request(chat, rest)
    await chat.answer(approved=False, request_id=request_id, reason=rest or None)


async def _resume(chat: Chat, rest: str) -> None:
    if chat.busy:
        raise RunStateConflict("a run is active", hint="wait for its end or /stop it")
    chat.resume()


async def _title(chat: Chat, rest: str) -> None:
    kept = await chat.conversation.set_title(rest)
    chat.front.news("title", f"title: {kept or '(none)'}", title=kept)


async def _export(chat: Chat, rest: str) -> None:
    summary = await chat.conversation.summary()
    if not summary.message_count:
        raise InputInvalid("the conversation has no messages yet")
    if rest:
        paths = [Path(os.path.expanduser(_unquoted(rest)))]
    else:
        now = dt.datetime.now().astimezone().isoformat()
        name = export_name(summary.title or derived_title(summary.conversation_id), now)
        paths = [Path(name + ending) for ending in FORMATS.values()]
    for path in paths:
        size = await export_to(chat.conversation, path)
        text = f"wrote {summary.message_count} messages to {path} ({size:,} B)"
        chat.front.news("exported", text, path=str(path), messages=summary.message_count, size=size)


async def _compact(chat: Chat, rest: str) -> None:
    if chat.busy:
        raise RunStateConflict("a run is active", hint="/compact when it has ended")
    from stepwell.cli.chat.compacting import compact_in

    chat.later(lambda: compact_in(chat, rest or None))


async def _help(chat: Chat, rest: str) -> None:
    lines = [f"{f'{choice.text} {choice.takes}'.strip():<28} {choice.title}" for choice in menu(chat)]
    chat.front.news("help", "\n".join(lines), menu=[choice._asdict() for choice in menu(chat)])


async def _quit(chat: Chat, rest: str) -> bool:
    return False


class _Own(NamedTuple):
    takes: str
    title: str
    act: Callable[[Chat, str], Awaitable[Any]]


_BUILT_IN = {"export": _Own("[FILE.md|.json]", "", _export), "compact": _Own("[PROVIDER]", "", _compact)}
_OWN = {
    "attach": _Own("PATH", "Attach a file to the next message; @PATH in a message does it too.", _attach),
    "detach": _Own("[N]", "Take an attachment out again.", _detach),
    "queue": _Own("[remove N|move N M]", "Show and change what waits.", _queue),
    "approve": _Own("[REQUEST] [JSON]", "Approve a call, with other arguments where they are given.", _approve),
    "deny": _Own("[REQUEST] [REASON]", "Deny a call; the model is told the reason.", _deny),
    "stop": _Own("", "Stop the run.", _stop),
    "resume": _Own("", "Go on with the run that was cut off.", _resume),
    "title": _Own("TEXT", "Name the conversation.", _title),
    "help": _Own("", "Show this.", _help),
    "quit": _Own("", "Leave; the conversation stays.", _quit),
}


def _request(chat: Chat, rest: str) -> tuple[str | None, str]:
    first, _, behind = rest.partition(" ")
    if first in chat.asked or re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", first):
        return first, behind.strip()
    return None, rest


def _place(text: str, count: int, what: str) -> int:
    if text.isdecimal() and text.isascii() and len(text) < 6 and 1 <= int(text) <= count:
        return int(text)
    raise InputInvalid(f"there is no {what} {text:.20}", hint=f"there are {count}" if count else "there is none")


def _unquoted(path: str) -> str:
    if path[:1] in "'\"":
        try:
            return " ".join(shlex.split(path))
        except ValueError:
            return path
    return path
