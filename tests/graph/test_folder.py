"""The folder of workflows: files that are replaced, links that lead out of the project, records of what ran."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from stepwell.errors import InvalidArgument, StorageUnavailable
from stepwell.graph.executions import execution_of
from stepwell.graph.folder import FILE, WorkflowFolder
from stepwell.graph.format import MAX_BYTES
from tests.graph.conftest import definition, node_id, save


def document(name: str) -> dict:
    return {"name": name, "workflowId": node_id("w"), "definition": {"nodes": [], "edges": []}}


def test_a_folder_that_becomes_a_link_while_it_is_written_leads_nowhere(tmp_path, monkeypatch):
    project, outside = tmp_path / "project", tmp_path / "outside"
    (project / "workflows").mkdir(parents=True)
    outside.mkdir()
    folder = WorkflowFolder(project)
    mkdir = Path.mkdir

    def swap(path: Path, *args, **options) -> None:
        mkdir(path, *args, **options)
        path.rmdir()
        path.symlink_to(outside)

    monkeypatch.setattr(Path, "mkdir", swap)
    with pytest.raises(StorageUnavailable, match="symbolic link"):
        folder.write("demo", document("a"))
    assert list(outside.iterdir()) == []
    (outside / FILE).write_text("{}")
    assert folder.find("demo") is None
    assert folder.all() == []


def test_a_file_that_changes_again_at_once_is_read_again(tmp_path):
    path = save(tmp_path, "demo", {"a": "t/pass"})
    folder = WorkflowFolder(tmp_path)
    before = path.stat()
    assert folder.get("demo").file.graph.nodes[0].name == "a"
    save(tmp_path, "demo", {"b": "t/pass"})  # as long as before, and within the clock's grain
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert folder.get("demo").file.graph.nodes[0].name == "b"


def test_an_id_that_two_workflows_have_is_ambiguous(tmp_path):
    for key in ("one", "two"):
        save(tmp_path, key, {}, workflowId=node_id("w"))
    folder = WorkflowFolder(tmp_path)
    assert folder.get("two").key == "two"
    with pytest.raises(InvalidArgument, match="2 workflows have the id .*: one, two"):
        folder.get(node_id("w").upper())


def test_a_file_that_is_far_too_large_is_not_read(tmp_path):
    path = save(tmp_path, "demo", {})
    os.truncate(path, MAX_BYTES * 100)
    assert "838,860,800 bytes" in WorkflowFolder(tmp_path).find("demo").problem


def test_what_ran_when_a_run_was_cut_off_waits_again_once_it_is_resumed():
    def event(type_: str, **data) -> SimpleNamespace:
        return SimpleNamespace(type=type_, at="2026-01-01T00:00:00Z", data=data)

    ids = {name: node_id(name) for name in "abc"}
    events = [
        event("graph.started", node="", workflow_id="w", workflow_key="k", spilled=False,
              definition=definition(dict.fromkeys("abc", "t/pass"))),
        event("node.started", node=ids["a"], input=None), event("node.completed", node=ids["a"], output={"out": 1}),
        event("node.started", node=ids["b"], input=None), event("graph.ready", node="", nodes=[ids["c"]]),
    ]  # fmt: skip
    running = SimpleNamespace(status="running", interrupted=False)
    assert execution_of(running, events, bytes).counts == {"ready": 1, "running": 1, "completed": 1}
    resumed = [*events, event("run.resumed")]
    assert execution_of(running, resumed, bytes).counts == {"waiting": 2, "completed": 1}
    again = execution_of(running, [*resumed, event("node.started", node=ids["b"], input=None)], bytes)
    assert [(record.status, record.attempts) for record in again.nodes] == [
        ("completed", 1), ("running", 2), ("waiting", 0)
    ]  # fmt: skip
    # Where it did nothing but wait for a person, it goes on with the same attempt.
    answered = [*events, event("run.waiting"), event("run.resumed"), event("node.started", node=ids["b"], input=None)]
    assert [record.attempts for record in execution_of(running, answered, bytes).nodes] == [1, 1, 0]
