"""What a run that died finds again: results as they were, in their order, and nothing else."""

import os
from collections import Counter
from pathlib import Path

import pytest

from stepwell import Host, load_settings
from stepwell.errors import InputInvalid, ReplayMismatch, RunStateConflict
from tests import cutting
from tests.crash import replayed
from tests.unit.conftest import PROJECT_ID, project_of

pytestmark = pytest.mark.crash


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COUNTED", str(tmp_path / "counted"))
    return tmp_path / "counted"


def cut_off(name: str) -> str:
    return cutting.cut_off("tests.crash.replayed", name)


async def resume(name: str, run_id: str, monkeypatch: pytest.MonkeyPatch):
    """Go on in this process: the report and every event of the run."""
    monkeypatch.setenv("RESUMED", "1")
    async with Host(load_settings()) as host:
        shown = []
        handle = await host.resume(project_of(replayed.WORKFLOWS[name], cutting.ROOT), run_id, on_event=shown.append)
        report = await handle.report()
        events = host.runs(PROJECT_ID).all_events(run_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert events[-len(shown) :] == shown
        return report, events


def times(counted: Path) -> dict[str, int]:
    return dict(Counter(counted.read_text().splitlines()))


async def test_results_come_back_as_what_they_were(counted, monkeypatch):
    run_id = cut_off("results")
    report, events = await resume("results", run_id, monkeypatch)
    assert report.error is None
    assert report.output == ["Order", "Place", "tuple", "dict", "dict"]
    # Only what cannot be had again from its record runs again, and what that called does not.
    assert times(counted) == {
        "order": 1, "place": 1, "pair": 1, "big": 1, "reference": 1, "opaque": 2, "step 77": 1, "secretive": 2
    }  # fmt: skip
    again = {event.data["node"]: event.data["rerun"] for event in events if event.data.get("attempt") == 2}
    assert again == {
        "opaque": "its recorded result is not exact", "secretive": "its recorded result is not exact",
        "die": "it was cut off",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "output"),
    [("branches", [12, 14, 16, 0]), ("first_come", [12, 13, 11]), ("workers", [1, 2, 3, 4, 5])],
)
async def test_branches_that_overtook_each_other_do_so_again(counted, monkeypatch, name, output):
    run_id = cut_off(name)
    before = times(counted)
    report, _ = await resume(name, run_id, monkeypatch)
    assert (report.error, report.output) == (None, output)
    assert times(counted) == before
    assert set(before.values()) == {1}


async def test_an_attempt_that_failed_leaves_nothing_to_the_next(counted, monkeypatch):
    run_id = cut_off("retried")
    assert times(counted) == {"step 1": 2, "flaky": 2}
    report, _ = await resume("retried", run_id, monkeypatch)
    assert (report.error, report.output) == (None, 2)
    assert times(counted) == {"step 1": 2, "flaky": 3, "step 2": 1}


async def test_what_opts_out_of_replay_runs_again_with_all_it_calls(counted, monkeypatch):
    run_id = cut_off("opted_out")
    report, _ = await resume("opted_out", run_id, monkeypatch)
    assert (report.error, report.output) == (None, 5)
    assert times(counted) == {"fresh": 2, "step 5": 2}


async def test_a_failure_that_was_handled_may_turn_out_well_afterwards(counted, monkeypatch):
    run_id = cut_off("handled")
    assert times(counted) == {"step 1": 1, "moody": 1, "fallback": 1, "step 2": 1}
    report, _ = await resume("handled", run_id, monkeypatch)
    assert (report.error, report.output) == (None, "fine")
    assert times(counted) == {"step 1": 1, "moody": 2, "fallback": 1, "step 2": 1}


@pytest.mark.parametrize("name", ["at_once", "fewer"])
async def test_changed_code_is_refused_and_can_be_put_right(counted, monkeypatch, name):
    run_id = cut_off(name)
    before = times(counted)
    monkeypatch.setenv("CHANGED", "1")
    with pytest.raises(ReplayMismatch):
        await resume(name, run_id, monkeypatch)
    assert times(counted) == before
    monkeypatch.delenv("CHANGED")
    report, _ = await resume(name, run_id, monkeypatch)
    assert report.status == "completed"


async def test_inputs_come_back_as_what_they_were(counted, monkeypatch):
    report, _ = await resume("modelled", cut_off("modelled"), monkeypatch)
    assert report.output == "b"


async def test_inputs_with_secrets_are_not_kept_and_so_not_restored(counted, monkeypatch, tmp_path):
    secret = "sk-" + "abcdef0123456789" * 2
    monkeypatch.setenv("NOTE", f"use {secret}")
    run_id = cut_off("at_once")
    with pytest.raises(InputInvalid):
        await resume("at_once", run_id, monkeypatch)
    for file in (tmp_path / "home").rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes(), file


async def test_output_goes_on_where_it_was_cut_off(counted, monkeypatch):
    run_id = cut_off("streaming")
    report, events = await resume("streaming", run_id, monkeypatch)
    assert report.output == "one two three "
    assert "".join(event.data["text"] for event in events if event.type == "output.chunk") == report.output
    assert [event.type for event in events if event.type.startswith("output.") and event.type != "output.chunk"] == [
        "output.started", "output.completed"
    ]  # fmt: skip


async def test_a_cancellation_that_came_too_late_does_not_stop_what_is_resumed(counted, monkeypatch):
    run_id = cut_off("at_once")
    async with Host(load_settings()) as host:
        host.journal(PROJECT_ID).append(run_id, (), {"cancel_requested": 1}).result()
    report, _ = await resume("at_once", run_id, monkeypatch)
    assert report.status == "completed"


async def test_a_dead_run_is_closed_with_a_report(counted, monkeypatch):
    run_id = cut_off("at_once")
    async with Host(load_settings()) as host:
        report = await host.runs(PROJECT_ID).cancel(run_id, "no longer wanted")
        assert (report.status, report.nodes, report.interrupted) == ("cancelled", {"completed": 3}, False)
        assert host.runs(PROJECT_ID).all_events(run_id)[-1].data["reason"] == "no longer wanted"
    with pytest.raises(RunStateConflict):
        await resume("at_once", run_id, monkeypatch)


async def test_a_run_is_resumed_once_at_a_time(counted, monkeypatch):
    run_id = cut_off("at_once")
    monkeypatch.setenv("RESUMED", "1")
    project = project_of(replayed.WORKFLOWS["at_once"], cutting.ROOT)
    async with Host(load_settings()) as one, Host(load_settings()) as two:
        handle = await one.resume(project, run_id)
        with pytest.raises(RunStateConflict):
            await two.resume(project, run_id)
        with pytest.raises(RunStateConflict):
            await two.runs(PROJECT_ID).delete(run_id)
        assert (await handle.report()).status == "completed"
        with pytest.raises(RunStateConflict):
            await two.resume(project, run_id)


def test_the_environment_is_ours():
    assert "RESUMED" not in os.environ
