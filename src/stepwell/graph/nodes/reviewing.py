"""A second model that judges an answer."""

import json
from typing import Any, NamedTuple

from pydantic import BaseModel

from stepwell.errors import ModelAnswerBroken
from stepwell.graph.contexts import message
from stepwell.graph.node_context import NodeContext
from stepwell.graph.nodes.talking import model_of, settings_of

MAX_SHOWN_CHARS = 20_000
PROMPT = (
    "You review the work of another model. Approve its answer if it does what the task asks and fits what its tools "
    "returned. Otherwise do not approve it, and say in `remark` what has to be corrected."
)


class Verdict(BaseModel):
    """What a reviewer says. `remark` is what has to be corrected, where it does not approve."""

    approved: bool
    remark: str = ""


class Review(NamedTuple):
    """A verdict, and the tokens that it took."""

    approved: bool
    remark: str
    tokens: int


async def review(
    ctx: NodeContext, config: dict[str, Any], prompt: str | None, task: str, trace: str, answer: str
) -> Review:
    """Have a model judge an answer. One that gives no verdict that can be read has not approved.

    Args:
        config: of an `ai/llm_config` node.
        prompt: what to look at, in place of our own.
        trace: the tool calls that were made.
    """
    shown = {"task": task, "tool calls": trace[:MAX_SHOWN_CHARS], "answer": answer[:MAX_SHOWN_CHARS]}
    messages = [message("system", prompt or PROMPT), message("user", json.dumps(shown, ensure_ascii=False, indent=1))]
    llm = ctx.run.llm(model_of(config, "reviewer_llm_config"))
    try:
        made = await llm.chat(messages, output=Verdict, name="review", **settings_of(config))
    except ModelAnswerBroken as error:
        ctx.run.log(f"the reviewer gave no verdict: {error.message}", level="warning")
        return Review(False, "", 0)
    return Review(made.output.approved, made.output.remark, made.usage.total)
