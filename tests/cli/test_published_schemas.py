"""What commands print under --json is what `stepwell schema` publishes: no less, and nothing unsaid."""

import tomllib
from pathlib import Path

import pytest

from stepwell.cli.schemas import SCHEMAS
from tests.cli.conftest import Cli, write_workflow
from tests.cli.schema_check import misfits


@pytest.fixture
def filled(cli: Cli, project: Path) -> Cli:
    """A project in which something has happened."""
    write_workflow(
        project,
        "await ctx.token_usage.report(TokenReport(input_tokens=5, output_tokens=2))\nawait step(1)\n"
        "if data.get('fail'):\n    raise ValueError('no')\nreturn data",
    )
    cli("kv", "set", "a", "[null]")
    cli("run", ".", "--", "--name", "Ada")
    cli("run", ".", "--conversation-id", "c1", "--", "--fail")
    (project / "d.md").write_text("# Title\n\ntext\n")
    cli("knowledge", "import", ".")
    return cli


@pytest.mark.parametrize(
    ("schema", "command"),
    [
        ("entry", ("kv", "get", "a")), ("entry", ("kv", "set", "b", "1")), ("entries", ("kv", "list")),
        ("entries", ("kv", "list", "--limit", "1")), ("report", ("run", ".", "--", "--x", "1")),
        ("report", ("run", ".", "--", "--fail")), ("runs", ("runs", "list")), ("runs", ("runs", "list", "--limit", "1")),
        ("documents", ("knowledge", "list")), ("search", ("knowledge", "search", "text", "-B", "1")),
        ("imported", ("knowledge", "import", ".")),
        ("conversations", ("conversations", "list")), ("usage", ("usage",)), ("usage", ("usage", "--conversation-id", "c1")),
        ("doctor", ("doctor",)), ("settings", ("config", "show")), ("description", ("describe",)),
    ],
)  # fmt: skip
def test_output_fits(filled: Cli, schema: str, command: tuple[str, ...]) -> None:
    published = filled("schema", schema).json
    assert misfits(published, filled("--json", *command).json) == []


def test_conversations_fit(cli: Cli, project: Path) -> None:
    write_workflow(project, 'await ctx.conversation.append_message({"role": "user", "content": "hi"})')
    code = (project / "demo.py").read_text()
    (project / "demo.py").write_text(code.replace("Executor(entry", 'Executor(project_type="conversation", entry'))
    assert cli("run", ".", "--conversation-id", "c1").code == 0
    page = cli("conversations", "list", "--json").json
    assert len(page["items"]) == 1
    assert misfits(SCHEMAS["conversations"], page) == []
    assert misfits(SCHEMAS["conversation"], cli("conversations", "show", "c1", "--json").json) == []


def test_one_run_one_event_one_document_and_errors(filled: Cli) -> None:
    (run,) = filled("runs", "list", "--status", "failed", "--json").json["items"]
    assert misfits(SCHEMAS["report"], filled("runs", "show", run["run_id"], "--json").json) == []
    events = filled("runs", "events", run["run_id"], "--jsonl").lines
    assert [misfits(SCHEMAS["event"], event) for event in events] == [[]] * len(events)
    document = filled("knowledge", "list", "--json").json["items"][0]
    assert misfits(SCHEMAS["document"], filled("knowledge", "get", document["id"], "--json").json) == []
    assert misfits(SCHEMAS["lines"], filled("knowledge", "lines", document["id"], "1", "9", "--json").json) == []
    for command in (("kv", "get", "missing"), ("kv", "get"), ("runs", "show", "x"), ("run", ".", "-e", "x")):
        told = {"error": filled("--json", *command).error}
        assert misfits(SCHEMAS["error"], told) == []


def test_the_manifest_that_init_writes_fits(project: Path) -> None:
    table = tomllib.loads((project / "pyproject.toml").read_text())["tool"]["stepwell"]
    assert misfits(SCHEMAS["manifest"], table) == []
    assert misfits(SCHEMAS["manifest"], table | {"data-storage": "cloud"}) != []


def test_every_schema_is_listed_and_can_be_printed(cli: Cli) -> None:
    names = [item["name"] for item in cli("schema", "--json").json["items"]]
    assert names == list(SCHEMAS)
    for name in names:
        assert cli("schema", name).json["$schema"].startswith("https://json-schema.org/")
    wrong = cli("schema", "repot", "--json")
    assert (wrong.code, wrong.error["code"]) == (2, "invalid_argument")
