"""`ctx.run_workflow`: modes, bridges, nesting, cancellation."""

import asyncio
import gc
from dataclasses import dataclass

import pytest

from stepwell import Context, Entrypoint, Executor, TokenUsage, node, workflow
from stepwell.errors import OutputBridgeFailed, RunClosed, StepwellError
from stepwell.storage.declaration import ScopeModel


@dataclass
class Order:
    """What the child takes."""

    count: int


@dataclass
class Made:
    """What the child returns."""

    total: int


@node
async def double(number: int) -> int:
    return number * 2


@workflow
async def child(data: Order, ctx: Context) -> Made:
    return Made(await double(data.count))


def talk(made, **more):
    """An executor whose runs have a conversation."""
    point = Entrypoint("main", made, token_usage=TokenUsage(enabled=True))
    return Executor(project_type="conversation", entrypoints=[point, *more.pop("entrypoints", ())], **more)


async def test_a_child_is_one_node_that_holds_the_childs_nodes(bench):
    @workflow
    async def parent(data: dict, ctx: Context) -> list:
        first = await ctx.run_workflow(child, {"count": 2})
        second = await ctx.run_workflow(child, Order(first.total), name="again")
        third = await ctx.run_workflow("other", {"count": 5})
        return [type(first).__name__, second.total, third.total]

    report = await bench.run(Executor(entrypoints=[Entrypoint("main", parent), Entrypoint("other", child)]))
    assert report.output == ["Made", 8, 10], report.error
    started = [(event["node"], event["parent"]) for event in bench.of("node.started")]
    assert started == [
        ("run-workflow", ""), ("run-workflow/double", "run-workflow"),
        ("run-workflow#2", ""), ("run-workflow#2/double", "run-workflow#2"),
        ("run-workflow#3", ""), ("run-workflow#3/double", "run-workflow#3"),
    ]  # fmt: skip
    nested = [event for event in bench.of("node.started") if event["kind"] == "workflow"]
    assert [(event["workflow"], event["title"]) for event in nested] == [
        ("child", "child"), ("child", "again"), ("child", "child")
    ]  # fmt: skip
    assert [event.seq for event in bench.events] == list(range(1, len(bench.events) + 1))
    assert bench.runs.all_events(report.run_id) == bench.events
    assert bench.types().count("run.started") == bench.types().count("run.completed") == 1


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"conversation_mode": "readonly"}, "invalid_argument"),
        ({"kv_mode": "own"}, "invalid_argument"),
        ({"output_visibility": "none"}, "invalid_argument"),
        ({"input": {"count": "many"}}, "input_invalid"),
        ({"child": "nobody"}, "entrypoint_not_found"),
        ({"child": double}, "invalid_argument"),
    ],
)
async def test_what_cannot_be_run_is_refused_before_anything_is_recorded(bench, options, code):
    @workflow
    async def parent(data: dict, ctx: Context) -> None:
        await ctx.run_workflow(**({"child": child, "input": {"count": 1}} | options))

    report = await bench.run(parent)
    assert report.error["code"] == code
    assert not bench.of("node.started")


async def test_a_child_that_returns_what_it_should_not_fails_as_a_run_would(bench):
    @workflow
    async def wrong(data: dict, ctx: Context) -> Made:
        return "no"

    @workflow
    async def parent(data: dict, ctx: Context) -> None:
        await ctx.run_workflow(wrong, {})

    report = await bench.run(parent)
    assert (report.error["code"], report.error["node"]) == ("output_invalid", "run-workflow")


async def test_the_seventeenth_level_fails_with_the_chain(bench):
    depths = []

    @workflow(name="down")
    async def down(data: dict, ctx: Context) -> int:
        depths.append(data["level"])
        return await ctx.run_workflow(down, {"level": data["level"] + 1})

    report = await bench.run(down, input={"level": 0})
    assert depths == list(range(17))
    assert report.error["code"] == "workflow_nesting"
    assert report.error["chain"] == ["down"] * 17
    assert " > ".join(["down"] * 17) in report.error["message"]


