"""What is sent to a model."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stepwell.errors import MessageInvalid

ReadFile = Callable[[str], Awaitable[bytes]]

OUTPUT_TOOL = "final_result"
"""The tool that a model calls with the output that was asked for."""

ROLES = ("user", "assistant", "system", "tool")


class ToolSpec(NamedTuple):
    """A tool as a model is told of it."""

    name: str
    description: str
    schema: Mapping[str, Any]


class Exchange(NamedTuple):
    """What is sent: messages, the tools on offer, the JSON Schema of the wanted output, further model settings."""

    messages: Sequence[Mapping[str, Any]]
    tools: tuple[ToolSpec, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    settings: Mapping[str, Any] = {}


def given_messages(given: str | Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The messages of a call: a text is one message of the user.

    Raises:
        MessageInvalid: there is none, or one has no known role.
    """
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    listed = [dict(message) for message in given]
    if not listed:
        raise MessageInvalid("there is no message to send")
    for number, message in enumerate(listed):
        if message.get("role") not in ROLES:
            raise MessageInvalid(f"messages[{number}].role: {message.get('role')!r:.60} is not known", field="role")
    return listed
