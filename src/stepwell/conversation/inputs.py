"""The standard conversation input, as command line arguments and back."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stepwell.errors import InputInvalid

_LISTS = ("images", "files", "videos")
_OPTIONS = ("message", *_LISTS)


class Attachments(NamedTuple):
    """Which attachments a conversation takes."""

    images: bool = False
    files: bool = False
    videos: bool = False


class ConversationInput(NamedTuple):
    """One turn's input: the text, and attachments by path or reference."""

    message: str = ""
    images: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    videos: tuple[str, ...] = ()


def parse_conversation_input(args: Sequence[str], attachments: Attachments | None = None) -> ConversationInput:
    """Read `--message TEXT`, `--images PATH…`, `--files PATH…`, `--videos PATH…`.

    The last `--message` wins; lists are merged in order. `--option=VALUE` takes any text, also one that looks like
    an option; in the form `--option VALUE` the value may be anything but one of these four options.

    Args:
        args: the command line arguments.
        attachments: what the project declares; videos of a project that declares only files become files.

    Raises:
        InputInvalid: an option that is none of these, a missing value, or an attachment the project does not take.

    >>> parse_conversation_input(["--message", "hi", "--files", "a.txt", "b.txt"])
    ConversationInput(message='hi', images=(), files=('a.txt', 'b.txt'), videos=())
    """
    message = ""
    lists: dict[str, list[str]] = {name: [] for name in _LISTS}
    position = 0
    while position < len(args):
        option, equals, value = args[position].partition("=")
        name = option.removeprefix("--")
        if not option.startswith("--") or name not in _OPTIONS:
            raise InputInvalid(
                f"unexpected argument {args[position]!r:.120}",
                hint='a conversation takes --message "…", --images, --files and --videos',
                argument=args[position],
            )
        position += 1
        if equals:
            values = [value]
        elif name == "message":
            if position >= len(args) or _is_option(args[position]):
                raise InputInvalid("--message needs a text", hint='write --message "…" or --message=…')
            values = [args[position]]
            position += 1
        else:
            start = position
            while position < len(args) and not args[position].startswith("--"):
                position += 1
            values = list(args[start:position])
            if not values:
                raise InputInvalid(f"--{name} needs at least one path", hint=f"write --{name} PATH or --{name}=PATH")
        if name == "message":
            message = values[-1]
        else:
            lists[name] += values
    if attachments is not None:
        _apply(attachments, lists)
    return ConversationInput(message, *(tuple(lists[name]) for name in _LISTS))


def format_conversation_input(value: ConversationInput) -> list[str]:
    """The arguments that `parse_conversation_input` reads back as `value`, whatever its texts look like."""
    args = [f"--message={value.message}"] if value.message else []
    for name in _LISTS:
        items: Iterable[str] = getattr(value, name)
        args += [f"--{name}={item}" for item in items]
    return args


def _is_option(argument: str) -> bool:
    option = argument.partition("=")[0]
    return option.startswith("--") and option.removeprefix("--") in _OPTIONS


def _apply(attachments: Attachments, lists: dict[str, list[str]]) -> None:
    if not attachments.videos and attachments.files:
        lists["files"] += lists["videos"]
        lists["videos"] = []
    for name in _LISTS:
        if lists[name] and not getattr(attachments, name):
            raise InputInvalid(f"this conversation takes no {name}", hint=f"leave --{name} out", argument=f"--{name}")
