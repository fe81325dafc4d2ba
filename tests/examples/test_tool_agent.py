"""The `tool-agent` example through the real program, with a scripted model server as a process of its own."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Result
from tests.examples.test_examples import EXAMPLES, ROOT

USAGE = {"input": 50, "output": 10, "cache_read": 20}
SCRIPT = [
    {"when": "deleted last-year.md", "text": "I deleted the note about last year.", "usage": USAGE},
    {"when": "was denied", "text": "Then I leave it.", "usage": USAGE},
    {"when": "there is no note 'last-year.md'", "text": "It is gone.", "usage": USAGE},
    {"when": "Plans that are done", "tool_calls": [{"name": "delete_note", "arguments": {"name": "last-year.md"}}],
     "text": "It is old.", "usage": USAGE},
    {"when": "last-year.md", "tool_calls": [{"name": "read_note", "arguments": {"name": "last-year.md"}}], "usage": USAGE},
    {"tool_calls": [{"name": "list_notes", "arguments": {}}], "text": "Let me look.", "usage": USAGE},
]  # fmt: skip


@pytest.fixture(params=["openai-compatible"])  # every format is in tests/llm: these start many processes
def kind(request: pytest.FixtureRequest) -> str:
    """A wire format."""
    return str(request.param)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the example, whose notes may be deleted."""
    return Path(shutil.copytree(EXAMPLES / "tool-agent", tmp_path / "tool-agent"))


