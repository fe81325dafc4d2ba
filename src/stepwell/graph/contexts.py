"""Agent contexts: the conversation that travels along edges, `{"messages": [{"role", "content"}, …]}`."""

from collections.abc import Iterable
from typing import Any


def messages_of(context: dict[str, Any] | None) -> list[dict[str, Any]]:
    """The messages of a context; what is no message is left out."""
    found = (context or {}).get("messages")
    return [dict(message) for message in found if isinstance(message, dict)] if isinstance(found, list) else []


def with_messages(context: dict[str, Any] | None, *messages: dict[str, Any]) -> dict[str, Any]:
    """A context with more messages behind those it has."""
    return {**(context or {}), "messages": [*messages_of(context), *messages]}


def message(role: str, content: Any) -> dict[str, Any]:
    """A message."""
    return {"role": role, "content": content}


def text_of(content: Any) -> str:
    """The text of a message's content: a text, or a list of parts of which some are texts."""
    if isinstance(content, str):
        return content
    parts: Iterable[Any] = content if isinstance(content, list) else ()
    return "\n".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))


def last_text(context: dict[str, Any] | None, *roles: str) -> str:
    """The text of the last message of one of the roles; of any role where none is named; else an empty text."""
    for found in reversed(messages_of(context)):
        if not roles or found.get("role") in roles:
            return text_of(found.get("content"))
    return ""


def rendered(context: dict[str, Any] | None) -> str:
    """A context as text, one message after the other."""
    return "\n\n".join(
        f"{found.get('role', 'user')}: {text_of(found.get('content'))}" for found in messages_of(context)
    )
