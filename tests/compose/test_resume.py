"""A parent that is killed in the middle of a child goes on there: nothing that finished is done again."""

from collections import Counter
from pathlib import Path

import pytest

from stepwell import Host, load_settings
from stepwell.conversation.state import Conversation
from stepwell.errors import ReplayMismatch
from stepwell.store.entries import Domain
from tests import cutting
from tests.compose import cut
from tests.unit.conftest import PROJECT_ID, project_of

pytestmark = pytest.mark.crash


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("COUNTED", str(tmp_path / "counted"))
    return tmp_path / "counted"


def cut_off(name: str) -> str:
    return cutting.cut_off("tests.compose.cut", name)


async def resume(name: str, run_id: str, monkeypatch: pytest.MonkeyPatch):
    """Go on in this process: the report, every event of the run, and the texts of the conversation."""
    monkeypatch.setenv("RESUMED", "1")
    async with Host(load_settings()) as host:
        shown = []
        handle = await host.resume(project_of(cut.executor(name), cutting.ROOT), run_id, on_event=shown.append)
        report = await handle.report()
        events = host.runs(PROJECT_ID).all_events(run_id)
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert events[-len(shown) :] == shown
        backend = host.local_stores.backend(PROJECT_ID, Domain.CONVERSATION)
        state = await Conversation(backend, PROJECT_ID, "made", "c1").get_value()
        return report, events, [message["content"] for message in state.messages]


async def test_what_finished_in_children_is_not_run_counted_or_appended_again(counted, monkeypatch):
    run_id = cut_off("in_a_child")
    report, events, messages = await resume("in_a_child", run_id, monkeypatch)
    assert report.output == [101, 102], report.error
    assert Counter(counted.read_text().splitlines()) == {f"step {n}": 1 for n in (1, 101, 2, 102)}
    assert messages == ["same", "same", "same", "child 1", "child 2", "end"]
    assert (report.tokens["input"], report.tokens["calls"]) == (21, 3)
    begun = [event.data["node"] for event in events if event.type == "node.started"]
    assert Counter(begun)["run-workflow"] == 1
    assert Counter(begun)["run-workflow#2"] == 2


@pytest.mark.parametrize("name", ["in_a_bridge", "behind_a_bridge"])
async def test_a_bridge_is_told_again_what_is_given_back(counted, monkeypatch, name):
    run_id = cut_off(name)
    report, events, _ = await resume(name, run_id, monkeypatch)
    assert report.output == "abcdabcd", report.error
    assert "output.restarted" not in [event.type for event in events]
    shown = [event.data for event in events if event.type == "output.chunk"]
    assert "".join(event["text"] for event in shown) == "abcdabcd"
    assert {event["item"] for event in shown} == {"@answer"}
    assert counted.read_text().splitlines() == ["speak"] * 2


async def test_a_readonly_copy_has_its_past_back(counted, monkeypatch):
    run_id = cut_off("in_a_readonly_child")
    report, _, messages = await resume("in_a_readonly_child", run_id, monkeypatch)
    assert report.output == [["before", "body", "node"], {"topic": "copied"}, 1], report.error
    assert counted.read_text().splitlines() == ["remember node"]
    assert messages == ["before"]


async def test_a_body_that_appends_something_else_is_refused(counted, monkeypatch):
    run_id = cut_off("other_message")
    with monkeypatch.context() as patch:
        patch.setenv("CHANGED", "1")
        with pytest.raises(ReplayMismatch, match="another message"):
            await resume("other_message", run_id, patch)
    report, _, messages = await resume("other_message", run_id, monkeypatch)
    assert (report.status, messages) == ("completed", ["one"])


async def test_what_an_attempt_counted_does_not_count_for_the_next_one(counted, monkeypatch):
    run_id = cut_off("in_a_second_attempt")
    report, _, _ = await resume("in_a_second_attempt", run_id, monkeypatch)
    assert (report.output, report.tokens["calls"]) == ("done", 2), report.error


async def test_children_side_by_side_go_on(counted, monkeypatch):
    run_id = cut_off("beside")
    report, _, _ = await resume("beside", run_id, monkeypatch)
    assert report.output == [1, 2, 3], report.error
    assert Counter(counted.read_text().splitlines()) == {f"step {n}": 1 for n in (1, 2, 3)}
