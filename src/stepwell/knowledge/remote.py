"""Knowledge of a server: every call is one request there, and one transaction."""

from typing import Any
from urllib.parse import quote

from stepwell.identifiers import check_document_id, new_id
from stepwell.knowledge.arguments import check_count, check_lines, check_markdown, check_title
from stepwell.knowledge.documents import Document, DocumentLines, DocumentPage, Knowledge
from stepwell.knowledge.index import PAGE_SIZE, DocumentSummary
from stepwell.knowledge.search import SearchHit, SearchPage, check_request
from stepwell.storage.kv import KeyValue
from stepwell.storage.location import Remote
from stepwell.storage.transaction import active_transaction


class RemoteKnowledge(Knowledge):
    """See `Knowledge`. Inside a `lock()` of the same persistent values the calls join its transaction instead.

    Args:
        entries: the location's project-scope persistent values.
        remote: the server.
        path: of the Knowledge base there, under `/api/v1`.
    """

    def __init__(self, entries: KeyValue, remote: Remote, path: str) -> None:
        super().__init__(entries)
        self._remote = remote
        self._path = path

    async def create_document(self, title: str, markdown: str, id: str | None = None) -> DocumentSummary:  # noqa: A002
        document_id = new_id() if id is None else check_document_id(id)
        title, markdown = check_title(title), check_markdown(markdown)
        if self._joined():
            return await super().create_document(title, markdown, document_id)
        body = {"id": document_id, "title": title, "markdown": markdown, "source": self.entries.source._asdict()}
        return DocumentSummary(**await self._remote.once(f"{self._path}/documents", {}, body))

    async def edit_document(
        self,
        id: str,  # noqa: A002
        title: str | None = None,
        markdown: str | None = None,
        *,
        expected_version: int | None = None,
    ) -> DocumentSummary:
        if self._joined():
            return await super().edit_document(id, title, markdown, expected_version=expected_version)
        body = {
            "title": None if title is None else check_title(title),
            "markdown": None if markdown is None else check_markdown(markdown),
            "expected_version": expected_version,
            "source": self.entries.source._asdict(),
        }
        return DocumentSummary(**await self._remote.once(self._document(id), {}, body, method="PATCH"))

    async def delete_document(self, id: str) -> bool:  # noqa: A002
        if self._joined():
            return await super().delete_document(id)
        body = {"source": self.entries.source._asdict()}
        return bool((await self._remote.once(self._document(id), {}, body, method="DELETE"))["removed"])

    async def get_document(self, id: str) -> Document:  # noqa: A002
        if self._joined():
            return await super().get_document(id)
        return Document(**await self._remote.ask("GET", self._document(id), {}))

    async def read_document_lines(self, id: str, start: int, end: int) -> DocumentLines:  # noqa: A002
        if self._joined():
            return await super().read_document_lines(id, start, end)
        start, end = check_lines(start, end)
        query = _query(start=start, end=end)
        return DocumentLines(**await self._remote.ask("GET", f"{self._document(id)}/lines", query))

    async def list_documents(self) -> list[DocumentSummary]:
        if self._joined():
            return await super().list_documents()
        found: list[DocumentSummary] = []
        page = await self.list_document_page(limit=PAGE_SIZE)
        found += page.documents
        while page.next_cursor is not None:
            page = await self.list_document_page(page.next_cursor, limit=PAGE_SIZE)
            found += page.documents
        return found

    async def list_document_page(self, cursor: str | None = None, *, limit: int = 50) -> DocumentPage:
        if self._joined():
            return await super().list_document_page(cursor, limit=limit)
        limit = check_count(limit, "limit", 1, PAGE_SIZE)
        answer = await self._remote.ask("GET", f"{self._path}/documents", _query(cursor=cursor, limit=limit))
        items = [DocumentSummary(**item) for item in answer["items"]]
        return DocumentPage(items, answer["next_cursor"], answer["total"])

    async def search_documents(
        self,
        query: str,
        document_id: str | None = None,
        before_lines: int = 0,
        after_lines: int = 0,
        page_size: int = 20,
        cursor: str | None = None,
    ) -> SearchPage:
        if self._joined():
            return await super().search_documents(query, document_id, before_lines, after_lines, page_size, cursor)
        request = check_request(query, document_id, before_lines, after_lines, page_size)
        body = {
            "query": request.query,
            "document_id": request.document_id,
            "before_lines": request.before,
            "after_lines": request.after,
            "page_size": request.size,
            "cursor": cursor,
        }
        answer = await self._remote.ask("POST", f"{self._path}/search", {}, body)
        return SearchPage([SearchHit(**item) for item in answer["items"]], answer["next_cursor"])

    def _joined(self) -> bool:
        """True inside a transaction of the same namespace; another one's is an error."""
        return active_transaction(self.entries.backend, self.entries.namespace) is not None

    def _document(self, document_id: str) -> str:
        return f"{self._path}/documents/{quote(check_document_id(document_id), safe='').replace('.', '%2E')}"


def _query(**given: Any) -> dict[str, str]:
    return {name: str(value) for name, value in given.items() if value is not None}
