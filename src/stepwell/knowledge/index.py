"""The paged index of a Knowledge base, newest document first.

    knowledge.documents                  head: format 2, count, sequence, first page, pages made, cursor secret
    knowledge.documents.page.<pageId>    at most 128 summaries, newest first, and the neighbouring pages
    knowledge.documents.locator.<id>     the page that lists a document; a tombstone after its deletion
    knowledge.document.<id>              the document itself; a tombstone after its deletion

A new document goes to the front of the first page; a full first page gets a new one before it; an emptied page is
taken out of the chain. A document keeps its sequence for life and sequences are never used again, so positions in
the list are sequences, and a listing can go on correctly whatever came or went in between.

A page holds what identifies its documents (`order`) before what describes them (`summaries`): a scan over all
documents reads the former without decoding the latter.
"""

import json
import os
from typing import Any, Final, NamedTuple

from stepwell.errors import SchemaTooNew, StorageCorrupt
from stepwell.jsontext import decode
from stepwell.storage.kv import KeyValue
from stepwell.storage.transaction import Transaction

PAGE_SIZE: Final = 128
HEAD: Final = "knowledge.documents"
PAGE: Final = "knowledge.documents.page."
LOCATOR: Final = "knowledge.documents.locator."
BODY: Final = "knowledge.document."
FORMAT: Final = 2

_SUMMARIES: Final = ',"summaries":'
_decode_from = json.JSONDecoder().raw_decode


class Place(NamedTuple):
    """What a scan needs to know of a document before it reads it; `size` is in characters."""

    id: str
    sequence: int
    size: int


