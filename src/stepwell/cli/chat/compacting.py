"""`/compact` in the chat: a run like every other."""

from typing import TYPE_CHECKING

from stepwell.authoring.compaction import COMPACTION
from stepwell.errors import StepwellError
from stepwell.llm.providers import api_key, provider_spec

if TYPE_CHECKING:
    from stepwell.cli.chat.engine import Chat


async def compact_in(chat: "Chat", provider: str | None) -> None:
    """Summarise the chat's conversation, and show how it goes: running, then completed or failed.

    Args:
        provider: a model provider of the project; its default one without.
    """
    chat.front.news("compact", "compacting …", state="running")
    try:
        spec = provider_spec(provider, chat.project.manifest.providers)
        api_key(spec)  # what is missing is told before anything begins
        handle = await chat.host.start(
            chat.project, COMPACTION, input={"provider": provider}, conversation_id=chat.conversation.conversation_id
        )
        report = await chat.follow(handle)
    except StepwellError as error:
        chat.front.news("compact", "not compacted", state="failed")
        chat.front.problem(error)
        return
    if report is None or report.status != "completed":
        chat.front.news("compact", "not compacted", state="failed")
        return
    count, length = report.output["messages"], len(report.output["summary"])
    chat.front.news(
        "compact", f"compacted: the model now reads {length:,} characters in the place of {count} messages",
        state="completed", messages=count, upto=report.output["upto"],
    )  # fmt: skip
