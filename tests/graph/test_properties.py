"""Random graphs against a plain model of what has to run, what has to be skipped, and what comes out."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell import Host, load_settings
from stepwell.graph import entrypoint
from stepwell.graph.nodes import CORE_TYPES
from stepwell.graph.registry import Registry
from tests.graph.conftest import TYPES, GraphBench, save


@st.composite
def graphs(draw):
    """Nodes that pass on, fork or fail, and edges from earlier to later ones, at most two into each."""
    size = draw(st.integers(2, 12))
    kinds = [draw(st.sampled_from(["pass", "pass", "fork", "bad", "handled"])) for _ in range(size)]
    fires = [draw(st.sets(st.sampled_from(["branch_0", "branch_1"]))) for _ in range(size)]
    edges = []
    for target in range(1, size):
        ports = ["value"] if kinds[target] != "pass" else ["value", "text"]
        for port in draw(st.lists(st.sampled_from(ports), unique=True)):
            source = draw(st.integers(0, target - 1))
            out = draw(st.sampled_from(["branch_0", "branch_1"])) if kinds[source] == "fork" else "out"
            edges.append((source, out, target, port))
    return kinds, fires, edges, draw(st.integers(1, 4))


def model(kinds, fires, edges):
    """A node runs if it has no edges, or one of them carries a value."""
    status, emitted = {}, {}
    for node, kind in enumerate(kinds):
        into = [edge for edge in edges if edge[2] == node]
        live = [edge for edge in into if edge[1] in emitted.get(edge[0], ())]
        status[node] = "skipped" if into and not live else "failed" if kind in ("bad", "handled") else "completed"
        if status[node] == "completed":
            emitted[node] = fires[node] if kind == "fork" else {"out"}
    return status


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_every_node_ends_as_the_model_says_and_runs_at_most_once(case):
    kinds, fires, edges, parallel = case
    made = {}
    for node, kind in enumerate(kinds):
        config = {
            "pass": ("t/pass", {"value": f"v{node}"}), "fork": ("t/fork", {"fire": sorted(fires[node]), "value": "f"}),
            "bad": ("t/bad", {}), "handled": ("t/bad", {"onError": "continue"}),
        }  # fmt: skip
        made[f"n{node}"] = config[kind]
    wires = [f"n{source}.{out}>n{target}.{port}" for source, out, target, port in edges]
    expected = model(kinds, fires, edges)

    async def run():
        with tempfile.TemporaryDirectory() as folder:
            project = Path(folder) / "project"
            project.mkdir()
            async with Host(load_settings({"home": f"{folder}/home"})) as host:
                bench = GraphBench(host, project)
                save(project, "made", made, *wires)
                report = await bench.run("made", max_parallelism=parallel)
                return report, bench.statuses(), [e.data["node"] for e in bench.events if e.type == "node.started"]

    original = entrypoint.default_registry
    entrypoint.default_registry = lambda: Registry([*CORE_TYPES, *TYPES])
    try:
        report, statuses, started = asyncio.run(run())
    finally:
        entrypoint.default_registry = original
    assert statuses == {f"n{node}": status for node, status in expected.items()}
    assert len(started) == len(set(started))
    unhandled = any(status == "failed" and kinds[node] == "bad" for node, status in expected.items())
    assert report.status == ("failed" if unhandled else "completed")
