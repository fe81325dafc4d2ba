"""Projects in folders that declare each other, and runs of them."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import Context, Entrypoint, Executor, Host, load_settings, workflow
from stepwell.project.loader import Project
from stepwell.project.manifest import load_manifest
from stepwell.runtime.report import Report
from stepwell.storage.relations import Relation, parse_relations

IDS = {name: f"01936d3f-6a00-7000-8000-0000000000{number:02x}" for number, name in enumerate("abc", 0xA1)}
ALL = {"mode": "all"}

CODE = """
from stepwell import Context, Entrypoint, Executor, node, workflow


@workflow
async def hello(data: dict, ctx: Context) -> dict:
    await ctx.storage.local.kv.set_value("greeted", data)
    return {"project": ctx.project.id, "greeted": data, "secret": "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0" * 2}


@workflow
async def onward(data: dict, ctx: Context) -> object:
    return await ctx.storage.local.related_projects.get(data["alias"]).kv.get_value("k")


@workflow
async def fail(data: dict, ctx: Context) -> None:
    raise ValueError("on purpose")


def words(args: list[str]) -> dict:
    if not args:
        raise ValueError("say something")
    return {"words": args}


executor = Executor(entrypoints=[
    Entrypoint("hello", hello, create_input=words),
    Entrypoint("onward", onward),
    Entrypoint("fail", fail),
    Entrypoint("hidden", hello, create_input=words),
])
"""


def rule(*prefixes: str) -> dict[str, Any]:
    """A grant of prefixes."""
    return {"mode": "prefixes", "prefixes": list(prefixes)}


def declared(alias: str, name: str, **grant: Any) -> dict[str, Any]:
    """A relation as a manifest has it."""
    return {"alias": alias, "project-id": IDS[name], "grant": grant}


def parsed(*tables: dict[str, Any]) -> tuple[Relation, ...]:
    """Relations as the policy takes them."""
    return parse_relations(tables)


class World:
    """Three projects `a`, `b`, `c` in folders of their own, and a host."""

    def __init__(self, root: Path, host: Host) -> None:
        self.root = root
        self.host = host
        self.folders: dict[str, str] = {}

    def folder(self, name: str) -> Path:
        """A project's folder."""
        return self.root / name

    def declare(self, name: str, *relations: dict[str, Any], extra: str = "") -> None:
        """Write a project's manifest (again)."""
        import json

        folder = self.folder(name)
        folder.mkdir(exist_ok=True)
        (folder / f"code_{name}.py").write_text(CODE)
        text = f'project-id = "{IDS[name]}"\nexecutor = "code_{name}:executor"\n{extra}\n'
        for relation in relations:
            text += f'[[related-projects]]\nalias = "{relation["alias"]}"\nproject-id = "{relation["project-id"]}"\n'
            for right, given in relation["grant"].items():
                for inner, one in given.items() if right == "knowledge" else [("", given)]:
                    parts = ", ".join(f"{key} = {json.dumps(value)}" for key, value in one.items())
                    text += f"grant.{right}{'.' if inner else ''}{inner} = {{ {parts} }}\n"
        (folder / "stepwell.toml").write_text(text)

    def grant(self, **grant: Any) -> None:
        """Let `a` (which calls it `stock`) do this in `b` (which calls it `shop`)."""
        self.declare("b", declared("shop", "a", **grant))

    async def run(self, body: Callable[[Context], Any], name: str = "a") -> Report:
        """Run an async function as a project's workflow."""

        @workflow
        async def main(data: dict, ctx: Context) -> object:
            return await body(ctx)

        project = Project(load_manifest(str(self.folder(name))), Executor(entrypoints=[Entrypoint("main", main)]))
        handle = await self.host.start(project, input={}, related=self.folders)
        return await handle.report()

    async def do(self, body: Callable[[Any], Any], alias: str = "stock", name: str = "a") -> Any:
        """What an async function makes of the related project; its error is raised."""
        found: list[Any] = []

        async def kept(ctx: Context) -> None:
            try:
                found.append(await body(ctx.storage.local.related_projects.get(alias)))
            except Exception as error:  # noqa: BLE001  (raised below, out of the run)
                found.append(error)

        report = await self.run(kept, name)
        assert report.status == "completed", report.error
        if isinstance(found[0], Exception):
            raise found[0]
        return found[0]

    async def put(self, name: str, key: str, value: Any) -> None:
        """Store a value in a project, as itself."""

        async def write(ctx: Context) -> None:
            await ctx.storage.local.kv.set_value(key, value)

        assert (await self.run(write, name)).status == "completed"

    async def value(self, name: str, key: str) -> Any:
        """A stored value of a project, as itself."""
        found: list[Any] = []

        async def read(ctx: Context) -> None:
            found.append(await ctx.storage.local.kv.get_value(key))

        await self.run(read, name)
        return found[0]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """`a` and `b` declare each other and grant nothing; `c` declares nobody."""
    async with Host(load_settings()) as host:
        made = World(tmp_path, host)
        made.declare("a", declared("stock", "b"))
        made.grant()
        made.declare("c")
        made.folders = {"stock": str(made.folder("b"))}
        yield made
