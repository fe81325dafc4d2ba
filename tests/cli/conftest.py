"""The command line, as a process of its own and inside the test's process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stepwell.cli.app import run as run_in_process
from stepwell.project.scaffold import scaffold

SECONDS = 60


class Result(NamedTuple):
    """How a command ended and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Stdout as one JSON value."""
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """The error that --json puts on stderr, as its last line."""
        shown: dict[str, Any] = json.loads(self.err.splitlines()[-1])["error"]
        return shown


class Program:
    """Runs `stepwell` in processes of its own, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "stepwell", *arguments]

    def __call__(self, *arguments: str, stdin: bytes = b"", **environment: str) -> Result:
        done = subprocess.run(
            self.command(*arguments), cwd=self.folder, input=stdin, capture_output=True, timeout=SECONDS, check=False,
            env={**os.environ, **environment},
        )  # fmt: skip
        return Result(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[str]":
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL} | options
        return subprocess.Popen(self.command(*arguments), cwd=self.folder, text=True, **options)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new workflow project; the current folder is there."""
    folder = tmp_path / "project"
    scaffold(str(folder), template="workflow", name="Demo")
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def program(project: Path) -> Program:
    """The program, started in the project's folder."""
    return Program(project)


@pytest.fixture
def cli(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Result]]:
    """The same inside this process: quicker, for what needs no process."""
    path, modules = list(sys.path), set(sys.modules)

    def call(*arguments: str) -> Result:
        capsys.readouterr()
        with Path(os.devnull).open(encoding="utf-8") as nothing:
            monkeypatch.setattr(sys, "stdin", nothing)
            code = run_in_process(list(arguments))
        out, err = capsys.readouterr()
        return Result(code, out, err)

    yield call
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(project) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


Cli = Callable[..., Result]


def write_workflow(folder: Path, code: str, *, module: str = "demo") -> None:
    """Replace the project's code: `code` is the body of the workflow `main(data, ctx)`."""
    body = "\n".join(f"    {line}" for line in code.strip().splitlines())
    (folder / f"{module}.py").write_text(
        "import asyncio\nimport os\nimport sys\nimport time\n"
        "from stepwell import Context, Entrypoint, Executor, TokenReport, TokenUsage, node, workflow\n\n"
        "@node\nasync def step(number: int) -> int:\n    return number + 1\n\n"
        f"@workflow\nasync def main(data: dict, ctx: Context) -> object:\n{body}\n\n"
        "executor = Executor(entrypoints=[\n"
        "    Entrypoint(id='main', title='Main', workflow=main, token_usage=TokenUsage(enabled=True))])\n",
        encoding="utf-8",
    )
