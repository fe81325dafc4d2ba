"""What the `/` menu of a conversation offers: parameters, commands, and the footer that depends on them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stepwell.errors import ExecutorInvalid, InputInvalid

BUILT_IN = {
    "export": "Write every message of the conversation to a file.",
    "compact": "Summarise the conversation for the model; every message stays.",
}
RESERVED = frozenset("attach detach queue stop approve deny resume title help quit".split())
"""Names that every chat uses for itself."""

MAX_PARAMETERS = 32

_NAME = re.compile(r"[a-z][a-z0-9-]{0,31}\Z")
_ON, _OFF = ("on", "true", "yes", "1"), ("off", "false", "no", "0")


class SlashParameter(NamedTuple):
    """A parameter that is set in the `/` menu and goes to the entrypoint as `--NAME=VALUE` with every input.

    With `options` it is one of them (select), without it is on or off (boolean). `default` is None for the first
    option, or off. `title` is shown in the menu.
    """

    name: str
    options: tuple[str, ...] = ()
    default: str | bool | None = None
    title: str = ""

    @property
    def type(self) -> str:
        """`select` or `boolean`."""
        return "select" if self.options else "boolean"

    @property
    def initial(self) -> str | bool:
        """The value before anybody set one."""
        if self.default is not None:
            return self.default
        return self.options[0] if self.options else False

    def parse(self, text: str, current: str | bool | None = None) -> str | bool:
        """The value that a text means; an empty one toggles a boolean.

        Raises:
            InputInvalid: it is none of the values; the hint names them.
        """
        given = text.strip()
        if self.options:
            if given in self.options:
                return given
            raise InputInvalid(
                f"/{self.name}: {given!r:.80} is not one of its options", hint=f"there are: {', '.join(self.options)}"
            )
        if not given:
            return not (self.initial if current is None else current)
        if given.lower() in (*_ON, *_OFF):
            return given.lower() in _ON
        raise InputInvalid(f"/{self.name}: {given!r:.80} is neither on nor off", hint="write on or off")

    def to_dict(self) -> dict[str, Any]:
        """The declaration as JSON."""
        return {
            "name": self.name, "kind": "slash", "type": self.type, "options": list(self.options),
            "default": self.initial, "title": self.title,
        }  # fmt: skip


class SlashCommand(NamedTuple):
    """A command of the project: `/NAME text` runs another of its entrypoints in the conversation, with that text."""

    name: str
    entrypoint: str
    title: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The declaration as JSON."""
        return self._asdict()


class Footer(NamedTuple):
    """A line of plain text under the input, shown while the parameters named in `when` have those values."""

    text: str
    when: Mapping[str, str | bool] = {}

    def to_dict(self) -> dict[str, Any]:
        """The declaration as JSON."""
        return {"text": self.text, "when": dict(self.when)}


def check_menu(
    parameters: Sequence[SlashParameter], commands: Sequence[str | SlashCommand], footer: Sequence[Footer]
) -> None:
    """Refuse a menu that cannot work.

    Raises:
        ExecutorInvalid: lists every problem.
    """
    problems = [] if len(parameters) <= MAX_PARAMETERS else [f"there are more than {MAX_PARAMETERS} parameters"]
    names = [item if isinstance(item, str) else item.name for item in (*parameters, *commands)]
    for name in names:
        if not isinstance(name, str) or not _NAME.match(name):
            problems.append(f"/{name!s:.60} is not lower-case letters, digits and dashes")
        elif names.count(name) > 1 and (problem := f"/{name} is declared twice") not in problems:
            problems.append(problem)
    problems += [f"the command {name!r:.60} is not built in" for name in commands if _is_unknown(name)]
    own = [item.name for item in (*parameters, *commands) if not isinstance(item, str)]
    problems += [f"/{name} is built in" for name in own if name in BUILT_IN or name in RESERVED]
    for parameter in parameters:
        if parameter.name in ("message", "images", "files", "videos"):
            problems.append(f"--{parameter.name} belongs to the standard input")
        if not _is_value(parameter, parameter.initial):
            problems.append(f"/{parameter.name}: the default {parameter.default!r:.60} is not one of its values")
    known = {parameter.name: parameter for parameter in parameters}
    for line in footer:
        for name, value in line.when.items():
            if name not in known or not _is_value(known[name], value):
                problems.append(f"the footer {line.text!r:.40} depends on {name} = {value!r:.40}, which cannot be")
    if problems:
        raise ExecutorInvalid("the conversation is declared wrongly: " + "; ".join(problems), problems=problems)


def parse_slash_parameters(
    args: Sequence[str], parameters: Sequence[SlashParameter]
) -> tuple[dict[str, str | bool], list[str]]:
    """Take the parameters out of an entrypoint's arguments; what is left is for `parse_conversation_input`.

    Only the form `--NAME=VALUE` is read, so that no message is taken for one.

    Returns:
        Every parameter with its value, given or not; and the other arguments.

    Raises:
        InputInvalid: a value is not possible.

    >>> parse_slash_parameters(["--message=hi", "--web=on"], [SlashParameter("web")])
    ({'web': True}, ['--message=hi'])
    """
    known = {parameter.name: parameter for parameter in parameters}
    values = {parameter.name: parameter.initial for parameter in parameters}
    left = []
    for argument in args:
        option, equals, value = argument.partition("=")
        name = option.removeprefix("--")
        if equals and option.startswith("--") and name in known:
            values[name] = known[name].parse(value)
        else:
            left.append(argument)
    return values, left


def format_slash_parameters(values: Mapping[str, str | bool]) -> list[str]:
    """The arguments that `parse_slash_parameters` reads back."""
    return [f"--{name}={_text(value)}" for name, value in values.items()]


def current_values(
    parameters: Sequence[SlashParameter], chosen: Mapping[str, str | bool]
) -> dict[str, str | bool]:  # fmt: skip
    """Every parameter's value: what was chosen where that is still possible, else its default."""
    return {
        parameter.name: chosen[parameter.name]
        if parameter.name in chosen and _is_value(parameter, chosen[parameter.name])
        else parameter.initial
        for parameter in parameters
    }


def footer_lines(footer: Sequence[Footer], values: Mapping[str, str | bool]) -> list[str]:
    """The footer's lines that hold under these values."""
    return [line.text for line in footer if all(values.get(name) == value for name, value in line.when.items())]


def _text(value: str | bool) -> str:
    return value if isinstance(value, str) else "on" if value else "off"


def _is_value(parameter: SlashParameter, value: Any) -> bool:
    return value in parameter.options if parameter.options else isinstance(value, bool)


def _is_unknown(command: str | SlashCommand) -> bool:
    return isinstance(command, str) and command not in BUILT_IN
