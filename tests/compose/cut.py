"""Compositions that die in the middle, and the process that runs them: `python -m tests.compose.cut NAME RUN_ID`."""

import asyncio
import os
import sys
from pathlib import Path

from stepwell import Context, Entrypoint, Executor, Host, TokenUsage, load_settings, node, workflow
from tests.crash.replayed import count, die, step
from tests.unit.conftest import project_of


@node(durable=True)
async def speak(words: list[str], ctx: Context) -> int:
    """A node that writes to an output item of its own."""
    count("speak")
    async with ctx.output("spoken") as out:
        for word in words:
            await out.write(word)
    return len(words)


@node(durable=True)
async def remember(text: str, ctx: Context) -> None:
    count(f"remember {text}")
    await ctx.conversation.append_message({"role": "assistant", "content": text})


@workflow
async def child(data: dict, ctx: Context) -> dict:
    await ctx.token_usage.report(input_tokens=10, output_tokens=1)
    await ctx.conversation.append_message({"role": "user", "content": f"child {data['number']}"})
    await step(data["number"])
    if data["number"] == 2:
        await die()
    return {"number": await step(data["number"] + 100)}


@workflow
async def in_a_child(data: dict, ctx: Context) -> list:
    """Dies in the second child, with the first one done."""
    await ctx.token_usage.report(input_tokens=1, output_tokens=1)
    await ctx.conversation.append_message({"role": "user", "content": "same"})
    await ctx.conversation.append_messages([{"role": "user", "content": "same"}, {"role": "user", "content": "same"}])
    first = await ctx.run_workflow(child, {"number": 1}, kv_mode="isolated")
    second = await ctx.run_workflow(child, {"number": 2})
    await ctx.conversation.append_message({"role": "user", "content": "end"})
    return [first["number"], second["number"]]


@workflow
async def talker(data: dict, ctx: Context) -> str:
    await speak(["a", "b"], ctx)
    async with ctx.output("own") as out:
        await out.write("c")
        if data["dies"]:
            await die()
        await out.write("d")
    return "abcd"


async def bridged(ctx: Context, *, dies: bool) -> str:
    """Two hidden children whose chunks are shown as the parent's own."""
    async with ctx.output("answer") as out:
        for turn in range(2):
            await ctx.run_workflow(
                talker, {"dies": dies and turn == 1}, output_visibility="hidden", on_output_chunk=out.write
            )
    return out.text


@workflow
async def in_a_bridge(data: dict, ctx: Context) -> str:
    return await bridged(ctx, dies=True)


@workflow
async def behind_a_bridge(data: dict, ctx: Context) -> str:
    text = await bridged(ctx, dies=False)
    await die()
    return text


@workflow
async def reader(data: dict, ctx: Context) -> list:
    await ctx.conversation.append_message({"role": "user", "content": "body"})
    await remember("node", ctx)
    await ctx.conversation.set_value("topic", "copied")
    await die()
    state = await ctx.conversation.get_value()
    return [[message["content"] for message in state.messages], state.values]


@workflow
async def in_a_readonly_child(data: dict, ctx: Context) -> list:
    await ctx.conversation.append_message({"role": "user", "content": "before"})
    seen = await ctx.run_workflow(reader, {}, conversation_mode="shared-readonly")
    return [*seen, (await ctx.conversation.summary()).message_count]


@workflow
async def counting(data: dict, ctx: Context) -> None:
    """Counts once an attempt; the first attempt fails, the second dies before and after counting."""
    count("attempt")
    attempt = Path(os.environ["COUNTED"]).read_text().count("attempt")
    if attempt == 2:
        await die()
    await ctx.token_usage.report(input_tokens=10, output_tokens=0)
    if attempt == 1:
        raise OSError("not yet")


@node(retries=1)
async def twice(ctx: Context) -> None:
    await ctx.run_workflow(counting, {})


@workflow
async def in_a_second_attempt(data: dict, ctx: Context) -> str:
    await twice(ctx)
    return "done"


@workflow
async def other_message(data: dict, ctx: Context) -> None:
    """Appends another message when it is resumed."""
    from tests.crash.replayed import changed

    await ctx.conversation.append_message({"role": "user", "content": "other" if changed() else "one"})
    await die()


@workflow
async def beside(data: dict, ctx: Context) -> list:
    """Three children at once, one of which dies when the others are done."""

    @workflow
    async def made(number: int, own: Context) -> int:
        found = await step(number, 0.01)
        if number == 3:
            await asyncio.sleep(0.1)
            await die()
        return found

    return await asyncio.gather(*(ctx.run_workflow(made, number) for number in (1, 2, 3)))


WORKFLOWS = {name: made for name, made in globals().copy().items() if type(made).__name__ == "Workflow"}


def executor(name: str) -> Executor:
    point = Entrypoint("main", WORKFLOWS[name], token_usage=TokenUsage(enabled=True))
    return Executor(project_type="conversation", entrypoints=[point])


async def main(name: str, run_id: str) -> None:
    async with Host(load_settings()) as host:
        handle = await host.start(project_of(executor(name), Path.cwd()), input={}, run_id=run_id, conversation_id="c1")
        await handle.report()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
