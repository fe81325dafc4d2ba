"""Search: literal, case-insensitive, line by line, a page at a time, off the event loop.

Bodies are read in batches, as bytes where the backend can; a sieve throws out what cannot match before anything is
decoded; the scan stops when the page is full. Nothing is indexed, so nothing can be out of step with the documents,
and queries of one or two characters (most Chinese words) work like any other.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwell.errors import InvalidArgument
from stepwell.jsontext import decode
from stepwell.knowledge.arguments import check_count
from stepwell.knowledge.cursor import open_cursor, seal
from stepwell.knowledge.folding import Sieve, fold
from stepwell.knowledge.index import BODY, HEAD, LOCATOR
from stepwell.knowledge.lines import context, split_lines
from stepwell.store.entries import Span

if TYPE_CHECKING:
    from stepwell.knowledge.documents import Knowledge

MAX_QUERY_CHARS = 1_000
MAX_CONTEXT_LINES = 100
MAX_PAGE_SIZE = 200
MAX_LINE_CHARS = 2_000
_FIRST_BATCH = 16
_BATCH = 128
_SIEVE_AFTER = 400
_BATCH_CHARS = 4_000_000


Candidate = tuple[str, str, int]
"""Index page, document id and sequence of a document that may match."""


class SearchHit(NamedTuple):
    """A line that contains the query. Lines over 2,000 characters are cut around the hit and marked with `…`."""

    document_id: str
    title: str
    line: int
    text: str
    before: list[str]
    after: list[str]

    def to_dict(self) -> dict[str, Any]:
        """The hit as JSON."""
        return self._asdict()


class SearchPage(NamedTuple):
    """A page of hits; `next_cursor` is None on the last one."""

    hits: list[SearchHit]
    next_cursor: str | None


async def search(
    base: "Knowledge",
    query: Any,
    *,
    document_id: str | None,
    before: int,
    after: int,
    size: int,
    cursor: str | None,
) -> SearchPage:
    """See `Knowledge.search_documents`."""
    if not isinstance(query, str) or not query or len(query) > MAX_QUERY_CHARS or "\n" in query or "\r" in query:
        raise InvalidArgument(
            f"the query {query!r:.60} must be text of 1 to {MAX_QUERY_CHARS} characters without line ends",
            argument="query",
        )
    check_count(before, "before_lines", 0, MAX_CONTEXT_LINES)
    check_count(after, "after_lines", 0, MAX_CONTEXT_LINES)
    check_count(size, "page_size", 1, MAX_PAGE_SIZE)
    head = await base.entries.get_value(HEAD) or {"cursor_secret": ""}
    identity = ["search", list(base.entries.namespace), query, document_id]
    position = None if cursor is None else open_cursor(head["cursor_secret"], identity, cursor)
    sieve = Sieve(query)
    skip = {position[1]: position[2]} if position is not None else {}
    hits: list[SearchHit] = []
    places: list[list[Any]] = []
    async for batch in _batches(base, sieve, document_id, position):
        bodies = await _bodies(base, [document for _, document, _ in batch])
        found = await asyncio.to_thread(_match, batch, bodies, sieve, skip, before, after, size + 1 - len(hits))
        for place, hit in found:
            places.append(place)
            hits.append(hit)
        if len(hits) > size:
            return SearchPage(hits[:size], seal(head["cursor_secret"], identity, places[size - 1]))
    return SearchPage(hits, None)


async def _batches(
    base: "Knowledge", sieve: Sieve, document_id: str | None, position: list[Any] | None
) -> AsyncIterator[list[Candidate]]:
    """Documents to look into, newest first, in batches.

    A common query fills its page from the newest documents. Once it has not, it is rare enough that the sieve goes
    over all bodies in one pass, where the backend can do that beside the data.
    """
    if document_id is not None:
        summary = await base.summary(document_id)
        yield [("", document_id, summary["sequence"])]
        return
    # The document of the cursor itself may have more hits: its sequence is still included.
    below = None if position is None else [position[0], position[1] + 1]
    matching = getattr(base.entries.backend, "matching", None)
    batch: list[Candidate] = []
    chars, limit, seen = 0, _FIRST_BATCH, 0
    async for page in base.pages(below):
        for summary in page["documents"]:
            batch.append((page["id"], summary["id"], summary["sequence"]))
            chars += summary["size"]
            if len(batch) >= limit or chars >= _BATCH_CHARS:
                yield batch
                seen += len(batch)
                if matching is not None and seen >= _SIEVE_AFTER:
                    async for rest in _sieved(base, sieve, matching, summary["sequence"]):
                        yield rest
                    return
                batch, chars, limit = [], 0, min(limit * 2, _BATCH)
    if batch:
        yield batch


async def _sieved(base: "Knowledge", sieve: Sieve, matching: Any, below: int) -> AsyncIterator[list[Candidate]]:
    keys = await matching(base.entries.namespace, Span.prefix(BODY), sieve.admits)
    locators: list[Candidate] = []
    for start in range(0, len(keys), _BATCH):
        ids = [key.removeprefix(BODY) for key in keys[start : start + _BATCH]]
        for record in (
            await base.entries.backend.read(base.entries.namespace, [f"{LOCATOR}{i}" for i in ids])
        ).values():
            locator = decode(record.text)
            if not locator.get("deleted") and locator["sequence"] < below:
                locators.append((locator["page"], record.key.removeprefix(LOCATOR), locator["sequence"]))
    locators.sort(key=lambda candidate: -candidate[2])
    for start in range(0, len(locators), _FIRST_BATCH):
        yield locators[start : start + _FIRST_BATCH]


async def _bodies(base: "Knowledge", ids: list[str]) -> dict[str, bytes]:
    keys = [f"{BODY}{document_id}" for document_id in ids]
    backend, namespace = base.entries.backend, base.entries.namespace
    read_bytes = getattr(backend, "bodies", None)
    if read_bytes is not None:
        return {key.removeprefix(BODY): body for key, body in await read_bytes(namespace, keys)}
    records = await backend.read(namespace, keys)
    return {key.removeprefix(BODY): record.text.encode() for key, record in records.items()}


def _match(
    batch: list[Candidate],
    bodies: dict[str, bytes],
    sieve: Sieve,
    skip: dict[int, int],
    before: int,
    after: int,
    wanted: int,
) -> list[tuple[list[Any], SearchHit]]:
    found: list[tuple[list[Any], SearchHit]] = []
    for page_id, document_id, sequence in batch:
        raw = bodies.get(document_id)
        if raw is None or not sieve.admits(raw):
            continue
        body = decode(raw.decode())
        if body.get("deleted") or sieve.folded not in (folded := fold(body["markdown"])):
            continue
        lines, folded_lines = split_lines(body["markdown"]), split_lines(folded)
        start = skip.get(sequence, 0)
        for number in range(start, len(lines)):
            if sieve.folded in folded_lines[number]:
                hit = _hit(body, lines, number, folded_lines[number].find(sieve.folded), before, after)
                found.append(([page_id, sequence, number + 1], hit))
                if len(found) >= wanted:
                    return found
    return found


def _hit(body: dict[str, Any], lines: list[str], number: int, column: int, before: int, after: int) -> SearchHit:
    above, below = context(lines, number, before, after)
    return SearchHit(
        body["id"],
        body["title"],
        number + 1,
        _shorten(lines[number], column),
        [_shorten(line, 0) for line in above],
        [_shorten(line, 0) for line in below],
    )


def _shorten(line: str, column: int) -> str:
    if len(line) <= MAX_LINE_CHARS:
        return line
    start = max(0, min(column - MAX_LINE_CHARS // 2, len(line) - MAX_LINE_CHARS))
    end = start + MAX_LINE_CHARS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"
