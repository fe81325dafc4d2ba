"""Search: literal, case-insensitive, line by line, a page at a time, off the event loop.

Index pages give the documents in order, their bodies are read in batches of bounded size (as bytes where the
backend can), a sieve throws out what cannot match before anything is decoded, and the scan stops when the page is
full. Nothing is indexed, so nothing can be out of step with the documents, and queries of one or two characters
(most Chinese words) work like any other.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from stepwell.errors import InvalidArgument
from stepwell.identifiers import check_document_id
from stepwell.jsontext import decode
from stepwell.knowledge.arguments import check_count
from stepwell.knowledge.folding import Sieve, find_folded
from stepwell.knowledge.index import BODY, Place, live
from stepwell.knowledge.lines import blocks, lines_after, lines_before, normalise, shorten, split_lines
from stepwell.store.backend import Backend
from stepwell.store.entries import Namespace

MAX_QUERY_CHARS: Final = 1_000
MAX_CONTEXT_LINES: Final = 100
MAX_PAGE_SIZE: Final = 200
MAX_LINE_CHARS: Final = 1_000
MAX_PAGE_CHARS: Final = 1_000_000
BATCH_CHARS: Final = 2_000_000


class SearchHit(NamedTuple):
    """A line that contains the query, and the lines around it.

    `line` and `column` are 1-based; the column counts characters of the whole line, where the first match in it
    begins. Lines over 1,000 characters are cut (`text` around the match) and marked with `…`; `truncated` says that
    this happened to `text`.
    """

    document_id: str
    title: str
    line: int
    column: int
    text: str
    before: list[str]
    after: list[str]
    truncated: bool

    def to_dict(self) -> dict[str, Any]:
        """The hit as JSON."""
        return self._asdict()


class SearchPage(NamedTuple):
    """A page of hits; `next_cursor` is None on the last one. A page after the first may be empty."""

    hits: list[SearchHit]
    next_cursor: str | None

    def to_dict(self) -> dict[str, Any]:
        """The page as JSON."""
        return {"items": [hit.to_dict() for hit in self.hits], "next_cursor": self.next_cursor}


class Request(NamedTuple):
    """A checked search."""

    query: str
    document_id: str | None
    before: int
    after: int
    size: int


class Resume(NamedTuple):
    """Where a scan goes on: in this index page, behind a line of the document with this sequence, then below it."""

    page_id: str
    sequence: int
    line: int


def check_request(query: Any, document_id: Any, before: Any, after: Any, size: Any) -> Request:
    """The arguments of a search, checked.

    Raises:
        InvalidArgument, InvalidId
    """
    if not isinstance(query, str) or not query or len(query) > MAX_QUERY_CHARS or "\n" in query or "\r" in query:
        raise InvalidArgument(
            f"the query {query!r:.60} must be text of 1 to {MAX_QUERY_CHARS} characters without line ends",
            argument="query",
        )
    return Request(
        query,
        None if document_id is None else check_document_id(document_id),
        check_count(before, "before_lines", 0, MAX_CONTEXT_LINES),
        check_count(after, "after_lines", 0, MAX_CONTEXT_LINES),
        check_count(size, "page_size", 1, MAX_PAGE_SIZE),
    )


class Scan:
    """The hits of one page of a search, filled batch by batch.

    Args:
        backend, namespace: where the documents are.
        request: what is searched for.
        resume: where the page before ended.
    """

    def __init__(self, backend: Backend, namespace: Namespace, request: Request, resume: Resume | None) -> None:
        self._backend = backend
        self._namespace = namespace
        self._request = request
        self._resume = resume
        self._sieve = Sieve(request.query)
        self._room = MAX_PAGE_CHARS
        self._waiting: list[tuple[str, Place]] = []
        self._chars = 0
        self._begun = False
        self.hits: list[SearchHit] = []
        self.last: Resume | None = None

    @property
    def full(self) -> bool:
        """True once the page has all the hits it may have."""
        return len(self.hits) >= self._request.size or self._room <= 0

    async def over(self, page_id: str, places: Sequence[Place]) -> None:
        """Search these documents of an index page next, in this order."""
        for place in places:
            if self._waiting and self._chars + place.size > BATCH_CHARS:
                await self.finish()
            if self.full:
                return
            self._waiting.append((page_id, place))
            self._chars += place.size
        if not self._begun:  # the page is often full at once: then nothing more was read than needed
            await self.finish()

    async def finish(self) -> None:
        """Search what was collected so far."""
        waiting, self._waiting, self._chars, self._begun = self._waiting, [], 0, True
        if waiting and not self.full:
            bodies = await self._bodies([f"{BODY}{place.id}" for _, place in waiting])
            await asyncio.to_thread(self._search, waiting, bodies)

    async def _bodies(self, keys: Sequence[str]) -> dict[str, bytes] | dict[str, str]:
        read_bytes = getattr(self._backend, "bodies", None)
        if read_bytes is not None:
            return dict(await read_bytes(self._namespace, keys))
        records = await self._backend.read(self._namespace, keys)
        return {key: record.text for key, record in records.items()}

    def _search(self, waiting: Sequence[tuple[str, Place]], bodies: Mapping[str, bytes | str]) -> None:
        for page_id, place in waiting:
            text = bodies.get(f"{BODY}{place.id}", b"")
            raw = text.encode() if isinstance(text, str) else text
            if not raw or not self._sieve.admits(raw):
                continue
            body = live(decode(raw.decode()), "markdown")
            # Deleted, or deleted and made anew, since the index page was read: then it is not in this list.
            if body is not None and body["sequence"] == place.sequence:
                self._search_document(page_id, body)
                if self.full:
                    return

    def _search_document(self, page_id: str, body: dict[str, Any]) -> None:
        request, needle = self._request, self._sieve.folded
        text = normalise(body["markdown"])
        above = self._resume.line if self._resume and self._resume.sequence == body["sequence"] else 0
        for line, start, end in _matching_lines(text, needle, above):
            column = find_folded(text[start:end], needle)
            hit = SearchHit(
                body["id"],
                body["title"],
                line,
                column + 1,
                shorten(text, start, end, MAX_LINE_CHARS, column),
                lines_before(text, start, request.before, MAX_LINE_CHARS),
                lines_after(text, end, request.after, MAX_LINE_CHARS),
                end - start > MAX_LINE_CHARS,
            )
            self.hits.append(hit)
            self.last = Resume(page_id, body["sequence"], line)
            self._room -= len(hit.text) + sum(map(len, hit.before)) + sum(map(len, hit.after))
            if self.full:
                return


def _matching_lines(text: str, needle: str, above: int) -> Iterator[tuple[int, int, int]]:
    """The lines after line `above` that contain the needle: number (1-based), start and end in the text."""
    number = 0
    for first, last in blocks(text):
        block = text[first:last]
        inside = block.count("\n")
        if number + inside <= above and last < len(text):
            number += inside
            continue
        if find_folded(block, needle) >= 0:
            start = first
            for line in split_lines(block):
                number += 1
                if number > above and find_folded(line, needle) >= 0:
                    yield number, start, start + len(line)
                start += len(line) + 1
        else:
            number += inside
