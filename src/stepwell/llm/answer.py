"""What a model answered, in a form that is JSON: recorded, replayed and put into conversations as it is."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple


class Figures(NamedTuple):
    """Token counts of one call, canonical and inclusive, whatever the provider's own way of counting.

    `input` counts every prompt token, cache reads and writes included; `output` counts reasoning. `measured` is false
    where the provider told nothing. `cost_usd` is None where the price is not known.
    """

    input: int = 0
    output: int = 0
    reasoning: int = 0
    cache_read: int = 0
    cache_write: int = 0
    measured: bool = True
    cost_usd: float | None = None

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input + self.output


class ToolCall(NamedTuple):
    """A call that the model wants made. `arguments` is text as it came where it is no JSON object."""

    id: str
    name: str
    arguments: dict[str, Any] | str

    def to_dict(self) -> dict[str, Any]:
        """The call as it stands in a message."""
        return self._asdict()


class Answer(NamedTuple):
    """A model's answer.

    `message` goes into a list of messages (or a conversation) as it is, to be sent with the next call. `output` is the
    validated output where one was asked for. `finish` is stop, length, tool_call, content_filter, or `stopped` where
    the consumer of a stream stopped early; `partial` then says so.
    """

    text: str
    tool_calls: tuple[ToolCall, ...]
    message: dict[str, Any]
    usage: Figures
    provider: str
    model: str
    finish: str | None
    reasoning: str = ""
    partial: bool = False
    output: Any = None

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON; `output` is left out, because it is read from the text or the call again."""
        fields = self._asdict() | {"usage": self.usage._asdict(), "tool_calls": [c.to_dict() for c in self.tool_calls]}
        del fields["output"]
        return fields

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> "Answer":
        """The answer that `to_dict` made."""
        calls = tuple(ToolCall(**call) for call in recorded["tool_calls"])
        return cls(**{**recorded, "usage": Figures(**recorded["usage"]), "tool_calls": calls})


def parsed_arguments(given: Any) -> dict[str, Any] | str:
    """A call's arguments as an object; what is no JSON object stays the text it was."""
    if isinstance(given, Mapping):
        return dict(given)
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    try:
        read = json.loads(given)
    except (ValueError, TypeError, RecursionError):
        return str(given)
    return read if isinstance(read, dict) else str(given)
