"""Cursors: opaque, tamper-evident, bound to the query they continue.

A cursor is a small JSON position and an HMAC over it, the namespace and the query, keyed by a random secret that
the Knowledge base keeps in its index head. A cursor of another query or another base does not verify.
"""

import base64
import hashlib
import hmac
import json
from typing import Any

from stepwell.errors import InvalidCursor

_TAG_BYTES = 16


def seal(secret: str, query: Any, position: list[Any]) -> str:
    """A cursor for `position` of `query`.

    Args:
        secret: the base's cursor secret.
        query: JSON that identifies the call: what, where, with which parameters.
        position: JSON that says where to go on.
    """
    payload = json.dumps(position, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(_tag(secret, query, payload) + payload).decode().rstrip("=")


def open_cursor(secret: str, query: Any, cursor: Any) -> list[Any]:
    """The position of a cursor made for the same query.

    Raises:
        InvalidCursor: damaged, or made for something else.
    """
    try:
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (ValueError, TypeError):
        raise InvalidCursor("the cursor is damaged") from None
    tag, payload = raw[:_TAG_BYTES], raw[_TAG_BYTES:]
    if not secret or not hmac.compare_digest(tag, _tag(secret, query, payload)):
        raise InvalidCursor("the cursor is damaged, or belongs to another query or Knowledge base")
    position = json.loads(payload)
    assert isinstance(position, list)  # noqa: S101  (sealed by us)
    return position


def _tag(secret: str, query: Any, payload: bytes) -> bytes:
    bound = json.dumps(query, sort_keys=True, separators=(",", ":")).encode() + b"\x00" + payload
    return hmac.new(secret.encode(), bound, hashlib.sha256).digest()[:_TAG_BYTES]
