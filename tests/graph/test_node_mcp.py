"""MCP servers that are programs: started only where the workflow and the environment say so, and ended with the node."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from stepwell.graph.nodes.mcp_stdio import ALLOW_VARIABLE, is_allowed
from stepwell.graph.registry import Registry
from stepwell.graph.validation import validate_graph
from tests.graph.conftest import graph_of, save
from tests.graph.test_nodes_data import failure, one

PROGRAM = Path(__file__).with_name("mcp_program.py")
CALL = {"action": "call", "tool_name": "look", "arguments": {"a": 1}}


def server(*args, **fields):
    return {"name": "p", "command": sys.executable, "args": [str(PROGRAM), *map(str, args)], **fields}


@pytest.fixture
def allowed(monkeypatch):
    monkeypatch.setenv(ALLOW_VARIABLE, f"uvx, {sys.executable} {PROGRAM}")


async def test_tools_of_a_program_are_listed_and_called(graphs, allowed, monkeypatch):
    monkeypatch.setenv("STEPWELL_CREDENTIALS__MAPS", "s3cret")
    monkeypatch.setenv("NOT_FOR_PROGRAMS", "x")
    registry = [server("talk", env={"LEVEL": 3})]
    listed = (await one(graphs, "tools/mcp_hub", {"server_registry": registry}))["result"]["tools"]
    assert [tool["name"] for tool in listed] == ["look"]
    assert json.loads(listed[0]["description"]) == {"jsonrpc": "2.0", "id": 1, "result": {}}  # its own question
    report = await graphs.graph(
        {
            "keys": ("utils/credential", {"bindings": {"MAPS_KEY": "maps"}}),
            "n": ("tools/mcp_hub", CALL | {"server_registry": registry}),
        },
        "keys.env_vars>n.env_vars",
    )
    assert report.status == "completed", report.error
    result = report.output["outputs"]["n"]["result"]
    assert result["given"] == {"name": "look", "arguments": {"a": 1}}
    assert result["env"]["LEVEL"] == "3"
    assert "MAPS_KEY" in result["env"]
    assert "NOT_FOR_PROGRAMS" not in result["env"]
    assert result["cwd"] == str(graphs.folder)


async def test_a_program_that_nobody_allowed_or_that_an_edge_names_is_not_started(graphs, monkeypatch):
    error = await failure(graphs, "tools/mcp_hub", {"server_registry": [server("talk")]})
    assert ALLOW_VARIABLE in error["hint"]
    monkeypatch.setenv(ALLOW_VARIABLE, sys.executable)
    registry = [server("talk")]
    report = await graphs.graph(
        {"from": ("t/pass", {"value": registry}), "n": "tools/mcp_hub"}, "from.out>n.server_registry"
    )
    assert "does not name" in report.error["message"]
    report = await graphs.graph(
        {"from": ("t/pass", {"value": {"LD_PRELOAD": "x"}}), "n": ("tools/mcp_hub", {"server_registry": registry})},
        "from.out>n.env_vars",
    )
    assert "names no credential" in report.error["message"]
    for wrong in ([], [{"name": "x"}], ["x"]):
        assert "server_registry" in (await failure(graphs, "tools/mcp_hub", {"server_registry": wrong}))["message"]


def test_a_command_line_is_allowed_by_its_beginning(monkeypatch):
    monkeypatch.setenv(ALLOW_VARIABLE, "npx -y '@org/a server', uvx,")
    assert is_allowed(["npx", "-y", "@org/a server", "--root", "."])
    assert is_allowed(["uvx", "anything"])
    assert not is_allowed(["npx", "-y", "@org/b"])
    assert not is_allowed(["uvx2"])
    assert not is_allowed(["/tmp/uvx"])
    monkeypatch.delenv(ALLOW_VARIABLE)
    assert not is_allowed(["uvx"])


def is_alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def gone(pids):
    async with asyncio.timeout(5):
        while any(map(is_alive, pids)):
            await asyncio.sleep(0.02)


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("how", ["timeout", "cancel", "done"])
async def test_a_program_and_its_children_end_with_the_node(graphs, allowed, tmp_path, how):
    file = tmp_path / "pids"
    config = {"server_registry": [server("hang", file)], "timeout_ms": 30_000} | (CALL if how != "done" else {})
    if how == "timeout":
        config["timeout_ms"] = 3_000
        assert (await failure(graphs, "tools/mcp_hub", config))["code"] == "node_timeout"
    elif how == "done":
        assert (await one(graphs, "tools/mcp_hub", config))["result"]["tools"]
    else:
        save(graphs.folder, "made", {"n": ("tools/mcp_hub", config)})
        handle = await graphs.start("made")
        async with asyncio.timeout(10):
            while not file.exists() or not file.read_text():
                await asyncio.sleep(0.02)
        assert all(map(is_alive, file.read_text().split()))
        handle.cancel()
        assert (await handle.report()).status == "cancelled"
    await gone(file.read_text().split())


async def test_a_program_that_ends_says_why(graphs, allowed):
    error = await failure(graphs, "tools/mcp_hub", {"server_registry": [server("die")]})
    assert "ended before it answered" in error["message"]
    assert "no licence" in json.dumps(error)


def test_variables_without_a_program_are_warned_of(types: Registry):
    def warned(*servers):
        config = {"server_registry": list(servers), "env_vars": {"A": "b"}}
        report = validate_graph(graph_of({"n": ("tools/mcp_hub", config)}), types)
        return [finding.path for finding in report.warnings if finding.code == "INPUT_WITHOUT_EFFECT"]

    assert warned({"url": "https://example.org/mcp"}) == ["nodes[0].config.env_vars"]
    assert warned({"url": "https://example.org/mcp"}, server("talk")) == []
