"""What the documentation shows works: its commands, its code, its links, its tables."""

import asyncio
import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from stepwell import Host, load_project, load_settings
from stepwell.cli.app import COMMANDS
from stepwell.cli.render import EXIT_CODES

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    """The code blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", ["docs/guide/first-project.md", "docs/zh/guide/first-project.md"])
def test_the_first_guide_runs_as_printed(page: str, tmp_path: Path):
    """`$` lines are run in order; `…` in the expected output stands for anything."""
    binaries = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for block in blocks(ROOT / page, "console"):
        for command, expected in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            done = subprocess.run(
                command, shell=True, cwd=tmp_path, env=os.environ | {"PATH": binaries}, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            pattern = ".*".join(map(re.escape, expected.strip().split("…")))
            assert re.match(pattern, done.stdout.strip(), re.DOTALL), f"{command}\n{done.stdout}"


@pytest.mark.parametrize("page", [path for path in PAGES if "executor = Executor(" in path.read_text(encoding="utf-8")])
async def test_projects_in_the_documentation_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    slept = []

    async def no_wait(seconds: float) -> None:
        slept.append(seconds)

    for number, block in enumerate(blocks(page, "python")):
        if "executor = Executor(" not in block:
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"documented{number}.py").write_text(block, encoding="utf-8")
        (folder / "stepwell.toml").write_text(
            f'project-id = "01936d3f-6a00-7000-8000-0000000000{number:02x}"\nexecutor = "documented{number}:executor"\n'
        )
        async with Host(load_settings()) as host:
            project = load_project(folder)
            real = asyncio.sleep
            monkeypatch.setattr(sys.modules[f"documented{number}"], "asyncio", _Asyncio(no_wait), raising=False)
            needed = {"item": "pen"} if "class Order" in block else {}
            run = await host.start(project, input=needed)
            outcome = await run.report()
            assert outcome.status == "completed", outcome.error
            assert real is asyncio.sleep


class _Asyncio:
    def __init__(self, sleep) -> None:
        self.sleep = sleep


def test_links_lead_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md"]:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if not re.match(r"https?://|artifact:", target) and target != "benchmarks/results.json":
                assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_reference_lists_every_command_setting_error_and_exit_code():
    reference = (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert name == "help" or f"`{name}" in reference, name
    for code, meaning in EXIT_CODES:
        assert f"| {code} | {meaning} |" in reference
    settings = (ROOT / "docs/reference/settings.md").read_text(encoding="utf-8")
    for setting in load_settings().all():
        assert f"| `{setting.name}` | `STEPWELL_{setting.name.upper()}` |" in settings
    check = [sys.executable, str(ROOT / "scripts/write_error_reference.py"), "--check"]
    assert subprocess.run(check, capture_output=True).returncode == 0


def test_examples_in_docstrings():
    failed = 0
    for path in sorted((ROOT / "src" / "stepwell").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if ">>> " in text and "__main__" not in path.name:
            name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
            module = importlib.import_module(name.removesuffix(".__init__"))
            failed += doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed
    sys.path.insert(0, str(ROOT / "examples" / "docs-assistant"))
    try:
        failed += doctest.testmod(importlib.import_module("answer")).failed
    finally:
        sys.path.pop(0)
    assert failed == 0
