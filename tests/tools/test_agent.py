"""`ctx.agent()`: model → tools → model over real HTTP; limits, order, conversations, resumption."""

import asyncio
import json

import pytest
from pydantic import BaseModel

from stepwell import Context, Conversation, Entrypoint, Executor, TokenUsage, tool, workflow
from stepwell.conversation.messages import paired_messages
from stepwell.errors import StorageUnavailable
from tests.agents import TYPES, USAGE, providers_at
from tests.unit.conftest import PROJECT_ID

done: list[str] = []


@tool
async def weather(city: str) -> dict:
    """The weather of a city."""
    done.append(f"weather {city}")
    return {"city": city, "degrees": 21}


@tool(mode="manual")
def send(text: str) -> str:
    """Send a message."""
    done.append(f"send {text}")
    return "sent"


@tool
def broken() -> None:
    """Fails."""
    raise ValueError("out of order")


@workflow
async def main(data: dict, ctx: Context) -> dict:
    result = await ctx.agent(llm=data.get("llm"), system="Be brief.").run(data.get("ask", "How is Bern?"))
    return {"text": result.text, "turns": result.turns, "tokens": result.tokens}


def executor_of(made=main, *, conversation: bool = False, tools=(weather, send, broken)) -> Executor:
    point = Entrypoint("main", made, token_usage=TokenUsage(enabled=True))
    return Executor(entrypoints=[point], tools=tools, conversation=Conversation() if conversation else None)


def wants(name: str, arguments, **more) -> dict:
    return {"tool_calls": [{"name": name, "arguments": arguments, "id": f"call_{name}"}], "usage": USAGE, **more}


@pytest.fixture(autouse=True)
def _nothing_done():
    done.clear()


@pytest.mark.parametrize("kind", TYPES)
async def test_the_loop_ends_with_the_answer_and_counts_every_turn(bench, serve, kind):
    server = serve(wants("weather", {"city": "Bern"}, text="Let me look."), {"text": "It is {last}", "usage": USAGE})
    bench.providers = providers_at(server)
    report = await bench.run(executor_of(), input={"llm": kind})
    assert report.output["turns"] == 2
    assert (report.output["tokens"], report.tokens["total"], report.tokens["calls"]) == (240, 240, 2)
    assert done == ["weather Bern"]
    assert "21" in report.output["text"]
    offered = json.dumps(server.requests[0]["body"])
    assert all(f'"{name}"' in offered for name in ("weather", "send", "broken"))
    types = [kind for kind in bench.types() if kind.startswith(("output.", "tool."))]
    texts = ["output.started", "output.chunk", "output.completed"]
    assert [kind for n, kind in enumerate(types) if kind != types[n - 1] or n == 0] == [
        *texts, "tool.requested", "tool.completed", *texts
    ]  # fmt: skip


async def test_a_models_mistakes_are_told_to_it(bench, serve):
    calls = [
        {"name": "weather", "arguments": "{broken json"}, {"name": "weather", "arguments": {"town": "Bern"}},
        {"name": "nothing", "arguments": {}}, {"name": "broken", "arguments": {}},
    ]  # fmt: skip
    calls = [call | {"id": f"c{number}"} for number, call in enumerate(calls)]
    server = serve({"tool_calls": calls, "usage": USAGE}, {"text": "sorry"})
    bench.providers = providers_at(server)
    report = await bench.run(executor_of())
    assert report.output["text"] == "sorry"
    told = [message["content"] for message in server.requests[1]["body"]["messages"] if message["role"] == "tool"]
    assert "not a JSON object" in told[0]
    assert "city: Field required" in told[1]
    assert "There is no tool 'nothing'" in told[2]
    assert "ValueError: out of order" in told[3]
    assert [event["is_error"] for event in bench.of("tool.completed")] == [True] * 4


async def test_turns_and_tokens_are_bounded(bench, serve):
    server = serve(wants("weather", {"city": "Bern"}))
    bench.providers = providers_at(server)

    @workflow
    async def bounded(data: dict, ctx: Context) -> str:
        return (await ctx.agent(tools=[weather], **data).run("go")).text

    report = await bench.run(executor_of(bounded), input={"max_turns": 3})
    assert (report.error["code"], report.error["turns"], len(server.requests)) == ("agent_limit", 3, 3)
    report = await bench.run(executor_of(bounded), input={"max_tokens": 200})
    assert (report.error["code"], report.error["tokens"]) == ("agent_limit", 240)
    report = await bench.run(executor_of(bounded), input={"max_turns": 0})
    assert report.error["code"] == "invalid_argument"


