"""Messages: what one may hold, titles, and the paired view that a model needs."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from stepwell.errors import MessageInvalid

ROLES: Final = ("user", "assistant", "system", "tool")
MAX_TITLE_CHARS: Final = 200
INTERRUPTED: Final = "[interrupted: this call has no result]"

_RESERVED = ("seq", "created_at")
_ATTACHMENT_FIELDS = ("reference", "name", "media_type", "size", "kind")


def check_message(message: Any) -> dict[str, Any]:
    """A message as it will be stored (a copy).

    Fields: `role` (user, assistant, system, tool), `content` (text, or JSON parts), and optionally `id` (unique in
    its conversation), `attachments` (references with name and media type), `tool_calls` (each with an `id`),
    `tool_call_id` (role tool), and any further JSON fields of your own.

    Raises:
        MessageInvalid: names the field.
    """
    if not isinstance(message, Mapping):
        raise MessageInvalid(f"a message is a mapping with role and content, not {type(message).__name__}")
    if message.get("role") not in ROLES:
        raise MessageInvalid(f"role: {message.get('role')!r:.60} is not one of {', '.join(ROLES)}", field="role")
    for field in _RESERVED:
        if field in message:
            raise MessageInvalid(f"{field}: set by the conversation, not by the caller", field=field)
    calls = message.get("tool_calls")
    if "content" not in message and not calls:
        raise MessageInvalid("content: missing", field="content")
    if not isinstance(message.get("content", ""), (str, list, dict, type(None))):
        raise MessageInvalid(f"content: {type(message['content']).__name__} is not text or JSON parts", field="content")
    if "id" in message and (not isinstance(message["id"], str) or not 0 < len(message["id"]) <= 256):
        raise MessageInvalid("id: not a text of 1 to 256 characters", field="id")
    if calls is not None:
        _check_calls(calls)
    if message["role"] == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise MessageInvalid("tool_call_id: a tool message names the call it answers", field="tool_call_id")
    if "attachments" in message:
        _check_attachments(message["attachments"])
    return dict(message)


def _check_calls(calls: Any) -> None:
    if not isinstance(calls, (list, tuple)):
        raise MessageInvalid("tool_calls: not a list", field="tool_calls")
    ids = [call.get("id") if isinstance(call, Mapping) else None for call in calls]
    if not all(isinstance(call_id, str) and call_id for call_id in ids) or len(set(ids)) != len(ids):
        raise MessageInvalid("tool_calls: every call needs an id of its own", field="tool_calls")


def _check_attachments(attachments: Any) -> None:
    if not isinstance(attachments, (list, tuple)):
        raise MessageInvalid("attachments: not a list", field="attachments")
    for number, attachment in enumerate(attachments):
        where = f"attachments[{number}]"
        if isinstance(attachment, str):
            reference: Any = attachment
        elif isinstance(attachment, Mapping):
            reference = attachment.get("reference", attachment.get("url", attachment.get("path")))
        else:
            raise MessageInvalid(f"{where}: not a reference", field=where)
        if not isinstance(reference, str) or not reference:
            raise MessageInvalid(f"{where}: needs a reference", field=where)
        if reference.startswith("data:") or len(reference) > 8_192:
            raise MessageInvalid(
                f"{where}: holds content instead of a reference",
                hint="store the file with ctx.files and attach its reference",
                field=where,
            )


def paired_messages(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The view for a model: every tool call has its result and every result its call, in order.

    A call that was cut off gets a synthetic result saying so; a result without its call is left out. The stored
    messages are not changed.

    >>> view = paired_messages([{"role": "assistant", "content": "", "tool_calls": [{"id": "c1"}]}])
    >>> [(message["role"], message.get("tool_call_id")) for message in view]
    [('assistant', None), ('tool', 'c1')]
    """
    paired: list[dict[str, Any]] = []
    open_calls: dict[str, None] = {}

    def close_calls() -> None:
        for call_id in open_calls:
            paired.append({"role": "tool", "tool_call_id": call_id, "content": INTERRUPTED, "synthetic": True})
        open_calls.clear()

    for message in messages:
        if message["role"] == "tool":
            if message.get("tool_call_id") in open_calls:
                del open_calls[message["tool_call_id"]]
                paired.append(dict(message))
            continue
        close_calls()
        paired.append(dict(message))
        if message["role"] == "assistant":
            open_calls.update(dict.fromkeys(call["id"] for call in message.get("tool_calls") or ()))
    close_calls()
    return paired


def normalise_title(title: Any) -> str | None:
    """A title in one line: trimmed, inner white space folded, at most 200 characters; None where nothing is left.

    Control and bidirectional characters are dropped, and a character is never cut from its combining marks,
    joiners, variation selectors or modifiers.
    """
    if title is None:
        return None
    if not isinstance(title, str):
        raise MessageInvalid(f"a title is text, not {type(title).__name__}", field="title")
    kept = "".join(_title_character(character) for character in title[: MAX_TITLE_CHARS * 20])
    folded = " ".join(kept.split())
    if len(folded) > MAX_TITLE_CHARS:
        end = MAX_TITLE_CHARS
        while end > 0 and _joins(folded[end - 1], folded[end]):
            end -= 1
        folded = folded[: end or MAX_TITLE_CHARS].rstrip()
    return folded or None


def _title_character(character: str) -> str:
    category = unicodedata.category(character)
    if category in ("Cc", "Zl", "Zp"):
        return " "
    if category == "Cs" or (
        category == "Cf" and character != "\u200d" and not "\U000e0020" <= character <= "\U000e007f"
    ):
        return ""
    return character


def _joins(before: str, after: str) -> bool:
    """True if the two characters belong to one grapheme (the rules of UAX 29 that matter for titles)."""
    if "\u200d" in (before, after) or unicodedata.category(after) in ("Mn", "Me", "Mc"):
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True
    return "\U0001f1e6" <= before <= "\U0001f1ff" and "\U0001f1e6" <= after <= "\U0001f1ff"


def derived_title(conversation_id: str) -> str:
    """What a conversation without a title is called: its id, shortened."""
    cleaned = normalise_title(conversation_id) or "conversation"
    return cleaned if len(cleaned) <= 40 else f"{cleaned[:24]}…{cleaned[-12:]}"


def render_markdown(messages: Iterable[Mapping[str, Any]]) -> str:
    """A transcript as Markdown: a heading a message, attachments by reference, tool results folded to one line."""
    parts = []
    for message in messages:
        lines = [f"## {str(message['role']).capitalize()}", "", content_text(message.get("content"))]
        for call in message.get("tool_calls") or ():
            lines.append(f"- called `{call.get('name', 'tool')}` ({call['id']})")
        for attachment in message.get("attachments") or ():
            shown = attachment if isinstance(attachment, str) else attachment.get("name") or attachment.get("reference")
            lines.append(f"- attached: {shown}")
        parts.append("\n".join(lines).rstrip())
    return "\n\n".join(parts) + "\n" if parts else ""


def content_text(content: Any) -> str:
    """The readable text of a message's content."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, (content_text(part) for part in content)))
    if isinstance(content, Mapping) and isinstance(content.get("text"), str):
        return str(content["text"])
    import json

    return "```json\n" + re.sub("```", "` ` `", json.dumps(content, ensure_ascii=False, indent=2)) + "\n```"
