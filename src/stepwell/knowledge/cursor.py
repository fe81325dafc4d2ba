"""Cursors: opaque, tamper-evident, bound to the query they continue.

A cursor is a small JSON position and an HMAC over it, the namespace and the query, keyed by a random secret that
the Knowledge base keeps in its index head. A cursor of another query or another base does not verify.
"""

import base64
import hmac
import json
from typing import Any, Final

from stepwell.errors import InvalidCursor

_TAG_BYTES: Final = 16
_MAX_CHARS: Final = 1_024
_json = json.JSONEncoder(separators=(",", ":")).encode


def seal(secret: str, query: Any, position: list[Any]) -> str:
    """A cursor for `position` of `query`.

    Args:
        secret: the base's cursor secret.
        query: JSON that identifies the call: what, where, with which parameters.
        position: JSON that says where to go on.
    """
    payload = _json(position).encode()
    return _text(_tag(secret, query, payload) + payload)


def open_cursor(secret: str, query: Any, cursor: Any) -> list[Any]:
    """The position of a cursor made for the same query.

    Args:
        secret: the base's cursor secret; empty for a base that has none yet, which made no cursor either.
        query: as it was given to `seal`.
        cursor: what the caller brought back.

    Raises:
        InvalidCursor: damaged, or made for something else.
    """
    if not isinstance(cursor, str) or not cursor.isascii() or len(cursor) > _MAX_CHARS:
        raise InvalidCursor(f"{cursor!r:.60} is not a cursor")
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except ValueError:
        raw = b""
    # The decoder skips what is not base64 and ignores spare bits; a sealed text has exactly one spelling.
    if _text(raw) != cursor:
        raise InvalidCursor("the cursor is damaged")
    tag, payload = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
    if not secret or not hmac.compare_digest(tag, _tag(secret, query, payload)):
        raise InvalidCursor("the cursor belongs to another query or Knowledge base, or is damaged")
    position: list[Any] = json.loads(payload)
    return position


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _tag(secret: str, query: Any, payload: bytes) -> bytes:
    bound = _json(query).encode() + b"\x00" + payload
    return hmac.digest(secret.encode(), bound, "sha256")[:_TAG_BYTES]
