"""Opening a chat: which conversation, which front."""

import os
import sys
from typing import TYPE_CHECKING, NamedTuple

from stepwell.cli.chat.engine import Chat
from stepwell.cli.chat.plain import JsonFront, PlainFront, converse_plainly
from stepwell.cli.place import Place
from stepwell.cli.render import Output
from stepwell.conversation.listing import Conversations
from stepwell.conversation.state import Conversation
from stepwell.errors import ConversationNotFound
from stepwell.identifiers import new_id
from stepwell.runtime.host import Host
from stepwell.storage.location import Storage
from stepwell.store.entries import Domain, Source

if TYPE_CHECKING:
    from stepwell.project.loader import Project


class Choices(NamedTuple):
    """What the command line said."""

    entrypoint: str | None = None
    conversation_id: str | None = None
    is_continued: bool = False
    jsonl: bool = False
    json_input: bool = False


async def chat_with(output: Output, project: "Project", choices: Choices) -> int:
    """Hold a conversation with a project; returns the exit code.

    Raises:
        ConversationBusy: another chat has it open. ConversationNotFound: there is none to continue.
    """
    place = Place(output, str(project.folder))
    async with Host(place.settings) as host:
        conversation = await _conversation(host, project, choices)
        if not choices.jsonl and not choices.json_input and _is_interactive(output):
            from stepwell.cli.chat.terminal import converse_at_terminal

            return await converse_at_terminal(host, project, conversation, output, choices.entrypoint)
        front = JsonFront(output) if choices.jsonl else PlainFront(output)
        chat = Chat(host, project, conversation, front, choices.entrypoint)
        try:
            await chat.open()
            front.news(
                "opened", f"conversation {conversation.conversation_id}", conversation_id=conversation.conversation_id
            )
            return await converse_plainly(chat, output, json_input=choices.json_input)
        finally:
            await chat.close()


async def _conversation(host: Host, project: "Project", choices: Choices) -> Conversation:
    manifest = project.manifest
    conversation_id = choices.conversation_id or new_id()
    storage = Storage(
        local=host.local_stores, server=host.server_stores(manifest), project_id=manifest.project_id,
        workflow_name="", conversation_id=conversation_id, data_storage=manifest.data_storage,
        scope_model=manifest.scope_model, source=Source(manifest.project_id, None, None, conversation_id),
    )  # fmt: skip
    known = Conversations(storage.host.backend(Domain.CONVERSATION), manifest.project_id, manifest.name)
    if choices.is_continued:
        latest, _ = await known.list(limit=1)
        if not latest:
            raise ConversationNotFound("there is no conversation to continue", hint="leave --continue out")
        conversation_id = latest[0].conversation_id
    return known.open(conversation_id)


def _is_interactive(output: Output) -> bool:
    """True if a person sits at a terminal that can be drawn on."""
    if not sys.stdin.isatty() or not output.on_terminal or os.environ.get("TERM", "dumb") == "dumb":
        return False
    try:
        import termios  # noqa: F401
    except ImportError:
        return False
    return True
