"""A document's own entry: header fields, and then the text.

A text may have many megabytes: it is made into JSON piece by piece in a thread, and read in one, so that the event
loop runs on.
"""

import asyncio
from json.encoder import encode_basestring
from typing import Any, Final

from stepwell.errors import Conflict, DocumentNotFound
from stepwell.jsontext import decode, encode
from stepwell.knowledge.folding import ALPHABET, alphabet_of
from stepwell.knowledge.index import BODY, DocumentSummary, corrupt, live
from stepwell.storage.kv import KeyValue
from stepwell.storage.transaction import Transaction, active_transaction

LARGE_CHARS: Final = 200_000
PIECE_CHARS: Final = 262_144


class Text:
    """A document's text on its way into the store: its alphabet and its JSON, made once."""

    __slots__ = ("_alphabet", "_bytes", "_pieces")

    def __init__(self, markdown: str) -> None:
        self._alphabet = alphabet_of(markdown)
        self._pieces: list[str] = []
        self._bytes = 0
        start = 0
        while start < len(markdown):
            end = start + PIECE_CHARS
            if "\ud800" <= markdown[end - 1 : end] <= "\udbff":
                end += 1  # surrogates that form a pair are refused: they must be seen together
            piece, size = _inside(markdown[start:end])
            self._pieces.append(piece)
            self._bytes += size
            start = end

    @classmethod
    async def of(cls, markdown: str) -> "Text":
        """The text, worked through off the event loop if it is long.

        Raises:
            ValueNotSerializable: it has surrogates that form a pair.
        """
        return cls(markdown) if len(markdown) < LARGE_CHARS else await asyncio.to_thread(cls, markdown)

    async def write(self, tx: Transaction, summary: DocumentSummary) -> None:
        """Store the document that the summary and this text make."""
        # The alphabet comes first: the sieve of a search looks for it there.
        fields = {ALPHABET: int(self._alphabet)} | {name: getattr(summary, name) for name in _HEADER}
        header = f'{encode(fields)[:-1]},"markdown":"'
        text = "".join([header, *self._pieces, '"}'])
        await tx.set_encoded(f"{BODY}{summary.id}", text, len(header.encode()) + self._bytes + 2)


_HEADER: Final = ("id", "title", "sequence", "version", "created_at", "updated_at")


async def read_body(entries: KeyValue, document_id: str) -> dict[str, Any]:
    """A document as it is stored.

    Raises:
        DocumentNotFound: unknown or deleted.
    """
    key = f"{BODY}{document_id}"
    read_bytes = getattr(entries.backend, "bodies", None)
    joined = active_transaction(entries.backend, entries.namespace)
    if read_bytes is None or (joined is not None and joined.lease is not None):
        value = await entries.get_value(key)
    else:
        found = dict(await read_bytes(entries.namespace, (key,)))
        raw = found.get(key, b"null")
        value = decode(raw.decode()) if len(raw) < LARGE_CHARS else await asyncio.to_thread(_decoded, raw)
    body = live(value, "markdown")
    if body is None:
        raise not_found(document_id)
    return body


async def text_of(entries: KeyValue, tx: Transaction, summary: DocumentSummary) -> str:
    """The text that belongs to a listed version of a document.

    Raises:
        Conflict: another version is stored by now: the transaction begins anew, under the namespace's lock.
        StorageCorrupt: it is so under the lock, too.
    """
    body = await read_body(entries, summary.id)
    if (body.get("sequence"), body.get("version")) != (summary.sequence, summary.version):
        if tx.lease is not None:
            raise corrupt(f"the document {summary.id!r} is not the version that is listed")
        raise Conflict(f"the document {summary.id!r} changed while it was being read", keys=[f"{BODY}{summary.id}"])
    text: str = body["markdown"]
    return text


def not_found(document_id: str) -> DocumentNotFound:
    """The error for an unknown or deleted document."""
    return DocumentNotFound(f"there is no document {document_id!r}", document_id=document_id)


def _inside(piece: str) -> tuple[str, int]:
    """A piece of text as it stands between the quotes of JSON text, and its UTF-8 bytes."""
    inside = encode_basestring(piece)[1:-1]
    try:
        return inside, len(inside.encode())
    except UnicodeEncodeError:  # surrogates: seldom, and slower to look at
        inside = encode(piece)[1:-1]
        return inside, len(inside.encode())


def _decoded(raw: bytes) -> Any:
    return decode(raw.decode())
