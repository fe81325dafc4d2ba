"""`ctx.knowledge`: Markdown documents in a project's persistent values."""

import asyncio
from typing import Any, NamedTuple

from stepwell.errors import DocumentChanged, DocumentExists, InvalidArgument
from stepwell.identifiers import check_document_id, iso_time, new_id, now_micros
from stepwell.knowledge import index
from stepwell.knowledge.arguments import check_count, check_lines, check_markdown, check_title
from stepwell.knowledge.bodies import LARGE_CHARS, Text, not_found, read_body, text_of
from stepwell.knowledge.cursor import open_cursor, seal
from stepwell.knowledge.index import BODY, HEAD, LOCATOR, PAGE, PAGE_SIZE, Block, DocumentSummary, Head, Page, Place
from stepwell.knowledge.lines import normalise, read_lines
from stepwell.knowledge.preview import preview
from stepwell.knowledge.search import Resume, Scan, SearchPage, check_request
from stepwell.storage.kv import KeyValue
from stepwell.storage.transaction import Transaction, active_transaction


class Document(NamedTuple):
    """A whole document; `markdown` is exactly what was stored, `version` counts its edits from 1."""

    id: str
    title: str
    markdown: str
    version: int
    created_at: str
    updated_at: str

    def to_dict(self) -> dict[str, Any]:
        """The document as JSON."""
        return self._asdict()