async def test_nesting_is_counted_by_place_whatever_context_is_used_and_not_beside(bench):
    @workflow
    async def parent(data: dict, ctx: Context) -> int:
        @workflow
        async def down(level: int, own: Context) -> int:
            return 0 if level == 0 else 1 + await ctx.run_workflow(down, level - 1)

        sixteen = await asyncio.gather(*(ctx.run_workflow(down, 15) for _ in range(3)))
        with pytest.raises(StepwellError, match="17"):
            await ctx.run_workflow(down, 16)
        return sum(sixteen)

    assert (await bench.run(parent)).output == 45


async def test_a_readonly_child_reads_a_snapshot_and_changes_nothing(bench):
    seen = {}

    @workflow
    async def reader(data: dict, ctx: Context) -> dict:
        before = await ctx.conversation.messages()
        await ctx.conversation.append_message({"role": "assistant", "content": "only mine"})
        await ctx.conversation.append_message({"role": "user", "content": "hi", "id": "given"})
        await ctx.conversation.set_value("topic", "cats")
        await ctx.conversation.set_title("Mine")
        seen["state"] = (await ctx.conversation.get_value()).to_dict()
        seen["newest"] = await ctx.conversation.messages(3)
        seen["page"] = await ctx.conversation.messages(2, before=3)
        return {"before": [message["content"] for message in before]}

    @workflow
    async def parent(data: dict, ctx: Context) -> dict:
        await ctx.conversation.append_message({"role": "user", "content": "hi", "id": "given"})
        await ctx.conversation.append_message({"role": "user", "content": "two"})
        await ctx.conversation.set_value("topic", "dogs")
        await ctx.conversation.set_title("Ours")
        before = await ctx.conversation.get_value()
        running = asyncio.ensure_future(ctx.run_workflow(reader, {}, conversation_mode="shared-readonly"))
        result = await running
        assert await ctx.conversation.get_value() == before
        return result

    report = await bench.run(talk(parent))
    assert report.output == {"before": ["hi", "two"]}, report.error
    assert [m["content"] for m in seen["state"]["messages"]] == ["hi", "two", "only mine"]
    assert [m["seq"] for m in seen["newest"]] == [1, 2, 3]
    assert [m["seq"] for m in seen["page"]] == [1, 2]
    assert (seen["state"]["title"], seen["state"]["values"]) == ("Mine", {"topic": "cats"})
    assert [event["title"] for event in bench.of("title.changed")] == ["Ours"]


async def test_a_snapshot_does_not_see_what_comes_later(bench):
    ready, go = asyncio.Event(), asyncio.Event()

    @workflow
    async def reader(data: dict, ctx: Context) -> list:
        ready.set()
        await go.wait()
        await ctx.conversation.append_message({"role": "user", "content": "late", "id": "later"})
        state = await ctx.conversation.get_value()
        return [[message["content"] for message in state.messages], state.values]

    @workflow
    async def parent(data: dict, ctx: Context) -> list:
        await ctx.conversation.append_message({"role": "user", "content": "early"})
        running = asyncio.ensure_future(ctx.run_workflow(reader, {}, conversation_mode="shared-readonly"))
        await ready.wait()
        await ctx.conversation.append_message({"role": "user", "content": "another", "id": "later"})
        await ctx.conversation.set_value("topic", "late")
        go.set()
        return await running

    assert (await bench.run(talk(parent))).output == [["early", "late"], {}]


async def test_isolated_children_share_no_kv_with_anybody_but_themselves(bench):
    found = {}

    @workflow(name="a")
    async def outer(data: dict, ctx: Context) -> None:
        await touch(ctx, "a")
        await ctx.run_workflow(named("b:c"), {}, kv_mode="isolated")
        await ctx.run_workflow(named("b"), {}, kv_mode="isolated")

    async def touch(ctx: Context, who: str) -> None:
        for kv in (ctx.storage.local.kv, ctx.storage.local.kv.conversation):
            found.setdefault(who, []).append(await kv.get_value("key"))
            await kv.set_value("key", who)
        await ctx.storage.local.persistent_value.set_value(f"from {who}", 1)

    def named(name: str):
        @workflow(name=name)
        async def made(data: dict, ctx: Context) -> None:
            await touch(ctx, name)

        return made

    @workflow
    async def parent(data: dict, ctx: Context) -> list:
        for key in ("key", "a:key", "a/key", "a/b:key", "isolated:a:key"):
            await ctx.storage.local.kv.set_value(key, "parent")
        await ctx.run_workflow(outer, {}, kv_mode="isolated")
        await ctx.run_workflow(named("a/b"), {}, kv_mode="isolated")
        await ctx.run_workflow(named("a:b"), {}, kv_mode="isolated")
        await ctx.run_workflow(named("shared"), {})
        await ctx.run_workflow(named("a:b"), {}, kv_mode="isolated", name="shown otherwise")
        values = [e.value async for e in ctx.storage.local.kv.scan()]
        return [values, [e.key async for e in ctx.storage.local.persistent_value.scan()]]

    report = await bench.run(talk(parent))
    assert report.status == "completed", report.error
    assert found == {
        "a": [None, None], "b:c": [None, None], "b": [None, None], "a/b": [None, None],
        "a:b": [None, None, "a:b", "a:b"], "shared": ["parent", None],
    }  # fmt: skip
    values, persistent = report.output
    assert sorted(value for value in values if isinstance(value, str)) == ["parent"] * 4 + ["shared"]
    assert persistent == ["from a", "from a/b", "from a:b", "from b", "from b:c", "from shared"]


