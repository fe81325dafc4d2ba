"""Mirroring: one Knowledge document per conversation, holding its transcript."""

import hashlib
from typing import Any, NamedTuple, Protocol

from stepwell.errors import DocumentExists, DocumentNotFound
from stepwell.knowledge.documents import Knowledge


class MirrorContext(Protocol):
    """What mirroring needs of a run's context."""

    @property
    def conversation(self) -> Any:
        """The run's conversation."""
        ...

    @property
    def knowledge(self) -> Knowledge:
        """The Knowledge base to write to."""
        ...


class MirroredDocument(NamedTuple):
    """The document of a conversation; `written` is False for a dry run."""

    document_id: str
    title: str
    markdown: str
    written: bool


def mirror_document_id(conversation_id: str) -> str:
    """The document id of a conversation: a hash, so that any conversation id gives a valid id of its own."""
    digest = hashlib.sha256(conversation_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"conversation-{digest[:32]}"


async def mirror_conversation(ctx: MirrorContext, *, dry_run: bool = False) -> MirroredDocument:
    """Bring the document of the run's conversation up to date with its whole transcript.

    Args:
        ctx: the run's context; it needs a conversation.
        dry_run: write nothing, only return what would be written.

    Raises:
        ConversationRequired: the run has no conversation.
    """
    summary = await ctx.conversation.summary()
    messages = [message async for message in ctx.conversation.all_messages()]
    title = summary.title or f"Conversation {summary.conversation_id[:80]}"
    markdown = f"# {title}\n\n{ctx.conversation.render(messages)}"
    document_id = mirror_document_id(summary.conversation_id)
    if not dry_run:
        try:
            await ctx.knowledge.edit_document(document_id, title=title, markdown=markdown)
        except DocumentNotFound:
            try:
                await ctx.knowledge.create_document(title, markdown, id=document_id)
            except DocumentExists:  # another run of the conversation was first
                await ctx.knowledge.edit_document(document_id, title=title, markdown=markdown)
    return MirroredDocument(document_id, title, markdown, not dry_run)
