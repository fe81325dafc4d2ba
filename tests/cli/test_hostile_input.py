"""Whatever the command line is given, it answers with one clear message and an exit code: never a traceback."""

import os
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwell.cli.app import COMMANDS
from tests.cli.conftest import Cli, Program, Result

ANSWERING = sorted(set(COMMANDS) - {"server"})  # which goes on until it is stopped
SUBCOMMANDS = (
    "list show get set delete watch search lines create edit check import export rename events cancel resume origin "
    "exit-codes bash report"
).split()
OPTIONS = (
    "--json --yes --limit --cursor --prefix --conversation-id --domain --location --workflow --string --status --text "
    "--after --before --timeout --entrypoint --related-project -q -v -e -B -A -- - --no-color --id --title --file "
    "--template --name"
).split()
# Not: commands that go on until they are stopped (watch), --debug (it shows tracebacks), --project (elsewhere).
WORDS = [
    *ANSWERING,
    *SUBCOMMANDS,
    *OPTIONS,
    "kv",
    "persistent_value",
    "local",
    "server",
    ".",
    "/nonexistent",
    "0",
    "-1",
    "1",
]
HOSTILE = ["", " ", "\x00", "\ud800", "\udcff", "é", "中文", "😀", "\u202e", "\x1b[31m", "' OR 1=1 --", "%", "_", "../..",
           "a" * 2_000, "{", "[" * 1_000, "NaN", "1e999", "9" * 5_000, "{}", "--=", "=", "\n", "%s%n", "{0}", "$(id)", "*"]  # fmt: skip
ARGUMENTS = st.lists(
    st.sampled_from(WORDS) | st.sampled_from(HOSTILE) | st.text(string.printable, max_size=6), max_size=7
)


def is_clear(result: Result) -> bool:
    told = result.err
    return result.code in range(8) and "Traceback" not in told and "nternal" not in told and "Exception" not in told


@given(arguments=ARGUMENTS)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_arguments(cli: Cli, arguments: list[str]) -> None:
    if "watch" in arguments:
        arguments = [word for word in arguments if word != "watch"]
    result = cli(*arguments)
    assert is_clear(result), (arguments, result)
    if result.code not in (0, 1) and "--json" in arguments and "--" not in arguments and "--jsonl" not in arguments:
        assert result.error["code"], arguments


@given(command=st.sampled_from(ANSWERING), rest=ARGUMENTS)
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_arguments_of_each_command(cli: Cli, command: str, rest: list[str]) -> None:
    result = cli(command, *(word for word in rest if word != "watch"))
    assert is_clear(result), (command, rest, result)