async def test_isolation_in_the_workflow_scope_model_leaves_the_global_scope_shared(bench):
    @workflow(name="inner")
    async def inner(data: dict, ctx: Context) -> list:
        seen = [await kv.get_value("key") for kv in (ctx.kv, ctx.kv.workflow, ctx.kv.conversation)]
        for kv in (ctx.kv, ctx.kv.workflow, ctx.kv.conversation):
            await kv.set_value("key", "inner")
        return seen

    @workflow(name="outer")
    async def outer(data: dict, ctx: Context) -> list:
        for kv in (ctx.kv, ctx.kv.workflow, ctx.kv.conversation):
            await kv.set_value("key", "outer")
        first = await ctx.run_workflow(inner, {}, kv_mode="isolated")
        second = await ctx.run_workflow(inner, {}, kv_mode="isolated")
        now = [await kv.get_value("key") for kv in (ctx.kv, ctx.kv.workflow, ctx.kv.conversation)]
        return [first, second, now]

    report = await bench.run(talk(outer), manifest={"scope_model": ScopeModel.WORKFLOW})
    assert report.output == [["outer", None, None], ["inner"] * 3, ["inner", "outer", "outer"]], report.error


def speaking(*texts: str, name: str = "speaking"):
    @workflow(name=name)
    async def made(data: dict, ctx: Context) -> str:
        async with ctx.output("said") as out:
            for text in texts:
                await out.write(text)
        return "".join(texts)

    return made


async def test_bridges_get_chunks_in_order_or_the_payload_once(bench):
    got = []

    @workflow
    async def parent(data: dict, ctx: Context) -> None:
        async def slowly(text: str) -> None:
            await asyncio.sleep(0.001)
            got.append(("chunk", text))

        both = {"on_output": lambda value: got.append(("payload", value)), "on_output_chunk": slowly}
        await ctx.run_workflow(speaking("a", "b", "c"), {}, **both)
        await ctx.run_workflow(child, {"count": 1}, **both)
        await ctx.run_workflow(speaking("x", "y"), {}, on_output=both["on_output"])

    assert (await bench.run(parent)).status == "completed"
    assert got == [
        ("chunk", "a"), ("chunk", "b"), ("chunk", "c"), ("payload", Made(2)), ("payload", "xy")
    ]  # fmt: skip


async def test_hidden_output_is_no_part_of_what_is_shown_and_reaches_the_bridge(bench):
    got = []

    @workflow
    async def middle(data: dict, ctx: Context) -> None:
        await ctx.run_workflow(speaking("seen "), {})
        await ctx.run_workflow(speaking("kept"), {}, output_visibility="hidden")

    @workflow
    async def parent(data: dict, ctx: Context) -> None:
        await ctx.run_workflow(middle, {}, output_visibility="hidden", on_output_chunk=got.append)
        async with ctx.output("answer") as out:
            await ctx.run_workflow(speaking("hel", "lo"), {}, output_visibility="hidden", on_output_chunk=out.write)

    report = await bench.run(parent)
    assert report.status == "completed", report.error
    assert got == ["seen "]
    assert [event["item"] for event in bench.of("output.started", "output.completed")] == ["@answer", "@answer"]
    assert "".join(event["text"] for event in bench.of("output.chunk")) == "hello"
    assert [event["text"] for event in bench.of("output.hidden")] == ["seen ", "kept", "hello"]


