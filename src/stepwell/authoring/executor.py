"""`Executor` and `Entrypoint`: what a project offers to run."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal

from stepwell.authoring.decorators import Workflow
from stepwell.authoring.hooks import NodeHook
from stepwell.authoring.schema import is_any, json_schema, validate
from stepwell.conversation.slash import BUILT_IN, Footer, SlashCommand, SlashParameter, check_menu
from stepwell.errors import EntrypointNotFound, ExecutorInvalid, InputInvalid, StepwellError
from stepwell.jsontext import decode_untrusted
from stepwell.tools.declaration import tool_of

PROJECT_TYPES = ("workflow", "conversation")
_BUILT_IN = (str, int, float, bool, list, dict)


class TokenUsage:
    """Token accounting of an entrypoint.

    Args:
        enabled: count tokens and keep totals.
        display: show them; follows `enabled` when left out.
    """

    def __init__(self, *, enabled: bool = False, display: bool | None = None) -> None:
        self.enabled = enabled
        self.display = enabled if display is None else display


class Conversation:
    """A conversation project's declaration.

    Args:
        enabled: under the older form `Executor(conversation=Conversation(enabled=True))`.
        attachments: which of `images`, `files`, `videos` an input may carry.
        parameters: parameters of the `/` menu; they reach the entrypoint with every input.
        commands: commands of the `/` menu: names of built-in ones, and the project's own.
        footer: plain text under the input, or lines that depend on parameters.
        input_queue: take inputs while a run is active, and run them in order afterwards.
    """

    def __init__(
        self,
        *,
        enabled: bool = True,
        attachments: Sequence[str] = (),
        parameters: Sequence[SlashParameter] = (),
        commands: Sequence[str | SlashCommand] = tuple(BUILT_IN),
        footer: str | Sequence[Footer] = (),
        input_queue: bool = False,
    ) -> None:
        unknown = set(attachments) - {"images", "files", "videos"}
        if unknown:
            raise ExecutorInvalid(f"conversation attachments {sorted(unknown)} are not images, files or videos")
        self.enabled = enabled
        self.attachments = tuple(attachments)
        self.parameters = tuple(parameters)
        self.commands = tuple(commands)
        self.footer = (Footer(footer),) if isinstance(footer, str) else tuple(footer)
        self.input_queue = input_queue
        check_menu(self.parameters, self.commands, self.footer)


class Entrypoint:
    """One way into a project.

    Args:
        id: used on the command line and in the API.
        workflow: a function decorated with `@workflow`.
        title: shown to people; the id by default.
        create_input: `(args, conversation_id) -> input`, or `(args) -> input`; args are the command line arguments
            after `--`. Without it, `--name value` pairs (or one JSON argument) fill the workflow's input type.
        token_usage: accounting, off by default.
    """

    def __init__(
        self,
        id: str,  # noqa: A002
        workflow: Workflow,
        *,
        title: str | None = None,
        create_input: Callable[..., Any] | None = None,
        token_usage: TokenUsage | None = None,
    ) -> None:
        self.id = id
        self.workflow = workflow
        self.title = title or id
        self.create_input = create_input
        self.token_usage = token_usage or TokenUsage()

    def input_from(self, args: Sequence[str], conversation_id: str | None) -> Any:
        """The validated input that the arguments make.

        Raises:
            InputInvalid: the arguments do not fit, in the words of `create_input` where it raised ValueError.
        """
        if self.create_input is None:
            made = default_input(self.workflow.input_type, args)
        else:
            arguments = (list(args), conversation_id) if _takes_conversation_id(self.create_input) else (list(args),)
            try:
                made = self.create_input(*arguments)
            except StepwellError:
                raise
            except (Exception, SystemExit) as error:
                # argparse exits, everything else raises: it is the project's own word on its arguments.
                kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
                raise InputInvalid(f"the arguments of {self.id!r} were refused: {kind}{error}") from error
        return self.checked_input(made)

    def checked_input(self, value: Any) -> Any:
        """The input validated against the workflow's annotation."""
        return validate(self.workflow.input_type, value, f"the input of {self.id!r}")

    def describe(self) -> dict[str, Any]:
        """Id, title and JSON Schemas."""
        return {
            "id": self.id,
            "title": self.title,
            "workflow": self.workflow.name,
            "token_usage": {"enabled": self.token_usage.enabled, "display": self.token_usage.display},
            "input_schema": json_schema(self.workflow.input_type),
            "output_schema": json_schema(self.workflow.output_type),
        }


