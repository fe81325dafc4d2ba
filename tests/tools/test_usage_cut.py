"""A process that dies between the totals and the run's events: no report is lost, and none is counted twice."""

from typing import Any

import pytest

from stepwell import Context, node, workflow
from stepwell.errors import StepwellError
from stepwell.runtime.session import RunSession
from tests.agents import AgentBench, MakeServer, providers_at


@pytest.fixture
def dying(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The run is cut off when its totals have a report; until `undo()`."""

    def die(session: RunSession, *_: Any) -> None:
        session.break_off(StepwellError("the process is killed"))

    monkeypatch.setattr(RunSession, "token_report", die)
    return monkeypatch


async def cut_off(bench: AgentBench, made: Any, **options: Any) -> str:
    """Start a run that dies in its first report; its id."""
    handle = await bench.start(made, **options)
    with pytest.raises(StepwellError, match="killed"):
        await handle.report()
    assert bench.of("token_usage.reported") == []
    assert (await bench.totals())["calls"] == 1
    return str(handle.run_id)


async def test_a_call_made_again_is_a_second_call(bench: AgentBench, serve: MakeServer, dying: pytest.MonkeyPatch):
    bench.providers = providers_at(serve({"text": "hello", "usage": {"input": 10, "output": 2}}))

    @workflow
    async def main(data: dict, ctx: Context) -> str:
        return (await ctx.llm().chat("say hello")).text

    run_id = await cut_off(bench, main)
    dying.undo()
    report = await bench.resume(main, run_id)
    assert (report.status, report.output) == ("completed", "hello")
    assert [(told["sequence"], told["report"]["total_tokens"]) for told in bench.of("token_usage.reported")] == [
        (1, 12), (2, 12)
    ]  # fmt: skip
    assert bench.of("token_usage.reported")[0]["node"] == bench.of("token_usage.reported")[1]["node"]
    assert report.tokens["calls"] == (await bench.totals())["calls"] == 2


async def test_a_report_of_the_body_is_the_same_report(bench: AgentBench, dying: pytest.MonkeyPatch):
    @node
    async def step(ctx: Context) -> None:
        await ctx.token_usage.report(input_tokens=1)

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await ctx.token_usage.report(input_tokens=5)
        await step(ctx)

    run_id = await cut_off(bench, main, conversation_id="c1")
    dying.undo()
    report = await bench.resume(main, run_id)
    assert report.status == "completed"
    assert [told["sequence"] for told in bench.of("token_usage.reported")] == [1, 2]
    assert report.tokens == await bench.totals()
    assert (report.tokens["calls"], report.tokens["total"]) == (2, 6)
