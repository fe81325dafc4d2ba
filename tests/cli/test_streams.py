"""Terminals, pipes, encodings, full disks, closed streams."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import SECONDS, Program, write_workflow

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
HOSTILE = "a\x1b[31mred\x1b]0;title\x07\u202egnp\u2066\x9b2J\x85\u2028 \u200f中文 👩‍🚀 e\u0301"


def on_terminal(
    program: Program, *arguments: str, answer: bytes = b"", which: str = "all", **environment: str
) -> tuple[int, str]:
    """Run with the chosen streams on a pseudo-terminal; returns the exit code and what the terminal received."""
    master, slave = pty.openpty()
    streams = {"stdin": slave, "stdout": slave, "stderr": slave}
    if which != "all":
        streams = {name: slave if name in which else subprocess.DEVNULL for name in streams}
    process = subprocess.Popen(
        program.command(*arguments), cwd=program.folder, env={**os.environ, "TERM": "xterm", **environment}, **streams
    )
    os.close(slave)
    if answer:
        os.write(master, answer)
    received = b""
    # Reading a pseudo-terminal whose other end is closed fails with EIO on Linux and ends elsewhere.
    while select.select([master], [], [], SECONDS)[0]:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        received += part
    os.close(master)
    return process.wait(SECONDS), received.decode("utf-8", "replace").replace("\r\n", "\n")


def test_a_table_on_a_terminal(program: Program) -> None:
    program("kv", "set", "stock:7", "[1, 2]")
    code, shown = on_terminal(program, "kv", "list")
    assert code == 0
    assert "key" in shown
    assert "revision" in shown
    assert "stock:7" in shown
    assert COLOUR.search(shown)


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("--no-color",), {}),
        ((), {"NO_COLOR": "1"}),
        ((), {"TERM": "dumb"}),
        ((), {"NO_COLOR": "1", "FORCE_COLOR": "1"}),
    ],
)
def test_no_colours_where_they_are_not_wanted(
    program: Program, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    write_workflow(program.folder, "await ctx.progress(1, 2, 'half')\nreturn await step(1)")
    for command in (("kv", "get", "missing"), ("run", "."), ("runs", "list")):
        _, shown = on_terminal(program, *arguments, *command, **environment)
        assert not COLOUR.search(shown), shown


def test_no_color_that_is_empty_means_nothing(program: Program) -> None:
    assert COLOUR.search(on_terminal(program, "kv", "get", "missing", NO_COLOR="")[1])


def test_colours_in_a_pipe_only_if_forced(program: Program) -> None:
    assert not COLOUR.search(program("kv", "get", "missing").err)
    assert not COLOUR.search(program("kv", "get", "missing", FORCE_COLOR="0").err)
    assert COLOUR.search(program("kv", "get", "missing", FORCE_COLOR="1").err)


def test_a_terminal_never_obeys_stored_text(program: Program) -> None:
    key = "k\u202e\x1b[2J"
    assert program("kv", "set", key, json.dumps(HOSTILE)).code == 0
    assert (
        program("knowledge", "create", HOSTILE.replace("\x85", " "), "-", "--id", "d", stdin=HOSTILE.encode()).code == 0
    )
    write_workflow(
        program.folder,
        f'async with ctx.output("a") as out:\n    await out.write({HOSTILE!r})\nraise ValueError({HOSTILE!r})',
    )
    for command in (
        ("kv", "get", key), ("kv", "get", key, "--json"), ("kv", "list"), ("kv", "list", "--json"), ("run", "."),
        ("run", ".", "--jsonl"), ("run", ".", "--json"), ("runs", "list"), ("knowledge", "get", "d"),
        ("knowledge", "list"), ("knowledge", "search", "red"), ("knowledge", "search", "red", "-A", "1"),
        ("knowledge", "lines", "d", "1", "3"), ("kv", "get", f"{key}-not-there"), ("kv", "delete", key),
        ("kv", "set", "x", HOSTILE), ("run", ".", "-e", HOSTILE), (HOSTILE,), ("kv", "get", f"--{HOSTILE}"),
    ):  # fmt: skip
        _, shown = on_terminal(program, *command, answer=b"n\n" if "delete" in command else b"")
        shown = COLOUR.sub("", shown.replace("\x1b[31mred", "OBEYED")).replace("\r\x1b[K", "").replace("\x1b[K", "")
        assert "OBEYED" not in shown, command
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", shown), (
            command,
            shown,
        )


def test_json_on_a_terminal_is_still_the_same_json(program: Program) -> None:
    program("kv", "set", "k", json.dumps(HOSTILE + "\U000e0001"))
    _, shown = on_terminal(program, "kv", "get", "k")
    assert json.loads(shown) == HOSTILE + "\U000e0001"
    assert "中文 👩‍🚀" in shown


def test_a_pipe_gets_the_bytes(program: Program) -> None:
    markdown = "# Title\r\nno line feed at the end \u202e中文"
    program("knowledge", "create", "T", "-", "--id", "d", stdin=markdown.encode())
    process = subprocess.run(
        program.command("knowledge", "get", "d"), cwd=program.folder, capture_output=True, check=True
    )
    assert process.stdout == markdown.encode()


def test_asking_before_something_is_destroyed(program: Program) -> None:
    program("kv", "set", "k", "1")
    code, shown = on_terminal(program, "kv", "delete", "k", answer=b"n\n")
    assert code == 130
    assert "delete the entry k?" in shown
    assert program("kv", "get", "k").code == 0
    assert on_terminal(program, "kv", "delete", "k", answer=b"\x04")[0] == 130
    assert on_terminal(program, "kv", "delete", "k", answer=b"y\n")[0] == 0
    assert program("kv", "get", "k").code == 3


def test_node_progress_on_a_terminal_leaves_no_trace_in_the_output(program: Program) -> None:
    write_workflow(
        program.folder,
        'ctx.progress(1, 2, "half\\nway")\nawait step(1)\nasync with ctx.output("a") as out:\n'
        '    await out.write("one ")\n    await step(2)\n    await out.write("line\\n")',
    )
    _, shown = on_terminal(program, "run", ".")
    assert "half way" in shown
    assert "one line\n" in shown
    assert on_terminal(program, "run", ".", which="stdout")[1] == "one line\n"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-8", "utf-16", "gbk"])
def test_a_terminal_of_another_encoding_loses_nothing(program: Program, encoding: str) -> None:
    program("kv", "set", "k", '"é 中文 😀 \\ud800"')
    write_workflow(program.folder, 'raise ValueError("é 中文 😀")')
    for command in (
        ("kv", "get", "k"),
        ("kv", "get", "k", "--json"),
        ("kv", "list", "--json"),
        ("run", "."),
        ("--help",),
    ):
        done = subprocess.run(
            program.command(*command), cwd=program.folder, capture_output=True, check=False,
            env={**os.environ, "PYTHONIOENCODING": encoding},
        )  # fmt: skip
        assert done.returncode in (0, 1)
        assert b"Traceback" not in done.stderr
        assert b"internal error" not in done.stderr
        if "get" in command:
            value = json.loads(done.stdout.decode(encoding, "surrogatepass"))
            assert (value["value"] if "--json" in command else value) == "é 中文 😀 \ud800"


def test_no_locale_at_all(program: Program) -> None:
    program("kv", "set", "k", '"é 中文"')
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHON"))}
    done = subprocess.run(
        program.command("kv", "get", "k"), cwd=program.folder, capture_output=True, check=True,
        env={**environment, "LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"},
    )  # fmt: skip
    assert json.loads(done.stdout) == "é 中文"


COMMANDS = [
    ("--version",), ("--help",), ("kv", "get", "k"), ("kv", "list"), ("kv", "list", "--json"), ("doctor",),
    ("kv", "get", "missing"),
]  # fmt: skip


@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_has_gone(program: Program, command: tuple[str, ...], buffered: str) -> None:
    program("kv", "set", "k", '"' + "x" * 100_000 + '"')
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        program.command(*command), cwd=program.folder, stdout=writer, stderr=subprocess.PIPE, text=True, check=False,
        env={**os.environ, "PYTHONUNBUFFERED": buffered},
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == (3 if "missing" in command else 0)
    assert "rror" not in done.stderr.replace("error: there is no entry", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("buffered", ["", "1"])
@pytest.mark.parametrize("command", [c for c in COMMANDS if "missing" not in c])
def test_output_that_cannot_be_written_is_told(program: Program, command: tuple[str, ...], buffered: str) -> None:
    program("kv", "set", "k", '"' + "x" * 100_000 + '"')
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            program.command(*command), cwd=program.folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env={**os.environ, "PYTHONUNBUFFERED": buffered},
        )  # fmt: skip
    assert done.returncode == 6, done.stderr
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_from_the_start(program: Program, closed: str) -> None:
    for command, code in (
        (("kv", "set", "k", "1"), 0),
        (("kv", "get", "k"), 0),
        (("kv", "get", "no"), 3),
        (("run", "."), 0),
    ):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closed}', "sh", *program.command(*command)],
            cwd=program.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == code, (command, done.stderr)
        assert "Traceback" not in done.stderr


def test_a_reader_that_is_slow_gets_everything(program: Program) -> None:
    write_workflow(
        program.folder,
        'async with ctx.output("a") as out:\n    for n in range(3000):\n        await out.write("x" * 99 + "\\n")',
    )
    with program.start("run", ".", "-q") as running:
        assert running.stdout is not None
        received: list[str] = []
        read: Callable[[], None] = lambda: received.extend(running.stdout or ())  # noqa: E731
        reader = threading.Thread(target=read)
        threading.Event().wait(0.5)  # the pipe is full by now
        reader.start()
        reader.join(SECONDS)
        assert running.wait(SECONDS) == 0
    assert len(received) == 3000


def test_quiet_says_nothing_but_data_and_errors(program: Program) -> None:
    program("kv", "set", "k", "1")
    assert program("-q", "kv", "get", "k").err == ""
    assert program("kv", "list", "--prefix", "zz", "-q").err == ""
    assert program("-q", "kv", "get", "missing").err.startswith("error: ")


def test_verbose_tells_of_nodes(program: Program) -> None:
    write_workflow(program.folder, "return await step(1)")
    assert "step" in program("run", ".", "-v").err
    assert "step" not in program("run", ".").err


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_interrupting_a_command_that_is_no_run(program: Program) -> None:
    import signal

    with program.start("kv", "watch") as watching:
        assert watching.stderr is not None
        watching.stderr.readline()
        watching.send_signal(signal.SIGINT)
        _, err = watching.communicate(timeout=SECONDS)
    assert watching.returncode == 130
    assert "Traceback" not in err
