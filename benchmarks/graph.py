"""Graphs of nodes that do nothing, traced and persisted, against plain asyncio tasks; and how large the tools' answers are."""

import asyncio
import json
import random
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

from harness import Options, Row, cost, in_turn, speed

from stepwell import Executor, Host, graph_entrypoint, load_settings
from stepwell.graph.answers import Sources
from stepwell.graph.folder import WorkflowFolder
from stepwell.graph.registry import default_registry
from stepwell.graph.toolbox import WorkflowTools
from stepwell.project.loader import Project
from stepwell.project.manifest import Manifest
from stepwell.storage.declaration import DataStorage, ScopeModel

PROJECT_ID = "01936d3f-6a00-7000-8000-0000000000b7"
MANY_NODES = 2_000
TEXT = '"x"'  # JSON as well as text: so it fits the two inputs of a node
Edges = list[tuple[int, int]]


def rows(options: Options) -> Iterator[Row]:
    """A chain, a fan-out and a random graph; the longest stall of the event loop; the size of answers in bytes."""
    folder = options.folder
    shapes = {
        "chain": _chain(options.size(1_000, 50)), "fan-out": _fan_out(options.size(1_000, 50)),
        "random graph": _random(options.size(10_000, 100)),
    }  # fmt: skip
    manifest = Manifest(
        str(folder), f"{folder}/pyproject.toml", PROJECT_ID, "bench", "x:y", DataStorage.LOCAL, ScopeModel.PROJECT, {}, {},
        (),
    )  # fmt: skip
    project = Project(manifest, Executor(entrypoints=[graph_entrypoint(_key(name)) for name in shapes]))
    loop = asyncio.new_event_loop()
    host = loop.run_until_complete(_host(str(folder)))
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            started = perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, perf_counter() - started)

    async def run(name: str, count: int) -> float:
        beating = asyncio.create_task(beat())
        started = perf_counter()
        start = {"nodes": {_id(0): {"text": TEXT}}}
        report = await (await host.start(project, f"workflow:{_key(name)}", input=start)).report()
        taken = perf_counter() - started
        beating.cancel()
        assert report.nodes["completed"] == count, report.error
        return taken

    def run_ours(name: str, count: int) -> float:
        return loop.run_until_complete(run(name, count))

    for name, (count, edges) in shapes.items():
        _save(folder, _key(name), count, edges)
        taken = in_turn(
            options.rounds(3),
            {
                "ours": lambda name=name, count=count: run_ours(name, count),
                "theirs": lambda count=count, edges=edges: asyncio.run(_plainly(count, edges)),
            },
        )
        # Plain tasks neither record nor check anything: the ratio says what a durable trace of every node costs.
        yield cost(
            f"{name} of {count:,} nodes, a node", "plain asyncio tasks", taken["ours"], taken["theirs"], 4, per=count
        )
    if options.peers is not None:
        yield from _langgraph(options, run_ours, shapes)
    note = "most of it is Python's garbage collector going through 10,000 nodes"
    stall = longest * 1e3
    yield Row("event loop stall in the graphs", "50 ms", stall, 50, "ms", stall / 50, 1, at_least=False, note=note)
    loop.run_until_complete(host.close())
    loop.close()
    yield from _answers(host, folder)


def _langgraph(
    options: Options, run: Callable[[str, int], float], shapes: dict[str, tuple[int, Edges]]
) -> Iterator[Row]:
    """LangGraph with its SQLite checkpoints. It takes half a minute for 10,000 nodes: those run once."""
    assert options.peers is not None
    with options.peers.start("langgraph_graph.py", options.folder) as peer:
        for name, (count, edges) in shapes.items():
            (options.folder / f"{name}.json").write_text(json.dumps([count, edges]))
            sides: dict[str, Callable[[], float]] = {
                "ours": lambda name=name, count=count: run(name, count),
                "theirs": lambda name=name: peer.call("run", shape=name),
            }
            if count > MANY_NODES:
                taken, note = {side: measure() for side, measure in sides.items()}, "one run each"
            else:
                taken, note = in_turn(options.rounds(1), sides), ""
            work = f"{name} of {count:,} nodes, a node"
            yield speed(work, "LangGraph, AsyncSqliteSaver", taken["ours"], taken["theirs"], None, per=count, note=note)


def _answers(host: Host, folder: Path) -> Iterator[Row]:
    _save(folder, "thirty", 30, _random(30)[1])
    tools = WorkflowTools(Sources(WorkflowFolder(folder), default_registry(), None, host.files.read), host.files)
    for what, limit, arguments in (
        ("summary of a workflow of 30 nodes", 6_000, {"action": "get_workflow", "workflow_id": "thirty", "view": "summary"}),
        ("list of all node types", 20_000, {"action": "list_node_types", "limit": 200}),
        ("summary of a workflow of 10,000 nodes", 20_000,
         {"action": "get_workflow", "workflow_id": "random-graph", "view": "summary"}),
    ):  # fmt: skip
        size = len(json.dumps(tools.call("workflow_inspect", arguments), ensure_ascii=False).encode())
        yield Row(what, f"{limit:,} bytes", size, limit, "B", size / limit, 1, at_least=False, note="4 bytes a token")


async def _plainly(count: int, edges: Edges) -> float:
    """The same graph as bare tasks that wait for each other."""
    sources: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        sources[target].append(source)
    tasks: list[asyncio.Task[str]] = []

    async def one(node: int) -> str:
        values = [await tasks[source] for source in sources[node]]
        return values[-1] if values else "x"

    started = perf_counter()
    for node in range(count):
        tasks.append(asyncio.create_task(one(node)))
    await asyncio.gather(*tasks)
    return perf_counter() - started


def _chain(count: int) -> tuple[int, Edges]:
    return count, [(node, node + 1) for node in range(count - 1)]


def _fan_out(count: int) -> tuple[int, Edges]:
    return count, [(0, node) for node in range(1, count)]


def _random(count: int) -> tuple[int, Edges]:
    """Every other node joins two branches."""
    seed = random.Random(1)
    return count, [
        (source, node)
        for node in range(1, count)
        for source in sorted({seed.randrange(max(0, node - 50), node) for _ in range(1 + node % 2)})
    ]


def _save(folder: Path, key: str, count: int, edges: Edges) -> None:
    nodes = [{"nodeId": _id(n), "nodeType": "io/input_text", "name": f"n{n}", "config": {}} for n in range(count)]
    ports: list[Iterator[str]] = [iter(("text", "json_text")) for _ in range(count)]
    wires: list[dict[str, Any]] = [
        {"edgeId": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{a} {b}")), "sourceNode": _id(a), "sourcePort": "text",
         "targetNode": _id(b), "targetPort": next(ports[b])}
        for a, b in edges
    ]  # fmt: skip
    path = folder / "workflows" / key / "workflow.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"name": key, "isTemplate": True, "definition": {"nodes": nodes, "edges": wires}}))


def _key(name: str) -> str:
    return name.replace(" ", "-")


def _id(number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))


async def _host(folder: str) -> Host:
    return Host(load_settings({"home": folder}))
