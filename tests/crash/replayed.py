"""Workflows that die in the middle, and the process that runs them: `python -m tests.crash.replayed NAME RUN_ID`.

Side effects are counted in the file that the environment names. `die()` ends the process as a crash would, once;
where the environment says that the run goes on it does nothing, and `changed()` is true where it says so.
"""

import asyncio
import os
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from stepwell import Context, Host, load_settings, node, workflow
from tests.unit.conftest import project_of


def count(name: str) -> None:
    descriptor = os.open(os.environ["COUNTED"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, f"{name}\n".encode())
    os.close(descriptor)


def resumed() -> bool:
    return "RESUMED" in os.environ


def changed() -> bool:
    return "CHANGED" in os.environ


@node(durable=True)
async def die() -> None:
    """The record of everything before is on the disk by now."""
    if not resumed():
        await asyncio.sleep(0.15)
        os._exit(9)


@node(durable=True)
async def step(value: int, pause: float = 0.0) -> int:
    count(f"step {value}")
    await asyncio.sleep(pause)
    return value


class Order(BaseModel):
    item: str
    at: datetime


@dataclass
class Place:
    x: int
    tags: frozenset[str]


class Opaque:
    """Has no JSON form."""


@node
async def order() -> Order:
    count("order")
    return Order(item="a", at=datetime(2026, 1, 2, tzinfo=UTC))


@node
async def place() -> Place | None:
    count("place")
    return Place(1, frozenset({"t"}))


@node
async def pair() -> tuple[int, datetime]:
    count("pair")
    return 1, datetime(2026, 1, 2, tzinfo=UTC)


@node
async def big() -> dict:
    count("big")
    return {"text": "x" * 200_000}


@node
async def reference() -> dict:
    count("reference")
    return {"$artifact": "not one of ours", "size": 1}


@node
async def opaque() -> Opaque:
    count("opaque")
    await step(77)
    return Opaque()


@node
async def secretive() -> str:
    count("secretive")
    return "Bearer abcdefghijklmnopqrstuvwxyz"


@workflow
async def results(data: dict, ctx: Context) -> list:
    """Results of every sort come back as what they were."""
    found = [await order(), await place(), await pair(), await big(), await reference()]
    hidden = [await opaque(), await secretive()]
    await die()
    assert found == [
        Order(item="a", at=datetime(2026, 1, 2, tzinfo=UTC)), Place(1, frozenset({"t"})),
        (1, datetime(2026, 1, 2, tzinfo=UTC)), {"text": "x" * 200_000}, {"$artifact": "not one of ours", "size": 1},
    ]  # fmt: skip
    assert isinstance(hidden[0], Opaque)
    assert hidden[1].endswith("xyz")
    return [type(value).__name__ for value in found]


@workflow
async def branches(data: dict, ctx: Context) -> list:
    """Plain branches that overtake each other: the second calls `step` again before the first does."""

    async def branch(number: int, pause: float) -> int:
        first = await step(number, pause)
        return first + await step(number + 10, pause)

    async def last() -> int:
        await asyncio.sleep(0.1)
        await die()
        return 0

    return await asyncio.gather(branch(1, 0.03), branch(2, 0.01), branch(3, 0.02), last())


@workflow
async def first_come(data: dict, ctx: Context) -> list:
    """Results are worked on in the order in which they come."""
    seen = []
    for number in asyncio.as_completed([step(1, 0.03), step(2, 0.01), step(3, 0.02)]):
        seen.append(await step(await number + 10))
    await die()
    return seen


@workflow
async def workers(data: dict, ctx: Context) -> list:
    """Two workers take items from one queue."""
    items = [(1, 0.04), (2, 0.005), (3, 0.005), (4, 0.005), (5, 0.02)]
    seen = []

    async def work() -> None:
        while items:
            number, pause = items.pop(0)
            seen.append(await step(number, pause))

    await asyncio.gather(work(), work())
    await die()
    return sorted(seen)


@node(retries=2)
async def flaky(ctx: Context) -> int:
    await step(1)
    count("flaky")
    if len(Path(os.environ["COUNTED"]).read_text().split("flaky")) == 2:
        raise ValueError("the first time")
    await die()
    return await step(2)


@workflow
async def retried(data: dict, ctx: Context) -> int:
    """An attempt that failed leaves nothing to the next one."""
    return await flaky(ctx)


@node(replay=False)
async def fresh() -> int:
    count("fresh")
    return await step(5)


@workflow
async def opted_out(data: dict, ctx: Context) -> int:
    """What opts out of replay runs again, with what it calls."""
    found = await fresh()
    await die()
    return found


@node(durable=True)
async def moody() -> str:
    count("moody")
    if not resumed():
        raise ValueError("not today")
    return "fine"


@node(durable=True)
async def fallback() -> str:
    count("fallback")
    return "instead"


@workflow
async def handled(data: dict, ctx: Context) -> str:
    """A failure that was handled may turn out well when the run goes on."""
    await step(1)
    try:
        found = await moody()
    except ValueError:
        found = await fallback()
    await step(2)
    await die()
    return found


@workflow
async def at_once(data: dict, ctx: Context) -> list:
    """Nodes side by side, with other inputs when changed."""
    more = 100 if changed() else 0
    found = await asyncio.gather(*(step(number + more) for number in range(3)))
    await die()
    return found


@workflow
async def fewer(data: dict, ctx: Context) -> int:
    """One call less when changed, in the middle of a node's own children."""
    found = await outer()
    return found + await step(50)


@node
async def outer() -> int:
    await step(1)
    if not changed():
        await step(2)
        await die()
    return 1


@workflow
async def modelled(data: Order, ctx: Context) -> str:
    await die()
    return data.item


@workflow
async def streaming(data: dict, ctx: Context) -> str:
    """Dies in the middle of an output item."""
    async with ctx.output("answer") as out:
        for word in ("one ", "two ", "three "):
            await out.write(word)
            await asyncio.sleep(0.06)
            if word == "two ":
                await die()
    return out.text


WORKFLOWS = {
    name: made
    for name, made in globals().copy().items()
    if type(made).__name__ == "Workflow"
}  # fmt: skip


async def main(name: str, run_id: str) -> None:
    async with Host(load_settings()) as host:
        given = (
            {"item": "b", "at": "2026-01-02T00:00:00Z"} if name == "modelled" else {"note": os.environ.get("NOTE", "")}
        )
        handle = await host.start(project_of(WORKFLOWS[name], Path.cwd()), input=given, run_id=run_id)
        await handle.report()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