class DocumentPage(NamedTuple):
    """One page of a listing; `total` counts all documents, `next_cursor` is None on the last page."""

    documents: list[DocumentSummary]
    next_cursor: str | None
    total: int

    def to_dict(self) -> dict[str, Any]:
        """The page as JSON."""
        items = [document.to_dict() for document in self.documents]
        return {"items": items, "next_cursor": self.next_cursor, "total": self.total}


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

    Lists come newest document first, search hits newest document first and then by line. A document keeps its place
    when it is edited; one that is made anew under the id of a deleted one is a new document.

    Args:
        persistent_value: the location's project-scope persistent values.
    """

    def __init__(self, persistent_value: KeyValue) -> None:
        self.entries = persistent_value

    # -- changing ------------------------------------------------------------------------------------------------

    async def create_document(self, title: str, markdown: str, id: str | None = None) -> DocumentSummary:  # noqa: A002
        """Store a new document.

        Args:
            title: at most 500 characters; white space is folded, as titles stand in one line.
            markdown: the text, kept exactly; with the rest of the entry at most 16 MiB of JSON.
            id: 1 to 128 of `A-Z a-z 0-9 . _ -`; generated if left out. The id of a deleted document is free again.

        Raises:
            DocumentExists: there is a document of that id.
            InvalidId, InvalidArgument, ValueTooLarge: nothing was written.
        """
        document_id = new_id() if id is None else check_document_id(id)
        title, markdown = check_title(title), check_markdown(markdown)
        now = iso_time(now_micros())
        shown, text = preview(markdown), await Text.of(markdown)

        async def body(tx: Transaction) -> DocumentSummary:
            if index.live(await tx.get_value(f"{LOCATOR}{document_id}"), "page"):
                raise DocumentExists(
                    f"there is a document {document_id!r} already",
                    hint="edit it, or take another id",
                    document_id=document_id,
                )
            head = Head.of(await tx.get_value(HEAD))
            summary = DocumentSummary(document_id, title, shown, len(markdown), 1, head.sequence + 1, now, now)
            await index.insert(tx, head, summary)
            await text.write(tx, summary)
            return summary

        return await self.entries.transact(body)

    async def edit_document(
        self,
        id: str,  # noqa: A002
        title: str | None = None,
        markdown: str | None = None,
        *,
        expected_version: int | None = None,
    ) -> DocumentSummary:
        """Change a document's title, text or both.

        Args:
            id: which document.
            title, markdown: as for `create_document`; what is left out stays.
            expected_version: the version that was read before: refuse if somebody changed the document since.

        Raises:
            DocumentNotFound: unknown or deleted.
            DocumentChanged: the document has another version than expected.
            InvalidId, InvalidArgument, ValueTooLarge: nothing was written.
        """
        document_id = check_document_id(id)
        if title is None and markdown is None:
            raise InvalidArgument("nothing to change", hint="give a title, markdown, or both")
        title = None if title is None else check_title(title)
        shown = None if markdown is None else preview(check_markdown(markdown))
        new_text = None if markdown is None else await Text.of(markdown)
        now = iso_time(now_micros())

        async def body(tx: Transaction) -> DocumentSummary:
            page = await _page_of(tx, document_id)
            position = page.find(document_id)
            old = page.summaries[position]
            if expected_version is not None and expected_version != old.version:
                raise DocumentChanged(
                    f"the document {document_id!r} has version {old.version}, not {expected_version!r:.40}",
                    document_id=document_id,
                    version=old.version,
                )
            summary = old._replace(title=title or old.title, version=old.version + 1, updated_at=now)
            if markdown is not None:
                summary = summary._replace(markdown_preview=shown or "", size=len(markdown))
            text = new_text or await Text.of(await text_of(self.entries, tx, old))
            page.summaries[position] = summary
            await index.write_page(tx, page)
            await text.write(tx, summary)
            return summary

        return await self.entries.transact(body)

    async def delete_document(self, id: str) -> bool:  # noqa: A002
        """Delete a document for good; True if there was one."""
        document_id = check_document_id(id)

        async def body(tx: Transaction) -> bool:
            locator = index.live(await tx.get_value(f"{LOCATOR}{document_id}"), "page")
            if locator is None:
                return False
            await index.remove(tx, document_id, await index.read_page(tx, locator["page"]))
            await tx.set_value(f"{BODY}{document_id}", index.tombstone(locator["sequence"]))
            return True

        return await self.entries.transact(body)

    # -- reading -------------------------------------------------------------------------------------------------

    async def get_document(self, id: str) -> Document:  # noqa: A002
        """A whole document. Reads its own entry only, so it works under a grant for just that one.

        Raises:
            DocumentNotFound: unknown or deleted.
        """
        body = await read_body(self.entries, check_document_id(id))
        return Document(
            body["id"], body["title"], body["markdown"], body["version"], body["created_at"], body["updated_at"]
        )

    async def get_summary(self, id: str) -> DocumentSummary:  # noqa: A002
        """A document's summary.

        Raises:
            DocumentNotFound: unknown or deleted.
        """
        page = await _page_of(self.entries, check_document_id(id))
        return page.summaries[page.find(id)]

    async def read_document_lines(self, id: str, start: int, end: int) -> DocumentLines:  # noqa: A002
        """Lines `start` to `end` of a document, 1-based and inclusive, as far as they exist, at their full length.

        Lines end at a line feed, a carriage return or both, and at nothing else: the same rule as in search.

        Raises:
            InvalidArgument: not whole numbers, `start` below 1, or after `end`.
            DocumentNotFound: unknown or deleted.
        """
        start, end = check_lines(start, end)
        document = await self.get_document(id)
        if len(document.markdown) < LARGE_CHARS:
            lines, total = read_lines(normalise(document.markdown), start, end)
        else:
            lines, total = await asyncio.to_thread(lambda: read_lines(normalise(document.markdown), start, end))
        return DocumentLines(document.id, document.title, start, lines, total)

    # -- listing -------------------------------------------------------------------------------------------------

    async def list_documents(self) -> list[DocumentSummary]:
        """Every document's summary, newest first. For large bases use `list_document_page`."""
        found: list[DocumentSummary] = []
        block = await self._block(Head.of(await self.entries.get_value(HEAD)).first)
        while block is not None:
            found += block.summaries()[0]
            await asyncio.sleep(0)
            block = await self._block(block.older)
        return found

    async def list_document_page(self, cursor: str | None = None, *, limit: int = 50) -> DocumentPage:
        """One page of summaries, newest first: at most `limit`, from one index page, whatever the size of the base.

        Documents that exist throughout a listing come exactly once, also while others are created or deleted. A page
        may be short before the last one: only `next_cursor` tells whether there are more.

        Args:
            cursor: `next_cursor` of the page before.
            limit: 1 to 128; the same for all pages of a listing.

        Raises:
            InvalidCursor: not a cursor of this list.
        """
        limit = check_count(limit, "limit", 1, PAGE_SIZE)
        head = Head.of(await self.entries.get_value(HEAD))
        query = ["list", list(self.entries.namespace), limit]
        first, below = (head.first, None) if cursor is None else open_cursor(head.secret, query, cursor)
        block = await self._block(first)
        while block is not None:
            found, more = block.summaries(below, limit)
            following = block.id if more else block.older
            if found:
                position = [following, found[-1].sequence]
                return DocumentPage(found, seal(head.secret, query, position) if following else None, head.total)
            block = await self._block(block.older)
        return DocumentPage([], None, head.total)

    async def _block(self, page_id: str | None) -> Block | None:
        """An index page to read, or the next older one where it was emptied, and taken out, meanwhile."""
        while page_id is not None:
            joined = active_transaction(self.entries.backend, self.entries.namespace)
            if joined is None:
                text = await self.entries.backend.text(self.entries.namespace, f"{PAGE}{page_id}")
            else:
                text = await joined.get_text(f"{PAGE}{page_id}")
            if text is not None:
                return Block(page_id, text)
            page_id = await self._next_older(page_id)
        return None

    async def _next_older(self, page_id: str) -> str | None:
        records = await self.entries.records(PAGE, after=f"{PAGE}{page_id}", limit=1, reverse=True)
        return records[0].key.removeprefix(PAGE) if records else None

    # -- searching -----------------------------------------------------------------------------------------------

    async def search_documents(
        self,
        query: str,
        document_id: str | None = None,
        before_lines: int = 0,
        after_lines: int = 0,
        page_size: int = 20,
        cursor: str | None = None,
    ) -> SearchPage:
        """Lines that contain `query`, ignoring case (Unicode case folding of both sides); the text is literal.

        Hits come newest document first, then by line, one a line. Documents that exist throughout a search are
        searched exactly once, also while others come and go; within a document that is edited between two pages the
        search goes on behind the line number it had reached.

        Args:
            query: 1 to 1,000 characters without line ends.
            document_id: search this document only.
            before_lines, after_lines: context lines of each hit, 0 to 100.
            page_size: hits of a page, 1 to 200; a page also ends at a million characters of text.
            cursor: `next_cursor` of the page before, with the same arguments.

        Raises:
            InvalidArgument, InvalidId: an argument is out of bounds.
            InvalidCursor: not a cursor of this search.
            DocumentNotFound: `document_id` is unknown or deleted.
        """
        request = check_request(query, document_id, before_lines, after_lines, page_size)
        head = Head.of(await self.entries.get_value(HEAD))
        identity = ["search", list(self.entries.namespace), *request]
        page_id, resume = head.first, None
        if cursor is not None:
            resume = Resume(*open_cursor(head.secret, identity, cursor))
            page_id = resume.page_id
        scan = Scan(self.entries.backend, self.entries.namespace, request, resume)
        if request.document_id is None:
            await self._scan_all(scan, page_id, resume)
        else:
            await self._scan_one(scan, request.document_id, resume)
        if not scan.full or scan.last is None:
            return SearchPage(scan.hits, None)
        return SearchPage(scan.hits, seal(head.secret, identity, list(scan.last)))

    async def _scan_all(self, scan: Scan, page_id: str | None, resume: Resume | None) -> None:
        block = await self._block(page_id)
        while block is not None and not scan.full:
            places = [place for place in block.places() if resume is None or place.sequence <= resume.sequence]
            await scan.over(block.id, places)
            block = await self._block(block.older)
        await scan.finish()

    async def _scan_one(self, scan: Scan, document_id: str, resume: Resume | None) -> None:
        page = await _page_of(self.entries, document_id)
        summary = page.summaries[page.find(document_id)]
        place = Place(document_id, summary.sequence, summary.size)
        if resume is None or resume.sequence == place.sequence:
            await scan.over(page.id, [place])
            await scan.finish()


async def _page_of(entries: KeyValue | Transaction, document_id: str) -> Page:
    locator = index.live(await entries.get_value(f"{LOCATOR}{document_id}"), "page")
    if locator is None:
        raise not_found(document_id)
    return await index.read_page(entries, locator["page"])
