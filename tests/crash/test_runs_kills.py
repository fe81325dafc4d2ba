"""Many runs of one process are killed at a random instant, again and again; each ends as if nothing had happened."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from stepwell import Host, load_settings
from stepwell.identifiers import new_id
from tests.crash import killed
from tests.unit.conftest import PROJECT_ID

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[2]
KILLS = 6
RUNS = 8


async def test_what_is_recorded_is_never_done_again(tmp_path, monkeypatch):
    counted = tmp_path / "counted"
    monkeypatch.setenv("COUNTED", str(counted))
    async with Host(load_settings()) as host:
        handle = await host.start(killed.project(), input={}, conversation_id="whole")
        whole = await handle.report()
        assert whole.status == "completed", whole.error
    interrupted = 0
    for _ in range(KILLS):
        run_ids = [new_id() for _ in range(RUNS)]
        _run_and_kill(run_ids)
        counted_before = counted.read_text().splitlines()
        async with Host(load_settings()) as host:
            runs = host.runs(PROJECT_ID)
            recorded = {}
            for run_id in run_ids:
                if runs.get(run_id).interrupted:
                    interrupted += 1
                    recorded[run_id] = _done_for_good(runs.all_events(run_id))
            handles = [await host.resume(killed.project(), run_id) for run_id in recorded]
            reports = await asyncio.gather(*(handle.report() for handle in handles))
            for report in reports:
                assert (report.error, report.output) == (None, whole.output)
                _check_tokens(report.tokens, whole.tokens, counted.read_text(), runs.all_events(report.run_id))
                assert report.nodes["completed"] == whole.nodes["completed"]
                events = runs.all_events(report.run_id)
                assert [event.seq for event in events] == list(range(1, len(events) + 1))
                assert _texts(events) == _texts(runs.all_events(whole.run_id))
        again = Counter(counted.read_text().splitlines()[len(counted_before) :])
        for run_id, names in recorded.items():
            assert [name for name in names if again[f"{run_id} {name}"]] == []
    assert interrupted >= KILLS * RUNS // 2


def _check_tokens(tokens, of_whole, counted: str, events) -> None:
    """Every call that was made is counted once, also one that was made again because its record was not durable."""
    told = [event.data for event in events if event.type == "token_usage.reported"]
    assert [each["sequence"] for each in told] == list(range(1, len(told) + 1))
    assert tokens == told[-1]["total"]
    assert tokens["total"] == sum(each["report"]["total_tokens"] for each in told)
    made = counted.count(f"{events[0].run_id} ask ")
    assert of_whole["calls"] <= tokens["calls"] == len(told) <= made


def _run_and_kill(run_ids: list[str]) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.killed", *run_ids], cwd=ROOT, env=os.environ, stdout=subprocess.PIPE
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    time.sleep(random.random() * 0.25)
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()


def _done_for_good(events) -> list[str]:
    """The side effects of nodes whose completion is in the journal."""
    started = {event.data["node"]: event.data for event in events if event.type == "node.started"}
    completed = [started[event.data["node"]] for event in events if event.type == "node.completed"]
    return [f"{data['name']} {data['input']['number']}" for data in completed if data["name"] != "branch"]


def _texts(events) -> dict[str, str]:
    texts: dict[str, str] = {}
    for event in events:
        if event.type in ("output.started", "output.restarted"):
            texts[event.data["item"]] = ""
        elif event.type == "output.chunk":
            texts[event.data["item"]] += event.data["text"]
    return texts