@pytest.mark.parametrize("kind", ["chunk", "payload"])
async def test_a_failing_bridge_fails_the_call_at_once(bench, kind):
    ended = []

    @workflow
    async def endless(data: dict, ctx: Context) -> str:
        async def tick() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("background")

        try:
            ctx.background(tick())
            await asyncio.sleep(0)
            async with ctx.output() as out:
                await out.write("one")
                ended.append("went on")
                await asyncio.sleep(60)
        except Exception:  # noqa: BLE001  (no code of the child can hide the failure)
            ended.append("caught")
        finally:
            ended.append("unwound")
        return "done"

    @workflow
    async def parent(data: dict, ctx: Context) -> str:
        def broken(what: str) -> None:
            raise KeyError(what)

        child_ = endless if kind == "chunk" else speaking("one")
        handler = {"on_output_chunk": broken} if kind == "chunk" else {"on_output": broken}
        with pytest.raises(OutputBridgeFailed) as failed:
            await ctx.run_workflow(child_, {}, **handler)
        assert failed.value.output_bridge_failed is True
        assert isinstance(failed.value.__cause__, KeyError)
        raise failed.value

    async with asyncio.timeout(5):
        report = await bench.run(parent)
    assert report.error["code"] == "output_bridge_failed"
    assert report.error["output_bridge_failed"] is True
    assert ended == (["unwound", "background"] if kind == "chunk" else [])
    failed = bench.of("node.failed")
    assert [event["node"] for event in failed] == ["run-workflow"]


@pytest.mark.filterwarnings("ignore:coroutine 'Output.write' was never awaited")  # asked for by a cancelled thread
async def test_a_bridge_fails_a_child_that_writes_from_threads_and_branches(bench):
    @node
    def write(ctx: Context, name: str) -> None:
        out = ctx.output(name)
        ctx.wait(out.__aenter__())
        for number in range(1000):
            ctx.wait(out.write(f"{name}{number} "))

    @workflow
    async def busy(data: dict, ctx: Context) -> None:
        await asyncio.gather(*(write(ctx, name) for name in "abc"), return_exceptions=True)

    got = []

    @workflow
    async def parent(data: dict, ctx: Context) -> str:
        async def broken(text: str) -> None:
            got.append(text)
            await asyncio.sleep(0.002)
            if len(got) == 5:
                raise OSError("full")

        with pytest.raises(OutputBridgeFailed, match="full"):
            await ctx.run_workflow(busy, {}, on_output_chunk=broken)
        return "went on"

    async with asyncio.timeout(10):
        report = await bench.run(parent)
    gc.collect()
    assert (report.output, len(got)) == ("went on", 5), report.error


async def test_a_bridge_that_fails_below_fails_where_it_belongs(bench):
    @workflow
    async def middle(data: dict, ctx: Context) -> str:
        try:
            return await ctx.run_workflow(speaking("x"), {})
        except OutputBridgeFailed:
            return "hidden by the child"

    @workflow
    async def parent(data: dict, ctx: Context) -> str:
        try:
            return await ctx.run_workflow(middle, {}, on_output_chunk=lambda text: 1 / 0)
        except OutputBridgeFailed as error:
            return error.code

    assert (await bench.run(parent)).output == "output_bridge_failed"


async def test_parent_and_child_usage_are_one(bench):
    @workflow
    async def counting(data: dict, ctx: Context) -> None:
        await ctx.token_usage.report(input_tokens=10, output_tokens=1)

    @workflow
    async def parent(data: dict, ctx: Context) -> dict:
        await ctx.token_usage.report(input_tokens=1, output_tokens=1)
        await asyncio.gather(*(ctx.run_workflow(counting, {}, kv_mode="isolated") for _ in range(5)))
        return await ctx.storage.host.kv.get_value("tokenUsage.total")

    report = await bench.run(talk(parent))
    assert (report.tokens["input"], report.tokens["calls"]) == (51, 6)
    assert report.output == report.tokens


