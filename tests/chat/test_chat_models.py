"""`stepwell chat` with an agent whose model is asked over HTTP: attachments and `/compact`."""

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chat.test_chat import COMMAND, MANIFEST, environment, events, lines, stored
from tests.scripted_model_server import ScriptedServer

PROJECT = """
from stepwell import Context, Conversation, Entrypoint, Executor, TokenUsage, message_of, parse_conversation_input, workflow

@workflow
async def answer(args: list, ctx: Context) -> dict:
    message = await message_of(parse_conversation_input(args), ctx.files)
    return {"text": (await ctx.agent().run([message])).text}

executor = Executor(
    project_type="conversation", conversation=Conversation(attachments=["images", "files"]),
    entrypoints=[Entrypoint("main", answer, create_input=lambda args: list(args), token_usage=TokenUsage(enabled=True))],
)
"""
PROVIDER = """
[tool.stepwell.providers.default]
type = "openai-compatible"
model = "scripted"
base-url = "URL/v1"
"""
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
USAGE = {"input": 10, "output": 2}


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    script = [
        {"when": "You compact conversations", "text": "They talked about a note.", "usage": USAGE},
        {"text": "I see.", "usage": USAGE},
    ]
    with ScriptedServer(script) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path, server: ScriptedServer) -> Path:
    made = tmp_path / "talk"
    made.mkdir()
    (made / "talk.py").write_text(PROJECT)
    (made / "pyproject.toml").write_text(MANIFEST + PROVIDER.replace("URL", server.url))
    (made / "note.txt").write_text("the secret word is heron")
    (made / "dot.png").write_bytes(PICTURE)
    return made


def test_attachments_reach_the_model_and_a_summary_takes_the_place_of_what_was_said(
    folder: Path, server: ScriptedServer
):
    typed = "read @note.txt\n/attach dot.png\nwhat is this?\n/compact\ngo on\n"
    shown = events(lines(folder, typed, "--conversation-id", "c1", "--json"))
    assert [event for event in shown if event["type"] == "chat.error"] == []
    asked = [json.dumps(request["body"]) for request in server.requests]
    assert len(asked) == 4

    # What was attached reaches the model whole; the run's input and the conversation hold a reference to it.
    assert "the secret word is heron" in asked[0]
    assert base64.b64encode(PICTURE).decode() in asked[1]
    inputs = [event["input"] for event in shown if event["type"] == "run.started" and event["entrypoint"] == "main"]
    (file,), (image,) = [
        [word for word in given if word.partition("=")[2].startswith("artifact://") or word.startswith("artifact://")]
        for given in inputs[:2]
    ]
    assert file != image
    kept = json.dumps(inputs) + json.dumps(stored(folder, "c1"))
    assert "heron" not in kept
    assert base64.b64encode(PICTURE).decode() not in kept

    # `/compact` shows how it goes, is counted, and the model reads the summary from then on.
    states = [event.get("state") for event in shown if event["type"] == "chat.compact"]
    assert states == ["running", "completed"]
    (ended,) = [
        event["report"]
        for event in shown
        if event["type"] == "chat.ended" and event["report"]["entrypoint"] == "conversation:compact"
    ]
    assert (ended["status"], ended["tokens"]["total"]) == ("completed", 12)
    assert "(attached note.txt)" in asked[2]
    assert "They talked about a note." in asked[3]
    assert "heron" not in asked[3]
    assert stored(folder, "c1") == ["read @note.txt", "I see.", "what is this?", "I see.", "go on", "I see."]

    # The files go with their conversation.
    deleted = subprocess.run(
        [*COMMAND, "conversations", "delete", "c1", "--yes", "--json"], cwd=folder, env=environment(folder),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(deleted.stdout) == {"conversation_id": "c1", "removed": True, "messages": 6, "files": 2}
    assert list((folder.parent / "home" / "files" / "refs").iterdir()) == []


def test_a_killed_compaction_is_resumed(folder: Path, server: ScriptedServer):
    server.script[0] |= {"delay": 30}
    with subprocess.Popen(
        [*COMMAND, "chat", "--conversation-id", "c1", "--json"], cwd=folder, env=environment(folder),
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
    ) as chat:  # fmt: skip
        assert chat.stdin is not None
        chat.stdin.write("hello\n/compact\n")
        chat.stdin.flush()
        deadline = time.monotonic() + 30
        while len(server.requests) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        chat.kill()
    assert len(server.requests) == 2
    server.script[0] |= {"delay": 0}
    later = events(lines(folder, "wait\n/resume\ngo on\n", "--conversation-id", "c1", "--json"))
    (cut,) = [event["run_id"] for event in later if event["type"] == "chat.interrupted"]
    ended = [event["report"] for event in later if event["type"] == "chat.ended" and event["report"]["run_id"] == cut]
    assert [(report["status"], report["output"]["upto"]) for report in ended] == [("completed", 2)]
    # What was said in between is not among what was summarised, and the model still sees it.
    asked = json.dumps(server.requests[-1]["body"])
    assert ("They talked about a note." in asked, "hello" in asked, "wait" in asked) == (True, False, True)
