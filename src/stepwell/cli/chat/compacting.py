"""`/compact` as a run: traced, counted and cancelled like every other."""

from typing import TYPE_CHECKING, Any

from stepwell.authoring.decorators import workflow
from stepwell.authoring.executor import Entrypoint, Executor
from stepwell.conversation.compact import compact
from stepwell.errors import StepwellError
from stepwell.llm.providers import api_key, provider_spec
from stepwell.project.loader import Project

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
            _project(chat.project, provider), input={}, conversation_id=chat.conversation.conversation_id
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


def _project(project: Project, provider: str | None) -> Project:
    """The project with one other entrypoint, `compact`."""

    async def ask_in(ctx: Any, messages: list[dict[str, Any]]) -> str:
        answer = await ctx.llm(provider).chat(messages, name="summarise")
        return str(answer.text)

    @workflow(name="compact")
    async def run(data: dict[str, Any], ctx: Any) -> dict[str, Any]:
        made = await compact(ctx.conversation, lambda messages: ask_in(ctx, messages))
        return made.to_dict()

    usage = project.entrypoint().token_usage
    executor = Executor(project_type="conversation", entrypoints=[Entrypoint("compact", run, token_usage=usage)])
    return Project(project.manifest, executor)
