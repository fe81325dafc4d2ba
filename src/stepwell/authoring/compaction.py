"""Compacting a conversation as a run: traced, counted, cancelled and resumed like every other."""

from typing import TYPE_CHECKING, Any

from stepwell.authoring.decorators import node, workflow
from stepwell.authoring.executor import Entrypoint, TokenUsage
from stepwell.conversation.compact import Basis, basis_of, compact

if TYPE_CHECKING:
    from stepwell.authoring.context import Context

COMPACTION = "conversation:compact"
"""The entrypoint that every conversation project has."""


@node(name="range", durable=True)
async def _basis(ctx: "Context") -> dict[str, Any]:
    """What is summarised: a resumed run does not take messages for summarised that came later."""
    return (await basis_of(ctx.conversation)).to_dict()


@workflow(name="compact")
async def _compact(data: dict[str, Any], ctx: "Context") -> dict[str, Any]:
    async def ask(messages: list[dict[str, Any]]) -> str:
        answer = await ctx.llm(data.get("provider")).chat(messages, name="summarise")
        return str(answer.text)

    return (await compact(ctx.conversation, ask, Basis.of(await _basis(ctx)))).to_dict()


def compaction(usage: TokenUsage) -> Entrypoint:
    """The entrypoint `conversation:compact`. Its input is `{"provider": NAME}`; the default one without.

    Args:
        usage: how the project counts tokens.
    """
    return Entrypoint(COMPACTION, _compact, title="Compact the conversation", token_usage=usage)
