"""When something around a run goes wrong: the disk is full, a watcher raises, the host closes, code does not stop."""

import asyncio

import pytest

from stepwell import Context, Host, TokenUsage, load_settings, node, workflow
from stepwell.authoring.executor import Entrypoint, Executor
from stepwell.errors import ExecutorInvalid, RunClosed, RunStateConflict, StorageUnavailable
from tests.unit.conftest import PROJECT_ID, project_of


@node
async def step(number: int, text: str = "") -> int:
    return number


def fill(journal) -> None:
    """Let the database file grow no further: SQLite then says what it says on a full disk."""

    def limit(connection) -> None:
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")

    journal.file.transaction(limit)


def empty(journal) -> None:
    journal.file.transaction(lambda connection: connection.execute("PRAGMA max_page_count = 1000000"))


async def test_a_full_disk_breaks_a_run_off_without_a_gap_and_it_goes_on_later(bench):
    calls = []

    @node
    async def work(number: int) -> str:
        calls.append(number)
        if number == 40 and calls.count(40) == 1:
            fill(bench.host.journal(PROJECT_ID))
        return "x" * 2_000

    @workflow
    async def main(data: dict, ctx: Context) -> int:
        for number in range(400):
            await work(number)
            if number % 10 == 0:
                await asyncio.sleep(0.002)
        return 400

    handle = await bench.start(main)
    with pytest.raises(StorageUnavailable):
        await handle.report()
    assert len(calls) < 400
    row = bench.runs.get(handle.run_id)
    assert (row.status, row.interrupted) == ("running", True)
    seen = bench.runs.all_events(handle.run_id)
    assert seen == bench.events[: len(seen)]
    empty(bench.host.journal(PROJECT_ID))
    again = await bench.host.resume(project_of(main, bench.folder), handle.run_id)
    assert (await again.report()).output == 400
    events = bench.runs.all_events(handle.run_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert events[: len(seen)] == seen


async def test_a_durable_node_says_so_when_it_cannot_be_recorded(bench):
    went_on = []

    @node(durable=True)
    async def important(text: str) -> str:
        fill(bench.host.journal(PROJECT_ID))
        return text * 50_000

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await important("x")
        went_on.append(1)

    handle = await bench.start(main)
    with pytest.raises(StorageUnavailable):
        await handle.report()
    assert went_on == []


async def test_a_run_id_is_used_once(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> int:
        return await step(1)

    run_id = (await bench.run(main)).run_id
    before = bench.runs.all_events(run_id)
    with pytest.raises(RunStateConflict):
        await bench.run(main, run_id=run_id)
    assert bench.runs.all_events(run_id) == before
    assert bench.runs.get(run_id).status == "completed"


async def test_a_watcher_that_raises_is_removed_and_the_run_goes_on(bench):
    shown = []

    def watch(event) -> None:
        shown.append(event)
        if event.type == "node.started":
            raise OSError("nobody reads any more")

    @workflow
    async def main(data: dict, ctx: Context) -> int:
        return await step(1) + await step(2)

    handle = await bench.host.start(project_of(main, bench.folder), input={}, on_event=watch)
    assert (await handle.report()).output == 3
    assert [event.type for event in shown] == ["run.started", "node.started"]
    events = bench.runs.all_events(handle.run_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert "nobody reads any more" in next(event for event in events if event.type == "log").data["fields"]["traceback"]


async def test_closing_the_host_ends_its_runs_first(tmp_path):
    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await asyncio.sleep(60)

    with pytest.raises(ZeroDivisionError):
        async with Host(load_settings()) as host:
            handle = await host.start(project_of(main, tmp_path), input={})
            raise ZeroDivisionError
    assert (await handle.report()).status == "cancelled"
    async with Host(load_settings()) as host:
        assert host.runs(PROJECT_ID).get(handle.run_id).status == "cancelled"
        assert host.runs(PROJECT_ID).all_events(handle.run_id)[-1].data["reason"] == "the host was closed"


async def test_code_that_was_given_up_can_do_nothing_more(bench, monkeypatch):
    monkeypatch.setattr("stepwell.runtime.runner.CANCEL_GRACE_SECONDS", 0.05)
    go_on, tried = asyncio.Event(), {}

    async def attempt(name: str, operation) -> None:
        try:
            await operation()
            tried[name] = "done"
        except Exception as error:  # noqa: BLE001
            tried[name] = type(error).__name__

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        kv, conversation, usage = ctx.storage.local.kv, ctx.conversation, ctx.token_usage
        knowledge = ctx.knowledge
        async with ctx.output("o") as out:
            while not go_on.is_set():
                try:
                    await go_on.wait()
                except asyncio.CancelledError:
                    continue
            await attempt("kv", lambda: kv.set_value("k", 1))
            await attempt("conversation", lambda: conversation.set_value("k", 1))
            await attempt("usage", lambda: usage.report(input_tokens=1))
            await attempt("knowledge", lambda: knowledge.create_document("t", "m"))
            await attempt("output", lambda: out.write("more"))
            await attempt("node", lambda: step(1))
        tried["end"] = "reached"

    point = Entrypoint("main", main, token_usage=TokenUsage(enabled=True))
    executor = Executor(project_type="conversation", entrypoints=[point])
    handle = await bench.start(executor, conversation_id="c")
    await asyncio.sleep(0.02)
    handle.cancel()
    assert (await handle.report()).status == "cancelled"
    before = bench.runs.all_events(handle.run_id)
    go_on.set()
    while "end" not in tried:
        await asyncio.sleep(0.01)
    assert tried == dict.fromkeys(tried, RunClosed.__name__) | {"end": "reached"}
    assert len(tried) == 7
    assert bench.runs.all_events(handle.run_id) == before


async def test_a_node_that_is_tried_again_starts_its_output_over(bench, monkeypatch):
    monkeypatch.setattr("stepwell.authoring.calls.FIRST_RETRY_SECONDS", 0.001)
    tries = []

    @node(retries=1)
    async def writes(ctx: Context) -> None:
        tries.append(1)
        async with ctx.output("answer") as out:
            await out.write(f"try {len(tries)}")
            if len(tries) == 1:
                raise ValueError("not yet")

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await writes(ctx)

    await bench.run(main)
    shown = [(event.type, event.data.get("text")) for event in bench.events if event.type.startswith("output.")]
    assert shown == [
        ("output.started", None), ("output.chunk", "try 1"), ("output.completed", None),
        ("output.restarted", None), ("output.chunk", "try 2"), ("output.completed", None),
    ]  # fmt: skip


async def test_many_small_chunks_become_few_and_lose_nothing(bench):
    @workflow
    async def main(data: dict, ctx: Context) -> str:
        async with ctx.output("answer") as out:
            for number in range(2_000):
                await out.write(f"{number} ")
        return out.text

    report = await bench.run(main)
    chunks = [chunk["text"] for chunk in bench.of("output.chunk")]
    assert "".join(chunks) == report.output
    assert len(chunks) < 500


def test_what_cannot_be_recorded_or_called_is_refused_where_it_is_declared():
    with pytest.raises(ExecutorInvalid, match="generator"):

        @node
        async def streams():
            yield 1

    with pytest.raises(ExecutorInvalid, match="generator"):

        @workflow
        def yields(data: dict):
            yield 1

    with pytest.raises(ExecutorInvalid, match="third"):

        @workflow
        async def three(data: dict, ctx: Context, third: int) -> None: ...

    with pytest.raises(ExecutorInvalid, match="named"):

        @workflow
        async def keyword(data: dict, *, named: int) -> None: ...


async def test_workflows_take_as_much_as_they_want(bench):
    @workflow
    async def everything(*parts) -> int:
        return len(parts)

    @workflow
    async def nothing() -> int:
        return 0

    @workflow
    async def with_default(data: dict, ctx: Context, extra: int = 5) -> int:
        return extra

    assert [(await bench.run(made)).output for made in (everything, nothing, with_default)] == [2, 0, 5]
