"""Ids, keys and the clock: the rules every floor shares."""

import os
import re
import threading
from time import time_ns

from stepwell.errors import InvalidId, InvalidKey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MAX_KEY_BYTES = 1_024
MAX_CONVERSATION_ID_CHARS = 256

_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_DOCUMENT_ID = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")


def check_key(key: "Any") -> str:
    """A storage key, as given.

    Keys are non-empty strings of at most 1,024 UTF-8 bytes without NUL and lone surrogates; anything else is an
    ordinary character, and nothing is normalised.

    Raises:
        InvalidKey: the key breaks a rule; the message says which.
    """
    if type(key) is str and key and "\x00" not in key:
        if key.isascii():
            if len(key) <= MAX_KEY_BYTES:
                return key
            size = len(key)
        else:
            try:
                size = len(key.encode())
            except UnicodeEncodeError:
                raise InvalidKey(f"the key {key!r:.80} has a lone surrogate") from None
            if size <= MAX_KEY_BYTES:
                return key
        raise InvalidKey(f"the key {key!r:.60} has {size:,} UTF-8 bytes; the limit is {MAX_KEY_BYTES:,}")
    if type(key) is not str:
        raise InvalidKey(f"a key is a string, not {type(key).__name__}")
    raise InvalidKey("a key must not be empty" if not key else f"the key {key!r:.80} has a NUL character")


def check_prefix(prefix: "Any") -> str:
    """A key prefix: like a key, but it may be empty (every key)."""
    return prefix if prefix == "" and type(prefix) is str else check_key(prefix)


def check_conversation_id(conversation_id: "Any") -> str:
    """A conversation id: any non-empty string of at most 256 characters, without NUL and lone surrogates.

    Raises:
        InvalidId: it breaks a rule; the message says which.
    """
    if type(conversation_id) is not str:
        raise InvalidId(f"a conversation id is a string, not {type(conversation_id).__name__}")
    if not conversation_id:
        raise InvalidId("a conversation id must not be empty", hint="leave it out to have one generated")
    if len(conversation_id) > MAX_CONVERSATION_ID_CHARS:
        raise InvalidId(
            f"the conversation id has {len(conversation_id):,} characters; the limit is {MAX_CONVERSATION_ID_CHARS}"
        )
    if "\x00" in conversation_id or not _encodable(conversation_id):
        raise InvalidId("the conversation id has a NUL character or a lone surrogate")
    return conversation_id


def check_project_id(project_id: "Any") -> str:
    """A project id: a UUID, returned in lower case (it names files, so nothing else is let through).

    Raises:
        InvalidId: not a UUID.
    """
    if type(project_id) is not str or not _UUID.match(project_id):
        raise InvalidId(f"the project id {project_id!r:.60} is not a UUID", hint="`stepwell init` writes one")
    return project_id.lower()


def check_document_id(document_id: "Any") -> str:
    """A Knowledge document id: 1 to 128 of `A-Z a-z 0-9 . _ -`.

    Raises:
        InvalidId: it breaks the rule.
    """
    if type(document_id) is not str or not _DOCUMENT_ID.match(document_id):
        raise InvalidId(
            f"the document id {document_id!r:.150} is not 1 to 128 of the characters A-Z a-z 0-9 . _ -",
            hint="leave the id out to have one generated",
        )
    return document_id


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_last = [0, 0]
_last_lock = threading.Lock()


def new_id() -> str:
    """A new UUIDv7 (RFC 9562): sorts by creation time, strictly growing within a process.

    The 12 bits after the milliseconds count ids of the same millisecond, so ids stay in order also when the
    clock stands still or is moved back.
    """
    with _last_lock:
        now = time_ns() // 1_000_000
        if now > _last[0]:
            _last[:] = [now, 0]
        elif _last[1] < 0xFFF:
            _last[1] += 1
        else:
            _last[:] = [_last[0] + 1, 0]
        milliseconds, count = _last
    tail = int.from_bytes(os.urandom(8), "big") & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
    digits = f"{milliseconds:012x}7{count:03x}{tail:016x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def now_micros() -> int:
    """The wall clock as microseconds since 1970 UTC. Orders nothing: revisions and sequences do."""
    return time_ns() // 1_000


def iso_time(micros: int) -> str:
    """Microseconds since 1970 as ISO-8601 UTC with microseconds and `Z`.

    >>> iso_time(1_700_000_000_000_001)
    '2023-11-14T22:13:20.000001Z'
    """
    from datetime import UTC, datetime

    seconds, fraction = divmod(micros, 1_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:06d}Z"
