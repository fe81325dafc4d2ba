"""`stepwell chat` as people and programs use it: a process with lines, and one at a real terminal."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest

from stepwell.cli.schemas import SCHEMAS
from tests.cli.schema_check import misfits
from tests.tools.test_commands import expire

PROJECT = """
from pathlib import Path
import asyncio
from stepwell import Context, Conversation, Entrypoint, Executor, node, parse_conversation_input, tool, workflow

HERE = Path(__file__).parent

@tool(mode="manual")
def erase(name: str) -> str:
    \"\"\"Erase a thing.\"\"\"
    with (HERE / "erased").open("a") as file:
        file.write(name + "\\n")
    return f"erased {name}"

@workflow
async def answer(data: dict, ctx: Context) -> dict:
    message = data["message"]
    await ctx.conversation.append_message({"role": "user", "content": message})
    if message.startswith("slow"):
        (HERE / "begun").touch()
        await asyncio.sleep(60)
    if message.startswith("erase"):
        reply = await ctx.tools.call("erase", name=message.partition(" ")[2])
    else:
        reply = f"**you said** {message}"
    async with ctx.output("reply", media_type="text/markdown") as out:
        await out.write(reply)
    await ctx.conversation.append_message({"role": "assistant", "content": reply})
    return {"text": reply}

