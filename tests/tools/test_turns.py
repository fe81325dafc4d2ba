"""Runs of one conversation at the same time: they take turns, and what they leave is a conversation."""

import asyncio
import time

from stepwell import Context, Host, load_settings, workflow
from tests.agents import AgentBench, providers_at
from tests.tools.test_agent import executor_of, stored, wants


async def test_two_runs_of_a_conversation_take_turns_and_one_that_waits_can_be_cancelled(bench, serve):
    server = serve(
        wants("weather", {"city": "Bern"}, delay=0.5),
        {"text": "one"},
        wants("weather", {"city": "Ulm"}),
        {"text": "two"},
    )
    bench.providers = providers_at(server)
    executor = executor_of(conversation=True)
    async with Host(load_settings()) as host:
        elsewhere = AgentBench(host, bench.folder)
        elsewhere.providers = bench.providers
        first = await bench.start(executor, input={"ask": "Bern?"}, conversation_id="c1")
        while not server.requests:
            await asyncio.sleep(0.01)
        second = await elsewhere.start(executor, input={"ask": "Ulm?"}, conversation_id="c1")
        third = await bench.host.start(bench.project(executor), input={"ask": "Rom?"}, conversation_id="c1")
        while "log" not in elsewhere.types():
            await asyncio.sleep(0.01)
        begun = time.monotonic()
        third.cancel()
        assert ((await third.report()).status, time.monotonic() - begun < 1) == ("cancelled", True)
        reports = [await handle.report() for handle in (first, second)]
    assert [report.status for report in reports] == ["completed"] * 2
    assert "Rom?" not in str(server.requests)
    assert [data["message"] for data in elsewhere.of("log")] == [
        "another run of the conversation is active: this one waits for its turn"
    ]
    kept = await stored(bench, "c1")
    assert [message["role"] for message in kept] == ["user", "assistant", "tool", "assistant"] * 2
    assert [message["content"] for message in kept if message["role"] == "user"] == ["Bern?", "Ulm?"]


async def test_answers_that_follow_each_other_are_one_turn_for_the_model(bench, serve):
    """A run that waited for a person answers after another one has: there are vendors that refuse two answers."""
    server = serve({"text": "ok"})
    bench.providers = providers_at(server)
    call = {"id": "c", "name": "weather", "arguments": {"city": "Bern"}}
    said = [
        {"role": "user", "content": "Bern?"}, {"role": "user", "content": "Ulm?"}, {"role": "assistant", "content": "hot"},
        {"role": "assistant", "content": "", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "c", "content": "cold"},
        {"role": "assistant", "content": "cold"}, {"role": "user", "content": "Rom?"},
    ]  # fmt: skip

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        for kind in ("google", "anthropic"):
            await ctx.llm(kind).chat(said)

    assert (await bench.run(executor_of(main))).status == "completed"
    google, anthropic = (request["body"] for request in server.requests)
    assert [turn["role"] for turn in google["contents"]] == ["user", "model", "user", "model", "user"]
    assert [message["role"] for message in anthropic["messages"]] == ["user", "assistant"] * 2 + ["user"]