@pytest.fixture
def stepwell(tmp_path: Path, project: Path, kind: str) -> Iterator[Callable[..., Result]]:
    """Run the program in the project; every command is a process of its own."""
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    server = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "scripted_model_server.py", tmp_path / "script.json"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    url = server.stdout.readline().strip()
    key = "ANTHROPIC_API_KEY" if kind == "anthropic" else "OPENAI_API_KEY"
    environment = os.environ | {
        "NO_COLOR": "1", key: "canary-0123456789", "STEPWELL_PROVIDERS__DEFAULT__TYPE": kind,
        "STEPWELL_PROVIDERS__DEFAULT__BASE_URL": url if kind == "anthropic" else f"{url}/v1",
    }  # fmt: skip

    def run(*arguments: str, wait: bool = True) -> Result:
        command = [sys.executable, "-P", "-m", "stepwell", *arguments]
        started = subprocess.Popen(
            command, cwd=project, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        if not wait:
            return started
        out, err = started.communicate(timeout=60)
        assert "Traceback" not in err, err
        assert "canary" not in out + err
        return Result(started.returncode, out, err)

    yield run
    server.kill()
    server.wait()


@pytest.mark.parametrize("kind", ["anthropic", "openai"], indirect=True)
def test_a_person_approves_from_another_process_and_the_run_completes(stepwell, project: Path):
    waiting = stepwell("run", ".", "--conversation-id", "c1", "--", "--message", "Delete the notes about last year")
    assert waiting.code == 7, waiting.err
    assert waiting.out.startswith("Let me look.\nIt is old.\n")
    assert "waiting for approval of delete_note" in waiting.err
    (request,) = stepwell("approvals", "list", "--json").json["items"]
    assert request["arguments"] == {"name": "last-year.md"}
    assert f"approvals approve {request['id']}" in waiting.err
    assert (project / "notes" / "last-year.md").exists()
    assert stepwell("runs", "show", request["run_id"], "--json").json["status"] == "waiting_input"
    assert f"approvals list --run {request['run_id']}" in stepwell("runs", "show", request["run_id"]).out
    assert stepwell("runs", "follow", request["run_id"]).code == 7
    wrong = stepwell("approvals", "approve", request["id"], "--arguments", '{"file": "x"}', "--json")
    assert (wrong.code, wrong.error["code"]) == (2, "tool_arguments_invalid")
    done = stepwell("approvals", "approve", request["id"], "--reason", "yes")
    assert (done.code, done.out) == (0, "I deleted the note about last year.\n"), done.err
    assert not (project / "notes" / "last-year.md").exists()
    again = stepwell("approvals", "approve", request["id"], "--json")
    assert (again.code, again.error["code"]) == (4, "approval_conflict")
    report = stepwell("runs", "show", request["run_id"], "--json").json
    assert (report["status"], report["tokens"]["calls"], report["tokens"]["total"]) == ("completed", 4, 240)
    messages = stepwell("conversations", "show", "c1", "--json").json["messages"]
    assert [message["role"] for message in messages] == [
        "user", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant"
    ]  # fmt: skip
    assert "  approved" not in stepwell("approvals", "list").out
    assert "reason: yes" in stepwell("approvals", "show", request["id"]).out


def test_a_run_killed_while_it_waits_is_denied_later_and_ends(stepwell, project: Path):
    started = stepwell("run", ".", "--", "--message", "Delete the notes about last year", wait=False)
    deadline = time.monotonic() + 30
    while not (items := stepwell("approvals", "list", "--json").json["items"]):
        assert time.monotonic() < deadline
    started.send_signal(signal.SIGKILL)
    started.communicate()
    denied = stepwell("approvals", "deny", items[0]["id"], "--reason", "keep it")
    assert (denied.code, denied.out) == (0, "Then I leave it.\n"), denied.err
    assert (project / "notes" / "last-year.md").exists()


def test_modes_are_set_for_the_project(stepwell, project: Path):
    listed = {tool["name"]: tool["mode"] for tool in stepwell("tools", "list", "--json").json["items"]}
    assert listed == {"list_notes": "auto", "read_note": "auto", "delete_note": "manual"}
    assert stepwell("tools", "set", "delete_note", "auto").out == "delete_note: auto\n"
    assert stepwell("run", ".", "--", "--message", "Delete the notes about last year").code == 0
    assert not (project / "notes" / "last-year.md").exists()
    assert stepwell("tools", "set", "delete_notes", "auto").code == 3
    assert stepwell("tools", "set", "delete_note", "default", "--json").json["mode"] == "manual"


@pytest.mark.crash
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_was_not(stepwell, project: Path):
    assert stepwell("tools", "set", "delete_note", "auto").code == 0
    arguments = [
        "run",
        ".",
        "--conversation-id",
        "c1",
        "--jsonl",
        "--",
        "--message",
        "Delete the notes about last year",
    ]
    run_id, kills = "", 0
    while kills < 12:
        started = stepwell(*arguments, wait=False)
        # What is on stdout may not be durable yet: that is what a kill in the middle is about.
        seen = [json.loads(line) for line, _ in zip(started.stdout, range(7 + kills % 4), strict=False)]
        run_id = seen[0]["run_id"]
        if any(event["type"] == "run.completed" for event in seen):
            started.communicate()
            break
        started.send_signal(signal.SIGKILL)
        started.communicate()
        kills += 1
        arguments = ["runs", "resume", run_id, "--jsonl"]
        messages = stepwell("conversations", "show", "c1", "--json").json.get("messages", [])
        calls = [call["id"] for message in messages for call in message.get("tool_calls", ())]
        assert calls == [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert kills > 2
    report = stepwell("runs", "show", run_id, "--json").json
    if report["status"] != "completed":
        assert stepwell("runs", "resume", run_id).code == 0
    messages = stepwell("conversations", "show", "c1", "--json").json["messages"]
    roles = [message["role"] for message in messages]
    assert roles == ["user", *["assistant", "tool"] * 3, "assistant"]
    assert messages[-1]["content"] in ("I deleted the note about last year.", "It is gone.")
    assert not (project / "notes" / "last-year.md").exists()
    sequences = [event["seq"] for event in stepwell("runs", "events", run_id, "--json").json["items"]]
    assert sequences == list(range(1, len(sequences) + 1))
