"""`stepwell conversations`: a project's conversations."""

import json

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.confirm import confirm
from stepwell.cli.place import Place
from stepwell.cli.render import Output, dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from stepwell.conversation.listing import Conversations


@click.group()
def conversations() -> None:
    """List, show, export, rename and delete conversations."""


def where(command: "Callable[..., Any]") -> "Callable[..., Any]":
    """The option that says which location is meant."""
    option = click.option(
        "--location", type=click.Choice(["local", "server"]), help="Default: where the project keeps state."
    )
    return common(option(command))


def _with(place: Place, location: str | None, operation: "Callable[[Conversations], Awaitable[Any]]") -> "Any":
    import asyncio

    from stepwell.conversation.listing import Conversations
    from stepwell.store.entries import Domain

    async def session() -> "Any":
        try:
            backend = place.location(location).backend(Domain.CONVERSATION)
            return await operation(Conversations(backend, place.manifest.project_id, place.manifest.name))
        finally:
            await place.close()

    return asyncio.run(session())


@conversations.command("list")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@click.option("--cursor", help="Continue a list.")
@where
@pass_output
def list_(output: Output, limit: int, cursor: str | None, location: str | None) -> None:
    """List conversations, last used first."""
    found, following = _with(Place(output), location, lambda them: them.list(limit=limit, cursor=cursor))
    output.items(
        [summary.to_dict() for summary in found],
        [("conversation", lambda c: c["conversation_id"]), ("title", lambda c: c["shown_title"]),
         ("messages", lambda c: c["message_count"]), ("updated", lambda c: c["updated_at"][:19])],
        next_cursor=following, empty="no conversations",
    )  # fmt: skip


@conversations.command("show")
@click.argument("conversation_id")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Newest messages shown.")
@click.option("--before", type=click.IntRange(1), help="Messages before this sequence.")
@where
@pass_output
def show(output: Output, conversation_id: str, limit: int, before: int | None, location: str | None) -> None:
    """Show a conversation's newest messages."""

    async def read(them: "Conversations") -> "Any":
        conversation = await them.get(conversation_id)
        return await conversation.summary(), await conversation.messages(limit, before)

    summary, messages = _with(Place(output), location, read)
    shown = summary.to_dict() | {"messages": messages}

    def text() -> str:
        lines = [f"{shown['shown_title']}  ({summary.message_count} messages)"]
        for message in messages:
            content = message.get("content")
            lines += ["", f"{message['seq']} {message['role']}  {message['created_at'][:19]}"]
            lines.append(content if isinstance(content, str) else dumps(content))
        return "\n".join(lines)

    output.data(shown, text)


@conversations.command("export")
@click.argument("conversation_id")
@click.option("--format", "form", type=click.Choice(["json", "markdown"]), default="markdown", show_default=True)
@where
@pass_output
def export(output: Output, conversation_id: str, form: str, location: str | None) -> None:
    """Print every message of a conversation."""

    async def write(them: "Conversations") -> None:
        if form == "markdown" and not output.json:
            async for part in them.export_markdown(conversation_id):
                output.text(part)
            return
        first = True
        output.stream_raw('{"conversation_id": ' + json.dumps(conversation_id) + ', "messages": [')
        async for message in them.export(conversation_id):
            output.stream_raw(("" if first else ",") + "\n" + dumps(message))
            first = False
        output.stream_raw("\n]}\n")

    _with(Place(output), location, write)


@conversations.command("rename")
@click.argument("conversation_id")
@click.argument("title")
@where
@pass_output
def rename(output: Output, conversation_id: str, title: str, location: str | None) -> None:
    """Set a conversation's title; an empty one clears it."""

    async def write(them: "Conversations") -> "Any":
        return await (await them.get(conversation_id)).set_title(title)

    kept = _with(Place(output), location, write)
    output.data({"conversation_id": conversation_id, "title": kept}, f"{conversation_id}: {kept or '(no title)'}")


@conversations.command("delete")
@click.argument("conversation_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@where
@pass_output
def delete(output: Output, conversation_id: str, yes: bool, location: str | None) -> None:
    """Delete a conversation: its messages, what it kept in KV, and the files attached in its chat."""
    from pathlib import Path

    from stepwell.files.store import FileStore, conversation_of

    confirm(yes, f"delete the conversation {conversation_id} with all its messages and attachments?")
    place = Place(output)
    is_where_chats_are = location is None or place.location(location).name == place.location(None).name
    count = _with(place, location, lambda them: them.delete(conversation_id))
    files = 0
    if is_where_chats_are:  # elsewhere it may be another conversation of the same id
        store = FileStore(Path(place.settings.home) / "files")
        files = store.delete_conversation(conversation_of(place.manifest.project_id, conversation_id))
    output.data(
        {"conversation_id": conversation_id, "removed": True, "messages": count, "files": files},
        f"deleted {count} messages and {files} files",
    )
