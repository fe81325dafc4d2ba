"""Runs: nodes, events, output, failure, retries, time limits, cancellation, context."""

import asyncio
import contextvars
import math
import threading
import time
from dataclasses import dataclass
from typing import TypedDict

import pytest
from pydantic import BaseModel

from stepwell import Context, Conversation, Entrypoint, Executor, TokenUsage, node, workflow
from stepwell.errors import (
    ConversationRequired,
    EntrypointNotFound,
    ExecutorInvalid,
    InputInvalid,
    InvalidArgument,
    InvalidId,
    RunClosed,
    ScopeUnavailable,
    StorageForbidden,
    StorageUnavailable,
    UsageInvalid,
)
from stepwell.storage.declaration import DataStorage, ScopeModel


@node
async def double(number: int) -> int:
    return number * 2


@node
def triple(number: int) -> int:
    return number * 3


async def test_events_are_one_gap_free_stream_and_the_same_everywhere(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> int:
        ctx.log("hello", level="warning", n=1)
        ctx.progress(1, 2, "half")
        ctx.emit("mine", {"a": 1})
        async with ctx.output("answer") as out:
            await out.write("text")
        return await double(4) + await triple(1)

    handle = await bench.start(main)
    report = await handle.report()
    assert report.output == 11
    assert report.nodes == {"completed": 2}
    assert [event.seq for event in bench.events] == list(range(1, len(bench.events) + 1))
    assert bench.types() == [
        "run.started", "log", "progress", "custom.mine", "output.started", "output.chunk", "output.completed",
        "node.started", "node.completed", "node.started", "node.completed", "run.completed",
    ]  # fmt: skip
    assert [event async for event in handle.events()] == bench.events
    assert bench.runs.all_events(handle.run_id) == bench.events
    assert bench.runs.get(handle.run_id) == report


async def test_nodes_nest_also_in_concurrent_branches(bench):
    @node
    async def inner(n: int) -> int:
        await asyncio.sleep(0.001 * (3 - n))
        return n

    @node
    async def outer(n: int) -> int:
        return await inner(n)

    @workflow
    async def main(data: dict, ctx: Context) -> list:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(outer(n)) for n in range(3)]
        return [task.result() for task in tasks] + list(await asyncio.gather(inner(0), inner(1)))

    assert (await bench.run(main)).output == [0, 1, 2, 0, 1]
    parents = {started["node"]: started["parent"] for started in bench.of("node.started")}
    assert parents == {
        "outer": "", "outer#2": "", "outer#3": "", "outer/inner": "outer", "outer#2/inner": "outer#2",
        "outer#3/inner": "outer#3", "inner": "", "inner#2": "",
    }  # fmt: skip


async def test_outside_a_run_a_node_is_the_plain_function():
    assert await double(2) == 4
    assert triple(2) == 6


async def test_synchronous_nodes_run_in_threads_and_reach_the_context(bench):
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name")

    @node
    def blocking(ctx: Context) -> list:
        ctx.wait(ctx.storage.local.kv.set_value("k", 5))
        return [threading.current_thread() is not threading.main_thread(), name.get(), triple(ctx.wait(double(1)))]

    @workflow
    def main(data: dict, ctx: Context) -> list:
        name.set("kept")
        return [*blocking(ctx), ctx.wait(ctx.storage.local.kv.get_value("k"))]

    assert (await bench.run(main)).output == [True, "kept", 6, 5]


