"""`stepwell run`: output, reports, events, exit codes, interruption."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Program, write_workflow

STREAM = """
async with ctx.output("answer") as out:
    await out.write("first\\n")
    await asyncio.sleep(data.get("seconds", 0))
    await out.write("second")
return {"n": await step(1)}
"""
STUBBORN = """
async with ctx.output("answer") as out:
    await out.write("ready\\n")
while True:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        pass
"""


def test_output_on_stdout_talk_on_stderr(program: Program) -> None:
    write_workflow(program.folder, STREAM)
    result = program("run", ".")
    assert result.code == 0
    assert result.out == "first\nsecond\n"
    assert "completed" in result.err
    assert program("run", ".", "-q").err == ""


def test_json_prints_the_report_alone(program: Program) -> None:
    write_workflow(program.folder, 'print("noise")\nsys.stdout.flush()\nreturn {"said": data}')
    result = program("run", "--json", "--", "--name", "Ada", "--json")
    report = result.json
    assert (result.code, report["status"], report["output"]) == (
        0,
        "completed",
        {"said": {"name": "Ada", "json": True}},
    )
    assert report["error"] is None
    assert "noise" in result.err
    assert program("run", "--json", "--project", ".").json["output"] == {"said": {}}


def test_noise_at_import_does_not_break_json(program: Program) -> None:
    module = program.folder / "demo.py"
    module.write_text('print("loading")\n' + module.read_text())
    assert program("run", "--json").json["status"] == "completed"
    assert program("describe", "--json").json["name"] == "Demo"
    assert program("doctor", "--json").json["ok"] is True
    assert all(event["seq"] for event in program("run", "--jsonl").lines)


def test_jsonl_prints_every_event_in_order(program: Program) -> None:
    write_workflow(program.folder, STREAM)
    result = program("run", ".", "--jsonl")
    events = result.lines
    assert result.code == 0
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert (events[0]["type"], events[-1]["type"]) == ("run.started", "run.completed")
    assert "".join(event["text"] for event in events if event["type"] == "output.chunk") == "first\nsecond"
    stored = program("runs", "events", events[0]["run_id"], "--jsonl")
    assert stored.lines == events


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (("run", "--", "--name", "x"), {"name": "x"}),
        (("run", ".", "--", "--name", "x"), {"name": "x"}),
        (("run", ".", "--", "--", "--name"), None),
        (("run", "--", '{"a": [1]}'), {"a": [1]}),
        (("run", ".", "--", "--text=-q", "--n", "-5"), {"text": "-q", "n": -5}),
        (("run", "--", "--empty", ""), {"empty": ""}),
        (("run", "--", "--text", "line\nbreak 'quoted' \"twice\""), {"text": "line\nbreak 'quoted' \"twice\""}),
        (("run", ".", '{"a": 1}'), {"a": 1}),
        (("run", "--"), {}),
    ],
)
def test_what_stands_behind_the_dashes_goes_to_the_entrypoint(
    cli: Cli, project: Path, arguments: tuple[str, ...], given: object
) -> None:
    write_workflow(project, "return data")
    result = cli(arguments[0], "--json", *arguments[1:])
    if given is None:
        assert (result.code, result.error["code"]) == (2, "input_invalid")
    else:
        assert result.json["output"] == given


def test_a_failed_run(program: Program) -> None:
    write_workflow(program.folder, 'raise ValueError("it \\x1b[31mbroke")')
    result = program("run", ".")
    assert result.code == 1
    assert "ValueError: it" in result.err
    assert "Traceback" not in result.out + result.err
    report = program("run", ".", "--json")
    assert report.code == 1
    assert report.json["status"] == "failed"
    assert report.json["error"]["type"] == "ValueError"


@pytest.mark.parametrize("code", ["sys.exit(3)", "raise KeyboardInterrupt", "os.close(1)", "raise BaseException('x')"])
def test_user_code_that_misbehaves_gets_no_traceback(program: Program, code: str) -> None:
    write_workflow(program.folder, code)
    result = program("run", ".")
    assert result.code in (0, 1, 6, 130)
    assert "Traceback" not in result.out + result.err


@pytest.mark.parametrize("option", ["nan", "inf", "-1", "0", "x", "1e300"])
def test_a_timeout_is_a_number_of_seconds(cli: Cli, option: str) -> None:
    assert cli("run", ".", "--timeout", option, "--json").error["code"] == "usage"


def test_timeout(program: Program) -> None:
    write_workflow(program.folder, STREAM)
    result = program("run", ".", "--timeout", "0.5", "--json", "--", "--seconds", "60")
    assert (result.code, result.json["status"]) == (124, "cancelled")
    assert program("run", ".", "--timeout", "60").code == 0


def test_the_first_interrupt_cancels_gracefully(program: Program) -> None:
    write_workflow(
        program.folder,
        'try:\n    async with ctx.output("a") as out:\n        await out.write("ready\\n")\n'
        '        await asyncio.sleep(60)\nfinally:\n    await ctx.storage.local.kv.set_value("cleaned", True)',
    )
    with program.start("run", ".") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Traceback" not in err
    assert "Ctrl-C again" in err
    assert program("kv", "get", "cleaned").out == "true\n"
    (report,) = program("runs", "list", "--json").json["items"]
    assert (report["status"], report["interrupted"]) == ("cancelled", False)


def test_the_second_interrupt_ends_it_at_once(program: Program) -> None:
    write_workflow(program.folder, STUBBORN)
    with program.start("run", ".") as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(signal.SIGINT)
        assert "Ctrl-C again" in running.stderr.readline()
        running.send_signal(signal.SIGINT)
        assert running.wait(30) == 130
    (report,) = program("runs", "list", "--json").json["items"]
    assert (report["status"], report["interrupted"]) == ("running", True)


def test_interrupted_while_the_project_is_imported(program: Program) -> None:
    (program.folder / "demo.py").write_text("import sys, time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    with program.start("run", ".") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "importing\n"
        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=30)
    assert running.returncode == 130
    assert "Traceback" not in err


def test_a_killed_run_is_interrupted_and_can_be_resumed(program: Program) -> None:
    write_workflow(
        program.folder,
        "first = await step(1)\nif not os.path.exists('go'):\n    async with ctx.output('a') as out:\n"
        "        await out.write('ready\\n')\n    await asyncio.sleep(60)\nreturn first",
    )
    with program.start("run", ".") as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        # What was written reaches the journal at the latest 50 ms later; the kill must find it there.
        (report,) = program("runs", "list", "--json").json["items"]
        running.kill()
    assert report["status"] == "running"
    shown = program("runs", "show", report["run_id"])
    assert "resume" in shown.out
    assert program("runs", "follow", report["run_id"]).code == 1
    (program.folder / "go").touch()
    resumed = program("runs", "resume", report["run_id"], "--json")
    assert (resumed.code, resumed.json["status"]) == (0, "completed")
    assert program("runs", "cancel", report["run_id"], "--json").code == 4


def test_a_broken_pipe_ends_nothing_but_the_printing(program: Program) -> None:
    write_workflow(
        program.folder,
        'for number in range(2000):\n    async with ctx.output(f"o{number}") as out:\n'
        '        await out.write("x" * 100 + "\\n")\nawait ctx.storage.local.kv.set_value("ended", True)',
    )
    for option in ((), ("--jsonl",)):
        program("kv", "delete", "ended", "--yes")
        with program.start("run", ".", *option) as running:
            assert running.stdout is not None
            running.stdout.readline()
            running.stdout.close()
            assert running.stderr is not None
            err = running.stderr.read()
            assert running.wait(60) == 0
        assert "Traceback" not in err
        assert "Exception ignored" not in err
        assert program("kv", "get", "ended").out == "true\n"


def test_detach_and_follow(program: Program) -> None:
    write_workflow(program.folder, STREAM)
    result = program("run", ".", "--detach", "--json", "--", "--seconds", "1")
    assert result.code == 0
    started = result.json
    assert started["status"] == "running"
    followed = program("runs", "follow", started["run_id"])
    assert (followed.code, followed.out) == (0, "first\nsecond\n")
    events = program("runs", "follow", started["run_id"], "--jsonl").lines
    assert events[-1]["type"] == "run.completed"
    assert program("runs", "events", started["run_id"], "--follow", "--jsonl").lines == events
    assert program("runs", "show", started["run_id"], "--json").json["status"] == "completed"


def test_detach_tells_why_it_did_not_start(program: Program) -> None:
    for arguments, code, name in (
        (("--", "stray words", "here"), 2, "input_invalid"), (("-e", "nope"), 3, "entrypoint_not_found"),
        (("--conversation-id", ""), 2, "invalid_id"),
    ):  # fmt: skip
        result = program("run", ".", "--detach", "--json", *arguments)
        assert (result.code, result.error["code"]) == (code, name)
    assert program("runs", "list", "--json").json["items"] == []


def test_a_module_in_the_current_folder_does_not_take_our_place(program: Program) -> None:
    (program.folder / "stepwell.py").write_text("raise SystemExit('not the program')\n")
    assert program("run", ".", "--detach", "--json").code == 0


def test_cancel_from_another_process(program: Program) -> None:
    write_workflow(program.folder, STREAM)
    with program.start("run", ".", "--jsonl", "--", "--seconds", "60") as running:
        assert running.stdout is not None
        run_id = json.loads(running.stdout.readline())["run_id"]
        assert program("runs", "delete", run_id, "--yes", "--json").error["code"] == "run_state_conflict"
        assert program("runs", "cancel", run_id).code == 0
        running.communicate(timeout=30)
    assert program("runs", "show", run_id, "--json").json["status"] == "cancelled"
    assert program("runs", "cancel", run_id).code == 4


def test_related_project_options_are_checked(cli: Cli, project: Path, tmp_path: Path) -> None:
    good = f"stock={tmp_path}"
    for wrong in (("stock",), ("stock=relative",), ("=/tmp",), (good, good), (f"stock={tmp_path}/missing",)):
        options = [part for value in wrong for part in ("--related-project", value)]
        result = cli("run", ".", *options, "--json")
        assert (result.code, result.error["code"]) == (2, "invalid_argument"), wrong
    assert cli("run", ".", "--related-project", good).code == 0


def test_token_totals(cli: Cli, project: Path) -> None:
    empty = cli("usage", "--json").json
    assert set(empty["tokens"].values()) == {0}
    write_workflow(project, "await ctx.token_usage.report(TokenReport(input_tokens=5, output_tokens=2))")
    for _ in range(2):
        assert cli("run", ".", "--conversation-id", "c1", "--json").json["tokens"]["total"] == 7
    assert cli("usage", "--json").json["tokens"]["total"] == 14
    assert cli("usage", "--json").json["tokens"]["calls"] == 2
    assert "total 14" in cli("usage").out


def test_runs_list_pages_and_filters(cli: Cli, project: Path) -> None:
    write_workflow(project, "if data.get('fail'):\n    raise ValueError('no')\nreturn 1")
    ids = [cli("run", ".", "--json", "--", "--name", f"n{number}").json["run_id"] for number in range(5)]
    failed = cli("run", ".", "--json", "--", "--fail").json["run_id"]
    found, cursor = [], None
    while True:
        page = cli("runs", "list", "--limit", "2", "--json", *(() if cursor is None else ("--cursor", cursor))).json
        found += [run["run_id"] for run in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [failed, *reversed(ids)]
    (run,) = cli("runs", "list", "--status", "failed", "--json").json["items"]
    assert run["run_id"] == failed
    assert cli("runs", "list", "--status", "done", "--json").error["code"] == "invalid_argument"
    assert cli("runs", "list", "--cursor", "x", "--json").error["code"] == "invalid_cursor"
    assert cli("runs", "delete", failed).code == 2
    assert cli("runs", "delete", failed, "--yes").code == 0
    for command in ("show", "events", "follow", "resume", "cancel"):
        assert cli("runs", command, failed, "--json").error["code"] == "run_not_found"


def test_stdin_stays_with_the_workflow(program: Program) -> None:
    write_workflow(program.folder, "return sys.stdin.read()")
    assert program("run", ".", "--json", stdin=b"given").json["output"] == "given"


def test_the_environment_variable_decides_where_data_goes(program: Program, tmp_path: Path) -> None:
    home = tmp_path / "elsewhere"
    assert program("run", ".", STEPWELL_HOME=str(home)).code == 0
    assert sorted(path.name for path in home.iterdir() if path.is_dir()) == ["journal", "kv"]
    if os.name == "posix":
        assert {oct(path.stat().st_mode & 0o777) for path in home.rglob("*") if path.is_file()} == {"0o600"}
    assert program("runs", "list", "--json").json["items"] == []