class Executor:
    """What a project offers: its entrypoints, and whether it is a conversation.

    Args:
        project_type: `workflow` or `conversation`.
        default_entrypoint: id of the one that runs when none is named.
        entrypoints: at least one, with unique ids.
        conversation: the conversation's declaration.
        tools: functions decorated with `@tool`, each with a name of its own.
        node_hooks: code around every node call, the first one outermost: see `NodeHook`.
        workflow, create_input, token_usage: the short form with one entrypoint `main`.

    Raises:
        ExecutorInvalid: lists every problem.
    """

    def __init__(
        self,
        *,
        project_type: Literal["workflow", "conversation"] | None = None,
        default_entrypoint: str | None = None,
        entrypoints: Sequence[Entrypoint] = (),
        conversation: Conversation | None = None,
        tools: Sequence[Any] = (),
        node_hooks: Sequence[NodeHook] = (),
        workflow: Workflow | None = None,
        create_input: Callable[..., Any] | None = None,
        token_usage: TokenUsage | None = None,
    ) -> None:
        points = list(entrypoints)
        if workflow is not None:
            points.insert(0, Entrypoint("main", workflow, create_input=create_input, token_usage=token_usage))
        if project_type is None:
            project_type = "conversation" if conversation is not None and conversation.enabled else "workflow"
        self.project_type: str = project_type
        self.conversation = conversation or (Conversation() if project_type == "conversation" else None)
        declared = [tool_of(tool) for tool in tools]
        self.tools = {tool.name: tool for tool in declared}
        self.node_hooks = tuple(node_hooks)
        self.entrypoints = {point.id: point for point in points}
        self.default_entrypoint = default_entrypoint or (points[0].id if points else "")
        problems = self._problems(points)
        if not all(inspect.iscoroutinefunction(hook) for hook in self.node_hooks):
            problems.append("a node hook is not an `async def hook(call, proceed)`")
        if len(self.tools) != len(declared):
            problems.append("two tools have the same name")
        if problems:
            raise ExecutorInvalid("the executor is declared wrongly: " + "; ".join(problems), problems=problems)

    @property
    def is_conversation(self) -> bool:
        """True if runs have a conversation."""
        return self.project_type == "conversation"

    def entrypoint(self, entrypoint_id: str | None = None) -> Entrypoint:
        """An entrypoint by id; the default one without.

        Raises:
            EntrypointNotFound: names those there are.
        """
        wanted = entrypoint_id if entrypoint_id is not None else self.default_entrypoint
        if wanted not in self.entrypoints:
            raise EntrypointNotFound(
                f"there is no entrypoint {wanted!r:.80}", hint=f"there are: {', '.join(self.entrypoints)}"
            )
        return self.entrypoints[wanted]

    def describe(self) -> dict[str, Any]:
        """The executor as JSON."""
        return {
            "project_type": self.project_type,
            "default_entrypoint": self.default_entrypoint,
            "entrypoints": [point.describe() for point in self.entrypoints.values()],
        }

    def _problems(self, points: list[Entrypoint]) -> list[str]:
        problems = []
        if self.project_type not in PROJECT_TYPES:
            problems.append(f"project_type {self.project_type!r:.60} is not {' or '.join(PROJECT_TYPES)}")
        if not points:
            problems.append("there is no entrypoint")
        for point in points:
            if not isinstance(point.id, str) or not point.id or len(point.id) > 128:
                problems.append(f"the entrypoint id {point.id!r:.60} is not a text of 1 to 128 characters")
            if not callable(getattr(point.workflow, "function", None)):
                problems.append(f"entrypoint {point.id!r:.60}: its workflow is not decorated with @workflow")
        if len(self.entrypoints) != len(points):
            problems.append("two entrypoints have the same id")
        if self.conversation is not None:
            problems += [
                f"the command /{command.name}: there is no entrypoint {command.entrypoint!r:.60}"
                for command in self.conversation.commands
                if isinstance(command, SlashCommand) and command.entrypoint not in self.entrypoints
            ]
        if points and self.default_entrypoint not in self.entrypoints:
            problems.append(f"default_entrypoint {self.default_entrypoint!r:.60} is not one of the entrypoints")
        return problems


def _takes_conversation_id(create_input: Callable[..., Any]) -> bool:
    """True if a second parameter has to be given, or is called `conversation_id`."""
    second = list(inspect.signature(create_input).parameters.values())[1:2]
    return any(parameter.default is parameter.empty or parameter.name == "conversation_id" for parameter in second)


def default_input(input_type: Any, args: Sequence[str]) -> Any:
    """An input from plain arguments: one JSON argument, or `--name value` / `--name=value` / `--flag` pairs.

    Values are JSON where they are, text otherwise; a repeated name makes a list. Names may be written with dashes.

    Raises:
        InputInvalid: an argument is neither.

    >>> default_input(None, ["--name", "Ada", "--count=3"])
    {'name': 'Ada', 'count': 3}
    """
    if len(args) == 1 and not args[0].startswith("--"):
        return decode_untrusted(args[0], what="the argument")
    values: dict[str, Any] = {}
    position = 0
    while position < len(args):
        option, equals, text = args[position].partition("=")
        if not option.startswith("--") or len(option) < 3:
            raise InputInvalid(
                f"unexpected argument {args[position]!r:.120}", hint="give --name value pairs, or one JSON argument"
            )
        position += 1
        if not equals and position < len(args) and not args[position].startswith("--"):
            text, equals = args[position], "="
            position += 1
        name = _known_name(option, input_type)
        value = _loosely(text, _field_type(input_type, name)) if equals else True
        if name in values:
            known = values[name]
            values[name] = [*known, value] if isinstance(known, list) else [known, value]
        else:
            values[name] = value
    return values if values or is_any(input_type) or not _is_scalar(input_type) else None


def _known_name(option: str, input_type: Any) -> str:
    """The field an option means; an option that no field of the input type takes is refused, never dropped."""
    from stepwell.authoring.decorators import hints

    name = option[2:].replace("-", "_")
    fields = hints(input_type) if isinstance(input_type, type) and input_type not in _BUILT_IN else {}
    if fields and name not in fields:
        from difflib import get_close_matches

        close = get_close_matches(name, fields, 1)
        known = f"did you mean --{close[0]}?" if close else f"there are: {', '.join(f'--{field}' for field in fields)}"
        raise InputInvalid(f"the input has no field for {option!r:.120}", hint=known, argument=option)
    return name


def _loosely(text: str, field_type: Any) -> Any:
    if field_type is str:
        return text
    try:
        return decode_untrusted(text)
    except StepwellError:
        return text


def _field_type(input_type: Any, name: str) -> Any:
    from stepwell.authoring.decorators import hints

    return hints(input_type).get(name) if isinstance(input_type, type) else None


def _is_scalar(input_type: Any) -> bool:
    return input_type in _BUILT_IN and input_type is not dict
