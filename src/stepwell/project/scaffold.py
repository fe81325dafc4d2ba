"""New projects from templates."""

import importlib.util
import json
import keyword
import re
import sys
import uuid
from pathlib import Path
from typing import NamedTuple

from stepwell.errors import InvalidArgument, InvalidId, ManifestInvalid, StorageUnavailable
from stepwell.identifiers import check_project_id
from stepwell.project.manifest import MAX_NAME

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

from stepwell import Context, Conversation, Entrypoint, Executor, node, parse_conversation_input, workflow


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


@node
async def count_earlier(ctx: Context) -> int:
    """What changes is read in a node: a run that is resumed goes on with what it was."""
    return (await ctx.conversation.summary()).message_count


@workflow
async def main(data: Input, ctx: Context) -> Output:
    """Answer with what was said before. Put your model call here; what is appended here is appended once."""
    earlier = await count_earlier(ctx)
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
A workflow's body is gone through again then: read there what changes (time, random, storage) only within nodes.
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

    A pyproject.toml that is there already keeps what it has and gets the manifest's table; a project id that is there
    already is kept, because the stored data hangs from it.

    Args:
        folder: created if it is not there.
        template: `workflow` or `conversation`.
        name: shown name; the folder's name by default.
        force: overwrite code files of the same names, and a manifest's executor.

    Raises:
        InvalidArgument: a file is there already, or the name is unusable; nothing was written.
        ManifestInvalid: the pyproject.toml that is there is no TOML.
        StorageUnavailable: the folder cannot be read or written.
    """
    root = Path(folder).resolve()
    name = name if name is not None else root.name or "project"
    if not name.strip() or not name.isprintable() or len(name) > MAX_NAME:
        raise InvalidArgument(
            f"the name {name!r:.80} is not one line of 1 to {MAX_NAME} printable characters",
            hint="give another one with --name",
            argument="name",
        )
    module = _module_name(name)
    conversation = template == "conversation"
    arguments = ["--message", "hello"] if conversation else ["--name", "Ada"]
    files = {
        f"{module}.py": _CONVERSATION if conversation else _WORKFLOW,
        f"test_{module}.py": _TEST.format(arguments=json.dumps(arguments)),
        "AGENTS.md": _AGENTS.format(name=name, module=module, first=" ".join(arguments)),
    }
    try:
        there = [file for file in files if (root / file).exists()]
        manifest, project_id = _manifest(root, name, module, force=force)
        if there and not force:
            raise InvalidArgument(
                f"{root} already has {', '.join(there)}", hint="choose another folder, or overwrite them with --force"
            )
        root.mkdir(parents=True, exist_ok=True)
        for file, content in {"pyproject.toml": manifest, **files}.items():
            (root / file).write_text(content, encoding="utf-8", newline="")
    except OSError as error:
        raise StorageUnavailable(f"{root} cannot be written: {error.strerror}", hint="choose another folder") from None
    return Scaffolded(str(root), project_id, name, ["pyproject.toml", *files], " ".join(arguments))


def _module_name(name: str) -> str:
    """A module name that hides no other module."""
    module = re.sub(r"\W+", "_", name.lower()).strip("_")
    if not module.isascii() or not module.isidentifier() or keyword.iskeyword(module):
        return "project"
    if module == "test" or module in sys.stdlib_module_names or importlib.util.find_spec(module) is not None:
        return f"{module}_project"
    return module


def _manifest(root: Path, name: str, module: str, *, force: bool) -> tuple[str, str]:
    """The text of the project's pyproject.toml, and the project id in it."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    path = root / "pyproject.toml"
    if (root / "stepwell.toml").exists():
        raise InvalidArgument(f"{root} already has a stepwell.toml", hint="choose another folder", path=str(root))
    try:
        document = tomlkit.parse(path.read_bytes().decode()) if path.exists() else None
        if document is None:
            document = tomlkit.document()
            package = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "project"
            document["project"] = {
                "name": package, "version": "0.1.0", "requires-python": ">=3.11", "dependencies": ["stepwell"]
            }  # fmt: skip
        tool = document.setdefault("tool", tomlkit.table(is_super_table=True))
        known = tool.get("stepwell")
        if known is not None and not force:
            raise InvalidArgument(
                f"{path} already declares a project", hint="choose another folder, or overwrite it with --force"
            )
        table = known if isinstance(known, dict) else tomlkit.table()
        try:
            project_id = check_project_id(str(table.get("project-id")))  # a plain str, not tomlkit's own
        except InvalidId:
            project_id = str(uuid.uuid4())
        table.update({"project-id": project_id, "executor": f"{module}:executor", "name": name})
        tool["stepwell"] = table
        return tomlkit.dumps(document), project_id
    except (TOMLKitError, UnicodeDecodeError, RecursionError, AttributeError, TypeError) as error:
        raise ManifestInvalid(f"{path} cannot be read: {error}", hint="correct it first", path=str(path)) from None
