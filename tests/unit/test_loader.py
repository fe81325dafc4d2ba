"""Loading a project's code: whose modules are found, and how mistakes are told."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepwell.errors import ExecutorInvalid
from stepwell.project.loader import load_project

EXECUTOR = """
from stepwell import Context, Entrypoint, Executor, workflow
@workflow
async def main(data: dict, ctx: Context) -> object:
    return NAME
executor = Executor(entrypoints=[Entrypoint(id="main", workflow=main, title=NAME)])
"""


@pytest.fixture(autouse=True)
def _clean_imports(tmp_path: Path) -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def project(folder: Path, files: dict[str, str], executor: str = "app:executor") -> Path:
    manifest = f'[tool.stepwell]\nproject-id = "6f1c8a3e-0000-4000-8000-000000000001"\nexecutor = "{executor}"\n'
    for name, text in {"pyproject.toml": manifest, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def title(folder: Path) -> str:
    return load_project(folder).executor.entrypoint().title


def refused(folder: Path) -> ExecutorInvalid:
    with pytest.raises(ExecutorInvalid) as caught:
        load_project(folder)
    return caught.value


def test_two_projects_with_the_same_module_names(tmp_path: Path) -> None:
    folders = [
        project(
            tmp_path / name,
            {
                "app.py": f"from parts.names import NAME\nfrom shared import SUFFIX\nNAME += SUFFIX\n{EXECUTOR}",
                "parts/names.py": f"NAME = {name!r}\n",
                "shared.py": f"SUFFIX = '-{name}'\n",
            },
        )
        for name in ("one", "two")
    ]
    for _ in range(2):
        assert [title(folder) for folder in folders] == ["one-one", "two-two"]


def test_a_module_of_one_project_is_not_found_by_another(tmp_path: Path) -> None:
    first = project(tmp_path / "one", {"app.py": f"from extra import NAME\n{EXECUTOR}", "extra.py": "NAME = 'x'\n"})
    second = project(tmp_path / "two", {"app.py": f"from extra import NAME\n{EXECUTOR}"})
    assert title(first) == "x"
    assert "extra" in refused(second).message
    assert title(first) == "x"


def test_a_project_may_import_later_what_it_did_not_at_first(tmp_path: Path) -> None:
    code = f"NAME = 'x'\ndef late():\n    import helper\n    return helper.VALUE\n{EXECUTOR}"
    first = project(tmp_path / "one", {"app.py": code, "helper.py": "VALUE = 1\n"})
    second = project(tmp_path / "two", {"other.py": f"NAME = 'y'\n{EXECUTOR}"}, "other:executor")
    late = load_project(first).executor.entrypoint().workflow.function.__globals__["late"]
    load_project(second)
    assert late() == 1


def test_a_project_inside_another_one(tmp_path: Path) -> None:
    outer = project(tmp_path, {"app.py": f"NAME = 'outer'\n{EXECUTOR}"})
    inner = project(tmp_path / "examples", {"app.py": f"NAME = 'inner'\n{EXECUTOR}"})
    for _ in range(2):
        assert title(outer) == "outer"
        assert title(inner) == "inner"


def test_loading_again_gives_the_same_module_so_that_tests_can_reach_it(tmp_path: Path) -> None:
    folder = project(tmp_path, {"app.py": f"NAME = 'x'\n{EXECUTOR}"})
    assert load_project(folder).executor is load_project(folder).executor is sys.modules["app"].executor


def test_a_package_and_a_nested_attribute(tmp_path: Path) -> None:
    code = f"from .names import NAME\n{EXECUTOR}\nclass Holder:\n    inner = executor\n"
    files = {"pkg/__init__.py": "", "pkg/main.py": code, "pkg/names.py": "NAME = 'deep'\n"}
    assert title(project(tmp_path, files, "pkg.main:Holder.inner")) == "deep"


def test_forward_references_are_resolved(tmp_path: Path) -> None:
    code = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "from stepwell import Entrypoint, Executor, workflow\n"
        "@workflow\nasync def main(data: Input) -> int:\n    return data.number\n"
        "@dataclass\nclass Input:\n    number: int\n"
        "executor = Executor(entrypoints=[Entrypoint(id='main', workflow=main)])\n"
    )
    point = load_project(project(tmp_path, {"app.py": code})).executor.entrypoint()
    assert point.describe()["input_schema"]["properties"]["number"]["type"] == "integer"


@pytest.mark.parametrize(
    ("code", "line", "told"),
    [
        ("x = 1\nimport no_such_package_of_that_name\n", 2, "no_such_package_of_that_name"),
        ("x = 1\n\ny = 1 / 0\n", 3, "ZeroDivisionError"), ("def f(:\n", 1, ""), ("x = (\n", 1, ""),
        ("import helper\n", 1, "RuntimeError: no"), ("import sys\nsys.exit('bye')\n", 2, "SystemExit: bye"),
        ("raise BaseException('x')\n", 1, "BaseException"), ("\x00", None, ""),
        ("from stepwell import Executor\n\nexecutor = Executor()\n", 3, "no entrypoint"),
        ("def f():\n    f()\nf()\n", None, "RecursionError"),
        ("import asyncio\nasyncio.run(asyncio.sleep(0, 1 / 0))\n", 2, "ZeroDivisionError"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_the_users_file_and_line(tmp_path: Path, code: str, line: int | None, told: str) -> None:
    folder = project(tmp_path, {"app.py": code, "helper.py": "\nraise RuntimeError('no')\n"})
    for _ in range(2):
        error = refused(folder)
        file = "helper.py:2" if "helper" in code else "app" if line is None else f"app.py:{line}"
        assert file in error.message
        assert told in error.message
        assert "\n" not in error.message
        assert error.hint


def test_an_error_is_gone_once_it_is_corrected(tmp_path: Path) -> None:
    folder = project(tmp_path, {"app.py": "from helper import NAME\n1 / 0\n", "helper.py": "NAME = 'old'\n"})
    refused(folder)
    project(tmp_path, {"app.py": f"from helper import NAME\n{EXECUTOR}", "helper.py": "NAME = 'brand new'\n"})
    assert title(folder) == "brand new"


@pytest.mark.parametrize(
    ("executor", "told"),
    [
        ("missing:executor", "no module 'missing'"), ("pkg.missing:executor", "no module 'pkg.missing'"),
        ("app:missing", "app has no 'missing'"), ("app:NAME", "is str"), ("app:executor.main", "has no 'main'"),
        ("app:Executor", "is type"), ("token:executor", "token.py"), ("sys:executor", "built in"),
    ],
)  # fmt: skip
def test_an_executor_that_is_not_there(tmp_path: Path, executor: str, told: str) -> None:
    import token  # noqa: F401  (the standard library's comes first once it is loaded)

    files = {"app.py": f"NAME = 'x'\n{EXECUTOR}", "pkg/__init__.py": "", "token.py": f"NAME = 'x'\n{EXECUTOR}"}
    error = refused(project(tmp_path, files, executor))
    assert told in error.message
    assert "pyproject.toml" in error.message


def test_packages_installed_inside_the_folder_are_not_the_projects_own(tmp_path: Path) -> None:
    site = tmp_path / ".venv/lib/site-packages"
    project(tmp_path / "one", {"app.py": f"import installed\nNAME = installed.NAME\n{EXECUTOR}"})
    project(site.parent, {"site-packages/installed.py": "NAME = 'installed'\n"})
    sys.path.append(str(site))
    assert title(tmp_path / "one") == "installed"
    assert not hasattr(sys.modules["installed"], "__stepwell_project__")
    del sys.modules["installed"]