async def test_a_disabled_tool_is_not_offered(bench, serve):
    server = serve({"text": "ok"})
    bench.providers = providers_at(server)
    await bench.host.approvals(PROJECT_ID).set_mode("send", "disabled")
    assert (await bench.run(executor_of())).status == "completed"
    assert '"send"' not in json.dumps(server.requests[0]["body"])


class Weather(BaseModel):
    degrees: int


async def test_an_agent_gives_a_validated_output(bench, serve):
    final = {"name": "final_result", "arguments": {"degrees": 21}, "id": "f"}
    bench.providers = providers_at(serve(wants("weather", {"city": "Bern"}), {"tool_calls": [final]}))

    @workflow
    async def typed(data: dict, ctx: Context) -> int:
        result = await ctx.agent(tools=[weather], output=Weather).run("How warm?")
        assert isinstance(result.output, Weather)
        return result.output.degrees

    assert (await bench.run(executor_of(typed))).output == 21


async def stored(bench, conversation_id: str) -> list[dict]:
    from stepwell.conversation.listing import Conversations
    from stepwell.store.entries import Domain

    backend = bench.host.local_stores.backend(PROJECT_ID, Domain.CONVERSATION)
    conversation = await Conversations(backend, PROJECT_ID, "made").get(conversation_id)
    return [message async for message in conversation.all_messages()]


async def test_a_conversation_keeps_calls_and_results_together_and_is_continued(bench, serve):
    server = serve(wants("weather", {"city": "Bern"}), {"text": "21 degrees."}, {"text": "Still 21."})
    bench.providers = providers_at(server)
    for ask in ("How is Bern?", "And now?"):
        report = await bench.run(executor_of(conversation=True), input={"ask": ask}, conversation_id="c1")
        assert report.status == "completed"
    roles = [message["role"] for message in await stored(bench, "c1")]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    sent = [message["role"] for message in server.requests[2]["body"]["messages"]]
    assert sent == ["system", "user", "assistant", "tool", "assistant", "user"]


@pytest.mark.parametrize("dies_at", ["tool.requested", "tool.completed", "node.completed"])
async def test_a_process_that_dies_at_a_tool_leaves_no_orphan_and_is_continued(bench, serve, dies_at):
    server = serve(wants("weather", {"city": "Bern"}), {"text": "21 degrees."})
    bench.providers = providers_at(server)
    executor = executor_of(conversation=True)
    handle = None

    def die(event):
        bench.events.append(event)
        if event.type == dies_at and "weather" in str(event.data.get("tool", event.data.get("node"))):
            handle._session.break_off(StorageUnavailable("as if the process had died"))

    project = bench.project(executor)
    handle = await bench.host.start(project, input={}, conversation_id="c1", on_event=die)
    with pytest.raises(StorageUnavailable, match="as if"):
        await handle.report()
    messages = await stored(bench, "c1")
    assert [message["role"] for message in messages] == ["user"]
    assert paired_messages(messages) == messages
    report = await bench.resume(executor, handle.run_id)
    assert (report.status, report.output["text"]) == ("completed", "21 degrees.")
    roles = [message["role"] for message in await stored(bench, "c1")]
    assert roles == ["user", "assistant", "tool", "assistant"]
    assert len(server.requests) == 2
    assert len(done) == (1 if dies_at == "node.completed" else 2)


async def test_a_manual_call_waits_and_the_model_is_told_how_it_was_answered(bench, serve):
    server = serve(wants("send", {"text": "hello"}), {"text": "{last}"})
    bench.providers = providers_at(server)
    executor = executor_of(conversation=True)
    approvals = bench.host.approvals(PROJECT_ID)
    for answer, told in (("approve", "sent"), ("deny", "the call of send was denied: not today")):
        server._used = 0
        done.clear()
        report = await bench.run(executor, conversation_id=answer)
        assert (report.status, len(await stored(bench, answer))) == ("waiting_input", 1)
        (pending,), _ = approvals.list(status="pending")
        if answer == "approve":
            await approvals.approve(pending.id, arguments={"text": "hello!"})
        else:
            await approvals.deny(pending.id, reason="not today")
        finished = await bench.resume(executor, report.run_id)
        assert finished.output["text"].startswith(told)
        assert done == (["send hello!"] if answer == "approve" else [])
        assert [message["role"] for message in await stored(bench, answer)] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]
        assert finished.tokens["calls"] == 2


