"""Manual tools: a run waits for a person, its process goes, the answer comes from elsewhere, once."""

import asyncio
import json

import pytest

from stepwell import (
    Context,
    Entrypoint,
    Executor,
    Host,
    TokenUsage,
    create_tool_approval_gate,
    load_settings,
    tool,
    workflow,
)
from stepwell.errors import ApprovalConflict, ApprovalNotFound, InvalidArgument, ToolDenied, ToolNotFound
from tests.agents import AgentBench, providers_at
from tests.unit.conftest import PROJECT_ID

deleted: list[str] = []


@tool(mode="manual")
def delete_file(path: str) -> str:
    """Delete a file."""
    deleted.append(path)
    return f"deleted {path}"


@tool
async def look_up(city: str, ctx: Context) -> dict:
    """Look a city up."""
    return {"city": city, "run": ctx.run_id}


@workflow
async def clean(data: dict, ctx: Context) -> str:
    looked = await ctx.tools.call("look_up", city="Bern")
    return f"{looked['city']}: {await ctx.tools.call('delete_file', path='a.txt')}"


def executor_of(made, *tools) -> Executor:
    point = Entrypoint("main", made, token_usage=TokenUsage(enabled=True))
    return Executor(entrypoints=[point], tools=tools or (delete_file, look_up))


@pytest.fixture(autouse=True)
def _nothing_deleted():
    deleted.clear()


@pytest.fixture
async def elsewhere(bench):
    """Another host with the same data, as another process would have it."""
    async with Host(load_settings()) as host:
        other = AgentBench(host, bench.folder)
        other.providers = bench.providers
        yield other


async def waiting(bench, made=clean, *tools):
    """Start, wait until the run was released, and give its report and its request."""
    report = await bench.run(executor_of(made, *tools))
    assert report.status == "waiting_input"
    (pending,), _ = bench.host.approvals(PROJECT_ID).list(status="pending")
    return report, pending


async def test_an_approved_call_is_made_once_by_a_run_that_was_released(bench, elsewhere):
    report, pending = await waiting(bench)
    assert (pending.tool, pending.arguments, pending.run_id) == ("delete_file", {"path": "a.txt"}, report.run_id)
    assert bench.types()[-1] == "run.waiting"
    assert not bench.runs.get(report.run_id).interrupted
    assert deleted == []
    approvals = elsewhere.host.approvals(PROJECT_ID)
    assert (await approvals.approve(pending.id, reason="go on")).status == "approved"
    handle = await approvals.settle(elsewhere.project(executor_of(clean)), pending.id)
    done = await handle.report()
    assert (done.status, done.output, deleted) == ("completed", "Bern: deleted a.txt", ["a.txt"])
    events = elsewhere.runs.all_events(report.run_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    types = [event.type for event in events]
    assert types.count("tool.requested") == 2
    assert types.count("tool.approved") == 1
    assert types.index("run.waiting") < types.index("run.resumed") < types.index("tool.approved")
    assert await approvals.settle(elsewhere.project(executor_of(clean)), pending.id) is None


async def test_a_second_answer_changes_nothing_and_says_so(bench):
    _, pending = await waiting(bench)
    approvals = bench.host.approvals(PROJECT_ID)
    first, *others = await asyncio.gather(
        approvals.approve(pending.id), approvals.approve(pending.id), approvals.deny(pending.id), return_exceptions=True
    )
    assert first.status == "approved"
    assert [type(other) for other in others] == [ApprovalConflict, ApprovalConflict]
    with pytest.raises(ApprovalConflict, match="approved already"):
        await approvals.approve(pending.id, arguments={"path": "other"})
    assert approvals.get(pending.id) == first
    for forged in ("", "x", "01936d3f-6a00-7000-8000-0000000000aa", "ü"):
        with pytest.raises(ApprovalNotFound):
            await approvals.approve(forged)
    await (await approvals.settle(bench.project(executor_of(clean)), pending.id)).report()
    with pytest.raises(ApprovalConflict):
        await approvals.approve(pending.id)
    assert deleted == ["a.txt"]


async def test_edited_arguments_are_used_and_recorded_with_both_versions(bench):
    report, pending = await waiting(bench)
    approvals = bench.host.approvals(PROJECT_ID)
    with pytest.raises(InvalidArgument, match="JSON object"):
        await approvals.approve(pending.id, arguments=["a"])
    await approvals.approve(pending.id, arguments={"path": "b.txt"})
    done = await bench.resume(executor_of(clean), report.run_id)
    assert (done.output, deleted) == ("Bern: deleted b.txt", ["b.txt"])
    (event,) = bench.of("tool.approved")
    assert (event["edited"], event["arguments"], event["requested_arguments"]) == (
        True, {"path": "b.txt"}, {"path": "a.txt"}
    )  # fmt: skip


async def test_a_denied_call_fails_with_the_reason(bench):
    report, pending = await waiting(bench)
    await bench.host.approvals(PROJECT_ID).deny(pending.id, reason="too dangerous")
    done = await bench.resume(executor_of(clean), report.run_id)
    assert (done.status, done.error["code"], done.error["reason"]) == ("failed", "tool_denied", "too dangerous")
    assert (bench.of("tool.denied")[0]["reason"], deleted) == ("too dangerous", [])


async def test_a_run_that_is_busy_takes_the_answer_without_being_released(bench):
    @workflow
    async def busy(data: dict, ctx: Context) -> list:
        async def work() -> str:
            await look_up_slowly(ctx)
            return "worked"

        return list(await asyncio.gather(work(), ctx.tools.call("delete_file", path="a.txt")))

    from stepwell import node

    @node
    async def look_up_slowly(ctx: Context) -> None:
        await asyncio.sleep(1.2)

    handle = await bench.start(executor_of(busy))
    approvals = bench.host.approvals(PROJECT_ID)
    while not (found := approvals.list(status="pending")[0]):
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.5)
    assert bench.runs.get(handle.run_id).status == "waiting_input"
    await approvals.approve(found[0].id)
    assert await approvals.settle(bench.project(executor_of(busy)), found[0].id) is None
    report = await handle.report()
    assert report.output == ["worked", "deleted a.txt"]
    assert "run.waiting" not in bench.types()