async def test_waiting_on_the_event_loop_is_refused_instead_of_hanging(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> str:
        try:
            ctx.wait(ctx.storage.local.kv.get_value("k"))
        except InvalidArgument as error:
            return error.message
        return "hung"

    assert "event loop" in (await bench.run(main)).output


async def test_retries_show_every_attempt(bench, monkeypatch):
    monkeypatch.setattr("stepwell.authoring.calls.FIRST_RETRY_SECONDS", 0.001)
    calls = []

    @node(retries=2)
    async def flaky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError(f"attempt {len(calls)}")
        return "ok"

    @workflow
    async def main(data: dict, ctx: Context) -> str:
        return await flaky()

    assert (await bench.run(main)).output == "ok"
    assert [retry["attempt"] for retry in bench.of("node.retrying")] == [1, 2]
    calls.clear()

    @node(retries=1)
    async def broken() -> str:
        raise ValueError("always")

    @workflow
    async def failing(data: dict, ctx: Context) -> str:
        return await broken()

    report = await bench.run(failing)
    assert report.status == "failed"
    assert len(bench.of("node.retrying")) == 1


async def test_a_slow_node_is_stopped(bench):
    @node(timeout=0.05)
    async def slow() -> None:
        await asyncio.sleep(30)

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await slow()

    report = await bench.run(main)
    assert report.status == "failed"
    assert report.error["code"] == "node_timeout"
    assert report.error["node"] == "slow"


async def test_a_failure_is_reported_with_its_place_and_its_trace(bench):
    @node
    async def inner() -> None:
        raise KeyError("missing")

    @node
    async def outer() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(inner())

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await outer()

    report = await bench.run(main)
    assert report.status == "failed"
    assert (report.error["type"], report.error["node"]) == ("KeyError", "outer/inner")
    assert "Traceback" not in str(report.error)
    assert "Traceback" in bench.of("node.failed")[0]["traceback"]
    assert report.nodes == {"failed": 2}


@pytest.mark.parametrize("sync", [True, False])
async def test_cancelling_reaches_every_running_node_within_a_second(bench, sync):
    stopped = threading.Event()

    @node
    async def waits() -> None:
        await asyncio.sleep(60)

    @node
    def polls(ctx: Context) -> None:
        ctx.cancelled.wait(60)
        stopped.set()
        ctx_signal.raise_if_set()

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        nonlocal ctx_signal
        ctx_signal = ctx.cancelled
        await asyncio.gather(waits(), polls(ctx) if sync else waits())

    ctx_signal = None
    handle = await bench.start(main)
    await asyncio.sleep(0.1)
    before = time.monotonic()
    handle.cancel("enough")
    report = await handle.report()
    assert report.status == "cancelled"
    assert time.monotonic() - before < 2
    assert bench.events[-1].data["reason"] == "enough"
    assert bench.of("node.cancelled")
    assert stopped.wait(2) or not sync


async def test_code_that_swallows_cancellation_is_given_up(bench, monkeypatch):
    monkeypatch.setattr("stepwell.runtime.runner.CANCEL_GRACE_SECONDS", 0.2)

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        for _ in range(3):
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                continue

    handle = await bench.start(main)
    await asyncio.sleep(0.05)
    handle.cancel()
    assert (await handle.report()).status == "cancelled"


async def test_another_handle_cancels_through_the_journal(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await asyncio.sleep(60)

    handle = await bench.start(main)
    await bench.runs.cancel(handle.run_id)
    assert (await handle.report()).status == "cancelled"


async def test_the_context_is_closed_with_its_run(bench):
    kept = []

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        kept.append(ctx)

    await bench.run(main)
    for name in ("run_id", "storage", "conversation", "knowledge", "token_usage", "files", "cancelled"):
        with pytest.raises(RunClosed):
            getattr(kept[0], name)
    for call in (kept[0].output, kept[0].progress, kept[0].log):
        with pytest.raises(RunClosed):
            call("x")


async def test_background_work_is_waited_for_and_its_failure_counts(bench):
    done = []

    @workflow
    async def main(data: dict, ctx: Context) -> str:
        async def later() -> None:
            await asyncio.sleep(0.05)
            done.append(1)

        ctx.background(later())
        return "first"

    assert (await bench.run(main)).output == "first"
    assert done == [1]

    @workflow
    async def failing(data: dict, ctx: Context) -> None:
        async def later() -> None:
            raise ValueError("behind the scenes")

        ctx.background(later())
        await asyncio.sleep(0.01)

    assert (await bench.run(failing)).error["message"] == "behind the scenes"


@dataclass
class Point:
    x: int
    y: int = 0


class Order(BaseModel):
    item: str
    count: int = 1


class Typed(TypedDict):
    name: str


async def test_inputs_are_validated_at_the_boundary(bench):
    @workflow
    async def dataclassed(data: Point, ctx: Context) -> Point:
        return Point(data.x + 1, data.y)

    @workflow
    async def modelled(data: Order, ctx: Context) -> Order:
        return data

    @workflow
    async def typed(data: Typed) -> str:
        return data["name"]

    assert (await bench.run(dataclassed, input={"x": "4"})).output == {"x": 5, "y": 0}
    assert (await bench.run(modelled, args=["--item", "007", "--count", "2"])).output == {"item": "007", "count": 2}
    assert (await bench.run(typed, args=['{"name": "Ada"}'])).output == "Ada"
    for wrong in (
        {"args": ["--x", "1", "--z", "2"]},
        {"args": ["--x", "abc"]},
        {"args": ["stray", "words"]},
        {"input": {"y": 1}},
        {"args": ["{"]},
    ):
        with pytest.raises((InputInvalid, Exception)) as caught:
            await bench.run(dataclassed, **wrong)
        assert caught.value.kind.exit_code == 2
    assert bench.runs.list()[0][0][0].output == "Ada"


async def test_create_input_may_fail_in_any_way_and_a_workflow_may_take_nothing(bench):
    @workflow
    async def bare() -> int:
        return 1

    assert (await bench.run(bare)).output == 1
    for raised in (RuntimeError("odd"), ValueError("odd"), SystemExit("odd"), KeyError("odd")):

        def create(args, raised=raised):
            raise raised

        with pytest.raises(InputInvalid, match="odd"):
            await bench.run(Executor(entrypoints=[Entrypoint("main", bare, create_input=create)]), args=[])


async def test_outputs_that_are_not_json_fail_with_the_path(bench):
    for value, path in ((math.nan, "$"), ({"a": [math.inf]}, "$.a[0]"), ({1: 2}, "$"), ([object()], "$[0]")):

        @workflow
        async def main(data: dict, ctx: Context, value=value) -> dict:
            return value

        main.function.__annotations__.pop("return")
        report = await bench.run(main)
        assert report.status == "failed", value
        assert report.error["code"] == "output_invalid"
        assert report.error["path"] == path


async def test_big_values_become_files(bench):
    @node
    async def big() -> str:
        return "x" * 5_000_000

    @workflow
    async def main(data: dict, ctx: Context) -> int:
        return len(await big())

    assert (await bench.run(main)).output == 5_000_000
    reference = bench.of("node.completed")[0]["output"]
    assert len(bench.host.files.read(reference["$artifact"])) == reference["size"] == 5_000_002


async def test_secrets_stay_out_of_events_reports_and_errors(bench, monkeypatch, tmp_path):
    canary = "canary-7f3a91c2d4e5b6"
    bench.host.redactor.add(canary)

    @node
    async def leaky(token: str) -> dict:
        return {"password": "hunter2-hunter2", "note": f"the key is {canary}", "token_count": 3}

    @workflow
    async def main(data: dict, ctx: Context) -> str:
        ctx.log(f"using {canary}", url=f"http://x/?k={canary}")
        await leaky(canary)
        async with ctx.output("o") as out:
            await out.write(canary)
        raise ValueError(f"bad key {canary}")

    report = await bench.run(main)
    assert canary not in str(report)
    assert canary not in str(bench.events)
    assert "hunter2" not in str(bench.events)
    assert "'token_count': 3" in str(bench.events)
    for file in (tmp_path / "home").rglob("*"):
        assert not file.is_file() or canary.encode() not in file.read_bytes(), file


async def test_two_runs_at_once_share_nothing_but_the_host(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> list:
        await ctx.storage.local.kv.conversation.set_value("me", ctx.conversation_id)
        await asyncio.sleep(0.01)
        return [ctx.run_id, ctx.conversation_id, await ctx.storage.local.kv.conversation.get_value("me")]

    handles = [await bench.start(main, conversation_id=f"c{n}") for n in range(5)]
    for number, handle in enumerate(handles):
        assert (await handle.report()).output == [handle.run_id, f"c{number}", f"c{number}"]


async def test_conversation_ids_explicit_before_own_before_generated(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> str:
        return ctx.conversation_id

    def create(args, conversation_id):
        return {"conversation_id": args[0]} if args else {}

    executor = Executor(
        project_type="conversation", entrypoints=[Entrypoint("main", main, create_input=create)],
        conversation=Conversation(),
    )  # fmt: skip
    assert (await bench.run(executor, args=["own"], conversation_id="explicit")).output == "explicit"
    assert (await bench.run(executor, args=["own"])).output == "own"
    generated = (await bench.run(executor, args=[])).output
    assert len(generated) == 36
    with pytest.raises(InvalidId):
        await bench.run(executor, args=[], conversation_id="")


async def test_without_a_conversation_titles_are_ignored_and_the_rest_is_refused(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> list:
        await ctx.conversation.set_title("x")
        refused = []
        for call in (
            ctx.conversation.append_message({"role": "user", "content": "x"}), ctx.conversation.get_value(),
            ctx.conversation.messages(),
        ):  # fmt: skip
            try:
                await call
            except ConversationRequired as error:
                refused.append(error.code)
        return refused

    assert (await bench.run(main)).output == ["conversation_required"] * 3


async def test_titles_change_with_an_event(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await ctx.conversation.set_title("  a\n title ")
        await ctx.conversation.set_title("a title")

    await bench.run(Executor(workflow=main, conversation=Conversation(enabled=True)))
    assert bench.of("title.changed") == [{"title": "a title"}]


async def test_storage_follows_the_declaration(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> list:
        codes = []
        for touch in (
            lambda: ctx.storage.local.kv.set_value("k", 1), lambda: ctx.storage.server.kv.get_value("k"),
            lambda: ctx.kv.workflow.set_value("k", 1), lambda: ctx.persistent_value.get_value("k"),
        ):  # fmt: skip
            try:
                await touch()
                codes.append("ok")
            except (StorageForbidden, StorageUnavailable, ScopeUnavailable) as error:
                codes.append(error.code)
        return codes

    async def codes(**manifest):
        return (await bench.run(main, manifest=manifest)).output

    gone, shut, no = "storage_unavailable", "storage_forbidden", "scope_unavailable"
    assert await codes() == ["ok", shut, no, no]
    assert await codes(data_storage=DataStorage.BOTH) == ["ok", gone, no, no]
    assert await codes(data_storage=DataStorage.SERVER) == [shut, gone, no, no]
    assert await codes(scope_model=ScopeModel.WORKFLOW) == ["ok", shut, "ok", gone]


async def test_token_reports_add_up(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> dict:
        report = ctx.token_usage.report
        await asyncio.gather(*(report(input_tokens=10, output_tokens=2, cached_input_tokens=4) for _ in range(20)))
        with pytest.raises(UsageInvalid):
            await report(input_tokens=-1)
        return await ctx.storage.local.kv.get_value("tokenUsage.total")

    point = Entrypoint("main", main, token_usage=TokenUsage(enabled=True))
    report = await bench.run(Executor(entrypoints=[point]), conversation_id="c")
    assert report.tokens == {
        "input": 200, "output": 40, "reasoning": 0, "cache_read": 80, "cache_write": 0, "total": 240, "calls": 20
    }  # fmt: skip
    assert report.output == report.tokens
    again = await bench.run(Executor(entrypoints=[point]), conversation_id="c")
    assert again.output["calls"] == 40
    assert again.tokens["calls"] == 20
    assert len(bench.of("token_usage.reported")) == 20


async def test_switched_off_token_reports_do_nothing(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> object:
        await ctx.token_usage.report(input_tokens=10)
        return await ctx.storage.local.kv.get_value("tokenUsage.total")

    report = await bench.run(main)
    assert (report.output, report.tokens) == (None, None)


def test_wrong_declarations_are_listed_all_at_once():
    @workflow
    async def main(data: dict) -> None: ...

    with pytest.raises(ExecutorInvalid) as caught:
        Executor(
            project_type="nonsense", default_entrypoint="b",
            entrypoints=[Entrypoint("", main), Entrypoint("a", main), Entrypoint("a", lambda: 1)],
        )  # fmt: skip
    assert len(caught.value.data["problems"]) == 5
    with pytest.raises(ExecutorInvalid):
        Executor()
    for wrong in ({"kind": "x"}, {"retries": -1}, {"retries": 1.5}, {"timeout": 0}, {"name": "a/b"}):
        with pytest.raises(ExecutorInvalid):
            node(**wrong)(lambda: 1)


async def test_an_unknown_entrypoint_names_those_there_are(bench):
    @workflow
    async def main(data: dict) -> None: ...

    with pytest.raises(EntrypointNotFound) as caught:
        await bench.run(main, entrypoint="nope")
    assert "main" in caught.value.hint


async def test_runs_are_listed_newest_first_filtered_and_paged(bench):
    from stepwell.errors import InvalidCursor, RunNotFound, RunStateConflict
    from stepwell.store.journal import RunFilter

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        if data.get("fail"):
            raise ValueError("x")

    for number in range(7):
        await bench.run(
            main, input={"message": f"number {number}", "fail": number == 3}, conversation_id=f"c{number % 2}"
        )
    labels, cursor = [], None
    while True:
        page, cursor = bench.runs.list(limit=3, cursor=cursor)
        labels += [label for _, label in page]
        if cursor is None:
            break
    assert labels == [f"number {number}" for number in range(6, -1, -1)]
    assert [label for _, label in bench.runs.list(RunFilter(status="failed"))[0]] == ["number 3"]
    assert len(bench.runs.list(RunFilter(conversation_id="c1"))[0]) == 3
    assert len(bench.runs.list(RunFilter(text="number 5"))[0]) == 1
    assert bench.runs.list(RunFilter(text="x') OR 1=1 --"))[0] == []
    with pytest.raises(InvalidArgument):
        bench.runs.list(RunFilter(status="done"))
    with pytest.raises(InvalidCursor):
        bench.runs.list(cursor="nonsense")
    run_id = bench.runs.list(limit=1)[0][0][0].run_id
    with pytest.raises(RunStateConflict):
        await bench.runs.cancel(run_id)
    await bench.runs.delete(run_id)
    with pytest.raises(RunNotFound):
        bench.runs.get(run_id)
    assert bench.runs.all_events(run_id) == []
