"""What a trace says of tool calls: the truth also where a model was told of a failure or a denial and went on."""

import asyncio

from stepwell import Context, Entrypoint, Executor, tool, workflow
from tests.agents import providers_at
from tests.scripted_model_server import ScriptedServer
from tests.unit.conftest import PROJECT_ID, project_of


@tool
def fetch() -> str:
    """Works."""
    return "fetched"


@tool
def broken() -> str:
    """Fails."""
    raise ValueError("out of order")


@tool(mode="manual")
def send(text: str) -> str:
    """Send."""
    return "sent"


@workflow
async def main(data: dict, ctx: Context) -> str:
    if data.get("directly"):
        await ctx.tools.call("send", text="x")
    return (await ctx.agent().run("go")).text


async def test_a_tool_that_failed_or_was_denied_is_no_success(graphs, tools):
    script = [
        {"tool_calls": [{"name": name, "arguments": given} for name, given in (
            ("fetch", {}), ("broken", {}), ("send", {"text": "a"}), ("nope", {})
        )]},
        {"text": "done"},
    ]  # fmt: skip
    with ScriptedServer(script) as server:
        project = project_of(
            Executor(entrypoints=[Entrypoint("main", main)], tools=(fetch, broken, send)), graphs.folder
        )
        project = project._replace(manifest=project.manifest._replace(providers=providers_at(server)))
        for given in ({}, {"directly": True}):
            handle = await graphs.host.start(project, "main", input=given)
            while not (waiting := graphs.host.approvals(PROJECT_ID).list(status="pending")[0]):
                await asyncio.sleep(0.01)
            seen = tools.call("get_execution_trace", {"archive_ref": handle.run_id, "mode": "tool_calls"})["content"]
            assert f'send pending {{"text": "{"x" if given else "a"}"}}' in seen
            await graphs.host.approvals(PROJECT_ID).deny(waiting[0].id, reason="not today")
            await handle.report()
            seen = tools.call("get_execution_trace", {"archive_ref": handle.run_id, "mode": "tool_calls"})["content"]
            assert " send rejected " in seen
            if not given:
                summary = tools.call("get_execution_trace", {"archive_ref": handle.run_id})["content"]
                assert "fetch ×1, broken ×1 (1 without success), send ×1 (1 without success)" in summary
                assert " fetch success " in seen
                assert " broken failure " in seen
                assert " unknown_tool failure " in seen
