"""Eight runs in one process, to be killed: `python -m tests.crash.killed RUN_ID...`."""

import asyncio
import os
import sys
from pathlib import Path

from stepwell import Context, Host, TokenUsage, load_settings, node, workflow
from stepwell.authoring.executor import Entrypoint, Executor
from tests.unit.conftest import project_of


def count(ctx: Context, name: str) -> None:
    """Note one execution, at once and for good."""
    descriptor = os.open(os.environ["COUNTED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{ctx.run_id} {name}\n".encode())
    os.close(descriptor)


@node(kind="llm")
async def ask(number: int, ctx: Context) -> dict:
    count(ctx, f"ask {number}")
    await asyncio.sleep(0.002)
    await ctx.token_usage.report(input_tokens=number, output_tokens=1)
    return {"number": number}


@node
def compute(number: int, ctx: Context) -> int:
    count(ctx, f"compute {number}")
    return number * 2


@node(durable=True)
async def branch(number: int, ctx: Context) -> int:
    found = await ask(number, ctx)
    return await compute(found["number"], ctx) + await compute(1000 + number, ctx)


@workflow
async def everything(data: dict, ctx: Context) -> int:
    """Branches side by side, output, and values in storage."""
    total = 0
    for turn in range(4):
        parts = await asyncio.gather(*(branch(10 * turn + number, ctx) for number in range(3)))
        total += sum(parts)
        async with ctx.output(f"turn {turn}") as out:
            await out.write(f"{total}")
        await ctx.storage.local.kv.conversation.set_value("total", total)
    return total


def project():
    point = Entrypoint("main", everything, token_usage=TokenUsage(enabled=True))
    return project_of(Executor(project_type="conversation", entrypoints=[point]), Path.cwd())


async def main(run_ids: list[str]) -> None:
    async with Host(load_settings()) as host:
        for run_id in run_ids:
            await host.start(project(), input={}, run_id=run_id, conversation_id=run_id)
        sys.stdout.write("started\n")
        sys.stdout.flush()
        await asyncio.sleep(30)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
