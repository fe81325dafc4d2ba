"""Models, agents with nodes as tools, people, and the project's own code in graphs."""

import json

import pytest

from stepwell import Context, Entrypoint, Executor, tool, workflow
from stepwell.graph.answers import Sources
from stepwell.graph.folder import WorkflowFolder
from stepwell.graph.registry import default_registry
from stepwell.graph.tracing import get_execution_trace
from tests.agents import providers_at
from tests.graph.conftest import SEEN, node_id, nothing, save
from tests.graph.test_nodes_data import failure, one
from tests.scripted_model_server import ScriptedServer
from tests.unit.conftest import PROJECT_ID, project_of

MODEL = ("ai/llm_config", {"model": "main"})


@tool
async def look_up(city: str) -> dict:
    """Look a city up."""
    return {"city": city, "people": 7}


@tool(mode="manual")
def delete_file(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


@workflow
async def greet(data: dict, ctx: Context) -> dict:
    return {"greeting": f"Hello {data['name']}", "run": ctx.run_id}


def use(graphs, server=None):
    points = [Entrypoint("main", nothing), Entrypoint("greet", greet)]
    executor = Executor(entrypoints=points, tools=(look_up, delete_file))
    project = project_of(executor, graphs.folder)
    providers = {"main": providers_at(server)["default"]} if server is not None else {}
    graphs.project = project._replace(manifest=project.manifest._replace(providers=providers))


async def test_a_model_answers_and_its_tokens_are_counted_once(graphs):
    with ScriptedServer([{"text": "you said {last}", "usage": {"input": 11, "output": 5}}]) as server:
        use(graphs, server)
        report = await graphs.graph(
            {"in": "chat/input", "m": MODEL, "llm": ("ai/llm", {"instruction_prompt": "Be brief."}), "out": "chat/output"},
            "in.context>llm.context", "m.llm_config>llm.llm_config", "llm.context>out.context", value="hi",
        )  # fmt: skip
    assert report.status == "completed", report.error
    assert report.output["reply"] == "you said hi"
    assert (report.tokens["input"], report.tokens["output"], report.tokens["calls"]) == (11, 5, 1)
    sent = json.dumps(server.requests[0]["body"])
    assert "Be brief." in sent
    assert sent.count('"hi"') == 1


async def test_a_model_without_a_provider_says_which_setting_is_missing(graphs):
    use(graphs)
    report = await graphs.graph({"m": MODEL, "llm": ("ai/llm", {"user_message": "x"})}, "m.llm_config>llm.llm_config")
    assert report.error["failed"][0]["error"]["code"] == "provider_invalid"


async def test_an_agent_calls_nodes_as_tools_until_it_has_an_answer(graphs):
    script = [
        {
            "tool_calls": [
                {"name": "storage", "arguments": {"action": "set", "key": "k", "value": 5, "scope": "conversation"}}
            ]
        },
        {"tool_calls": [{"name": "child", "arguments": {"input_data": "21"}}, {"name": "nope", "arguments": {}}]},
        {"text": "done: {last}"},
    ]
    with ScriptedServer(script) as server:
        use(graphs, server)
        save(graphs.folder, "child", {"t": "io/input_text", "c": "utils/type_cast"}, "t.text>c.text")
        report = await graphs.graph(
            {
                "m": MODEL, "agent": ("agent/react_agent", {"task": "work"}),
                "storage": ("storage/kv", {"scope": "project"}),
                "child": ("tools/subflow", {"workflow_path": "child", "response_path": "c.integer"}), "out": "chat/output",
            },
            "m.llm_config>agent.llm_config", "storage.value>agent.tool_0", "child.summary>agent.tool_1",
            "agent.final_answer>out.context",
        )  # fmt: skip
    assert report.status == "completed", report.error
    assert graphs.statuses()["storage"] == "skipped"
    assert report.output["reply"].startswith("done: ")
    offered = {made["function"]["name"]: made["function"] for made in server.requests[0]["body"]["tools"]}
    assert set(offered) == {"storage", "child"}
    assert "workflow_path" not in offered["child"]["parameters"]["properties"]  # the workflow fixed it
    assert "scope" not in offered["storage"]["parameters"]["properties"]
    trace = get_execution_trace(
        Sources(WorkflowFolder(graphs.folder), default_registry(), graphs.runs), {"archive_ref": report.run_id}
    )["content"]
    assert "tools: storage ×1, child ×1, unknown_tool ×1" in trace  # each call counts once
    told = json.dumps(server.requests[2]["body"])
    assert "21" in told
    kv = await one(graphs, "storage/kv", {"key": "k"})
    assert kv["value"] == 5  # in the project's scope, whatever the model asked for


async def test_an_agent_stops_after_its_rounds(graphs):
    with ScriptedServer([{"tool_calls": [{"name": "wait", "arguments": {}}]}]) as server:
        use(graphs, server)
        report = await graphs.graph(
            {"m": MODEL, "agent": ("agent/react_agent", {"task": "work", "max_iterations": 3}), "wait": "utils/delay"},
            "m.llm_config>agent.llm_config", "wait.info>agent.tool_0",
        )  # fmt: skip
    outputs = report.output["outputs"]["agent"]
    assert (outputs["success"], outputs["status"], outputs["iterations_used"]) == (False, "max_iterations", 3)


async def test_a_run_waits_for_a_person_and_goes_on_where_it_was(graphs):
    use(graphs)
    nodes = {
        "a": ("t/pass", {"value": 1}), "gate": ("utils/approver", {"action_name": "send", "description": "the mail"}),
        "yes": "t/pass", "word": "t/pass",
    }  # fmt: skip
    report = await graphs.graph(nodes, "a.out>gate.param_summary", "gate.approved_out>yes.value", "gate.outcome>word.value",
                                nodes={"a": {"value": "to Ada"}})  # fmt: skip
    assert report.status == "waiting_input"
    approvals = graphs.host.approvals(PROJECT_ID)
    (pending,), _ = approvals.list(status="pending")
    assert (pending.tool, pending.arguments["parameters"]) == ("send", "to Ada")
    ran = list(SEEN)
    await approvals.approve(pending.id)
    handle = await approvals.settle(graphs.project, pending.id)
    report = await handle.report()
    assert report.status == "completed", report.error
    assert report.output["outputs"] == {"yes": {"out": True}, "word": {"out": "approved"}}
    assert [name for name, _ in SEEN[len(ran) :]] == ["yes", "word"]  # what was done before is not done again


async def test_a_denial_skips_what_needed_the_approval(graphs):
    use(graphs)
    nodes = {"gate": ("utils/approver", {"action_name": "send"}), "yes": "t/pass", "word": "t/pass"}
    await graphs.graph(nodes, "gate.approved_out>yes.value", "gate.reason>word.value")
    approvals = graphs.host.approvals(PROJECT_ID)
    (pending,), _ = approvals.list(status="pending")
    await approvals.deny(pending.id, reason="not today")
    report = await (await approvals.settle(graphs.project, pending.id)).report()
    assert report.output["outputs"] == {"word": {"out": "not today"}}
    assert report.output["nodes"] == {"completed": 2, "failed": 0, "skipped": 1}
    outputs = await one(graphs, "utils/approver", {"action_name": "send", "extra_whitelist": "print, send"})
    assert (outputs["approved"], outputs["whitelist_hit"]) == (True, True)


async def test_the_projects_own_code_runs_inside_the_run(graphs):
    use(graphs)
    outputs = await one(graphs, "workflow/run", {"entrypoint": "greet", "input": {"name": "Ada"}})
    assert outputs["output"]["greeting"] == "Hello Ada"
    assert [e.data["node"] for e in graphs.events if e.type == "node.completed"] == [
        f"{node_id('n')}/run-workflow", node_id("n")
    ]  # fmt: skip
    error = await failure(graphs, "workflow/run", {"entrypoint": "gret"})
    assert error["hint"] == "did you mean greet?"


async def test_the_projects_tools_are_listed_and_called(graphs):
    use(graphs)
    outputs = await one(graphs, "tools/tool_hub", {"action": "list_tools"})
    assert [made["name"] for made in outputs["tools"]] == ["look_up", "delete_file"]
    called = {"action": "execute", "tool": "look_up", "arguments": '{"city": "Bern"}'}
    assert (await one(graphs, "tools/tool_hub", called))["result"] == {"city": "Bern", "people": 7}
    wrong = await one(graphs, "tools/tool_hub", called | {"arguments": '{"town": 1}'})
    assert wrong["status"] == "error"
    limited = await one(graphs, "tools/tool_hub", called | {"enabled_tools": ["other"]})
    assert (limited["status"], limited["unavailable_tools"]) == ("error", ["other"])


@pytest.fixture
def mcp_server(monkeypatch):
    """An MCP server over HTTP with two tools on two pages; answers calls as an event stream."""
    import http.server
    import threading

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "id" not in asked:
                return self._send(202, b"", "application/json")
            method, given = asked["method"], asked.get("params", {})
            if method != "initialize" and self.headers.get("Mcp-Session-Id") != "s1":
                return self._send(400, b"no session", "text/plain")
            results = {
                "initialize": {"protocolVersion": "2025-06-18", "capabilities": {}},
                "tools/list": {"tools": [{"name": "two" if given.get("cursor") else "one", "description": "d"}]}
                | ({} if given.get("cursor") else {"nextCursor": "c"}),
                "tools/call": {"content": [{"type": "text", "text": json.dumps(given)}]},
            }
            body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": results[method]})
            if method == "tools/call":
                return self._send(200, f"event: message\ndata: {body}\n\n".encode(), "text/event-stream")
            return self._send(200, body.encode(), "application/json")

        def _send(self, status, body, kind):
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Mcp-Session-Id", "s1")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    monkeypatch.setenv("STEPWELL_HTTP__ALLOW", "127.0.0.1")
    yield f"http://127.0.0.1:{made.server_port}/mcp"
    made.shutdown()
    thread.join()
    made.server_close()


async def test_tools_of_mcp_servers_are_listed_described_and_called(graphs, mcp_server):
    servers = {"server_registry": [{"name": "s", "url": mcp_server}]}
    listed = await one(graphs, "tools/mcp_hub", servers)
    assert [made["name"] for made in listed["result"]["tools"]] == ["one", "two"]
    called = await one(graphs, "tools/mcp_hub", servers | {"action": "call", "tool_name": "two", "arguments": {"a": 1}})
    assert json.loads(called["result"]["content"][0]["text"]) == {"name": "two", "arguments": {"a": 1}}
    assert (await failure(graphs, "tools/mcp_hub", servers | {"action": "call", "tool_name": "on"}))["hint"] == (
        "did you mean one?"
    )


async def test_what_feeds_a_tool_is_there_before_the_agent_begins_and_one_tool_serves_two_agents(graphs):
    script = [{"when": "Rome", "text": "done"}, {"tool_calls": [{"name": "keep", "arguments": {"key": "k", "value": "x"}}]},
              {"text": "kept"}]  # fmt: skip
    with ScriptedServer(script) as server:
        use(graphs, server)
        report = await graphs.graph(
            {
                "m": MODEL, "slow": ("t/slow", {"value": "fixed", "seconds": 0.1}),
                "keep": ("storage/kv", {"action": "set"}),
                "a": ("agent/react_agent", {"task": "keep"}), "b": ("agent/react_agent", {"task": "Rome"}),
            },
            "m.llm_config>a.llm_config", "m.llm_config>b.llm_config", "slow.out>keep.value", "keep.value>a.tool_0",
            "keep.value>b.tool_0",
        )  # fmt: skip
    assert report.status == "completed", report.error
    assert report.output["outputs"]["a"]["final_answer"] == "kept"
    assert (await one(graphs, "storage/kv", {"key": "k"}))["value"] == "fixed"  # the wire wins over the model


async def test_the_workflow_tools_are_tools_of_an_executor(graphs):
    from stepwell import workflow_tools

    @workflow
    async def main(data: dict, ctx: Context) -> dict:
        nodes = [{"key": "a", "nodeType": "io/input_text", "config": {"text": "x"}}]
        made = await ctx.tools.call("import_workflow", workflow_key="made-here", name="Made", nodes=nodes, edges=[])
        seen = await ctx.tools.call("workflow_inspect", action="list_workflows", limit="5")
        return {"made": made["outcome"], "seen": [item["workflow_key"] for item in seen["data"]]}

    executor = Executor(entrypoints=[Entrypoint("main", main)], tools=workflow_tools())
    handle = await graphs.host.start(project_of(executor, graphs.folder), input={})
    report = await handle.report()
    assert report.output == {"made": "created", "seen": ["made-here"]}, report.error
    assert [tool.mode for tool in workflow_tools(import_mode="manual")] == ["auto", "manual", "auto", "auto"]


async def test_an_agent_cannot_switch_on_what_the_workflow_left_off(graphs):
    (graphs.folder / ".env").write_text("TOKEN=hidden")
    (graphs.folder / "keep.txt").write_text("x")
    asked = [
        {"operation": "delete", "path": "keep.txt", "allow_delete": True},
        {"operation": "read_content", "path": ".env", "config": {"allow_sensitive": True}},
    ]
    script = [{"tool_calls": [{"name": "files", "arguments": arguments}]} for arguments in asked]
    with ScriptedServer([*script, {"text": "done"}]) as server:
        use(graphs, server)
        await graphs.graph(
            {"m": MODEL, "agent": ("agent/react_agent", {"task": "work"}), "files": "tools/file_ops_hub",
             "web": "tools/http", "code": "tools/code_python", "mcp": "tools/mcp_hub"},
            "m.llm_config>agent.llm_config", "files.result>agent.tool_0", "web.body>agent.tool_1",
            "code.result>agent.tool_2", "mcp.result>agent.tool_3",
        )  # fmt: skip
    offered = {
        made["function"]["name"]: set(made["function"]["parameters"]["properties"])
        for made in server.requests[0]["body"]["tools"]
    }
    assert offered["files"] == {"operation", "path", "config"}
    assert "credential_id" not in offered["web"]
    assert offered["code"] == {"script", "input"}
    assert "server_registry" not in offered["mcp"]
    assert (graphs.folder / "keep.txt").exists()
    told = json.dumps(server.requests[2]["body"])
    assert "delete is switched off" in told
    assert "hidden" not in told
