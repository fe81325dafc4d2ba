"""A workflow whose every side effect is counted in a file, for tests that kill it."""

import asyncio
import os
from pathlib import Path

from stepwell import Context, Entrypoint, Executor, TokenUsage, node, workflow

COUNTED = Path(os.environ.get("STEPS_COUNTED", "counted"))
CHANGED = os.environ.get("STEPS_CHANGED", "")


def count(name: str) -> None:
    """Note one execution, at once and for good."""
    descriptor = os.open(COUNTED, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{name}\n".encode())
    os.close(descriptor)


@node(durable=True)
async def step(number: int, ctx: Context) -> dict:
    count(f"step {number}")
    await asyncio.sleep(0.004)
    return {"number": number}


@node(durable=True)
async def other(number: int) -> int:
    count(f"other {number}")
    return number


@node(durable=True)
def blocking(number: int) -> int:
    count(f"blocking {number}")
    return number


@workflow
async def steps(data: dict, ctx: Context) -> dict:
    """Twenty durable steps, some at once, with output and token reports in between."""
    total = 0
    for number in range(0, 20, 2):
        pair = await asyncio.gather(step(number, ctx), step(number + 1, ctx))
        total += sum(part["number"] for part in pair)
        if CHANGED == "path" and number == 2:
            total += await other(number)
        async with ctx.output(f"line {number}") as out:
            await out.write(f"{number}:")
            await out.write(f"{total}\n")
        await ctx.token_usage.report(input_tokens=1, output_tokens=1)
        total += await blocking(number + (CHANGED == "input" and number == 4))
    return {"total": total}


executor = Executor(entrypoints=[Entrypoint("main", steps, token_usage=TokenUsage(enabled=True))])
