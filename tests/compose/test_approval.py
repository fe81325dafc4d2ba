"""A child that waits for a person releases the whole run, and goes on in another process."""

from stepwell import Context, Entrypoint, Executor, Host, TokenUsage, load_settings, tool, workflow
from tests.unit.conftest import PROJECT_ID, project_of

DELETED = []


@tool(mode="manual")
def delete(name: str) -> str:
    """Delete something."""
    DELETED.append(name)
    return f"deleted {name}"


@workflow
async def careful(data: dict, ctx: Context) -> str:
    async with ctx.output("said") as out:
        await out.write("asking ")
        done = await ctx.tools.call("delete", name=data["name"])
        await out.write(done)
    return done


@workflow
async def parent(data: dict, ctx: Context) -> str:
    async with ctx.output("answer") as out:
        await ctx.run_workflow(careful, {"name": "x"}, output_visibility="hidden", on_output_chunk=out.write)
    return out.text


async def test_a_child_waits_for_a_person_beyond_its_process(tmp_path):
    DELETED.clear()
    point = Entrypoint("main", parent, token_usage=TokenUsage(enabled=True))
    project = project_of(Executor(entrypoints=[point], tools=[delete]), tmp_path)
    async with Host(load_settings()) as host:
        waiting = await (await host.start(project, input={})).report()
        assert (waiting.status, DELETED) == ("waiting_input", [])
    async with Host(load_settings()) as host:
        (request,), _ = host.approvals(PROJECT_ID).list()
        await host.approvals(PROJECT_ID).approve(request.id)
        report = await (await host.resume(project, waiting.run_id)).report()
        assert (report.output, DELETED) == ("asking deleted x", ["x"]), report.error
        events = host.runs(PROJECT_ID).all_events(report.run_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    shown = [event.data["text"] for event in events if event.type == "output.chunk"]
    assert "".join(shown) == "asking deleted x"
    assert "output.restarted" not in [event.type for event in events]
