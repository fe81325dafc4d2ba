"""New projects: they run at once, hide no module, and never take anything away."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from stepwell.errors import InvalidArgument, ManifestInvalid, StorageUnavailable
from stepwell.project.manifest import load_manifest
from stepwell.project.scaffold import scaffold

ID = "6f1c8a3e-0000-4000-8000-000000000001"


@pytest.mark.parametrize("template", ["workflow", "conversation"])
def test_the_project_passes_its_own_test(tmp_path: Path, template: str) -> None:
    made = scaffold(str(tmp_path / "shop"), template=template)
    assert sorted(made.files) == sorted(path.name for path in Path(made.folder).iterdir())
    assert load_manifest(made.folder).project_id == made.project_id
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", made.folder],
        cwd=made.folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # as where only pytest is installed
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("My Shop", "my_shop"), ("json", "json_project"), ("click", "click_project"), ("stepwell", "stepwell_project"),
        ("test", "test_project"), ("class", "project"), ("2026", "project"), ("日本", "project"), ("--", "project"),
        ("a.b", "a_b"), ("../x", "x"), ('quo"te\\', "quo_te"), ("[tool]", "tool"), ("{name}", "name"), ("x" * 200, "x" * 200),
    ],
)  # fmt: skip
def test_any_name_makes_a_readable_manifest_and_a_module_that_hides_none(
    tmp_path: Path, name: str, module: str
) -> None:
    made = scaffold(str(tmp_path), template="workflow", name=name)
    manifest = load_manifest(str(tmp_path))
    assert (manifest.name, manifest.executor) == (name, f"{module}:executor")
    assert (tmp_path / f"{module}.py").exists()
    assert name in (tmp_path / "AGENTS.md").read_text(encoding="utf-8")
    assert made.name == name


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "\x1b[31m", "\u202e", "x" * 201, "\ud800"])
def test_a_name_that_cannot_be_shown(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        scaffold(str(tmp_path / "p"), template="workflow", name=name)
    assert not (tmp_path / "p").exists()


def test_nothing_is_overwritten_unless_asked_for(tmp_path: Path) -> None:
    made = scaffold(str(tmp_path), template="workflow", name="shop")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InvalidArgument, match="--force|already"):
        scaffold(str(tmp_path), template="conversation", name="shop")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    again = scaffold(str(tmp_path), template="conversation", name="shop", force=True)
    assert again.project_id == made.project_id, "the stored data hangs from it"
    assert b"parse_conversation_input" in (tmp_path / "shop.py").read_bytes()


@pytest.mark.parametrize("taken", ["shop.py", "test_shop.py", "AGENTS.md"])
def test_one_file_in_the_way_stops_all(tmp_path: Path, taken: str) -> None:
    (tmp_path / taken).write_text("mine")
    with pytest.raises(InvalidArgument, match=taken):
        scaffold(str(tmp_path), template="workflow", name="shop")
    assert [path.name for path in tmp_path.iterdir()] == [taken]


def test_a_package_that_is_there_keeps_what_it_has(tmp_path: Path) -> None:
    text = '# kept\n[project]\nname = "mine" # also kept\nversion = "7"\n\n[tool.ruff]\nline-length = 99\n'
    (tmp_path / "pyproject.toml").write_text(text)
    scaffold(str(tmp_path), template="workflow", name="shop")
    written = (tmp_path / "pyproject.toml").read_text()
    assert written.startswith(text.rstrip())
    table = tomllib.loads(written)
    assert table["project"] == {"name": "mine", "version": "7"}
    assert table["tool"]["ruff"] == {"line-length": 99}
    assert load_manifest(str(tmp_path)).name == "shop"


def test_force_keeps_the_rest_of_a_manifest(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.stepwell]\nproject-id = "{ID}" # ours\nexecutor = "old:thing"\ndata-storage = "both"\n'
    )
    with pytest.raises(InvalidArgument, match="already declares"):
        scaffold(str(tmp_path), template="workflow", name="shop")
    scaffold(str(tmp_path), template="workflow", name="shop", force=True)
    manifest = load_manifest(str(tmp_path))
    assert (manifest.project_id, manifest.executor, manifest.data_storage) == (ID, "shop:executor", "both")
    assert "# ours" in (tmp_path / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    "content", [b"[tool", b"\xff", b"tool = 3\n", b"[tool]\nstepwell = 3\n", b"[[tool.stepwell]]\n"]
)
def test_a_pyproject_that_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pyproject.toml").write_bytes(content)
    with pytest.raises((ManifestInvalid, InvalidArgument)):
        scaffold(str(tmp_path), template="workflow", name="shop")
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]
    assert (tmp_path / "pyproject.toml").read_bytes() == content


def test_a_manifest_of_the_other_form(tmp_path: Path) -> None:
    (tmp_path / "stepwell.toml").write_text("")
    with pytest.raises(InvalidArgument, match=r"stepwell\.toml"):
        scaffold(str(tmp_path), template="workflow", force=True)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageUnavailable):
        scaffold(str(tmp_path / "file" / "inside"), template="workflow")
