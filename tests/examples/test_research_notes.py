"""The `research-notes` example through the real program, with a scripted model server as a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Result
from tests.examples.test_examples import EXAMPLES, ROOT

USAGE = {"input": 40, "output": 10, "reasoning": 2, "cache_read": 20}
NOTE = {"note_id": "ada-lovelace", "title": "Ada Lovelace", "markdown": "# Ada\n\nWrote the first program, in 1843."}
SCRIPT = [
    {"when": "created ada-lovelace", "text": "Noted.", "usage": USAGE},
    {"when": "replaced ada-lovelace", "text": "Brought up to date.", "usage": USAGE},
    {"when": "Wrote the first program", "text": "She wrote the first program (ada-lovelace).", "usage": USAGE},
    {"when": "- ada-lovelace: Ada Lovelace", "tool_calls": [
        {"name": "search_notes", "arguments": {"text": "PROGRAM"}},
        {"name": "read_note", "arguments": {"note_id": "ada-lovelace"}},
    ], "text": "I look.", "usage": USAGE},
    {"tool_calls": [{"name": "write_note", "arguments": NOTE}], "usage": USAGE},
]  # fmt: skip


@pytest.fixture(params=["openai-compatible"])  # every format is in tests/llm: these start many processes
def stepwell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Result]]:
    """Run the program in the example, with a model that speaks one wire format; every command is a process."""
    kind = request.param
    script = [*getattr(request.function, "first_steps", []), *SCRIPT]
    (tmp_path / "script.json").write_text(json.dumps(script))
    server = subprocess.Popen(
        [sys.executable, ROOT / "tests" / "scripted_model_server.py", tmp_path / "script.json"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    url = server.stdout.readline().strip()
    environment = os.environ | {
        "NO_COLOR": "1", "ANTHROPIC_API_KEY" if kind == "anthropic" else "OPENAI_API_KEY": "canary-0123456789",
        "STEPWELL_PROVIDERS__DEFAULT__TYPE": kind,
        "STEPWELL_PROVIDERS__DEFAULT__BASE_URL": url if kind == "anthropic" else f"{url}/v1",
    }  # fmt: skip

    def run(*arguments: str, after: int | None = None) -> Result:
        """Run a command; with `after`, kill it when it has printed so many lines."""
        started = subprocess.Popen(
            [sys.executable, "-P", "-m", "stepwell", *arguments], cwd=EXAMPLES / "research-notes", env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if after is not None:
            lines = [line for line, _ in zip(started.stdout, range(after), strict=False)]
            started.send_signal(signal.SIGKILL)
            started.communicate()
            return Result(9, "".join(lines), "")
        out, err = started.communicate(timeout=60)
        assert "Traceback" not in err, err
        assert "canary" not in out + err
        return Result(started.returncode, out, err)

    yield run
    server.kill()
    server.wait()


@pytest.mark.parametrize("stepwell", ["anthropic", "openai"], indirect=True)
def test_notes_are_written_searched_and_cited(stepwell):
    noted = stepwell("run", ".", "--conversation-id", "ada", "--", "--message", "Note who Ada was")
    assert (noted.code, noted.out) == (0, "Noted.\n"), noted.err
    (listed,) = stepwell("knowledge", "list", "--json").json["items"]
    assert (listed["id"], listed["title"], listed["version"]) == ("ada-lovelace", "Ada Lovelace", 1)
    asked = stepwell("run", ".", "--conversation-id", "other", "--", "--message", "What do we know about Ada?")
    assert asked.out == "I look.\nShe wrote the first program (ada-lovelace).\n", asked.err
    messages = stepwell("conversations", "show", "other", "--json").json["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert json.loads(messages[2]["content"])[0]["text"] == "Wrote the first program, in 1843."
    index = stepwell("run", ".", "-e", "index")
    assert index.out.startswith("- Ada Lovelace (ada-lovelace): ")
    total = stepwell("usage", "--json").json["tokens"]
    assert (total["calls"], total["total"], total["cache_read"]) == (4, 200, 80)


@pytest.mark.crash
def test_a_run_killed_again_and_again_writes_one_note(stepwell):
    arguments = ["run", ".", "--conversation-id", "ada", "--jsonl", "--", "--message", "Note who Ada was"]
    run_id, kills = "", 0
    for after in (6, 7, 8, 9):
        seen = [json.loads(line) for line in stepwell(*arguments, after=after).out.splitlines()]
        run_id = seen[0]["run_id"]
        if any(event["type"] == "run.completed" for event in seen):
            break
        kills += 1
        arguments = ["runs", "resume", run_id, "--jsonl"]
    assert kills
    if stepwell("runs", "show", run_id, "--json").json["status"] != "completed":
        resumed = stepwell("runs", "resume", run_id)
        assert resumed.code == 0, resumed.err
    assert [item["id"] for item in stepwell("knowledge", "list", "--json").json["items"]] == ["ada-lovelace"]
    messages = stepwell("conversations", "show", "ada", "--json").json["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "tool", "assistant"]
    events = stepwell("runs", "events", run_id, "--json").json["items"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


def test_deleting_a_note_waits_for_a_person(stepwell):
    assert stepwell("run", ".", "--", "--message", "Note who Ada was").code == 0
    waiting = stepwell("run", ".", "--", "--message", "Forget Ada")
    assert waiting.code == 7, waiting.err
    (request,) = stepwell("approvals", "list", "--json").json["items"]
    assert request["arguments"] == {"note_id": "ada-lovelace"}
    done = stepwell("approvals", "approve", request["id"])
    assert (done.code, done.out) == (0, "Forgotten.\n"), done.err
    assert stepwell("knowledge", "list", "--json").json["items"] == []


test_deleting_a_note_waits_for_a_person.first_steps = [  # type: ignore[attr-defined]
    {"when": "deleted ada-lovelace", "text": "Forgotten.", "usage": USAGE},
    {"when": "Forget Ada", "tool_calls": [{"name": "delete_note", "arguments": {"note_id": "ada-lovelace"}}]},
]
