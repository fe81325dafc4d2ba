"""Mirroring: one Knowledge document per conversation, holding its transcript."""

import hashlib
from collections import deque
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

from stepwell.errors import DocumentChanged, DocumentExists, DocumentNotFound, UpdateConflict
from stepwell.knowledge.documents import Knowledge

MAX_TRANSCRIPT_CHARS: Final = 3_000_000
_TRIES: Final = 50


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
    """The document of a conversation; `written` is False for a dry run, and where nothing had changed."""

    document_id: str
    title: str
    markdown: str
    written: bool

    def to_dict(self) -> dict[str, Any]:
        """The document as JSON."""
        return self._asdict()


def mirror_document_id(conversation_id: str) -> str:
    """The document id of a conversation: a hash, so that any conversation id gives a valid id of its own."""
    digest = hashlib.sha256(conversation_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"conversation-{digest}"


async def mirror_conversation(ctx: MirrorContext, *, dry_run: bool = False) -> MirroredDocument:
    """Bring the document of the run's conversation up to date with its whole transcript.

    Runs of one conversation may mirror it at the same time: an older transcript never replaces a newer one. Of a
    transcript over 3 million characters the oldest messages are left out, and the document says so.

    Args:
        ctx: the run's context; it needs a conversation.
        dry_run: write nothing, only return what would be written.

    Raises:
        ConversationRequired: the run has no conversation.
        UpdateConflict: other runs kept writing the document all the time.
    """
    for _ in range(_TRIES):
        conversation_id = (await ctx.conversation.summary()).conversation_id
        document_id = mirror_document_id(conversation_id)
        # The document is read before the conversation: if it still has this version afterwards, what was read is
        # at least as new as what it holds.
        known = None
        with suppress(DocumentNotFound):
            known = await ctx.knowledge.get_document(document_id)
        title, markdown = await _transcript(ctx.conversation)
        if dry_run or (known is not None and (known.title, known.markdown) == (title, markdown)):
            return MirroredDocument(document_id, title, markdown, False)
        try:
            if known is None:
                await ctx.knowledge.create_document(title, markdown, document_id)
            else:
                await ctx.knowledge.edit_document(document_id, title, markdown, expected_version=known.version)
        except (DocumentChanged, DocumentExists, DocumentNotFound):
            continue  # another run was faster: look again
        return MirroredDocument(document_id, title, markdown, True)
    raise UpdateConflict(f"the document of the conversation {conversation_id!r:.80} kept changing")


async def _transcript(conversation: Any) -> tuple[str, str]:
    """Title and Markdown of a conversation."""
    summary = await conversation.summary()
    title = " ".join((summary.title or f"Conversation {summary.conversation_id[:80]}").split())
    parts: deque[str] = deque()
    chars, left_out = 0, 0
    async for message in conversation.all_messages():
        parts.append(conversation.render([message])[:MAX_TRANSCRIPT_CHARS])
        chars += len(parts[-1])
        while chars > MAX_TRANSCRIPT_CHARS:
            chars -= len(parts.popleft())
            left_out += 1
    if left_out:
        parts.appendleft(f"_The first {left_out:,} messages are left out: a document would not hold them._\n")
    return title, "\n".join([f"# {title}\n", *parts])