executor = Executor(
    project_type="conversation", conversation=Conversation(input_queue=True), tools=[erase],
    entrypoints=[Entrypoint("main", answer, create_input=lambda args: {"message": parse_conversation_input(args).message})],
)
"""
MANIFEST = """
[project]
name = "talk"
version = "0"
[tool.stepwell]
project-id = "01936d3f-6a00-7000-8000-00000000c4a7"
executor = "talk:executor"
"""
COMMAND = [sys.executable, "-P", "-m", "stepwell"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "talk"
    made.mkdir()
    (made / "talk.py").write_text(PROJECT)
    (made / "pyproject.toml").write_text(MANIFEST)
    return made


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"STEPWELL_HOME": str(folder.parent / "home"), "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}


def lines(folder: Path, text: str, *options: str, timeout: float = 60) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, "chat", *options], cwd=folder, input=text, capture_output=True, text=True, timeout=timeout,
        check=False, env=environment(folder),
    )  # fmt: skip


def events(answer: "subprocess.CompletedProcess[str]") -> list[dict[str, Any]]:
    """What a chat printed as JSON lines: all of it as it is published."""
    read = [json.loads(line) for line in answer.stdout.splitlines()]
    for event in read:
        published = "chat_event" if event["type"].startswith("chat.") else "event"
        assert misfits(SCHEMAS[published], event) == [], event
    return read


def stored(folder: Path, conversation_id: str) -> list[str]:
    shown = subprocess.run(
        [*COMMAND, "conversations", "show", conversation_id, "--json"], cwd=folder, capture_output=True, text=True,
        check=True, env=environment(folder),
    )  # fmt: skip
    return [message["content"] for message in json.loads(shown.stdout)["messages"]]


# -- without a terminal -----------------------------------------------------------------------------------------------


def test_lines_are_messages_and_commands(folder: Path):
    answer = lines(folder, "hello\n/title Greetings\n//not a command\n/nonsense\n", "--conversation-id", "c1")
    assert "you said** hello" in answer.stdout
    assert "you said** /not a command" in answer.stdout
    assert "there is no command /nonsense" in answer.stderr
    assert stored(folder, "c1") == ["hello", "**you said** hello", "/not a command", "**you said** /not a command"]
    again = lines(folder, "more\n", "--continue", "--json")
    assert events(again)[0] == {"type": "chat.opened", "conversation_id": "c1"}
    assert stored(folder, "c1")[-1] == "**you said** more"


def test_events_come_in_order_and_say_everything(folder: Path):
    typed = "hello\n/title T\n/queue\n/help\n/export out.md\n/compact\n/nonsense\n"
    shown = events(lines(folder, typed, "--json"))
    of_run = [event["seq"] for event in shown if "seq" in event]
    assert of_run == list(range(1, len(of_run) + 1))
    kinds = [event["type"] for event in shown]
    for kind in ("chat.opened", "chat.accepted", "run.started", "output.chunk", "run.completed", "chat.ended",
                 "chat.title", "chat.queue", "chat.help", "chat.exported", "chat.compact", "chat.error"):  # fmt: skip
        assert kind in kinds


def test_a_request_id_is_taken_once(folder: Path):
    one = json.dumps({"message": "once", "request_id": "r1"})
    other = json.dumps({"message": "other", "request_id": "r1"})
    options = ("--conversation-id", "c1", "--json", "--json-input")
    first = events(lines(folder, f"{one}\n{one}\n", *options))
    second = events(lines(folder, f"{one}\n{other}\n", *options))
    accepted = [event for event in first + second if event["type"] == "chat.accepted"]
    assert [event["repeated"] for event in accepted] == [False, True, True]
    assert len({event["run_id"] for event in accepted}) == 1
    assert [event["error"]["code"] for event in second if event["type"] == "chat.error"] == ["message_conflict"]
    assert stored(folder, "c1") == ["once", "**you said** once"]


def test_files_go_with_the_message(folder: Path):
    (folder / "note.txt").write_text("content")
    shown = lines(folder, "/attach note.txt\nread @missing.txt please\n", "--json")
    problems = [event["error"]["code"] for event in events(shown) if event["type"] == "chat.error"]
    assert problems, "this project takes no files, and says so"


def test_a_conversation_is_exported_whole(folder: Path):
    lines(folder, "hello\n/export out.md\n/export out.json\n", "--conversation-id", "c1")
    assert "**you said** hello" in (folder / "out.md").read_text()
    assert json.loads((folder / "out.json").read_text())["messages"][0]["content"] == "hello"


def test_compacting_says_what_it_needs(folder: Path):
    answer = lines(folder, "hello\n/compact\n", "--conversation-id", "c1")
    assert "provider" in answer.stderr
    assert stored(folder, "c1") == ["hello", "**you said** hello"]


def test_a_tool_waits_and_is_answered_by_a_later_chat(folder: Path):
    first = lines(folder, "erase a\n", "--conversation-id", "c1")
    assert first.returncode == 7
    assert not (folder / "erased").exists()
    assert lines(folder, "/approve\nerase b\n", "--conversation-id", "c1").returncode == 7
    assert (folder / "erased").read_text() == "a\n"
    assert stored(folder, "c1") == ["erase a", "erased a", "erase b"]
    expire(folder.parent / "home")
    late = lines(folder, "erase c\n", "--conversation-id", "c1", timeout=30)
    assert "the call of erase was denied: nobody answered in time" in late.stderr
    assert 'waiting for approval of erase {"name": "c"}' in late.stderr


def test_what_waits_survives_a_killed_chat_in_order(folder: Path):
    chat = subprocess.Popen(
        [*COMMAND, "chat", "--conversation-id", "c1", "--json"], cwd=folder, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, env=environment(folder),
    )  # fmt: skip
    assert chat.stdin is not None
    chat.stdin.write("slow one\nsecond\nthird\n")
    chat.stdin.flush()
    assert chat.stdout is not None
    accepted = 0
    while accepted < 3:
        accepted += json.loads(chat.stdout.readline())["type"] == "chat.accepted"
    _until((folder / "begun").exists)
    busy = lines(folder, "hello\n", "--conversation-id", "c1", "--json")
    assert "conversation_busy" in busy.stdout + busy.stderr  # one writer
    chat.kill()
    chat.wait()
    shown = lines(folder, "/queue\n", "--conversation-id", "c1", timeout=30)
    assert re.search(r"second.*third", shown.stdout + shown.stderr, re.DOTALL)


# -- at a terminal ----------------------------------------------------------------------------------------------------


class Terminal:
    """A chat at a pseudo terminal; what it draws is kept without its control sequences."""

    def __init__(self, folder: Path, *options: str) -> None:
        pid, self._descriptor = pty.fork()
        if pid == 0:
            os.chdir(folder)
            os.execve(sys.executable, [*COMMAND, "chat", *options], environment(folder))
        self.pid = pid
        self.shown = ""
        termios.tcgetattr(self._descriptor)

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def see(self, pattern: str, seconds: float = 30) -> None:
        """Wait until something new on the screen matches."""
        deadline = monotonic() + seconds
        while not re.search(pattern, self.shown):
            assert monotonic() < deadline, (pattern, self.shown[-2_000:])
            if select.select([self._descriptor], [], [], 0.2)[0]:
                try:
                    raw = os.read(self._descriptor, 65_536).decode("utf-8", "replace")
                except OSError:
                    raw = ""
                self.shown += re.sub(r"\x1b\[[0-9;?]*[@-~]|\r", "", raw)
        self.shown = self.shown[re.search(pattern, self.shown).end() :]  # type: ignore[union-attr]

    def end(self) -> int:
        """Wait until it has left; its exit code."""
        deadline = monotonic() + 20
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self._descriptor)
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            assert monotonic() < deadline, self.shown[-2_000:]
            if select.select([self._descriptor], [], [], 0.1)[0]:
                try:
                    os.read(self._descriptor, 65_536)
                except OSError:
                    sleep(0.05)


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    made = Terminal(folder, "--conversation-id", "c1")
    made.see("for commands")
    yield made
    if made.pid:
        os.kill(made.pid, signal.SIGKILL)
        os.waitpid(made.pid, 0)


def test_a_person_talks_and_leaves(folder: Path, terminal: Terminal):
    terminal.type("hello\r")
    terminal.see("you said hello")  # the Markdown is rendered
    terminal.type("first line\x1b\rsecond line\r")
    terminal.see("you said first line")
    terminal.type("/qu")
    terminal.see("/quit")
    terminal.type("\x15/quit\r")
    assert terminal.end() == 0
    assert stored(folder, "c1")[2] == "first line\nsecond line"


def test_a_slash_offers_what_there_is_and_tab_completes_it(terminal: Terminal):
    terminal.type("/")
    terminal.see("/export")
    terminal.type("ti\t")
    terminal.see("/title")
    terminal.type("Fine\r")
    terminal.see("Fine")


def test_an_interrupt_stops_the_run_and_a_second_one_leaves(folder: Path, terminal: Terminal):
    terminal.type("slow\r")
    _until((folder / "begun").exists)
    terminal.type("\x03")
    terminal.see("cancelled")
    terminal.type("still here\r")
    terminal.see("you said still here")
    terminal.type("\x03\x03")
    terminal.end()


def test_messages_wait_while_a_run_is_active(folder: Path, terminal: Terminal):
    terminal.type("slow\r")
    _until((folder / "begun").exists)
    terminal.type("after it\r")
    terminal.see("after it")
    terminal.type("\x03")
    terminal.see("cancelled")
    terminal.type("/queue\r")
    terminal.see("after it")


def test_a_person_approves_and_denies_inline(folder: Path, terminal: Terminal):
    terminal.type("erase a\r")
    terminal.see("approve erase")
    terminal.type("y\r")
    terminal.see("erased a")
    terminal.type("erase b\r")
    terminal.see("approve erase")
    terminal.type("n not this one\r")
    terminal.see("denied: not this one")
    terminal.see("failed")
    terminal.type("erase c\r")
    terminal.see("approve erase")
    terminal.type("e\r")
    terminal.see("arguments>")
    terminal.type('\x15{"name": "d"}\r')
    terminal.see("erased d")
    assert (folder / "erased").read_text() == "a\nd\n"


def _until(condition: Any, seconds: float = 30) -> None:
    deadline = monotonic() + seconds
    while not condition():
        assert monotonic() < deadline
        sleep(0.05)
