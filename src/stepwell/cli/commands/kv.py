"""`stepwell kv`: read and write stored entries."""

import functools
import sys

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.confirm import confirm
from stepwell.cli.place import Place
from stepwell.cli.render import Output, dumps
from stepwell.errors import EntryNotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from stepwell.storage.kv import KeyValue


@click.group()
def kv() -> None:
    """Read and write stored entries."""


class Where:
    """Which namespace is meant: the options that all of these commands have."""

    def __init__(self, domain: str, location: str | None, workflow: str | None, conversation_id: str | None) -> None:
        from stepwell.identifiers import check_conversation_id

        self.domain = domain
        self.location = location
        self.workflow = workflow
        self.conversation_id = None if conversation_id is None else check_conversation_id(conversation_id)

    def open(self, place: Place) -> "KeyValue":
        """A handle on the namespace.

        Raises:
            StorageForbidden, StorageUnavailable: the location is closed to this project, or cannot be reached.
            ConversationRequired, ScopeUnavailable: the options do not fit the project's scope model.
        """
        from stepwell.storage.declaration import ScopeModel

        storage = place.storage(self.conversation_id, self.workflow)
        if storage.scope_model is ScopeModel.WORKFLOW and self.location is None:
            scopes = storage.scopes.kv if self.domain == "kv" else storage.scopes.persistent_value
            if self.workflow is not None:
                return scopes.workflow if self.conversation_id is None else scopes.conversation
            if self.conversation_id is not None:
                raise click.UsageError("under the workflow scope model, --conversation-id needs --workflow as well")
            return scopes
        if self.workflow is not None:
            if storage.scope_model is ScopeModel.WORKFLOW or self.domain != "kv":
                raise click.UsageError(
                    "--workflow is for --domain kv; where workflows have scopes, not with --location"
                )
            storage = storage.with_own_kv(self.workflow)
        location = storage.host if self.location is None else storage.any_location(self.location)
        project = location.kv if self.domain == "kv" else location.persistent_value
        return project if self.conversation_id is None else project.conversation

    def run(self, place: Place, operation: "Callable[[KeyValue], Awaitable[Any]]") -> "Any":
        """Run an operation on the namespace."""
        import asyncio

        async def session() -> "Any":
            try:
                return await operation(self.open(place))
            finally:
                await place.close()

        return asyncio.run(session())


def where(command: "Callable[..., Any]") -> "Callable[..., Any]":
    """Give a command the options that say which namespace is meant, as one argument `at`."""

    @functools.wraps(command)
    def with_where(
        *args: "Any", domain: str, location: str | None, workflow: str | None, conversation_id: str | None, **kw: "Any"
    ) -> "Any":
        return command(*args, at=Where(domain, location, workflow, conversation_id), **kw)

    decorated: Callable[..., Any] = with_where
    for option in (
        click.option("--conversation-id", help="The conversation's scope instead of the project's."),
        click.option("--workflow", help="This workflow's scope, or the KV that it has for itself as an isolated one."),
        click.option(
            "--location", type=click.Choice(["local", "server"]), help="Default: where the project keeps state."
        ),
        click.option("--domain", type=click.Choice(["kv", "persistent_value"]), default="kv", show_default=True),
    ):
        decorated = option(decorated)
    return common(decorated)


@kv.command("get")
@click.argument("key")
@where
@pass_output
def get(output: Output, key: str, at: Where) -> None:
    """Print the value of KEY (--json: the whole entry)."""
    entry = at.run(Place(output), lambda handle: handle.get_entry(key))
    if entry is None:
        raise EntryNotFound(f"there is no entry {key!r}", hint="`stepwell kv list` shows the keys", key=key)
    output.data(entry.to_dict(), lambda: dumps(entry.value))


# A value may look like an option: -5 is a number.
@kv.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value", required=False)
@click.option("--string", "text", help="Store this text as a string, not as JSON.")
@where
@pass_output
def set_(output: Output, key: str, value: str | None, text: str | None, at: Where) -> None:
    """Store VALUE (JSON; `-` reads it from stdin) under KEY."""
    from stepwell.errors import InvalidArgument
    from stepwell.jsontext import decode_untrusted

    if (value is None) == (text is None):
        raise click.UsageError("give the value either as JSON or with --string")
    given = text if text is not None else value or ""
    if any("\udc80" <= character <= "\udcff" for character in given):
        raise InvalidArgument("the value is not UTF-8", argument="VALUE")
    if text is not None:
        parsed: Any = text
    else:
        parsed = decode_untrusted(sys.stdin.buffer.read() if value == "-" else given, what="the value")
    entry = at.run(Place(output), lambda handle: handle.set_value(key, parsed))
    output.data(entry.to_dict(), lambda: f"{entry.key} is at revision {entry.revision}")


@kv.command("delete")
@click.argument("key")
@click.option("--yes", is_flag=True, help="Do not ask.")
@where
@pass_output
def delete(output: Output, key: str, yes: bool, at: Where) -> None:
    """Remove the entry of KEY for good."""
    confirm(yes, f"delete the entry {key}?")
    if not at.run(Place(output), lambda handle: handle.delete_value(key)):
        raise EntryNotFound(f"there is no entry {key!r}", hint="nothing was removed", key=key)
    output.data({"key": key, "removed": True}, f"removed {key}")


@kv.command("list")
@click.option("--prefix", default="", help="Only keys that start with this text.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True)
@click.option("--cursor", help="Continue a list: the last key seen.")
@where
@pass_output
def list_(output: Output, prefix: str, limit: int, cursor: str | None, at: Where) -> None:
    """List entries in key order."""

    async def read(handle: "KeyValue") -> "list[dict[str, Any]]":
        found = []
        async for entry in handle.scan(prefix, after=cursor):
            found.append(entry.to_dict())
            if len(found) > limit:
                break
        return found

    found = at.run(Place(output), read)
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
def watch(output: Output, prefix: str, jsonl: bool, count: int | None, at: Where) -> None:
    """Print changes as they happen: key, revision, and whether it was deleted."""

    async def follow(handle: "KeyValue") -> None:
        seen = 0
        output.talk("watching; Ctrl-C stops")
        async for change in handle.watch(prefix):
            if jsonl or output.json:
                output.line(dumps(change._asdict()))
            else:
                output.text(f"{change.key}\t{change.revision}\t{'deleted' if change.deleted else 'written'}")
            output.flush()
            seen += 1
            if seen == count:
                return

    at.run(Place(output), follow)
