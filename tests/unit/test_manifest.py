"""The manifest: what it may say, and every problem told at once."""

from pathlib import Path

import pytest

from stepwell.errors import ManifestInvalid, ProjectNotFound
from stepwell.project.manifest import load_manifest
from stepwell.storage.declaration import DataStorage, ScopeModel
from stepwell.storage.relations import MAX_PREFIXES, MAX_RELATIONS

ID = "6f1c8a3e-0000-4000-8000-000000000001"
OTHER = "6f1c8a3e-0000-4000-8000-000000000002"
GOOD = f'[tool.stepwell]\nproject-id = "{ID}"\nexecutor = "app.main:executor"\n'


def write(folder: Path, text: str, name: str = "pyproject.toml") -> str:
    (folder / name).write_text(text, encoding="utf-8")
    return str(folder)


def problems(folder: Path, text: str) -> list[str]:
    with pytest.raises(ManifestInvalid) as caught:
        load_manifest(write(folder, text))
    found: list[str] = caught.value.data["problems"]
    assert "pyproject.toml" in caught.value.message
    assert all(problem in caught.value.message for problem in found)
    return found


def test_defaults(tmp_path: Path) -> None:
    manifest = load_manifest(write(tmp_path, GOOD.replace(ID, ID.upper())))
    assert manifest.project_id == ID
    assert manifest.name == tmp_path.name
    assert (manifest.data_storage, manifest.scope_model) == (DataStorage.LOCAL, ScopeModel.PROJECT)
    assert manifest.folder == str(tmp_path)


def test_a_file_of_its_own(tmp_path: Path) -> None:
    text = f'project-id = "{ID}"\nexecutor = "größe:ausführer"\ndata-storage = "both"\nscope-model = "workflow"\n'
    manifest = load_manifest(write(tmp_path, text, "stepwell.toml"))
    assert (manifest.data_storage, manifest.scope_model) == (DataStorage.BOTH, ScopeModel.WORKFLOW)
    write(tmp_path, "[project]\nname = 'x'\n")
    assert load_manifest(str(tmp_path)).project_id == ID
    write(tmp_path, GOOD)
    with pytest.raises(ManifestInvalid, match="twice"):
        load_manifest(str(tmp_path))


def test_no_project(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(ProjectNotFound):
            load_manifest(str(folder))
    for text in ("", "[tool.other]\n", "[project]\nname = 'x'\n", "tool = 3\n"):
        with pytest.raises(ProjectNotFound):
            load_manifest(write(tmp_path, text))


def test_a_current_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ProjectNotFound, match="does not exist"):
        load_manifest(".")


