"""Graphs made on the fly, of small node types, and a host to run them."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from stepwell import Entrypoint, Executor, Host, load_settings, workflow
from stepwell.graph import entrypoint, registry
from stepwell.graph.answers import Sources
from stepwell.graph.folder import WorkflowFolder
from stepwell.graph.format import Graph, read_definition
from stepwell.graph.nodes import CORE_TYPES
from stepwell.graph.ports import Anything, dynamic
from stepwell.graph.registry import Registry, node_type
from stepwell.graph.toolbox import WorkflowTools
from stepwell.runtime.events import Event
from stepwell.runtime.report import Report
from tests.unit.conftest import PROJECT_ID, project_of

SEEN: list[Any] = []


@node_type("t/pass", title="Pass on")
class Pass:
    """Gives what it takes."""

    class Inputs(BaseModel):
        value: Anything = None
        text: str = "fallback"

    class Outputs(BaseModel):
        out: Anything

    async def run(self, inputs: Any, ctx: Any) -> dict[str, Any]:
        SEEN.append((ctx.node.name, inputs.value))
        return {"out": inputs.value}


@node_type("t/fork", title="Fork")
class Fork:
    """Emits the ports it is told to."""

    class Inputs(BaseModel):
        value: Anything = None
        fire: list[str] = []
        only_one: bool = False

    class Outputs(BaseModel):
        branches: dynamic("branch_")
        fallback_out: Anything

    @staticmethod
    def is_exclusive(config: dict[str, Any]) -> bool:
        return config.get("only_one") is True

    async def run(self, inputs: Any, ctx: Any) -> dict[str, Any]:
        return dict.fromkeys(inputs.fire, inputs.value)


@node_type("t/bad", title="Fails")
class Bad:
    """Fails as often as it is told to."""

    class Inputs(BaseModel):
        value: Anything = None
        times: int = 1_000

    class Outputs(BaseModel):
        out: Anything

    async def run(self, inputs: Any, ctx: Any) -> dict[str, Any]:
        SEEN.append((ctx.node.name, "try"))
        if sum(1 for name, what in SEEN if name == ctx.node.name and what == "try") <= inputs.times:
            raise ValueError("broken on purpose")
        return {"out": inputs.value}


@node_type("t/slow", title="Slow")
class Slow:
    """Waits."""

    class Inputs(BaseModel):
        value: Anything = None
        seconds: float = 0.05

    class Outputs(BaseModel):
        out: Anything

    async def run(self, inputs: Any, ctx: Any) -> dict[str, Any]:
        SEEN.append((ctx.node.name, "begin"))
        await asyncio.sleep(inputs.seconds)
        SEEN.append((ctx.node.name, "end"))
        return {"out": inputs.value}


@node_type("t/need", title="Needs a text")
class Need:
    """Needs a text and a number."""

    class Inputs(BaseModel):
        text: str
        number: int = 1

    class Outputs(BaseModel):
        out: str

    async def run(self, inputs: Any, ctx: Any) -> dict[str, Any]:
        return {"out": f"{inputs.text}{inputs.number}"}


@node_type("t/spoil", title="Spoils")
class Spoil:
    """Changes what it is given, and returns what it is told to."""

    class Inputs(BaseModel):
        value: Anything = None
        returns: str = ""

    class Outputs(BaseModel):
        out: Anything

    async def run(self, inputs: Any, ctx: Any) -> Any:
        if isinstance(inputs.value, dict):
            inputs.value["spoiled"] = True
        if inputs.returns == "nan":
            return {"out": float("nan")}
        return {"unknown": 1} if inputs.returns == "port" else {"out": inputs.value}


TYPES = (Pass, Fork, Bad, Slow, Need, Spoil)


def node_id(name: str) -> str:
    """The id that the tests give a node of that name."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


def definition(nodes: dict[str, Any], *edges: str) -> dict[str, Any]:
    """A definition: `{"a": "t/pass", "b": ("t/pass", {config})}` and edges like `a.out>b.value`."""
    made = []
    for name, what in nodes.items():
        kind, config = what if isinstance(what, tuple) else (what, {})
        made.append({"nodeId": node_id(name), "nodeType": kind, "name": name, "config": config})
    wires = []
    for number, edge in enumerate(edges):
        source, target = edge.split(">")
        (a, out), (b, into) = source.rsplit(".", 1), target.rsplit(".", 1)
        wires.append({
            "edgeId": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{number} {edge}")), "sourceNode": node_id(a),
            "sourcePort": out, "targetNode": node_id(b), "targetPort": into,
        })  # fmt: skip
    return {"nodes": made, "edges": wires}


def graph_of(nodes: dict[str, Any], *edges: str) -> Graph:
    return read_definition(definition(nodes, *edges))


def save(folder: Path, key: str, nodes: dict[str, Any], *edges: str, **envelope: Any) -> Path:
    """Write a workflow file into a project folder."""
    path = folder / "workflows" / key / "workflow.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {"name": key, "workflowId": node_id(f"workflow {key}"), "definition": definition(nodes, *edges)}
    path.write_text(json.dumps(document | envelope))
    return path


@pytest.fixture
def types(monkeypatch) -> Registry:
    """The core types and the tests' own, as the default registry."""
    made = Registry([*CORE_TYPES, *TYPES])
    registry.default_registry.cache_clear()
    monkeypatch.setattr(entrypoint, "default_registry", lambda: made)
    SEEN.clear()
    return made


@workflow
async def nothing(data: Any, ctx: Any) -> None:
    """The Python workflow that every executor has to have."""


class GraphBench:
    """A project folder, and a host that runs its graphs and keeps their events."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self.folder = folder
        self.project = project_of(Executor(entrypoints=[Entrypoint("main", nothing)]), folder)
        self.events: list[Event] = []

    @property
    def runs(self):
        return self.host.runs(PROJECT_ID)

    async def start(self, key: str, value: Any = None, **options: Any):
        self.events.clear()
        return await self.host.start(
            self.project, f"workflow:{key}", input={"input": value, **options}, on_event=self.events.append
        )

    async def run(self, key: str, value: Any = None, **options: Any) -> Report:
        return await (await self.start(key, value, **options)).report()

    async def graph(self, made: dict[str, Any], /, *edges: str, value: Any = None, **options: Any) -> Report:
        """Save a graph and run it to its end."""
        save(self.folder, "made", made, *edges)
        return await self.run("made", value, **options)

    def statuses(self) -> dict[str, str]:
        """How each node ended, by name."""
        ends = ("completed", "failed", "skipped", "cancelled")
        names = {node_id(event.data["title"]): event.data["title"] for event in self.events if "title" in event.data}
        return {
            names[event.data["node"]]: event.type.removeprefix("node.")
            for event in self.events
            if event.type.removeprefix("node.") in ends and event.data["node"] in names
        }


@pytest.fixture
async def graphs(tmp_path: Path, types: Registry) -> AsyncIterator[GraphBench]:
    folder = tmp_path / "project"
    folder.mkdir()
    async with Host(load_settings({"home": str(tmp_path / "home")})) as host:
        yield GraphBench(host, folder)


@pytest.fixture
def tools(graphs: GraphBench, types: Registry) -> WorkflowTools:
    """The four tools on that project."""
    sources = Sources(WorkflowFolder(graphs.folder), types, graphs.runs, graphs.host.files.read)
    return WorkflowTools(sources, graphs.host.files)


Make = Callable[..., Any]
