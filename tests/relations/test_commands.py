"""`stepwell relations`, and `--related-project` wherever runs start."""

from pathlib import Path

import pytest

from stepwell.cli.schemas import SCHEMAS
from stepwell.project.manifest import load_manifest
from stepwell.project.scaffold import scaffold
from tests.cli.conftest import Cli, Program, cli, program, project, write_workflow
from tests.cli.schema_check import misfits

__all__ = ["cli", "program", "project"]

READ_ONLY = {"read": {"mode": "all"}, "write": {"mode": "none"}}


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A second project beside the current one."""
    scaffold(str(tmp_path / "other"), template="workflow", name="The Other")
    return tmp_path / "other"


def declared(folder: Path) -> list[dict[str, object]]:
    return [dict(relation) for relation in load_manifest(str(folder)).related_projects]


def test_both_sides_at_once_with_the_default_grants(cli: Cli, project: Path, other: Path):
    added = cli("relations", "add", "stock", "../other", "--json").json
    assert misfits(SCHEMAS["relation"], added) == []
    assert (added["state"], len(added["changed"])) == ("active", 2)
    ids = [load_manifest(str(folder)).project_id for folder in (project, other)]
    assert declared(project) == [{"alias": "stock", "project-id": ids[1], "grant": READ_ONLY}]
    assert declared(other) == [{"alias": "demo", "project-id": ids[0], "grant": READ_ONLY}]
    listed = cli("relations", "list", "--related-project", f"stock={other}", "--json").json
    assert misfits(SCHEMAS["relations"], listed) == []
    (item,) = listed["items"]
    assert (item["state"], item["their_alias"], item["grants"], item["granted"]) == (
        "active",
        "demo",
        READ_ONLY,
        READ_ONLY,
    )
    assert cli("relations", "add", "stock", "../other", "--json").json["changed"] == []
    assert cli("relations", "check", "--related-project", f"stock={other}").code == 0
    removed = cli("relations", "remove", "stock", "--folder", "../other", "--json").json
    assert misfits(SCHEMAS["relation"], removed) == []
    assert (removed["state"], declared(project), declared(other)) == ("removed", [], [])


def test_one_side_alone_is_pending_until_the_other_declares_it(cli: Cli, project: Path, other: Path):
    other_id = load_manifest(str(other)).project_id
    result = cli("relations", "add", "stock", other_id, "--json")
    assert (result.code, result.json["state"]) == (0, "pending")
    assert cli("relations", "list", "--json").json["items"][0]["state"] == "unchecked"
    checked = cli("relations", "check", "--related-project", f"stock={other}", "--json")
    assert misfits(SCHEMAS["relations"], checked.json) == []
    assert (checked.code, checked.json["items"][0]["state"]) == (5, "pending")
    assert cli("--project", str(other), "relations", "add", "shop", str(project)).code == 0
    assert [relation["alias"] for relation in declared(other)] == ["shop"]
    assert cli("relations", "check", "--related-project", f"stock={other}").code == 0
    wrong = cli("relations", "check", "--related-project", f"stock={project}", "--json")
    assert (wrong.code, wrong.json["items"][0]["state"]) == (5, "wrong")
    assert cli("relations", "remove", "stock").code == 0
    assert (declared(project), len(declared(other))) == ([], 1)


def test_grants_are_given_with_options(cli: Cli, project: Path, other: Path):
    rules = ("--read", "none", "--write", "prefix:stock:", "--write", "prefix:all", "--knowledge-read", "all")
    assert (
        cli("relations", "add", "stock", str(other), "--back-alias", "me", "--entrypoints", "prefix:get", *rules).code
        == 0
    )
    assert declared(project)[0]["grant"] == {
        "read": {"mode": "none"}, "write": {"mode": "prefixes", "prefixes": ["stock:", "all"]},
        "knowledge": {"read": {"mode": "all"}}, "entrypoints": {"mode": "prefixes", "prefixes": ["get"]},
    }  # fmt: skip
    assert (declared(other)[0]["alias"], declared(other)[0]["grant"]) == ("me", READ_ONLY)


def test_what_is_refused_changes_nothing(cli: Cli, project: Path, other: Path):
    cli("relations", "add", "stock", str(other))
    before = [(folder / "pyproject.toml").read_bytes() for folder in (project, other)]
    many = [part for number in range(33) for part in ("--read", f"prefix:{number}")]
    for code, *wrong in (
        (2, "add", "me", "."), (2, "add", "Big", str(other)), (2, "add", "stock", str(other), "--read", "all"),
        (2, "add", "again", str(other)), (2, "add", "stock", str(other), "--back-alias", "else"), (2, "add", "x", "nowhere"),
        (2, "add", "x", load_manifest(str(other)).project_id[:-1] + "0", "--back-alias", "y"),
        (2, "add", "x", load_manifest(str(other)).project_id[:-1] + "0", "--read", "some"),
        (2, "add", "x", load_manifest(str(other)).project_id[:-1] + "0", "--read", "prefix:"),
        (2, "add", "x", load_manifest(str(other)).project_id[:-1] + "0", "--read", "all", "--read", "prefix:a"),
        (2, "add", "x", load_manifest(str(other)).project_id[:-1] + "0", *many),
        (3, "remove", "unknown"), (2, "remove", "stock", "--folder", "."), (3, "check", "--related-project", f"x={other}"),
        (2, "check", "--related-project", "stock=relative"),
    ):  # fmt: skip
        result = cli("relations", *wrong, "--json")
        assert result.code == code, (wrong, result)
        assert result.error["message"]
    assert [(folder / "pyproject.toml").read_bytes() for folder in (project, other)] == before


READ = 'return await ctx.storage.local.related_projects.get("stock").kv.get_value("k")'


def test_detached_and_resumed_runs_take_the_folders_too(program: Program, project: Path, other: Path):
    option = f"--related-project=stock={other}"
    assert program("relations", "add", "stock", str(other)).code == 0
    assert program("--project", str(other), "kv", "set", "k", '"theirs"').code == 0
    write_workflow(project, READ)
    assert program("run", ".", option, "--json").json["output"] == "theirs"
    run_id = program("run", ".", option, "--detach", "--json").json["run_id"]
    assert program("runs", "follow", run_id).code == 0
    assert program("runs", "show", run_id, "--json").json["output"] == "theirs"
    write_workflow(
        project, f"import os\nif not os.path.exists('again'):\n    open('again', 'w').close()\n    os._exit(9)\n{READ}"
    )
    assert program("run", ".", option).code != 0
    (cut,) = [run for run in program("runs", "list", "--json").json["items"] if run["status"] == "running"]
    assert program("runs", "resume", cut["run_id"], option, "--json").json["output"] == "theirs"


def test_projects_whose_modules_have_the_same_name(program: Program, project: Path, tmp_path: Path):
    twin = tmp_path / "twin"
    scaffold(str(twin), template="workflow", name="Demo")
    assert program("--project", str(twin), "relations", "add", "caller", str(project), "--entrypoints", "all").code == 0
    write_workflow(twin, 'await ctx.storage.local.kv.set_value("n", 1)\nreturn await step(data["n"] + 100)')
    write_workflow(
        project,
        'twin = ctx.storage.local.related_projects.get("demo")\n'
        'found = [await twin.run_entrypoint("main", ["--n", "1"]), await step(1)]\n'
        'return found + [await twin.run_entrypoint("main", ["--n", "2"]), await step(2)]',
    )
    result = program("run", ".", f"--related-project=demo={twin}", "--json")
    assert result.json["output"] == [102, 2, 103, 3]
    assert program("kv", "list", "--json").json["items"] == []