CALLS = [
    ("kv", "get", "{}"), ("kv", "set", "{}", "1"), ("kv", "set", "k", "{}"), ("kv", "set", "k", "--string", "{}"),
    ("kv", "list", "--prefix", "{}"), ("kv", "list", "--cursor", "{}"), ("kv", "get", "k", "--conversation-id", "{}"),
    ("kv", "list", "--limit", "{}"), ("kv", "delete", "{}", "--yes"), ("runs", "show", "{}"), ("runs", "events", "{}"),
    ("runs", "list", "--cursor", "{}"), ("runs", "list", "--status", "{}"), ("runs", "list", "--text", "{}"),
    ("runs", "cancel", "{}"), ("runs", "resume", "{}"), ("runs", "delete", "{}", "--yes"), ("runs", "follow", "{}"),
    ("run", ".", "-e", "{}"), ("run", ".", "--", "{}"), ("run", ".", "--", "--name", "{}"), ("run", "{}"),
    ("run", ".", "--conversation-id", "{}"), ("run", ".", "--related-project", "{}"), ("knowledge", "get", "{}"),
    ("knowledge", "create", "{}", "demo.py"), ("knowledge", "create", "T", "{}"), ("knowledge", "search", "{}"),
    ("knowledge", "create", "T", "demo.py", "--id", "{}"), ("knowledge", "search", "x", "--cursor", "{}"),
    ("knowledge", "lines", "{}", "1", "2"), ("knowledge", "list", "--cursor", "{}"), ("knowledge", "import", "{}"),
    ("conversations", "show", "{}"), ("conversations", "list", "--cursor", "{}"), ("conversations", "rename", "{}", "x"),
    ("conversations", "export", "{}"), ("conversations", "delete", "{}", "--yes"), ("usage", "--conversation-id", "{}"),
    ("relations", "add", "{}", "{}"), ("relations", "add", "x", "{}"), ("relations", "remove", "{}"),
    ("relations", "add", "x", "01936d3f-6a00-7000-8000-0000000000ff", "--read", "{}"),
    ("server", "--port", "{}"), ("login", "{}"), ("logout", "{}"), ("tokens", "revoke", "{}"), ("users", "add", "{}"),
    ("members", "set", "{}", "guest"), ("workflows", "show", "{}"), ("workflows", "run", "{}"), ("workflows", "find", "{}"),
    ("tools", "set", "{}", "auto"), ("approvals", "show", "{}"), ("approvals", "approve", "{}"),
    ("schema", "{}"), ("help", "{}"), ("init", "--name", "{}"), ("describe", "{}"), ("--project", "{}", "kv", "list"),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_each_argument_with_each_hostile_text(cli: Cli, call: tuple[str, ...]) -> None:
    for text in HOSTILE:
        arguments = [text if part == "{}" else part for part in call]
        result = cli(*arguments)
        assert is_clear(result), (arguments, result)


@pytest.mark.skipif(os.name != "posix", reason="bytes as arguments")
def test_arguments_that_are_no_text(program: Program) -> None:
    for arguments in (("kv", "get", "a\udcff"), ("kv", "set", "k", '"\udcff"'), ("run", ".", "--", "--name", "\udcff")):
        result = program(*arguments)
        assert is_clear(result)
    assert program("kv", "set", "k", "--string", "\udcff").code == 2


DAMAGE = {
    "an empty file": b"", "text": b"not a database at all\n" * 100, "a header only": b"SQLite format 3\x00" + b"\x00" * 84,
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_stores_are_told_by_every_command(cli: Cli, tmp_path: Path, damage: str) -> None:
    assert cli("run", ".").code == 0
    assert cli("knowledge", "create", "T", "demo.py", "--id", "d").code == 0
    stores = list((tmp_path / "home").rglob("*.sqlite"))
    assert len(stores) == 3
    for store in stores:
        for companion in (store.with_name(store.name + "-wal"), store.with_name(store.name + "-shm")):
            companion.unlink(missing_ok=True)
        store.write_bytes(DAMAGE[damage])
    for command in (
        ("kv", "get", "k"), ("kv", "list"), ("kv", "set", "k", "1"), ("runs", "list"), ("run", "."), ("usage",),
        ("knowledge", "list"), ("knowledge", "search", "x"), ("conversations", "list"), ("doctor",),
    ):  # fmt: skip
        result = cli(*command, "--json")
        assert is_clear(result), (command, result)
        if damage != "an empty file" and command[0] != "doctor":
            assert (result.code, result.error["code"]) == (6, "storage_corrupt"), (command, result)
    if damage != "an empty file":
        assert any(
            finding["level"] == "error" and finding["fix"] for finding in cli("doctor", "--json").json["findings"]
        )


def test_a_store_of_a_newer_version_is_left_alone(cli: Cli, tmp_path: Path) -> None:
    import sqlite3

    cli("run", ".")
    for store in (tmp_path / "home").rglob("*.sqlite"):
        with sqlite3.connect(store) as connection:
            connection.execute("PRAGMA user_version = 999")
        connection.close()
    for command in (("kv", "get", "k"), ("kv", "set", "k", "1"), ("runs", "list"), ("run", ".")):
        result = cli(*command, "--json")
        assert (result.code, result.error["code"]) == (6, "schema_too_new")
        assert "upgrade" in result.error["hint"]


@pytest.mark.parametrize(
    "content", ["", "[tool.stepwell]\n", "[tool.stepwell", "\x00", '[tool.stepwell]\nexecutor = "x"\n']
)
def test_a_manifest_that_is_wrong_is_told_by_every_command(cli: Cli, project: Path, content: str) -> None:
    (project / "pyproject.toml").write_text(content)
    for command in (
        ("run", "."),
        ("describe",),
        ("kv", "get", "k"),
        ("runs", "list"),
        ("knowledge", "list"),
        ("usage",),
    ):
        result = cli(*command, "--json")
        assert is_clear(result)
        assert result.error["code"] in ("project_not_found", "manifest_invalid")
    assert is_clear(cli("doctor"))


@pytest.mark.parametrize(
    "setting", ["STEPWELL_HOME", "STEPWELL_KV_STORE_DIR", "STEPWELL_PERSISTENT_VALUE_STORE_DIR", "STEPWELL_SERVER_URL"]
)
@pytest.mark.parametrize("value", ["", "relative", "/proc/nowhere", "/dev/null", "/dev/null/x"])
def test_settings_that_are_wrong(cli: Cli, monkeypatch: pytest.MonkeyPatch, setting: str, value: str) -> None:
    monkeypatch.setenv(setting, value)
    for command in (("run", "."), ("kv", "set", "k", "1"), ("knowledge", "create", "T", "demo.py"), ("doctor",)):
        result = cli(*command, "--json")
        assert is_clear(result), (command, result)
        assert "STEPWELL" in result.out + result.err or value in result.out + result.err or result.code == 0


def test_an_internal_error_says_how_to_report_it(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by\x1b[31m design")

    monkeypatch.setattr("stepwell.settings.load_settings", broken)
    result = cli("kv", "list")
    assert result.code == 1
    assert result.err.splitlines() == [
        "error: internal error: ZeroDivisionError: by\\x1b[31m design",
        "hint: run it again with --debug and report what it prints",
    ]
    assert cli("kv", "list", "--json").error["code"] == "internal_error"
    assert "Traceback" in cli("kv", "list", "--debug").err
