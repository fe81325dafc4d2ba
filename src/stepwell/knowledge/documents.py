"""`ctx.knowledge`: Markdown documents in a project's persistent values."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from stepwell.errors import DocumentExists, DocumentNotFound, InvalidArgument, StorageCorrupt
from stepwell.identifiers import check_document_id, iso_time, new_id, now_micros
from stepwell.knowledge import index
from stepwell.knowledge.arguments import check_count
from stepwell.knowledge.cursor import open_cursor, seal
from stepwell.knowledge.index import BODY, HEAD, LOCATOR, PAGE, PAGE_SIZE, Page, Summary
from stepwell.knowledge.lines import read_lines
from stepwell.knowledge.preview import preview
from stepwell.knowledge.search import SearchPage, search
from stepwell.storage.kv import KeyValue
from stepwell.storage.transaction import Transaction

MAX_TITLE_CHARS = 500


class DocumentSummary(NamedTuple):
    """A document as lists and writes show it: without its text. `size` is in characters."""

    id: str
    title: str
    markdown_preview: str
    size: int
    sequence: int
    created_at: str
    updated_at: str

    def to_dict(self) -> dict[str, Any]:
        """The summary as JSON."""
        return self._asdict()


class Document(NamedTuple):
    """A whole document; `markdown` is exactly what was stored."""

    id: str
    title: str
    markdown: str
    created_at: str
    updated_at: str

    def to_dict(self) -> dict[str, Any]:
        """The document as JSON."""
        return self._asdict()


class DocumentPage(NamedTuple):
    """One page of a listing; `total` counts all documents."""

    documents: list[DocumentSummary]
    next_cursor: str | None
    total: int


class DocumentLines(NamedTuple):
    """Lines of a document: those of the range that exist. `total` is the number of lines of the document."""

    id: str
    title: str
    start: int
    lines: list[str]
    total: int

    def to_dict(self) -> dict[str, Any]:
        """The lines as JSON."""
        return self._asdict()


class Knowledge:
    """A project's Knowledge base at one location.

    Lists and search hits come newest document first; a document keeps its place when it is edited.

    Args:
        persistent_value: the location's project-scope persistent values.
    """

    def __init__(self, persistent_value: KeyValue) -> None:
        self.entries = persistent_value

    async def create_document(self, title: str, markdown: str, id: str | None = None) -> DocumentSummary:  # noqa: A002
        """Store a new document.

        Args:
            title: one line, at most 500 characters.
            markdown: the text, kept to the byte.
            id: 1 to 128 of `A-Z a-z 0-9 . _ -`; generated if left out. The id of a deleted document is free again.

        Raises:
            DocumentExists: there is a document of that id.
            InvalidId, InvalidArgument, ValueTooLarge: nothing was written.
        """
        document_id = new_id() if id is None else check_document_id(id)
        title, markdown = _check_title(title), _check_markdown(markdown)
        now = iso_time(now_micros())
        shown = preview(markdown)

        async def body(tx: Transaction) -> Summary:
            locator = await tx.get_value(f"{LOCATOR}{document_id}")
            if locator is not None and not locator.get("deleted"):
                raise DocumentExists(f"there is a document {document_id!r} already", document_id=document_id)
            head = await tx.get_value(HEAD) or index.new_head()
            summary = {
                "id": document_id, "title": title, "markdown_preview": shown, "size": len(markdown),
                "sequence": head["sequence"] + 1, "created_at": now, "updated_at": now,
            }  # fmt: skip
            await index.insert(tx, head, summary)
            await tx.set_value(f"{BODY}{document_id}", _body(summary, markdown))
            return summary

        return DocumentSummary(**await self.entries.transact(body))

    async def edit_document(
        self, id: str, *, title: str | None = None, markdown: str | None = None  # noqa: A002
    ) -> DocumentSummary:  # fmt: skip
        """Change a document's title, text or both.

        Raises:
            DocumentNotFound: unknown or deleted.
        """
        document_id = check_document_id(id)
        if title is None and markdown is None:
            raise InvalidArgument("nothing to change", hint="give a title, markdown, or both")
        title = None if title is None else _check_title(title)
        shown = None if markdown is None else preview(_check_markdown(markdown))
        now = iso_time(now_micros())

        async def body(tx: Transaction) -> Summary:
            locator = await self._locator(tx, document_id)
            page: Page = await tx.get_value(f"{PAGE}{locator['page']}")
            summary = dict(next(known for known in page["documents"] if known["id"] == document_id))
            summary["updated_at"] = now
            if title is not None:
                summary["title"] = title
            text = markdown
            if text is None:
                text = (await tx.get_value(f"{BODY}{document_id}"))["markdown"]
            else:
                summary |= {"markdown_preview": shown, "size": len(text)}
            await index.replace(tx, locator, summary)
            await tx.set_value(f"{BODY}{document_id}", _body(summary, text))
            return summary

        return DocumentSummary(**await self.entries.transact(body))

    async def delete_document(self, id: str) -> bool:  # noqa: A002
        """Delete a document for good; True if there was one."""
        document_id = check_document_id(id)

        async def body(tx: Transaction) -> bool:
            locator = await tx.get_value(f"{LOCATOR}{document_id}")
            if locator is None or locator.get("deleted"):
                return False
            await index.remove(tx, document_id, locator)
            await tx.set_value(f"{BODY}{document_id}", {"deleted": True})
            return True

        return await self.entries.transact(body)

    async def get_document(self, id: str) -> Document:  # noqa: A002
        """A whole document.

        Raises:
            DocumentNotFound: unknown or deleted.
        """
        document_id = check_document_id(id)
        body = await self.entries.get_value(f"{BODY}{document_id}")
        if body is None or body.get("deleted"):
            raise _not_found(document_id)
        return Document(document_id, body["title"], body["markdown"], body["created_at"], body["updated_at"])

    async def list_documents(self) -> list[DocumentSummary]:
        """Every document's summary. For large bases use `list_document_page`."""
        return [DocumentSummary(**summary) async for page in self.pages() for summary in page["documents"]]

    async def list_document_page(self, cursor: str | None = None, *, limit: int = 50) -> DocumentPage:
        """One page of summaries; the first one reads the index head and one index page, whatever the size.

        Documents that exist throughout a listing come exactly once, also while others are created or deleted.

        Args:
            cursor: `next_cursor` of the page before.
            limit: 1 to 128.

        Raises:
            InvalidCursor: not a cursor of this list.
        """
        limit = check_count(limit, "limit", 1, PAGE_SIZE)
        head = await self.entries.get_value(HEAD) or {"count": 0, "cursor_secret": ""}
        query = ["list", list(self.entries.namespace)]
        below = None if cursor is None else open_cursor(head["cursor_secret"], query, cursor)
        found: list[Summary] = []
        page_ids: list[str] = []
        async for page in self.pages(below):
            for summary in page["documents"]:
                found.append(summary)
                page_ids.append(page["id"])
            if len(found) > limit:
                break
        documents = [DocumentSummary(**summary) for summary in found[:limit]]
        more = len(found) > limit
        position = [page_ids[limit - 1], documents[-1].sequence] if more else []
        return DocumentPage(documents, seal(head["cursor_secret"], query, position) if more else None, head["count"])

    async def search_documents(
        self,
        query: str,
        *,
        document_id: str | None = None,
        before_lines: int = 0,
        after_lines: int = 0,
        page_size: int = 20,
        cursor: str | None = None,
    ) -> SearchPage:
        """Lines that contain `query`, ignoring case (Unicode case folding of both sides); the text is literal.

        Args:
            query: non-empty, without line ends.
            document_id: search this document only.
            before_lines, after_lines: context lines of each hit, 0 to 100.
            page_size: hits of a page, 1 to 200.
            cursor: `next_cursor` of the page before.

        Raises:
            InvalidArgument, InvalidCursor, DocumentNotFound.
        """
        if document_id is not None:
            await self.summary(check_document_id(document_id))
        return await search(
            self, query, document_id=document_id, before=before_lines, after=after_lines, size=page_size, cursor=cursor
        )

    async def read_document_lines(self, id: str, start: int, end: int) -> DocumentLines:  # noqa: A002
        """Lines `start` to `end` of a document, 1-based and inclusive, as far as they exist.

        Lines end at a line feed, a carriage return or both, and at nothing else: the same rule as in search.

        Raises:
            InvalidArgument: `start` below 1, or after `end`.
            DocumentNotFound: unknown or deleted.
        """
        start = check_count(start, "start", 1, None)
        end = check_count(end, "end", 1, None)
        if start > end:
            raise InvalidArgument(f"start ({start}) is after end ({end})", argument="start")
        document = await self.get_document(id)
        lines, total = read_lines(document.markdown, start, end)
        return DocumentLines(document.id, document.title, start, lines, total)

    async def pages(self, below: list[Any] | None = None) -> AsyncIterator[Page]:
        """Index pages, newest first, holding only documents older than the position `[page id, sequence]`."""
        page: Page | None = None
        if below is not None:
            page = await self.entries.get_value(f"{PAGE}{below[0]}")
        if page is None:  # from the start, or the page of the cursor was emptied meanwhile: skip up to its sequence
            head = await self.entries.get_value(HEAD)
            page = await self._page(head["first_page"]) if head else None
        while page is not None:
            if below is not None:
                page["documents"] = [known for known in page["documents"] if known["sequence"] < below[1]]
            following = page["older"]
            if page["documents"]:
                yield page
            page = await self._page(following)

    async def _page(self, page_id: str | None) -> Page | None:
        while page_id is not None:
            page: Page | None = await self.entries.get_value(f"{PAGE}{page_id}")
            if page is not None:
                return page
            # Emptied between two reads: pages are numbered as they are made, so the next older one has a smaller id.
            page_id = str(int(page_id) - 1) if int(page_id) > 1 else None
        return None

    async def summary(self, document_id: str) -> Summary:
        """A document's summary as the index holds it.

        Raises:
            DocumentNotFound: unknown or deleted.
        """
        locator = await self.entries.get_value(f"{LOCATOR}{document_id}")
        if locator is None or locator.get("deleted"):
            raise _not_found(document_id)
        page = await self.entries.get_value(f"{PAGE}{locator['page']}")
        for summary in (page or {}).get("documents", ()):
            if summary["id"] == document_id:
                return dict(summary)
        raise StorageCorrupt(
            f"the index does not list the document {document_id!r}", hint="run `stepwell knowledge check --repair`"
        )

    async def _locator(self, tx: Transaction, document_id: str) -> dict[str, Any]:
        locator: dict[str, Any] | None = await tx.get_value(f"{LOCATOR}{document_id}")
        if locator is None or locator.get("deleted"):
            raise _not_found(document_id)
        return locator


def _check_title(title: Any) -> str:
    if not isinstance(title, str) or not title.strip() or len(title) > MAX_TITLE_CHARS:
        raise InvalidArgument(
            f"the title {title!r:.60} must be text of 1 to {MAX_TITLE_CHARS} characters", argument="title"
        )
    return " ".join(title.split())


def _check_markdown(markdown: Any) -> str:
    if not isinstance(markdown, str):
        raise InvalidArgument(f"markdown is {type(markdown).__name__}, not text", argument="markdown")
    return markdown


def _body(summary: Summary, markdown: str) -> dict[str, Any]:
    kept = {name: summary[name] for name in ("id", "title", "sequence", "created_at", "updated_at")}
    return kept | {"markdown": markdown}


def _not_found(document_id: str) -> DocumentNotFound:
    return DocumentNotFound(f"there is no document {document_id!r}", document_id=document_id)