class DocumentSummary(NamedTuple):
    """A document as lists and writes show it: without its text.

    `size` is in characters, `version` counts its edits from 1, `sequence` is its place in the list (higher is
    newer), times are ISO-8601 UTC.
    """

    id: str
    title: str
    markdown_preview: str
    size: int
    version: int
    sequence: int
    created_at: str
    updated_at: str

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON."""
        return self._asdict()


class Head(NamedTuple):
    """The base as a whole; `total` counts its documents, `pages` the pages ever made."""

    total: int
    sequence: int
    first: str | None
    pages: int
    secret: str

    @classmethod
    def of(cls, value: Any) -> "Head":
        """The head from its stored value; that of an empty base where there is none yet.

        Raises:
            SchemaTooNew: a newer format.
            StorageCorrupt: not a head.
        """
        if value is None:
            return cls(0, 0, None, 0, "")
        try:
            if value["format"] > FORMAT:
                raise SchemaTooNew(f"the Knowledge base has format {value['format']}; this stepwell knows {FORMAT}")
            return cls(value["count"], value["sequence"], value["first_page"], value["pages"], value["cursor_secret"])
        except (KeyError, TypeError):
            raise corrupt("its head is damaged") from None

    def to_json(self) -> dict[str, Any]:
        """The value to store."""
        return {
            "format": FORMAT,
            "count": self.total,
            "sequence": self.sequence,
            "first_page": self.first,
            "pages": self.pages,
            "cursor_secret": self.secret or os.urandom(16).hex(),
        }


class Page(NamedTuple):
    """One block of the index, newest document first."""

    id: str
    newer: str | None
    older: str | None
    summaries: list[DocumentSummary]

    @classmethod
    def of(cls, page_id: str, value: Any) -> "Page":
        """The page from its stored value.

        Raises:
            StorageCorrupt: not a page.
        """
        try:
            summaries = [
                DocumentSummary(known[0], more[0], more[1], known[2], more[2], known[1], *more[3:])
                for known, more in zip(value["order"], value["summaries"], strict=True)
            ]
            return cls(page_id, value["newer"], value["older"], summaries)
        except (KeyError, TypeError, ValueError, IndexError):
            raise corrupt(f"its page {page_id} is damaged") from None

    def to_json(self) -> dict[str, Any]:
        """The value to store."""
        return {
            "newer": self.newer,
            "older": self.older,
            "order": [[known.id, known.sequence, known.size] for known in self.summaries],
            "summaries": [
                [known.title, known.markdown_preview, known.version, known.created_at, known.updated_at]
                for known in self.summaries
            ],
        }

    def find(self, document_id: str) -> int:
        """Where a document stands in the page.

        Raises:
            StorageCorrupt: not there, although its locator says so.
        """
        for position, known in enumerate(self.summaries):
            if known.id == document_id:
                return position
        raise corrupt(f"its page {self.id} does not list the document {document_id!r}")


def page_id(number: int) -> str:
    """The id of the `number`-th page: ids sort by age."""
    return f"{number:012d}"


class Block:
    """A page that is only read: what identifies its documents at once, what describes them as far as asked for.

    Args:
        page_id: which page.
        text: its JSON text.

    Raises (also from its methods):
        StorageCorrupt: not a page.
    """

    def __init__(self, page_id: str, text: str) -> None:
        self.id = page_id
        self._text = text
        # Ids are the only text before the summaries, so the first occurrence is the page's own.
        self._end = text.find(_SUMMARIES)
        try:
            value = decode(f"{text[: self._end]}}}")
            self.older: str | None = value["older"]
            self._order: list[Any] = value["order"]
        except (KeyError, TypeError, ValueError):
            raise corrupt(f"its page {page_id} is damaged") from None

    def places(self) -> list[Place]:
        """What identifies the documents, newest first."""
        try:
            return [Place(*known) for known in self._order]
        except TypeError:
            raise corrupt(f"its page {self.id} is damaged") from None

    def summaries(self, below: int | None = None, limit: int = PAGE_SIZE) -> tuple[list[DocumentSummary], bool]:
        """The first `limit` documents of a sequence lower than `below`, and whether the page has more of them."""
        found: list[DocumentSummary] = []
        at = self._end + len(_SUMMARIES) + 1
        try:
            for document_id, sequence, size in self._order:
                if len(found) == limit:
                    return found, True
                more, at = _decode_from(self._text, at)
                at += 1
                if below is None or sequence < below:
                    found.append(DocumentSummary(document_id, more[0], more[1], size, more[2], sequence, *more[3:]))
        except (TypeError, ValueError, IndexError):
            raise corrupt(f"its page {self.id} is damaged") from None
        return found, False


def live(value: Any, field: str) -> dict[str, Any] | None:
    """A stored locator or document, told by a field it must have; None for a tombstone, and for what is neither."""
    return value if isinstance(value, dict) and not value.get("deleted") and field in value else None


def tombstone(sequence: int) -> dict[str, Any]:
    """What is left of a deleted document, under its locator and its own key."""
    return {"deleted": True, "sequence": sequence}


async def read_page(entries: KeyValue | Transaction, page_id: str) -> Page:
    """A page that the index points to.

    Raises:
        StorageCorrupt: it is missing or damaged.
    """
    return Page.of(page_id, await entries.get_value(f"{PAGE}{page_id}"))


async def write_page(tx: Transaction, page: Page) -> None:
    """Store a page."""
    await tx.set_value(f"{PAGE}{page.id}", page.to_json())


async def insert(tx: Transaction, head: Head, summary: DocumentSummary) -> None:
    """Put a new document's summary in front, with its locator, and store the head."""
    first = None if head.first is None else await read_page(tx, head.first)
    if first is None or len(first.summaries) >= PAGE_SIZE:
        front = Page(page_id(head.pages + 1), None, head.first, [])
        if first is not None:
            await write_page(tx, first._replace(newer=front.id))
        head = head._replace(first=front.id, pages=head.pages + 1)
    else:
        front = first
    await write_page(tx, front._replace(summaries=[summary, *front.summaries]))
    await tx.set_value(f"{LOCATOR}{summary.id}", {"page": front.id, "sequence": summary.sequence})
    await tx.set_value(HEAD, head._replace(total=head.total + 1, sequence=summary.sequence).to_json())


async def remove(tx: Transaction, document_id: str, page: Page) -> None:
    """Take a document out of the index and bury its locator; an emptied page leaves the chain."""
    head = Head.of(await tx.get_value(HEAD))
    position = page.find(document_id)
    gone = page.summaries[position]
    kept = [*page.summaries[:position], *page.summaries[position + 1 :]]
    if kept:
        await write_page(tx, page._replace(summaries=kept))
    else:
        await tx.delete_value(f"{PAGE}{page.id}")
        if page.newer is not None:
            await write_page(tx, (await read_page(tx, page.newer))._replace(older=page.older))
        if page.older is not None:
            await write_page(tx, (await read_page(tx, page.older))._replace(newer=page.newer))
        if head.first == page.id:
            head = head._replace(first=page.older)
    await tx.set_value(f"{LOCATOR}{document_id}", tombstone(gone.sequence))
    await tx.set_value(HEAD, head._replace(total=head.total - 1).to_json())


def corrupt(problem: str) -> StorageCorrupt:
    """The error for an index that contradicts itself."""
    return StorageCorrupt(
        f"the Knowledge index is damaged: {problem}",
        hint="run `stepwell knowledge check --repair`: it makes the index anew from the documents",
    )
