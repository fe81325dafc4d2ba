"""Chat Completions, with usage that is told more than once counted once, and broken answers known as such.

The model layer adds up the usage of every chunk. Gateways exist that repeat the last one, or send a running total with
every chunk; OpenAI itself sends one. So the last figures win.
"""

from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIStreamedResponse
from pydantic_ai.usage import RequestUsage


@dataclass
class LastUsageWins(OpenAIStreamedResponse):
    """A stream whose usage figures replace each other."""

    def _add_usage(self, usage: RequestUsage, *, reported: bool, cumulative: bool = False) -> None:
        if reported:
            super()._add_usage(usage, reported=True, cumulative=True)

    def get(self) -> ModelResponse:
        """The response; one whose reason to finish never came is incomplete, whatever the model layer takes it for."""
        if not self._has_finish_reason and not self._has_refusal:
            self.state = "incomplete"
        return super().get()


class ChatModel(OpenAIChatModel):
    """`OpenAIChatModel` with streams that count once."""

    @property
    def _streamed_response_cls(self) -> type[Any]:
        return LastUsageWins
