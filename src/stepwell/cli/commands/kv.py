"""`stepwell kv`: read and write stored entries."""

import sys

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.place import Place
from stepwell.cli.render import Output, dumps
from stepwell.errors import Kind, StepwellError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from stepwell.storage.kv import KeyValue


class EntryNotFound(StepwellError):
    """`kv get` or `kv delete` of an absent key."""

    code, kind = "entry_not_found", Kind.NOT_FOUND


@click.group()
def kv() -> None:
    """Read and write stored entries."""


def where(command: "Callable[..., Any]") -> "Callable[..., Any]":
    """The options that say which namespace is meant."""
    for option in (
        click.option("--conversation-id", help="The conversation's scope instead of the project's."),
        click.option(
            "--location", type=click.Choice(["local", "server"]), help="Default: where the project keeps state."
        ),
        click.option("--domain", type=click.Choice(["kv", "persistent_value"]), default="kv", show_default=True),
    ):
        command = option(command)
    return common(command)


@kv.command("get")
@click.argument("key")
@where
@pass_output
def get(output: Output, key: str, domain: str, location: str | None, conversation_id: str | None) -> None:
    """Print the value of KEY (--json: the whole entry)."""
    from stepwell.identifiers import check_conversation_id, check_key, iso_time
    from stepwell.jsontext import decode
    from stepwell.storage.declaration import DataStorage
    from stepwell.storage.paths import local_path
    from stepwell.store.entries import Domain, Namespace, Scope
    from stepwell.store.sqlite import SqliteCore

    place = Place(output)
    check_key(key)
    if conversation_id is not None:
        check_conversation_id(conversation_id)
    if location == "server" or place.manifest.data_storage is DataStorage.SERVER:
        # Only a connected server could answer, or the declaration refuses: the storage layer says which.
        import asyncio

        asyncio.run(_handle(place, domain, location, conversation_id).get_entry(key))
    settings, project_id = place.settings, place.manifest.project_id
    path = local_path(settings.kv_dir, settings.persistent_value_dir, project_id, Domain(domain))
    core = SqliteCore(path)
    scope = Scope.PROJECT if conversation_id is None else Scope.CONVERSATION
    namespace = Namespace(project_id, Domain(domain), scope, None, conversation_id)
    record = core.read(namespace, (key,)).get(key) if core.exists() else None
    core.close()
    if record is None:
        raise EntryNotFound(f"there is no entry {key!r}", hint="`stepwell kv list` shows the keys", key=key)
    value = decode(record.text)
    if output.json:
        source = {name: part for name, part in record.source._asdict().items() if part is not None}
        output.line(
            dumps(
                {
                    "key": record.key, "value": value, "revision": record.revision,
                    "created_at": iso_time(record.created_at), "updated_at": iso_time(record.updated_at),
                    "source": source,
                }
            )
        )  # fmt: skip
    else:
        output.text(dumps(value))


@kv.command("set")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--string", "text", help="Store this text as a string, not as JSON.")
@where
@pass_output
def set_(
    output: Output, key: str, value: str | None, text: str | None, domain: str, location: str | None,
    conversation_id: str | None,
) -> None:  # fmt: skip
    """Store VALUE (JSON; `-` reads it from stdin) under KEY."""
    from stepwell.jsontext import decode_untrusted

    if (value is None) == (text is None):
        raise click.UsageError("give the value either as JSON or with --string")
    if text is not None:
        parsed: Any = text
    else:
        raw: str | bytes = sys.stdin.buffer.read() if value == "-" else value or ""
        parsed = decode_untrusted(raw, what="the value")
    entry = _run(Place(output), domain, location, conversation_id, lambda handle: handle.set_value(key, parsed))
    output.data(entry.to_dict(), lambda: f"{entry.key} is at revision {entry.revision}")


@kv.command("delete")
@click.argument("key")
@where
@pass_output
def delete(output: Output, key: str, domain: str, location: str | None, conversation_id: str | None) -> None:
    """Remove the entry of KEY for good."""
    removed = _run(Place(output), domain, location, conversation_id, lambda handle: handle.delete_value(key))
    if not removed and not output.json:
        raise EntryNotFound(f"there is no entry {key!r}", hint="nothing was removed", key=key)
    output.data({"key": key, "removed": removed}, f"removed {key}")


@kv.command("list")
@click.option("--prefix", default="", help="Only keys that start with this text.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--cursor", help="Continue a list: the last key seen.")
@where
@pass_output
def list_(
    output: Output, prefix: str, limit: int, cursor: str | None, domain: str, location: str | None,
    conversation_id: str | None,
) -> None:  # fmt: skip
    """List entries in key order."""

    async def read(handle: "KeyValue") -> "list[dict[str, Any]]":
        found = []
        async for entry in handle.scan(prefix, after=cursor):
            found.append(entry.to_dict())
            if len(found) > limit:
                break
        return found

    found = _run(Place(output), domain, location, conversation_id, read)
    following = found[limit - 1]["key"] if len(found) > limit else None
    output.items(
        found[:limit],
        [("key", lambda e: e["key"]), ("value", lambda e: e["value"]), ("revision", lambda e: e["revision"]),
         ("updated", lambda e: e["updated_at"])],
        next_cursor=following, empty="no entries",
    )  # fmt: skip


@kv.command("watch")
@click.option("--prefix", default="", help="Only keys that start with this text.")
@click.option("--jsonl", is_flag=True, help="One JSON object a line.")
@click.option("--count", type=click.IntRange(1), help="Stop after this many changes.")
@where
@pass_output
def watch(
    output: Output, prefix: str, jsonl: bool, count: int | None, domain: str, location: str | None,
    conversation_id: str | None,
) -> None:  # fmt: skip
    """Print changes as they happen: key, revision, and whether it was deleted."""

    async def follow(handle: "KeyValue") -> None:
        seen = 0
        output.talk("watching; Ctrl-C stops")
        async for change in handle.watch(prefix):
            if jsonl or output.json:
                output.line(dumps(change._asdict()))
            else:
                output.text(f"{change.key}\t{change.revision}\t{'deleted' if change.deleted else 'written'}")
            sys.stdout.flush()
            seen += 1
            if seen == count:
                return

    _run(Place(output), domain, location, conversation_id, follow)


def _handle(place: Place, domain: str, location: str | None, conversation_id: str | None) -> "KeyValue":
    found = place.location(place.local_stores(), location, conversation_id)
    project = found.kv if domain == "kv" else found.persistent_value
    return project if conversation_id is None else project.conversation


def _run(
    place: Place, domain: str, location: str | None, conversation_id: str | None, operation: "Callable[..., Any]"
) -> "Any":
    import asyncio

    from stepwell.identifiers import check_conversation_id

    if conversation_id is not None:
        check_conversation_id(conversation_id)

    async def session() -> "Any":
        handle = _handle(place, domain, location, conversation_id)
        try:
            return await operation(handle)
        finally:
            await handle.backend.close()

    return asyncio.run(session())