async def test_cancelling_reaches_children_and_their_background_tasks(bench):
    ended = []

    async def wait(name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(name)

    @workflow
    async def deep(data: dict, ctx: Context) -> None:
        ctx.background(wait("background"))
        ctx.emit("there")
        await wait("deep")

    @workflow
    async def middle(data: dict, ctx: Context) -> None:
        await ctx.run_workflow(deep, {})

    @workflow
    async def parent(data: dict, ctx: Context) -> None:
        await ctx.run_workflow(middle, {})

    handle = await bench.start(parent)
    while "custom.there" not in bench.types():
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.01)
    async with asyncio.timeout(1):
        handle.cancel()
        report = await handle.report()
    assert report.status == "cancelled"
    assert sorted(ended) == ["background", "deep"]
    assert [event["node"] for event in bench.of("node.cancelled")] == ["run-workflow/run-workflow", "run-workflow"]


async def test_a_child_ends_with_its_background_tasks_and_its_context_with_it(bench):
    kept = []

    @workflow
    async def busy(data: dict, ctx: Context) -> str:
        async def later() -> None:
            await asyncio.sleep(0.02)
            await double(1)

        ctx.background(later())
        kept.append(ctx)
        return "back"

    @workflow
    async def parent(data: dict, ctx: Context) -> str:
        result = await ctx.run_workflow(busy, {})
        with pytest.raises(RunClosed):
            kept[0].progress(1)
        ctx.progress(1)
        return result

    report = await bench.run(parent)
    assert report.output == "back", report.error
    ends = [event["node"] for event in bench.of("node.completed")]
    assert ends == ["run-workflow/double", "run-workflow"]


async def test_a_childs_background_failure_fails_the_call_when_it_happens(bench):
    @workflow
    async def busy(data: dict, ctx: Context) -> None:
        async def fail() -> None:
            raise ValueError("beside")

        ctx.background(fail())
        await asyncio.sleep(60)

    @workflow
    async def parent(data: dict, ctx: Context) -> str:
        try:
            await ctx.run_workflow(busy, {})
        except ValueError as error:
            return f"handled {error}"
        return "not here"

    async with asyncio.timeout(5):
        report = await bench.run(parent)
    assert report.output == "handled beside"


async def test_a_background_failure_fails_the_run_when_it_happens(bench):
    @workflow
    async def parent(data: dict, ctx: Context) -> None:
        async def fail() -> None:
            await asyncio.sleep(0.01)
            raise ValueError("beside")

        ctx.background(fail())
        await asyncio.sleep(60)

    async with asyncio.timeout(5):
        report = await bench.run(parent)
    assert (report.status, report.error["message"]) == ("failed", "beside")


async def test_synchronous_code_runs_children_too(bench):
    @workflow
    def sync_child(data: dict, ctx: Context) -> int:
        return double(data["n"])

    @node
    def ask(ctx: Context) -> int:
        return ctx.wait(ctx.run_workflow(sync_child, {"n": 4}))

    @workflow
    async def parent(data: dict, ctx: Context) -> int:
        return await ask(ctx)

    assert (await bench.run(parent)).output == 8
    assert "ask/run-workflow/double" in [event["node"] for event in bench.of("node.completed")]


async def test_hooks_go_around_every_node_also_of_children(bench):
    seen = []

    async def note(call, proceed):
        seen.append(f"> {call.path} {call.kind}")
        result = await proceed()
        seen.append(f"< {call.path}")
        return result

    async def change(call, proceed):
        if call.name == "double" and call.arguments["number"] == 13:
            raise PermissionError("not 13")
        result = await proceed()
        return result + 1 if call.name == "double" else result

    @workflow
    async def parent(data: dict, ctx: Context) -> int:
        made = await ctx.run_workflow(child, {"count": data["n"]})
        return made.total

    executor = Executor(entrypoints=[Entrypoint("main", parent)], node_hooks=[note, change])
    assert (await bench.run(executor, input={"n": 2})).output == 5
    assert seen == [
        "> run-workflow workflow", "> run-workflow/double code", "< run-workflow/double", "< run-workflow"
    ]  # fmt: skip
    report = await bench.run(executor, input={"n": 13})
    assert (report.error["type"], report.error["node"]) == ("PermissionError", "run-workflow/double")


def test_a_hook_is_declared_as_one():
    with pytest.raises(StepwellError, match="node hook"):
        Executor(entrypoints=[Entrypoint("main", child)], node_hooks=[lambda call, proceed: None])
