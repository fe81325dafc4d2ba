"""The parent: it keeps texts of its own, and works on those of its related project `child`."""

import argparse
from dataclasses import dataclass
from typing import Any

from stepwell import Context, Entrypoint, Executor, node, workflow
from stepwell.errors import DocumentNotFound


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
    local = ctx.storage.local
    return local.kv if alias is None else local.related_projects.get(alias).kv


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


@dataclass
class NoteInput:
    """A note for the related project."""

    content: str
    alias: str = "child"


@dataclass
class Note:
    """What came of it: the document as it is there, the item its own entrypoint made, and what else it offers."""

    document_id: str
    version: int
    first_line: str
    item: dict[str, Any]
    entrypoints: list[str]


@node
async def write_note(content: str, alias: str, ctx: Context) -> int:
    """Make or change the document `note-today` of the related project."""
    knowledge = ctx.storage.local.related_projects.get(alias).knowledge
    try:
        return (await knowledge.edit_document("note-today", markdown=content)).version
    except DocumentNotFound:
        return (await knowledge.create_document("Note of today", content, "note-today")).version


@node
async def call_store(content: str, alias: str, ctx: Context) -> dict[str, Any]:
    """Let the related project keep the text by itself: its own code, its own run, its own storage."""
    return await ctx.storage.local.related_projects.get(alias).run_entrypoint("store", ["--content", content])


@workflow
async def note(data: NoteInput, ctx: Context) -> Note:
    """Write a note into the related project's Knowledge, and have its entrypoint keep a copy."""
    related = ctx.storage.local.related_projects.get(data.alias)
    version = await write_note(data.content, data.alias, ctx)
    lines = await related.knowledge.read_document_lines("note-today", 1, 1)
    item = await call_store(data.content, data.alias, ctx)
    offered = [point["id"] for point in await related.list_entrypoints()]
    return Note("note-today", version, lines.lines[0] if lines.lines else "", item, offered)


def store_arguments(args: list[str]) -> StoreInput:
    """`--content TEXT [--alias ALIAS]`."""
    return StoreInput(**parse("content", args))


def get_arguments(args: list[str]) -> GetInput:
    """`--id ID [--alias ALIAS]`."""
    return GetInput(**parse("id", args))


def note_arguments(args: list[str]) -> NoteInput:
    """`--content TEXT [--alias ALIAS]`."""
    given = parse("content", args)
    return NoteInput(given["content"], given["alias"] or "child")


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
        Entrypoint(id="note", title="Leave a note at the child", workflow=note, create_input=note_arguments),
    ],
)