@pytest.mark.parametrize(
    "text", ["[tool.stepwell", "\x00", "x = " + "[" * 5000, "x = 1" + "0" * 5000, "a = 1\na = 2", "tool.stepwell = 3"]
)
def test_what_is_no_toml_or_no_table(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_bytes(b'[tool.stepwell]\nname = "\xff"\n')
    with pytest.raises(ManifestInvalid):
        load_manifest(str(tmp_path))


def test_every_problem_is_told_at_once(tmp_path: Path) -> None:
    text = (
        '[tool.stepwell]\nproject-id = "7"\nexecutor = "app"\ndata-storage = "cloud"\nscope_model = "workflow"\n'
        'name = ""\nproviders = 3\n[tool.stepwell.settings]\nhoem = "/x"\nserver-key = "x"\n'
    )
    found = problems(tmp_path, text)
    assert [problem.partition(":")[0] for problem in found] == [
        "scope_model", "project-id", "executor", "name", "data-storage", "settings.hoem", "settings.server-key",
        "providers",
    ]  # fmt: skip
    assert "did you mean scope-model?" in found[0]
    assert "local, server, both" in next(p for p in found if p.startswith("data-storage"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("project-id", "''"), ("project-id", "'../../etc'"), ("project-id", f"'{ID}/'"), ("project-id", "7"),
        ("executor", "''"), ("executor", "'a:'"), ("executor", "'a.b'"), ("executor", "'a b:c'"),
        ("executor", "'../a:b'"), ("executor", "'1a:b'"), ("executor", "['a:b']"), ("executor", "'a:b\\n'"),
        ("name", "'   '"), ("name", '"a\\nb"'), ("name", '"\\u202Ex"'), ("name", f"'{'x' * 201}'"), ("name", "3"),
        ("data-storage", "''"), ("data-storage", "['local']"), ("data-storage", "'Local'"), ("scope-model", "true"),
        ("settings", "'x'"), ("related-projects", "{}"), ("related-projects", "['x']"),
    ],
)  # fmt: skip
def test_one_wrong_value_is_one_problem(tmp_path: Path, key: str, value: str) -> None:
    lines = [line for line in GOOD.splitlines() if not line.startswith(key)]
    (problem,) = problems(tmp_path, "\n".join([*lines, f"{key} = {value}"]))
    assert problem.startswith(key)


def relation(number: int, alias: str | None = None, grant: str = "") -> str:
    return (
        f'[[tool.stepwell.related-projects]]\nalias = "{alias or f"p{number}"}"\n'
        f'project-id = "6f1c8a3e-0000-4000-9000-{number:012d}"\n{grant}\n'
    )


def test_relations_that_are_right(tmp_path: Path) -> None:
    prefixes = ", ".join(f'"p{number}:"' for number in range(MAX_PREFIXES))
    grant = (
        f'grant.read = {{mode = "prefixes", prefixes = [{prefixes}]}}\ngrant.write = {{mode = "none"}}\n'
        'grant.knowledge.read = {mode = "all"}\ngrant.entrypoints = {mode = "prefixes", prefixes = ["%"]}\n'
    )
    text = GOOD + "".join(relation(number, grant=grant) for number in range(MAX_RELATIONS))
    manifest = load_manifest(write(tmp_path, text))
    assert len(manifest.related_projects) == MAX_RELATIONS
    assert manifest.related_projects[0]["grant"]["read"]["prefixes"][-1] == "p31:"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("".join(relation(number) for number in range(MAX_RELATIONS + 1)), "at most 32"),
        (relation(1, "a") + relation(2, "a"), "used twice"),
        (relation(1, "a") + relation(1, "b"), "used twice"),
        (relation(1, "Big"), "alias"), (relation(1, "1a"), "alias"), (relation(1, "a" * 65), "alias"),
        (relation(1, "é"), "alias"), (relation(1, "a\\n"), "alias"), (relation(1) + 'alis = "b"', "did you mean alias?"),
        ('[[tool.stepwell.related-projects]]\nalias = "a"\n', "project-id"),
        (f'[[tool.stepwell.related-projects]]\nalias = "a"\nproject-id = "{ID.upper()}"\n', "itself"),
        (relation(1, grant="grant = 3"), "not a table"),
        (relation(1, grant='grant.read = "all"'), "grant.read"),
        (relation(1, grant="grant.read = {mode = 'some'}"), "none, all, prefixes"),
        (relation(1, grant="grant.read = {mode = ['all']}"), "none, all, prefixes"),
        (relation(1, grant="grant.read = {mode = 'all', prefixes = ['a']}"), "prefixes"),
        (relation(1, grant="grant.read = {mode = 'all', prefix = ['a']}"), "did you mean prefixes?"),
        (relation(1, grant="grant.read = {mode = 'prefixes'}"), "1 to 32"),
        (relation(1, grant="grant.read = {mode = 'prefixes', prefixes = []}"), "1 to 32"),
        (relation(1, grant="grant.read = {mode = 'prefixes', prefixes = ['']}"), "1 to 32"),
        (relation(1, grant="grant.read = {mode = 'prefixes', prefixes = ['a', 'a']}"), "1 to 32"),
        (relation(1, grant="grant.read = {mode = 'prefixes', prefixes = 'abc'}"), "1 to 32"),
        (relation(1, grant="grant.read = {mode = 'prefixes', prefixes = [['a'], 3]}"), "1 to 32"),
        (relation(1, grant=f"grant.read = {{mode = 'prefixes', prefixes = {[f'p{n}' for n in range(33)]}}}"), "1 to 32"),
        (relation(1, grant="grant.raed = {mode = 'all'}"), "did you mean read?"),
        (relation(1, grant="grant.knowledge = {mode = 'all'}"), "knowledge.mode"),
        (relation(1, grant="grant.knowledge = 'all'"), "knowledge"),
    ],
)  # fmt: skip
def test_relations_that_are_wrong(tmp_path: Path, text: str, told: str) -> None:
    found = problems(tmp_path, GOOD + text)
    assert len(found) == 1
    assert found[0].startswith("related-projects")
    assert told in found[0]