async def test_calls_of_a_turn_go_on_side_by_side_and_keep_their_order(bench, serve):
    @tool
    async def slow(number: int) -> int:
        """Wait."""
        await asyncio.sleep(0.3 if number == 1 else 0)
        done.append(str(number))
        return number

    calls = [{"name": "slow", "arguments": {"number": number}, "id": f"c{number}"} for number in (1, 2)]
    server = serve({"tool_calls": calls}, {"text": "ok"})
    bench.providers = providers_at(server)
    assert (await bench.run(executor_of(tools=[slow]))).status == "completed"
    assert done == ["2", "1"]
    told = [(m["tool_call_id"], m["content"]) for m in server.requests[1]["body"]["messages"] if m["role"] == "tool"]
    assert told == [("c1", "1"), ("c2", "2")]


async def test_something_with_a_schema_and_a_call_is_a_tool_too(bench, serve):
    class Bound:
        name = "bound"
        description = "A node of a graph."

        @property
        def parameters(self) -> dict:
            return {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}

        async def call(self, arguments: dict) -> dict:
            done.append(f"bound {arguments['x']}")
            return {"y": 2}

    server = serve(wants("bound", {"x": 1}), {"text": "{last}"})
    bench.providers = providers_at(server)

    @workflow
    async def graph(data: dict, ctx: Context) -> str:
        return (await ctx.agent(tools=[Bound()]).run("go")).text

    assert (await bench.run(executor_of(graph))).output == '{"y": 2}'
    assert done == ["bound 1"]


async def test_a_node_around_an_agent_that_is_tried_again_keeps_the_conversation_paired(bench, serve):
    from stepwell import node

    server = serve(
        wants("weather", {"city": "Bern"}), {"text": "cold"}, wants("weather", {"city": "Basel"}), {"text": "warm"}
    )
    bench.providers = providers_at(server)
    attempts: list[int] = []

    @node(retries=1)
    async def around(ctx: Context) -> str:
        text = (await ctx.agent().run("How is it?")).text
        attempts.append(1)
        if len(attempts) == 1:
            raise ValueError("again")
        return text

    @workflow
    async def outer(data: dict, ctx: Context) -> str:
        return await around(ctx)

    report = await bench.run(executor_of(outer, conversation=True), conversation_id="c1")
    assert report.output == "warm"
    messages = await stored(bench, "c1")
    assert paired_messages(messages) == messages
    assert [m["role"] for m in messages].count("tool") == 2


async def test_calls_with_the_same_id_get_ids_of_their_own(bench, serve):
    calls = [{"name": "weather", "arguments": {"city": city}, "id": "same"} for city in ("Bern", "Basel")]
    server = serve({"tool_calls": calls}, {"text": "ok"})
    bench.providers = providers_at(server)
    assert (await bench.run(executor_of(conversation=True), conversation_id="c")).status == "completed"
    assert sorted(done) == ["weather Basel", "weather Bern"]
    told = [m["tool_call_id"] for m in server.requests[1]["body"]["messages"] if m["role"] == "tool"]
    assert len(set(told)) == 2


async def test_synchronous_nodes_ask_models_and_call_tools_through_ctx_wait(bench, serve):
    from stepwell import node

    bench.providers = providers_at(serve({"text": "hi", "usage": USAGE}))

    @node
    def ask(ctx: Context) -> list:
        return [ctx.wait(ctx.llm().chat("x")).text, ctx.wait(ctx.tools.call("weather", city="Bern"))["degrees"]]

    @workflow
    async def outer(data: dict, ctx: Context) -> list:
        return await ask(ctx)

    report = await bench.run(executor_of(outer))
    assert report.output == ["hi", 21]
    assert [event["node"] for event in bench.of("node.started")] == ["ask", "ask/chat", "ask/weather"]
    assert report.tokens["calls"] == 1
