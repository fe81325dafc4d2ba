"""The parent: it keeps texts at the server, and works on those of its related project `child`."""

import argparse
from dataclasses import dataclass
from typing import Any

from stepwell import Context, Entrypoint, Executor, node, workflow


@dataclass
class StoreInput:
    """A text to keep; with an alias in the related project, else here."""

    content: str
    alias: str | None = None


@dataclass
class GetInput:
    """The item to look for; with an alias in the related project, else here."""

    id: str
    alias: str | None = None


@dataclass
class Item:
    """An item, and the project that has it; no content where there is no such item."""

    id: str
    content: str | None
    alias: str | None = None


def kv_of(alias: str | None, ctx: Context) -> Any:
    """The KV of the related project of an alias, or the project's own without one."""
    server = ctx.storage.server
    return server.kv if alias is None else server.related_projects.get(alias).kv


@node
async def write_item(content: str, alias: str | None, ctx: Context) -> str:
    """Keep a text under the next free number."""
    kv = kv_of(alias, ctx)
    number = await kv.update_value("item:count", lambda count: count + 1, default=0)
    await kv.set_value(f"item:{number}", content)
    return str(number)


@node
async def read_item(item_id: str, alias: str | None, ctx: Context) -> str | None:
    """The text of an item."""
    return await kv_of(alias, ctx).get_value(f"item:{item_id}")


@workflow
async def store(data: StoreInput, ctx: Context) -> Item:
    """Keep a text and tell its id."""
    return Item(await write_item(data.content, data.alias, ctx), data.content, data.alias)


@workflow
async def get(data: GetInput, ctx: Context) -> Item:
    """Give an item back."""
    return Item(data.id, await read_item(data.id, data.alias, ctx), data.alias)


def store_arguments(args: list[str]) -> StoreInput:
    """`--content TEXT [--alias ALIAS]`."""
    return StoreInput(**parse("content", args))


def get_arguments(args: list[str]) -> GetInput:
    """`--id ID [--alias ALIAS]`."""
    return GetInput(**parse("id", args))


def parse(needed: str, args: list[str]) -> dict[str, Any]:
    """One option that is needed, and the alias that is not."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument(f"--{needed}", required=True)
    parser.add_argument("--alias")
    return vars(parser.parse_args(args))


executor = Executor(
    default_entrypoint="get",
    entrypoints=[
        Entrypoint(id="store", title="Keep a text", workflow=store, create_input=store_arguments),
        Entrypoint(id="get", title="Give a text back", workflow=get, create_input=get_arguments),
    ],
)
