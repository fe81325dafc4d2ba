"""Writing a conversation down: every message, as JSON or Markdown."""

import json
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path

from stepwell.conversation.messages import derived_title, render_markdown
from stepwell.conversation.state import Conversation
from stepwell.errors import InvalidArgument, StorageUnavailable

FORMATS = {"markdown": ".md", "json": ".json"}


async def exported(conversation: Conversation, form: str) -> AsyncIterator[str]:
    """The whole conversation, a message at a time: as much of it is in memory as one page.

    Args:
        form: `markdown`, or `json`: one object with id, title, times and messages.
    """
    summary = await conversation.summary()
    if form == "markdown":
        yield f"# {summary.title or derived_title(summary.conversation_id)}\n\n"
        async for message in conversation.all_messages():
            yield render_markdown([message]) + "\n"
        return
    head = {name: value for name, value in summary._asdict().items() if name not in ("message_count", "last_seq")}
    yield json.dumps(head, ensure_ascii=False)[:-1] + ', "messages": ['
    between = "\n"
    async for message in conversation.all_messages():
        yield between + json.dumps(message, ensure_ascii=False)
        between = ",\n"
    yield "\n]}\n"


async def export_to(conversation: Conversation, path: Path, form: str | None = None) -> int:
    """Write a conversation to a new file and return its size in bytes. A file that is there is never overwritten.

    Args:
        path: the file; its ending says the format where `form` does not.

    Raises:
        InvalidArgument: there is such a file, or the ending says nothing.
        StorageUnavailable: it cannot be written; nothing is left behind.
    """
    chosen = form or next((name for name, ending in FORMATS.items() if path.suffix.lower() == ending), None)
    if chosen not in FORMATS:
        raise InvalidArgument(
            f"{str(path)!r:.200} ends neither in .md nor in .json", hint="the ending says the format", argument="path"
        )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidArgument(f"{str(path)!r:.200} exists already", hint="name another file", argument="path") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise StorageUnavailable(f"{str(path)!r:.200} cannot be written: {reason}", path=str(path)) from None
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            async for part in exported(conversation, chosen):
                file.write(part)
        return path.stat().st_size
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise StorageUnavailable(f"{str(path)!r:.200}: {error.strerror}", path=str(path)) from None
        raise


def export_name(title: str, at: str) -> str:
    """A file name without ending for an export: of a title only what is harmless in a name, and the time.

    >>> export_name("Weather: Bern / 2026?", "2026-01-02T03:04:05.678Z")
    'weather-bern-2026-20260102-030405'
    """
    words = re.sub(r"[^\w]+", "-", title.lower()).strip("-_")[:40].rstrip("-_")
    return f"{words or 'conversation'}-{re.sub('[^0-9]', '', at)[:8]}-{re.sub('[^0-9]', '', at)[8:14]}"
