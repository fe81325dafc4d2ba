"""`stepwell kv`."""

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Cli, Program


def test_set_and_get(cli: Cli) -> None:
    assert cli("kv", "set", "stock:7", '{"count": 3}').code == 0
    assert cli("kv", "get", "stock:7").out == '{"count": 3}\n'
    entry = cli("kv", "get", "stock:7", "--json").json
    assert list(entry) == ["key", "value", "revision", "created_at", "updated_at", "source"]
    assert (entry["key"], entry["value"], entry["revision"]) == ("stock:7", {"count": 3}, 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", entry["updated_at"])


@pytest.mark.parametrize(
    "text",
    ["0", "-5", "-1.5e3", "1.0", "-0.0", "9007199254740993", "1" + "0" * 3000, "true", "null", '""', "[]", "{}",
     '{"b":1,"a":{"":[[]]}}', '"\\ud83d\\ude00 \\u0000 \\ud800"', '"中文 \\u202e é"'],
)  # fmt: skip
def test_any_json_value_comes_back(cli: Cli, text: str) -> None:
    assert cli("kv", "set", "key", text).code == 0
    shown = cli("kv", "get", "key").out
    assert json.dumps(json.loads(shown)) == json.dumps(json.loads(text))
    assert json.dumps(cli("kv", "get", "key", "--json").json["value"]) == json.dumps(json.loads(text))


@pytest.mark.parametrize(
    "text", ["", "nul", "{", "NaN", "Infinity", "1e400", '{"a":1,"a":2}', "'x'", "[" * 300 + "]" * 300, "--nope", "1 2"]
)
def test_what_is_no_json_is_refused_and_nothing_written(cli: Cli, text: str) -> None:
    result = cli("kv", "set", "key", text)
    assert result.code == 2
    assert result.err.startswith("error: ")
    assert cli("kv", "get", "key").code == 3


def test_text_and_stdin(program: Program) -> None:
    assert program("kv", "set", "s", "--string", "null").code == 0
    assert program("kv", "get", "s").out == '"null"\n'
    assert program("kv", "set", "s", "-", stdin='["é"]\n'.encode()).code == 0
    assert program("kv", "get", "s").out == '["é"]\n'
    refused = program("kv", "set", "s", "-", "--json", stdin=b'"\xff"')
    assert refused.code == 2
    assert refused.error["code"] == "invalid_json"
    assert program("kv", "set", "s", "1", "--string", "x").code == 2
    assert program("kv", "set", "s").code == 2


def test_an_absent_entry_is_not_a_null(cli: Cli) -> None:
    assert cli("kv", "set", "null", "null").code == 0
    assert cli("kv", "get", "null").out == "null\n"
    missing = cli("kv", "get", "nul", "--json")
    assert (missing.code, missing.out) == (3, "")
    assert missing.error == {
        "code": "entry_not_found", "message": "there is no entry 'nul'",
        "hint": "`stepwell kv list` shows the keys", "key": "nul",
    }  # fmt: skip


def test_delete_needs_a_yes_where_nobody_can_be_asked(cli: Cli) -> None:
    cli("kv", "set", "key", "1")
    assert cli("kv", "delete", "key").code == 2
    assert cli("kv", "get", "key").code == 0
    assert cli("kv", "delete", "key", "--yes", "--json").json == {"key": "key", "removed": True}
    assert cli("kv", "delete", "key", "--yes").code == 3
    assert cli("kv", "delete", "key", "--yes", "--json").code == 3


def test_scopes_and_domains_are_apart(cli: Cli) -> None:
    places = [
        (), ("--domain", "persistent_value"), ("--conversation-id", "c1"), ("--conversation-id", "c10"),
        ("--domain", "persistent_value", "--conversation-id", "c1"),
    ]  # fmt: skip
    for number, place in enumerate(places):
        assert cli("kv", "set", "key", str(number), *place).code == 0
    for number, place in enumerate(places):
        assert cli("kv", "get", "key", *place).out == f"{number}\n"
        assert [e["value"] for e in cli("kv", "list", "--json", *place).json["items"]] == [number]


def test_list_pages_in_key_order(cli: Cli) -> None:
    keys = ["a", "B", "_", "é", "中", "😀", "a%", "a_b", "aa"]
    for key in keys:
        cli("kv", "set", key, "1")
    found, cursor = [], None
    while True:
        page = cli("kv", "list", "--limit", "2", "--json", *(() if cursor is None else ("--cursor", cursor))).json
        found += [entry["key"] for entry in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == sorted(keys, key=str.encode)
    assert [e["key"] for e in cli("kv", "list", "--prefix", "a", "--json").json["items"]] == ["a", "a%", "a_b", "aa"]
    assert [e["key"] for e in cli("kv", "list", "--prefix", "a%", "--json").json["items"]] == ["a%"]


def test_list_without_a_terminal_is_one_line_an_entry(cli: Cli) -> None:
    cli("kv", "set", "a\tb\nc", '"x\\ty"')
    assert cli("kv", "list").out.count("\n") == 1
    assert cli("kv", "list").out.count("\t") == 3
    assert cli("kv", "list", "--prefix", "zz").out == ""


@pytest.mark.parametrize("key", ["", "x" * 1025, "é" * 513, "a\x00b", "\ud800"])
def test_bad_keys(cli: Cli, key: str) -> None:
    for arguments in (("get", key), ("set", key, "1"), ("delete", key, "--yes")):
        result = cli("kv", *arguments, "--json")
        assert result.code == 2
        assert result.error["code"] == "invalid_key"


def test_a_forbidden_and_an_unconnected_location(cli: Cli, project: Path) -> None:
    for arguments in (("get", "k"), ("set", "k", "1"), ("list",), ("delete", "k", "--yes")):
        refused = cli("kv", *arguments, "--location", "server", "--json")
        assert (refused.code, refused.error["code"]) == (5, "storage_forbidden")
    manifest = project / "pyproject.toml"
    text = manifest.read_text()
    manifest.write_text(text + 'data-storage = "both"\n')
    assert cli("kv", "set", "k", "1").code == 0
    for arguments in (("get", "k"), ("set", "k", "1"), ("list",), ("delete", "k", "--yes")):
        refused = cli("kv", *arguments, "--location", "server", "--json")
        assert (refused.code, refused.error["code"]) == (6, "storage_unavailable")
    manifest.write_text(text + 'data-storage = "server"\n')
    assert cli("kv", "get", "k").code == 6
    assert cli("kv", "get", "k", "--location", "local").code == 5


def test_the_workflow_scope_model(program: Program, project: Path) -> None:
    manifest = project / "pyproject.toml"
    manifest.write_text(manifest.read_text() + 'scope-model = "workflow"\n')
    places = [(), ("--workflow", "w"), ("--workflow", "w", "--conversation-id", "c"), ("--location", "local")]
    for number, place in enumerate(places):
        assert program("kv", "set", "key", str(number), *place).code == 0
    for number, place in enumerate(places):
        assert program("kv", "get", "key", *place).out == f"{number}\n"
    assert program("kv", "get", "key", "--conversation-id", "c").code == 2
    assert program("kv", "get", "key", "--domain", "persistent_value").code == 6


def test_watch_tells_of_changes_without_their_values(program: Program) -> None:
    program("kv", "set", "other", '"secret"')
    with program.start("kv", "watch", "--prefix", "stock:", "--jsonl", "--count", "2") as watching:
        assert watching.stderr is not None
        assert watching.stdout is not None
        assert "watching" in watching.stderr.readline()
        # The watch begins with the namespace as it is when it first looks: write until it has seen something.
        changes: list[dict[str, object]] = []
        import threading

        reader = threading.Thread(target=lambda: changes.extend(json.loads(line) for line in watching.stdout or ()))
        reader.start()
        for number in range(50):
            program("kv", "set", "stock:1", str(number))
            program("kv", "set", "other", str(number))
            if watching.poll() is not None:
                break
        reader.join(30)
        assert watching.wait(30) == 0
    assert [sorted(change) for change in changes] == [["deleted", "key", "revision"]] * 2
    assert {change["key"] for change in changes} == {"stock:1"}


def test_options_may_stand_before_and_behind(program: Program, tmp_path: Path) -> None:
    program("kv", "set", "k", "1")
    elsewhere = Program(tmp_path)
    project = str(program.folder)
    for arguments in (
        ("--project", project, "--json", "kv", "list"), ("kv", "list", "--project", project, "--json"),
        ("--json", "kv", "list", f"--project={project}"),
    ):  # fmt: skip
        assert elsewhere(*arguments).json["items"][0]["value"] == 1
    assert elsewhere("kv", "list", "--json").error["code"] == "project_not_found"
