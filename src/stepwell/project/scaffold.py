"""New projects from templates."""

import json
import re
import uuid
from pathlib import Path
from typing import NamedTuple

from stepwell.errors import InvalidArgument, StorageUnavailable

_MANIFEST = """[project]
name = {package}
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["stepwell"]

[tool.stepwell]
project-id = "{project_id}"
executor = "{module}:executor"
name = {name}
"""

_WORKFLOW = '''"""A workflow with two nodes and a counter that never loses a visit."""

from dataclasses import dataclass

from stepwell import Context, Entrypoint, Executor, node, workflow


@dataclass
class Input:
    """What a run is given: `stepwell run . -- --name Ada`."""

    name: str = "world"


@dataclass
class Output:
    """What a run returns."""

    greeting: str
    visits: int


@node
async def count_visit(name: str, ctx: Context) -> int:
    """Count this visit; concurrent runs are all counted."""
    return await ctx.storage.local.kv.update_value(f"visits:{name}", lambda count: count + 1, default=0)


@node
def greet(name: str, visits: int) -> str:
    """A synchronous node: it runs in a worker thread."""
    return f"Hello, {name}! This is visit number {visits}."


@workflow
async def main(data: Input, ctx: Context) -> Output:
    """Count the visit, then greet."""
    visits = await count_visit(data.name, ctx)
    greeting = await greet(data.name, visits)
    async with ctx.output("greeting") as out:
        await out.write(greeting)
    return Output(greeting, visits)


executor = Executor(entrypoints=[Entrypoint(id="main", title="Greet", workflow=main)])
'''

_CONVERSATION = '''"""A conversation that remembers what it was told."""

from dataclasses import dataclass

from stepwell import Context, Conversation, Entrypoint, Executor, parse_conversation_input, workflow


@dataclass
class Input:
    """One turn of the conversation."""

    message: str


@dataclass
class Output:
    """The answer."""

    answer: str


def read_arguments(args: list[str]) -> Input:
    """The standard conversation input: `--message "..."`."""
    return Input(parse_conversation_input(args).message)


@workflow
async def main(data: Input, ctx: Context) -> Output:
    """Answer with what was said before. Put your model call here."""
    earlier = (await ctx.conversation.summary()).message_count
    await ctx.conversation.append_message({"role": "user", "content": data.message})
    answer = f"You said {data.message!r}. Before that, this conversation had {earlier} messages."
    async with ctx.output("answer") as out:
        await out.write(answer)
    await ctx.conversation.append_message({"role": "assistant", "content": answer})
    return Output(answer)


executor = Executor(
    project_type="conversation",
    entrypoints=[Entrypoint(id="main", title="Talk", workflow=main, create_input=read_arguments)],
    conversation=Conversation(),
)
'''

_TEST = '''"""Runs the project for real, with its data in a temporary folder."""

import asyncio
from pathlib import Path

from stepwell import Host, load_project, load_settings

PROJECT = Path(__file__).parent


def test_it_runs(tmp_path):
    async def run():
        async with Host(load_settings({{"home": str(tmp_path)}})) as host:
            handle = await host.start(load_project(PROJECT), args={arguments})
            return await handle.report()

    report = asyncio.run(run())
    assert report.status == "completed", report.error
'''

_AGENTS = """# {name}

A stepwell project. The manifest is `[tool.stepwell]` in pyproject.toml, the code is `{module}.py`.

- run it: `stepwell run . -- {first}`
- what it offers: `stepwell describe .`
- what happened: `stepwell runs list`, `stepwell runs events RUN`
- what it stored: `stepwell kv list`, `stepwell conversations list`
- test it: `pytest`

State belongs into `ctx.storage` (never into module variables): read-modify-write with `update_value`.
Work worth keeping over a crash belongs into `@node` functions; a killed run continues with `stepwell runs resume RUN`.
"""


class Scaffolded(NamedTuple):
    """A project that was made; `files` are relative to its folder."""

    folder: str
    project_id: str
    name: str
    files: list[str]
    first_arguments: str


def scaffold(folder: str, *, template: str, name: str | None = None, force: bool = False) -> Scaffolded:
    """Write a new project.

    Args:
        folder: created if it is not there.
        template: `workflow` or `conversation`.
        name: shown name; the folder's name by default.
        force: overwrite files of the same names.

    Raises:
        InvalidArgument: a file is there already; nothing was written.
        StorageUnavailable: the folder cannot be written.
    """
    root = Path(folder).resolve()
    name = name or root.name or "project"
    module = re.sub(r"\W+", "_", name.lower()).strip("_") or "project"
    if not module.isascii() or module[0].isdigit() or module in ("stepwell", "test"):
        module = "project"
    conversation = template == "conversation"
    arguments = ["--message", "hello"] if conversation else ["--name", "Ada"]
    project_id = str(uuid.uuid4())
    package = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "project"
    files = {
        "pyproject.toml": _MANIFEST.format(
            package=json.dumps(package), project_id=project_id, module=module, name=json.dumps(name, ensure_ascii=False)
        ),
        f"{module}.py": _CONVERSATION if conversation else _WORKFLOW,
        f"test_{module}.py": _TEST.format(arguments=json.dumps(arguments)),
        "AGENTS.md": _AGENTS.format(name=name, module=module, first=" ".join(arguments)),
    }
    there = [file for file in files if (root / file).exists()]
    if there and not force:
        raise InvalidArgument(
            f"{root} already has {', '.join(there)}", hint="choose another folder, or overwrite them with --force"
        )
    try:
        root.mkdir(parents=True, exist_ok=True)
        for file, content in files.items():
            (root / file).write_text(content, encoding="utf-8")
    except OSError as error:
        raise StorageUnavailable(f"{root} cannot be written: {error.strerror}", hint="choose another folder") from None
    return Scaffolded(str(root), project_id, name, list(files), " ".join(arguments))
