"""Knowledge: Markdown documents of a project, with a paged index, literal search and lines.

The functions here take a storage location (`ctx.storage.local`) or a related project; `ctx.knowledge` is the same at
the host location.
"""

from typing import Any

from stepwell.knowledge.documents import (
    Document,
    DocumentLines,
    DocumentPage,
    Knowledge,
)
from stepwell.knowledge.importing import document_id_of, import_folder, put_document
from stepwell.knowledge.index import DocumentSummary
from stepwell.knowledge.mirror import MirroredDocument, mirror_conversation, mirror_document_id
from stepwell.knowledge.related import RelatedKnowledge
from stepwell.knowledge.search import SearchHit, SearchPage
from stepwell.storage.related import RelatedProject


def knowledge_of(location: Any) -> Knowledge:
    """The Knowledge base of a storage location: of a server it is reached operation by operation."""
    if location.remote is None:
        return Knowledge(location.persistent_value)
    from stepwell.knowledge.remote import RemoteKnowledge

    return RemoteKnowledge(location.persistent_value, location.remote, f"/projects/{location.project_id}/knowledge")


def _base(location: Any) -> Knowledge | RelatedKnowledge:
    if isinstance(location, RelatedProject):
        related: RelatedKnowledge = location.knowledge
        return related
    return knowledge_of(location)


async def create_document(location: Any, title: str, markdown: str, id: str | None = None) -> DocumentSummary:  # noqa: A002
    """See `Knowledge.create_document`."""
    return await _base(location).create_document(title, markdown, id)


async def edit_document(
    location: Any,
    id: str,  # noqa: A002
    title: str | None = None,
    markdown: str | None = None,
    *,
    expected_version: int | None = None,
) -> DocumentSummary:
    """See `Knowledge.edit_document`."""
    return await _base(location).edit_document(id, title, markdown, expected_version=expected_version)


async def delete_document(location: Any, id: str) -> bool:  # noqa: A002
    """See `Knowledge.delete_document`."""
    return await _base(location).delete_document(id)


async def get_document(location: Any, id: str) -> Document:  # noqa: A002
    """See `Knowledge.get_document`."""
    return await _base(location).get_document(id)


async def list_documents(location: Any) -> list[DocumentSummary]:
    """See `Knowledge.list_documents`."""
    return await _base(location).list_documents()


async def list_document_page(location: Any, cursor: str | None = None, *, limit: int = 50) -> DocumentPage:
    """See `Knowledge.list_document_page`."""
    return await _base(location).list_document_page(cursor, limit=limit)


async def search_documents(location: Any, query: str, **options: Any) -> SearchPage:
    """See `Knowledge.search_documents`."""
    return await _base(location).search_documents(query, **options)


async def read_document_lines(location: Any, id: str, start: int, end: int) -> DocumentLines:  # noqa: A002
    """See `Knowledge.read_document_lines`."""
    return await _base(location).read_document_lines(id, start, end)


__all__ = [
    "Document",
    "DocumentLines",
    "DocumentPage",
    "DocumentSummary",
    "Knowledge",
    "MirroredDocument",
    "SearchHit",
    "SearchPage",
    "create_document",
    "delete_document",
    "document_id_of",
    "edit_document",
    "get_document",
    "import_folder",
    "knowledge_of",
    "list_document_page",
    "list_documents",
    "mirror_conversation",
    "mirror_document_id",
    "put_document",
    "read_document_lines",
    "search_documents",
]
