"""A related project's Knowledge: every call is decided first, by the keys it touches."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from stepwell.identifiers import check_document_id, new_id
from stepwell.knowledge.documents import Document, DocumentLines, DocumentPage, Knowledge
from stepwell.knowledge.index import BODY, HEAD, DocumentSummary
from stepwell.knowledge.search import SearchPage
from stepwell.storage.relations import Asked, Need
from stepwell.storage.transaction import check_no_transaction

Open = Callable[[Sequence[Asked]], Awaitable[Knowledge]]
"""Decides what is asked for and gives the related project's Knowledge, for one operation."""

_READ, _WRITE = Need.KNOWLEDGE_READ, Need.KNOWLEDGE_WRITE
LISTING: Final = (Asked(_READ, HEAD),)
"""Listing reads the shared index, which tells of every document."""
SEARCHING: Final = (Asked(_READ, HEAD), Asked(_READ, BODY))
"""Searching reads the shared index, and then any document: a prefix has to cover them all."""


def reading(document_id: str) -> tuple[Asked, ...]:
    """What reading a document, or lines of it, asks for."""
    return (Asked(_READ, f"{BODY}{check_document_id(document_id)}"),)


def writing(document_id: str) -> tuple[Asked, ...]:
    """What creating or deleting a document asks for. That the index follows is no access to other documents."""
    return (Asked(_WRITE, f"{BODY}{check_document_id(document_id)}"),)


def editing(document_id: str) -> tuple[Asked, ...]:
    """What editing a document asks for: its outcome shows what was there, so it needs both."""
    return reading(document_id) + writing(document_id)


class RelatedKnowledge:
    """The methods of `Knowledge` on a related project's documents.

    Each also raises `RelationUnknown`, `RelationPending` and `RelationDenied`, before anything is touched.

    Args:
        alias: the related project's, for messages.
        open_: decides and gives the Knowledge.
    """

    def __init__(self, alias: str, open_: Open) -> None:
        self._alias = alias
        self._decided = open_

    async def create_document(self, title: str, markdown: str, id: str | None = None) -> DocumentSummary:  # noqa: A002
        """See `Knowledge.create_document`. Needs `knowledge.write` on the document, also for a generated id."""
        document_id = new_id() if id is None else check_document_id(id)
        return await (await self._open(writing(document_id))).create_document(title, markdown, document_id)

    async def edit_document(
        self,
        id: str,  # noqa: A002
        title: str | None = None,
        markdown: str | None = None,
        *,
        expected_version: int | None = None,
    ) -> DocumentSummary:
        """See `Knowledge.edit_document`. Needs `knowledge.read` and `knowledge.write` on the document."""
        base = await self._open(editing(id))
        return await base.edit_document(id, title, markdown, expected_version=expected_version)

    async def delete_document(self, id: str) -> bool:  # noqa: A002
        """See `Knowledge.delete_document`. Needs `knowledge.write` on the document."""
        return await (await self._open(writing(id))).delete_document(id)

    async def get_document(self, id: str) -> Document:  # noqa: A002
        """See `Knowledge.get_document`. Needs `knowledge.read` on the document."""
        return await (await self._open(reading(id))).get_document(id)

    async def read_document_lines(self, id: str, start: int, end: int) -> DocumentLines:  # noqa: A002
        """See `Knowledge.read_document_lines`. Needs `knowledge.read` on the document."""
        return await (await self._open(reading(id))).read_document_lines(id, start, end)

    async def list_documents(self) -> list[DocumentSummary]:
        """See `Knowledge.list_documents`. Needs `knowledge.read` on the index `knowledge.documents`."""
        return await (await self._open(LISTING)).list_documents()

    async def list_document_page(self, cursor: str | None = None, *, limit: int = 50) -> DocumentPage:
        """See `Knowledge.list_document_page`. Needs `knowledge.read` on the index `knowledge.documents`."""
        return await (await self._open(LISTING)).list_document_page(cursor, limit=limit)

    async def search_documents(
        self,
        query: str,
        document_id: str | None = None,
        before_lines: int = 0,
        after_lines: int = 0,
        page_size: int = 20,
        cursor: str | None = None,
    ) -> SearchPage:
        """See `Knowledge.search_documents`. Needs `knowledge.read` on the index, and on what is searched."""
        asked = SEARCHING if document_id is None else (*LISTING, *reading(document_id))
        base = await self._open(asked)
        return await base.search_documents(query, document_id, before_lines, after_lines, page_size, cursor)

    async def _open(self, asked: Sequence[Asked]) -> Knowledge:
        check_no_transaction(f"the related project {self._alias!r}")
        return await self._decided(asked)

    def __repr__(self) -> str:
        return f"<RelatedKnowledge {self._alias!r}>"
