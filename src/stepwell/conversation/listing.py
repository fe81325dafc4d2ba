"""A project's conversations: list, rename, export, delete."""

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

from stepwell.conversation.messages import render_markdown
from stepwell.conversation.state import HEAD, Conversation, ConversationSummary
from stepwell.errors import ConversationNotFound, InvalidCursor
from stepwell.store.backend import Backend
from stepwell.store.entries import Domain, Namespace, Scope


class Conversations:
    """The conversations of one project at one location.

    Args:
        backend: the location's backend of KV and conversations.
        project_id, project_name: whose they are.
    """

    def __init__(self, backend: Backend, project_id: str, project_name: str) -> None:
        self._backend = backend
        self._project_id = project_id
        self._project_name = project_name

    def open(self, conversation_id: str) -> Conversation:
        """A conversation by id, whether it exists or not."""
        return Conversation(self._backend, self._project_id, self._project_name, conversation_id)

    async def get(self, conversation_id: str) -> Conversation:
        """An existing conversation.

        Raises:
            ConversationNotFound: nothing was ever written to it, or it was deleted.
        """
        conversation = self.open(conversation_id)
        if await conversation.entries.get_entry(HEAD) is None:
            raise ConversationNotFound(
                f"there is no conversation {conversation_id!r:.270}", conversation_id=conversation_id
            )
        return conversation

    async def list(self, *, limit: int = 50, cursor: str | None = None) -> tuple[list[ConversationSummary], str | None]:
        """A page of conversations, last written first, and the cursor of the next page.

        Raises:
            InvalidCursor: not one that this call gave out.
        """
        found = await self._backend.namespaces(
            project_id=self._project_id,
            domain=Domain.CONVERSATION,
            scope=Scope.CONVERSATION,
            after=self._decode(cursor),
            limit=limit + 1,
        )
        summaries = [await self.open(info.namespace.conversation_id or "").summary() for info in found[:limit]]
        if len(found) <= limit:
            return summaries, None
        last = found[limit - 1]
        position = json.dumps([last.updated_at, last.namespace.conversation_id]).encode()
        return summaries, base64.urlsafe_b64encode(position).decode().rstrip("=")

    async def delete(self, conversation_id: str) -> int:
        """Delete a conversation for good, with what it kept in KV; returns the number of messages it had."""
        conversation = await self.get(conversation_id)
        count = (await conversation.summary()).message_count
        await self._backend.clear(conversation.entries.namespace)
        await self._backend.clear(
            Namespace(self._project_id, Domain.KV, Scope.CONVERSATION, conversation_id=conversation_id)
        )
        return count

    async def export(self, conversation_id: str) -> AsyncIterator[dict[str, Any]]:
        """Every message, oldest first."""
        conversation = await self.get(conversation_id)
        async for message in conversation.all_messages():
            yield message

    async def export_markdown(self, conversation_id: str) -> AsyncIterator[str]:
        """The transcript as Markdown, a message at a time."""
        async for message in self.export(conversation_id):
            yield render_markdown([message]) + "\n"

    def _decode(self, cursor: str | None) -> tuple[int, Namespace] | None:
        if cursor is None:
            return None
        try:
            updated_at, conversation_id = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
            if not isinstance(updated_at, int) or not isinstance(conversation_id, str):
                raise ValueError("other types")  # noqa: TRY301, TRY004
        except (ValueError, TypeError):
            raise InvalidCursor(f"{cursor!r:.60} is not a cursor of this list") from None
        namespace = Namespace(
            self._project_id, Domain.CONVERSATION, Scope.CONVERSATION, conversation_id=conversation_id
        )
        return updated_at, namespace