async def test_two_requests_at_once_are_answered_one_by_one(bench):
    @workflow
    async def two(data: dict, ctx: Context) -> list:
        return list(await asyncio.gather(*(ctx.tools.call("delete_file", path=path) for path in ("a", "b"))))

    report = await bench.run(executor_of(two))
    approvals = bench.host.approvals(PROJECT_ID)
    pending = {one.arguments["path"]: one.id for one in approvals.list(run_id=report.run_id, status="pending")[0]}
    assert set(pending) == {"a", "b"}
    await approvals.approve(pending["b"])
    assert (await bench.resume(executor_of(two), report.run_id)).status == "waiting_input"
    assert deleted == ["b"]
    await approvals.approve(pending["a"])
    assert (await bench.resume(executor_of(two), report.run_id)).output == ["deleted a", "deleted b"]
    assert deleted == ["b", "a"]


async def test_nobody_answering_in_time_is_a_denial(bench):
    @tool(mode="manual", approval_timeout=0.6)
    def risky() -> str:
        """Do it."""
        deleted.append("risky")
        return "done"

    @workflow
    async def main(data: dict, ctx: Context) -> str:
        try:
            return await ctx.tools.call("risky")
        except ToolDenied as denied:
            return denied.message

    report, pending = await waiting(bench, main, risky)
    await asyncio.sleep(0.5)
    approvals = bench.host.approvals(PROJECT_ID)
    assert [one.id for one in approvals.list(status="expired")[0]] == [pending.id]
    with pytest.raises(ApprovalConflict, match="expired"):
        await approvals.approve(pending.id)
    done = await bench.resume(executor_of(main, risky), report.run_id)
    assert done.output == "the call of risky was denied: nobody answered in time"
    assert deleted == []


