"""The three examples through the real program: what crosses between them, and what never does."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("parent", "child", "grandchild")
# caller, its alias, and whom the alias means.
NEIGHBOURS = [
    ("parent", "child", "child"), ("child", "parent", "parent"), ("child", "grandchild", "grandchild"),
    ("grandchild", "up", "child"),
]  # fmt: skip


class Examples:
    """Copies of the examples, and their data."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in NAMES:
            shutil.copytree(EXAMPLES / f"local-data-{name}", root / name, ignore=shutil.ignore_patterns("__pycache__"))

    def call(self, *arguments: str) -> Any:
        """Run the program; gives its JSON, or the error it ended with."""
        done = subprocess.run(
            [sys.executable, "-P", "-m", "stepwell", *arguments, "--json"], capture_output=True, text=True, check=False,
            cwd=self.root, env=os.environ | {"NO_COLOR": "1"}, timeout=60,
        )  # fmt: skip
        return json.loads(done.stdout or done.stderr.splitlines()[-1])

    def run(self, name: str, entrypoint: str, *args: str, folders: dict[str, str] | None = None) -> dict[str, Any]:
        """The report of a run; `folders` names projects by alias."""
        options = [f"--related-project={alias}={self.root / target}" for alias, target in (folders or {}).items()]
        command = ["run", str(self.root / name), "-e", entrypoint, *options, "--json", "--", *args]
        done = subprocess.run(
            [sys.executable, "-P", "-m", "stepwell", *command], capture_output=True, text=True, check=False,
            cwd=self.root, env=os.environ | {"NO_COLOR": "1"}, timeout=60,
        )  # fmt: skip
        report: dict[str, Any] = json.loads(done.stdout)
        assert (done.returncode == 0) == (report["status"] == "completed")
        return report

    def data(self, name: str) -> dict[str, Any]:
        """What a project has stored: KV and Knowledge."""
        kept = {}
        for domain in ("kv", "persistent_value"):
            items = self.call("kv", "list", "--domain", domain, "--project", str(self.root / name))["items"]
            kept |= {item["key"]: item["value"] for item in items}
        return kept


@pytest.fixture
def examples(tmp_path: Path) -> Examples:
    """The examples with no data yet."""
    return Examples(tmp_path)


@pytest.mark.parametrize(("caller", "alias", "target"), NEIGHBOURS)
def test_neighbours_reach_each_other_in_both_directions(examples: Examples, caller: str, alias: str, target: str):
    folders = {alias: target}
    made = examples.run(caller, "store", "--content", "crossed", "--alias", alias, folders=folders)["output"]
    assert made == {"id": "1", "content": "crossed", "alias": alias}
    assert examples.run(caller, "get", "--id", "1", "--alias", alias, folders=folders)["output"]["content"] == "crossed"
    assert examples.run(target, "get", "--id", "1")["output"]["content"] == "crossed"
    assert examples.run(caller, "get", "--id", "1")["output"]["content"] is None
    assert [bool(examples.data(name)) for name in NAMES] == [name == target for name in NAMES]


def test_the_own_project_never_stands_in(examples: Examples):
    """Everybody has an item 1 of their own: what fails for the related project must not find it."""
    for name in NAMES:
        examples.run(name, "store", "--content", f"of {name}")
    before = {name: examples.data(name) for name in NAMES}
    wrong: list[tuple[str, str, dict[str, str], str]] = [
        ("parent", "child", {}, "storage_unavailable"),
        ("parent", "child", {"child": "grandchild"}, "relation_unknown"),
        ("parent", "child", {"child": "parent"}, "relation_unknown"),
        ("parent", "grandchild", {"grandchild": "grandchild", "child": "child"}, "relation_unknown"),
        ("parent", "up", {"up": "child"}, "relation_unknown"),
        ("grandchild", "parent", {"parent": "parent", "up": "child"}, "relation_unknown"),
        ("child", "up", {"up": "grandchild"}, "relation_unknown"),
    ]
    for caller, alias, folders, code in wrong:
        for entrypoint, *args in (("get", "--id", "1"), ("store", "--content", "no")):
            report = examples.run(caller, entrypoint, *args, "--alias", alias, folders=folders)
            assert report["error"]["code"] == code, (caller, alias, folders)
            assert "of " + caller not in str(report["output"])
    assert {name: examples.data(name) for name in NAMES} == before


def test_no_third_project_even_through_the_second(examples: Examples):
    """The parent may not run what would reach on, and a relation of its own to the grandchild stays one-sided."""
    examples.run("grandchild", "store", "--content", "far away")
    manifest = examples.root / "parent" / "pyproject.toml"
    manifest.write_text(
        manifest.read_text()
        + '\n[[tool.stepwell.related-projects]]\nalias = "far"\nproject-id = "01936d3f-6a00-7000-8000-00000000a006"\n'
    )
    report = examples.run("parent", "get", "--id", "1", "--alias", "far", folders={"far": "grandchild"})
    assert report["error"]["code"] == "relation_pending"
    # The child grants everything, and its code asks the grandchild: called by the parent, it gets no answer.
    child = examples.root / "child" / "pyproject.toml"
    child.write_text(child.read_text().replace('prefixes = ["store"]', 'prefixes = ["store", "get"]'))
    code = examples.root / "parent" / "local_data_parent.py"
    code.write_text(
        code.read_text().replace(
            'run_entrypoint("store", ["--content", content])', 'run_entrypoint("get", content.split())'
        )
    )
    folders = {"child": "child", "grandchild": "grandchild"}
    report = examples.run("parent", "note", "--content=--id 1 --alias grandchild", folders=folders)
    assert report["status"] == "failed"
    assert "no related projects of its own" in report["error"]["message"]
    assert "far away" not in json.dumps(report)


def test_the_note_uses_knowledge_and_an_entrypoint_of_the_child(examples: Examples):
    for version, text in ((1, "# First"), (2, "# Second")):
        made = examples.run("parent", "note", "--content", text, folders={"child": "child"})["output"]
        assert made == {
            "document_id": "note-today", "version": version, "first_line": text, "entrypoints": ["store"],
            "item": {"id": str(version), "content": text, "alias": None},
        }  # fmt: skip
    child = str(examples.root / "child")
    assert examples.call("knowledge", "get", "note-today", "--project", child)["markdown"] == "# Second"
    assert [run["project_id"][-4:] for run in examples.call("runs", "list", "--project", child)["items"]] == [
        "a005"
    ] * 2
    assert examples.data("parent") == examples.data("grandchild") == {}


def test_taking_a_grant_back_takes_effect_and_tells_nothing(examples: Examples):
    examples.run("child", "store", "--content", "private")
    child = examples.root / "child" / "pyproject.toml"
    child.write_text(child.read_text().replace('grant.read = { mode = "prefixes", prefixes = ["item:"] }', ""))
    report = examples.run("parent", "get", "--id", "1", "--alias", "child", folders={"child": "child"})
    assert report["error"]["code"] == "relation_denied"
    for part in ("'child'", "'item:1'", " read "):
        assert part in report["error"]["message"]
    assert "private" not in json.dumps(report)
