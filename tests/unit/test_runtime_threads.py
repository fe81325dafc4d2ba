"""Synchronous code in runs: nothing waits forever, cancelling and time limits reach it, and the process can end."""

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stepwell import Context, node, workflow
from stepwell.authoring.threads import WorkerThreads, in_thread
from stepwell.errors import RunClosed

ROOT = Path(__file__).parents[2]


async def test_threads_that_wait_for_nested_nodes_do_not_use_up_the_pool(bench):
    bench.host.threads = WorkerThreads(2, "few")

    @node
    def leaf(number: int) -> int:
        return number

    @node
    def middle(number: int) -> int:
        return leaf(number) + leaf(1)

    @node
    def outer(number: int, ctx: Context) -> int:
        ctx.wait(asyncio.sleep(0.01))
        return middle(number)

    @workflow
    async def main(data: dict, ctx: Context) -> int:
        return sum(await asyncio.gather(*(outer(number, ctx) for number in range(20))))

    assert (await bench.run(main)).output == 210


async def test_no_more_threads_work_at_once_than_allowed():
    threads = WorkerThreads(3, "few")
    working, most, mutex = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal working, most
        with mutex:
            working += 1
            most = max(most, working)
        threading.Event().wait(0.005)
        with mutex:
            working -= 1

    await asyncio.gather(*(in_thread(threads, work) for _ in range(40)))
    assert 1 <= most <= 3
    threads.close()
    with pytest.raises(RunClosed):
        threads.submit(work)


@pytest.mark.parametrize("raised", [StopIteration(), KeyError("x"), asyncio.CancelledError()])
async def test_whatever_a_synchronous_node_raises_ends_its_call(bench, raised):
    @node
    def odd() -> None:
        raise raised

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await odd()

    report = await asyncio.wait_for(bench.run(main), 20)
    assert report.status == ("cancelled" if isinstance(raised, asyncio.CancelledError) else "failed")


async def test_cancelling_reaches_what_a_synchronous_workflow_waits_for(bench):
    began, cancelled = asyncio.Event(), []

    @node
    async def waits() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.append("node")
            raise

    @node
    def between(ctx: Context) -> None:
        try:
            ctx.wait(waits())
        except asyncio.CancelledError:
            cancelled.append("thread")
            raise

    @workflow
    def main(data: dict, ctx: Context) -> None:
        between(ctx)

    handle = await bench.start(main)
    await asyncio.wait_for(began.wait(), 20)
    handle.cancel("enough")
    assert (await asyncio.wait_for(handle.report(), 20)).status == "cancelled"
    for _ in range(200):
        if len(cancelled) == 2:
            break
        await asyncio.sleep(0.01)
    assert sorted(cancelled) == ["node", "thread"]


async def test_a_time_limit_reaches_what_a_synchronous_node_waits_for(bench):
    cancelled = asyncio.Event()

    async def forever() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    @node(timeout=0.05)
    def slow(ctx: Context) -> None:
        ctx.wait(forever())

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await slow(ctx)

    report = await asyncio.wait_for(bench.run(main), 20)
    assert report.error["code"] == "node_timeout"
    await asyncio.wait_for(cancelled.wait(), 20)


async def test_a_function_that_hands_back_a_coroutine_is_awaited(bench):
    async def real(number: int) -> int:
        return number

    @node
    def wrapped(number: int):
        return real(number)

    @workflow
    def main(data: dict, ctx: Context):
        return wrapped(3)

    assert (await bench.run(main)).output == 3


async def test_a_thread_may_run_an_event_loop_of_its_own(bench):
    @node
    async def leaf(number: int) -> int:
        return number

    @node
    def with_loop() -> list:
        async def both() -> list:
            return list(await asyncio.gather(leaf(1), leaf(2)))

        return asyncio.run(both())

    @workflow
    async def main(data: dict, ctx: Context) -> list:
        return await with_loop()

    assert (await bench.run(main)).output == [1, 2]
    assert {started["parent"] for started in bench.of("node.started")} == {"", "with_loop"}


async def test_background_work_can_be_started_from_a_thread(bench):
    done = []

    @node
    def starts(ctx: Context) -> None:
        async def later() -> None:
            await asyncio.sleep(0.02)
            done.append(1)

        ctx.background(later())

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await starts(ctx)

    assert (await bench.run(main)).status == "completed"
    assert done == [1]


STUCK = """
import asyncio, threading
from pathlib import Path
from stepwell import Context, Host, load_settings, node, workflow
from tests.unit.conftest import project_of

@node
def stuck() -> None:
    threading.Event().wait()

@workflow
async def main(data: dict, ctx: Context) -> None:
    await stuck()

async def run() -> None:
    async with Host(load_settings()) as host:
        handle = await host.start(project_of(main, Path.cwd()), input={})
        await asyncio.sleep(0.1)
        handle.cancel()
        print((await handle.report()).status)

asyncio.run(run())
"""


def test_a_thread_that_never_returns_keeps_no_process_from_ending():
    done = subprocess.run(
        [sys.executable, "-c", STUCK], cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "cancelled"), done.stderr