async def test_a_cancelled_run_takes_its_requests_with_it(bench):
    report, pending = await waiting(bench)
    assert (await bench.runs.cancel(report.run_id)).status == "cancelled"
    approvals = bench.host.approvals(PROJECT_ID)
    assert approvals.get(pending.id).status == "withdrawn"
    with pytest.raises(ApprovalConflict, match="withdrawn"):
        await approvals.approve(pending.id)
    await bench.runs.delete(report.run_id)
    with pytest.raises(ApprovalNotFound):
        approvals.get(pending.id)


async def test_modes_are_kept_for_the_project_and_decide_at_once(bench, elsewhere):
    approvals = bench.host.approvals(PROJECT_ID)
    await approvals.set_mode("delete_file", "auto")
    assert elsewhere.host.approvals(PROJECT_ID).modes() == {"delete_file": "auto"}
    assert (await bench.run(executor_of(clean))).output == "Bern: deleted a.txt"
    await elsewhere.host.approvals(PROJECT_ID).set_mode("delete_file", "disabled")
    assert (await bench.run(executor_of(clean))).error["code"] == "tool_disabled"
    await approvals.set_mode("delete_file", None)
    assert (await bench.run(executor_of(clean))).status == "waiting_input"
    with pytest.raises(InvalidArgument, match="sometimes"):
        await approvals.set_mode("delete_file", "sometimes")


async def test_wrong_arguments_and_unknown_tools_reach_nobody(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> None:
        with pytest.raises(ToolNotFound, match="nothing"):
            await ctx.tools.call("nothing")
        await ctx.tools.call("delete_file", path=3)

    assert (await bench.run(executor_of(main))).error["code"] == "tool_arguments_invalid"
    assert bench.host.approvals(PROJECT_ID).list()[0] == []


async def test_the_gate_gives_other_sdks_the_same_approval(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> list:
        gate = create_tool_approval_gate(ctx, hold=0)
        allowed = await gate("look_up", {"city": "Bern"})
        asked = await gate("shell", {"command": "rm -r ."})
        return [allowed.approved, asked.approved, asked.arguments, asked.reason]

    report, pending = await waiting(bench, main)
    assert (pending.tool, pending.arguments) == ("shell", {"command": "rm -r ."})
    await bench.host.approvals(PROJECT_ID).approve(pending.id, arguments={"command": "ls"}, reason="safer")
    done = await bench.resume(executor_of(main), report.run_id)
    assert done.output == [True, True, {"command": "ls"}, "safer"]


async def test_the_gate_holds_the_process_while_somebody_may_answer(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> bool:
        return (await create_tool_approval_gate(ctx)("shell", {"command": "ls"})).approved

    handle = await bench.start(executor_of(main))
    approvals = bench.host.approvals(PROJECT_ID)
    await asyncio.sleep(0.8)
    (pending,), _ = approvals.list(status="pending")
    await approvals.approve(pending.id)
    assert (await handle.report()).output is True


async def test_an_agent_cannot_answer_for_itself_through_storage(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> list:
        found = [entry.key async for entry in ctx.storage.host.kv.scan("")]
        await ctx.tools.call("delete_file", path="a.txt")
        return found

    report, pending = await waiting(bench, main)
    namespaces = await bench.host.local_stores.backend(PROJECT_ID, _kv()).namespaces(project_id=PROJECT_ID)
    assert pending.id not in json.dumps([str(namespace) for namespace in namespaces])
    assert (await bench.resume(executor_of(main), report.run_id)).status == "waiting_input"


def _kv():
    from stepwell.store.entries import Domain

    return Domain.KV


async def test_secrets_in_arguments_are_masked_for_people_and_whole_for_the_tool(bench, serve):
    bench.providers = providers_at(serve({"text": "x"}))
    bench.host.redactor.add("very-secret-value")

    @workflow
    async def main(data: dict, ctx: Context) -> str:
        await ctx.tools.call("delete_file", path="very-secret-value")
        return "ok"

    report, pending = await waiting(bench, main)
    assert pending.arguments == {"path": "[redacted]"}
    await bench.host.approvals(PROJECT_ID).approve(pending.id)
    assert (await bench.resume(executor_of(main), report.run_id)).status == "completed"
    assert deleted == ["very-secret-value"]
