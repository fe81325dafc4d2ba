"""Token reports and totals."""

import asyncio

import pytest

from stepwell.errors import UsageInvalid
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Domain, Namespace, Scope
from stepwell.store.memory import MemoryBackend
from stepwell.usage.report import TokenReport
from stepwell.usage.totals import TOTAL, NoTokenUsage, TokenUsage
from tests.unit.conftest import PROJECT_ID


@pytest.fixture
def spaces():
    backend = MemoryBackend()
    project = KeyValue(backend, Namespace(PROJECT_ID, Domain.KV, Scope.PROJECT))
    conversation = KeyValue(backend, Namespace(PROJECT_ID, Domain.KV, Scope.CONVERSATION, None, "c"))
    return project, conversation


@pytest.mark.parametrize(
    "fields",
    [
        {"input_tokens": -1}, {"input_tokens": 1.5}, {"input_tokens": True}, {"input_tokens": float("nan")},
        {"input_tokens": "5"}, {"input_tokens": None}, {"nonsense": 1}, {"input_tokens": 10, "total_tokens": 5},
        {"input_tokens": 1, "cached_input_tokens": 2}, {"output_tokens": 1, "reasoning_tokens": 2}, {"model_id": 5},
    ],
)  # fmt: skip
async def test_contradictory_reports_are_refused_and_not_counted(spaces, fields):
    usage = TokenUsage("r", [spaces[0]])
    with pytest.raises(UsageInvalid):
        await usage.report(**fields)
    assert await spaces[0].get_value(TOTAL) is None
    assert usage.total["calls"] == 0


async def test_the_total_is_derived_and_huge_counts_are_exact(spaces):
    usage = TokenUsage("r", [spaces[0]])
    await usage.report(TokenReport(input_tokens=10**30, output_tokens=1, reasoning_tokens=1))
    assert (await spaces[0].get_value(TOTAL))["total"] == 10**30 + 1


async def test_concurrent_runs_lose_nothing(spaces):
    runs = [TokenUsage(f"r{number}", [spaces[0]], spaces[1]) for number in range(5)]
    await asyncio.gather(*(run.report(input_tokens=3, output_tokens=1) for run in runs for _ in range(10)))
    for space in spaces:
        total = await space.get_value(TOTAL)
        assert (total["calls"], total["total"]) == (50, 200)
    entries = [entry.key async for entry in spaces[1].scan("tokenUsage.entry.")]
    assert len(entries) == 50
    assert "tokenUsage.entry.r0.10" in entries
    for run in runs:
        await run.close()
    day, total = [entry.key async for entry in spaces[0].scan()]
    assert (day[:15], total) == ("tokenUsage.day.", TOTAL)


async def test_a_resumed_run_completes_the_report_its_process_died_over(spaces):
    told = []

    def on_report(report: TokenReport, sequence: int, node: str) -> None:
        told.append((report.input_tokens, sequence, node))

    died = TokenUsage("r", [spaces[0]], node=lambda: "ask")  # it got no further than the first total
    await died.report(input_tokens=5)
    again = TokenUsage("r", [spaces[0]], spaces[1], on_report=on_report)
    assert await again.complete() == "ask"
    assert await again.complete() is None
    await again.report(input_tokens=7)
    assert told == [(5, 1, "ask"), (7, 2, "")]
    for space in spaces:
        total = await space.get_value(TOTAL)
        assert (total["input"], total["calls"]) == (12, 2)


async def test_a_report_is_counted_whole_though_who_makes_it_is_cancelled(spaces):
    usage = TokenUsage("r", [spaces[0]], spaces[1])
    reporting = asyncio.create_task(usage.report(input_tokens=5))
    await asyncio.sleep(0)
    reporting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reporting
    await usage.report(input_tokens=7)
    for space in spaces:
        assert (await space.get_value(TOTAL))["input"] == 12


async def test_off_is_off():
    await NoTokenUsage().report(input_tokens=-5, anything=1)
