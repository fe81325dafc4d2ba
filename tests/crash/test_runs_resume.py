"""Runs are killed for real and continued in a new process."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from stepwell import load_settings
from stepwell.store.sqlite_journal import SqliteJournal

PROJECT = Path(__file__).parent / "project"
PROJECT_ID = "01936d3f-6a00-7000-8000-0000000000cc"

ROUNDS = 8

pytestmark = pytest.mark.crash


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return os.environ | {"STEPS_COUNTED": str(tmp_path / "counted")}


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "stepwell", *arguments]


def started(environment: dict[str, str], run_id: str) -> subprocess.Popen:
    """A run in a process of its own, once its journal shows it."""
    process = subprocess.Popen(
        command("run", str(PROJECT), "--json", "--run-id", run_id),
        env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    journal = SqliteJournal(Path(load_settings().home) / "journal" / f"{PROJECT_ID}.sqlite")
    deadline = time.monotonic() + 30
    while journal.get(run_id) is None and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    journal.close()
    return process


def finished(environment: dict[str, str], *arguments: str) -> tuple[int, dict]:
    done = subprocess.run(
        command(*arguments, "--json"), env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout or done.stderr)


def test_a_killed_run_goes_on_and_nothing_durable_is_done_twice(environment, tmp_path):
    code, whole = finished(environment, "run", str(PROJECT))
    assert code == 0
    (tmp_path / "counted").unlink()
    interrupted = 0
    for number in range(ROUNDS):
        run_id = f"01936d3f-6a00-7000-8000-{number:012x}"
        process = started(environment, run_id)
        time.sleep(random.random() * 0.12)
        process.send_signal(signal.SIGKILL)
        process.wait()
        _, shown = finished(environment, "runs", "show", run_id, "--project", str(PROJECT))
        kills = 0
        while shown["status"] == "running":
            assert shown["interrupted"] is True
            interrupted += 1
            resumed = subprocess.Popen(
                command("runs", "resume", run_id, "--json", "--project", str(PROJECT)),
                env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            )  # fmt: skip
            if kills == 0:
                kills += 1
                try:
                    resumed.wait(0.35 + random.random() * 0.1)
                except subprocess.TimeoutExpired:
                    resumed.send_signal(signal.SIGKILL)
            _, complaint = resumed.communicate()
            assert b"Traceback" not in complaint
            assert resumed.returncode in (0, -signal.SIGKILL), complaint
            _, shown = finished(environment, "runs", "show", run_id, "--project", str(PROJECT))
        assert (shown["output"], shown["tokens"]) == (whole["output"], whole["tokens"])
        counted = Counter((tmp_path / "counted").read_text().split("\n"))
        (tmp_path / "counted").unlink()
        # Only work that was under way when the process died (at most two at once, two deaths) may be done again.
        repeated = sum(times - 1 for name, times in counted.items() if name)
        assert repeated <= 2 * (kills + 1)
        assert len(counted) == 31
        _check_stream(environment, run_id)
    assert interrupted >= 3
    code, usage = finished(environment, "usage", "--project", str(PROJECT))
    assert usage["tokens"]["calls"] == (ROUNDS + 1) * 10


def _check_stream(environment, run_id):
    done = subprocess.run(
        command("runs", "events", run_id, "--jsonl", "--project", str(PROJECT)),
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    texts: dict[str, str] = {}
    for event in events:
        if event["type"] in ("output.started", "output.restarted"):
            texts[event["item"]] = ""
        elif event["type"] == "output.chunk":
            texts[event["item"]] += event["text"]
    assert len(texts) == 10
    assert all(text.endswith("\n") and text.count(":") == 1 for text in texts.values())
    assert sum(event["type"] == "token_usage.reported" for event in events) == 10


def _cut_off(environment, run_id, tmp_path, steps: int) -> None:
    """Kill a run once it has done some steps."""
    process = started(environment, run_id)
    deadline = time.monotonic() + 30
    while len((tmp_path / "counted").read_text().split()) < 2 * steps if (tmp_path / "counted").exists() else True:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.001)
    process.kill()
    process.wait()


@pytest.mark.parametrize("change", ["path", "input"])
def test_changed_code_is_refused_and_nothing_more_is_done(environment, tmp_path, change):
    run_id = "01936d3f-6a00-7000-8000-0000000000ff"
    _cut_off(environment, run_id, tmp_path, steps=20)
    before = (tmp_path / "counted").read_text()
    code, answer = finished(
        environment | {"STEPS_CHANGED": change}, "runs", "resume", run_id, "--project", str(PROJECT)
    )
    assert (code, answer["error"]["code"]) == (4, "replay_mismatch")
    assert (tmp_path / "counted").read_text() == before
    code, answer = finished(environment, "runs", "resume", run_id, "--project", str(PROJECT))
    assert (code, answer["status"]) == (0, "completed")


def test_one_of_two_processes_resumes(environment, tmp_path):
    run_id = "01936d3f-6a00-7000-8000-0000000000fe"
    _cut_off(environment, run_id, tmp_path, steps=4)
    both = [
        subprocess.Popen(
            command("runs", "resume", run_id, "--json", "--project", str(PROJECT)),
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    outcomes = [(process.communicate(timeout=60), process.returncode) for process in both]
    codes = sorted(code for _, code in outcomes)
    assert codes[0] == 0
    assert codes[1] in (0, 4), outcomes
    completed = [json.loads(out)["status"] for (out, _), code in outcomes if code == 0]
    assert completed == ["completed"]


def test_another_process_cancels_a_living_run_and_closes_a_dead_one(environment, tmp_path):
    living = "01936d3f-6a00-7000-8000-0000000000fd"
    process = started(environment, living)
    finished(environment, "runs", "cancel", living, "--project", str(PROJECT))
    process.wait(20)
    _, shown = finished(environment, "runs", "show", living, "--project", str(PROJECT))
    assert shown["status"] in ("cancelled", "completed")
    dead = "01936d3f-6a00-7000-8000-0000000000fc"
    (tmp_path / "counted").unlink(missing_ok=True)
    _cut_off(environment, dead, tmp_path, steps=4)
    code, shown = finished(environment, "runs", "cancel", dead, "--project", str(PROJECT))
    assert (code, shown["status"]) == (0, "cancelled")
    code, answer = finished(environment, "runs", "resume", dead, "--project", str(PROJECT))
    assert (code, answer["error"]["code"]) == (4, "run_state_conflict")
    code, _ = finished(environment, "runs", "delete", dead, "--yes", "--project", str(PROJECT))
    assert code == 0
    code, answer = finished(environment, "runs", "show", dead, "--project", str(PROJECT))
    assert (code, answer["error"]["code"]) == (3, "run_not_found")
