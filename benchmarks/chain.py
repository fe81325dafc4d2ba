"""A chain of 1,000 nodes that do nothing, traced and persisted, against DBOS steps on SQLite."""

import asyncio
from collections.abc import Iterator
from time import perf_counter

from harness import Options, Row, in_turn, speed

from stepwell import Context, Executor, Host, load_settings, node, workflow
from stepwell.project.loader import Project
from stepwell.project.manifest import Manifest
from stepwell.storage.declaration import DataStorage, ScopeModel

PROJECT_ID = "01936d3f-6a00-7000-8000-0000000000b2"


@node
async def nothing(number: int) -> int:
    """Do nothing."""
    return number


@workflow
async def chain(data: dict, ctx: Context) -> int:
    """One node after the other."""
    for number in range(data["nodes"]):
        await nothing(number)
    return data["nodes"]


def rows(options: Options) -> Iterator[Row]:
    """The time of a whole run by its nodes, and the longest the event loop had to wait."""
    nodes = options.size(1_000, 50)
    folder = str(options.folder)
    manifest = Manifest(
        folder,
        f"{folder}/pyproject.toml",
        PROJECT_ID,
        "bench",
        "x:y",
        DataStorage.LOCAL,
        ScopeModel.PROJECT,
        {},
        {},
        (),
    )
    project = Project(manifest, Executor(workflow=chain))
    loop = asyncio.new_event_loop()
    host = loop.run_until_complete(_host(folder))
    longest = 0.0

    async def run() -> float:
        nonlocal longest
        beating = asyncio.create_task(beat())
        started = perf_counter()
        handle = await host.start(project, input={"nodes": nodes})
        report = await handle.report()
        taken = perf_counter() - started
        beating.cancel()
        assert report.status == "completed", report.error
        return taken

    async def beat() -> None:
        nonlocal longest
        while True:
            started = perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, perf_counter() - started)

    def ours() -> float:
        return loop.run_until_complete(run())

    if options.peers is not None:
        with options.peers.start("dbos_chain.py", options.folder) as peer:
            taken = in_turn(options.rounds(5), {"ours": ours, "theirs": lambda: peer.call("chain", nodes=nodes)})
        yield speed(f"chain of {nodes:,} nodes, a node", "DBOS step", taken["ours"], taken["theirs"], 10, per=nodes)
    else:
        ours()
    yield Row("event loop stall in the chain", "50 ms", longest * 1e3, 50, "ms", longest / 0.05, 1, at_least=False)
    loop.run_until_complete(host.close())
    loop.close()


async def _host(folder: str) -> Host:
    return Host(load_settings({"home": folder}))
