"""One workflow made of others: a letter is planned, drafted and reviewed, each by a workflow of its own.

stepwell run . -- --message "Thank Ada for the engine"
stepwell runs events RUN                                  # one run: the others are nodes of it
stepwell run . -e draft -- --message "only the draft"     # and each one runs by itself, too
"""

from dataclasses import dataclass, field

from stepwell import (
    Context,
    Conversation,
    Entrypoint,
    Executor,
    TokenUsage,
    node,
    parse_conversation_input,
    workflow,
)


@dataclass
class Task:
    """What every workflow here takes."""

    message: str


@dataclass
class Plan:
    """What `plan` returns; `times` counts the plans that were made before."""

    points: list[str]
    times: int


@dataclass
class Letter:
    """What the run returns."""

    text: str
    points: list[str]
    verdict: str
    plans: int
    heard: list[str] = field(default_factory=list)


@node
def points_of(message: str) -> list[str]:
    """What the letter has to say. Put a call of your model here."""
    return ["a greeting", message.lower(), "a farewell"]


@node
async def sentence(point: str) -> str:
    """One sentence about a point."""
    return f"Here is {point}. "


@workflow
async def plan(task: Task, ctx: Context) -> Plan:
    """Runs isolated: `plans` here is no key of the project that calls it."""
    times = await ctx.storage.local.kv.update_value("plans", lambda count: count + 1, default=0)
    return Plan(await points_of(task.message), times)


@workflow
async def draft(task: Task, ctx: Context) -> str:
    """Streams the letter; who calls it decides who sees that."""
    async with ctx.output("draft") as out:
        for point in (await ctx.run_workflow(plan, task, kv_mode="isolated")).points:
            await out.write(await sentence(point))
    await ctx.token_usage.report(input_tokens=20, output_tokens=10)
    return out.text.strip()


@workflow
async def review(task: Task, ctx: Context) -> str:
    """Reads the conversation, and thinks aloud in a copy that nobody else sees."""
    said = [message["content"] for message in await ctx.conversation.messages()]
    await ctx.conversation.append_message({"role": "assistant", "content": "Is that too long?"})
    await ctx.token_usage.report(input_tokens=5, output_tokens=1)
    return "approved" if task.message in said else "not what was asked for"


@workflow
async def letter(task: Task, ctx: Context) -> Letter:
    """The parent: each part in the mode that suits it."""
    heard: list[str] = []
    await ctx.conversation.append_message({"role": "user", "content": task.message})

    planned = await ctx.run_workflow(
        plan, task, name="Plan the letter", kv_mode="isolated", on_output=lambda made: heard.append(f"{made.times}")
    )
    # The draft's own output stays hidden; its chunks are shown as the parent's answer.
    async with ctx.output("letter") as out:
        text = await ctx.run_workflow(draft, task, output_visibility="hidden", on_output_chunk=out.write)
    verdict = await ctx.run_workflow(review, task, conversation_mode="shared-readonly")

    await ctx.conversation.append_message({"role": "assistant", "content": text})
    await ctx.storage.local.kv.set_value("plans", "the parent's own")
    return Letter(text, planned.points, verdict, planned.times, heard)


def read_arguments(args: list[str]) -> Task:
    """The standard conversation input."""
    return Task(parse_conversation_input(args).message)


usage = TokenUsage(enabled=True)
executor = Executor(
    project_type="conversation",
    conversation=Conversation(),
    entrypoints=[
        Entrypoint("main", letter, title="Write a letter", create_input=read_arguments, token_usage=usage),
        Entrypoint("draft", draft, title="Only draft it", create_input=read_arguments, token_usage=usage),
    ],
)
