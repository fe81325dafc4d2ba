"""Checking and rebuilding a Knowledge base's index."""

from collections.abc import AsyncIterator
from typing import Any, Final

from stepwell.errors import StorageCorrupt
from stepwell.jsontext import decode
from stepwell.knowledge import index
from stepwell.knowledge.documents import Knowledge
from stepwell.knowledge.folding import ALPHABET, alphabet_of
from stepwell.knowledge.index import BODY, HEAD, LOCATOR, PAGE, PAGE_SIZE, DocumentSummary, Head, Page
from stepwell.knowledge.preview import preview
from stepwell.storage.transaction import Transaction

BODIES_AT_ONCE: Final = 8
"""Documents may have many megabytes: few are held at a time."""

RECORDS_AT_ONCE: Final = 200


async def check_base(base: Knowledge) -> list[str]:
    """Where head, pages, locators and documents disagree, a line each; empty for a sound base.

    Holds the namespace's lock meanwhile, so that a change on its way is not taken for damage.
    """
    if not await base.entries.records("knowledge.document", limit=1):
        return []
    async with base.entries.lock() as tx:
        try:
            listed, problems = await _check_pages(base, tx)
        except StorageCorrupt as error:
            return [error.message]
        problems += await _check_locators(base, listed)
        problems += await _check_bodies(base, listed)
    return problems


async def _check_pages(base: Knowledge, tx: Transaction) -> tuple[dict[str, tuple[str, DocumentSummary]], list[str]]:
    head = Head.of(await tx.get_value(HEAD))
    problems: list[str] = []
    listed: dict[str, tuple[str, DocumentSummary]] = {}
    seen: set[str] = set()
    newer: str | None = None
    page_id, lowest = head.first, head.sequence + 1
    while page_id is not None and page_id not in seen:
        page = await index.read_page(tx, page_id)
        seen.add(page_id)
        if page.newer != newer or not 0 < len(page.summaries) <= PAGE_SIZE:
            problems.append(f"page {page_id} is linked wrongly, empty or too full")
        for summary in page.summaries:
            if summary.id in listed:
                problems.append(f"{summary.id} is listed twice")
            if summary.sequence >= lowest:
                problems.append(f"{summary.id} is out of order in page {page_id}")
            listed[summary.id] = (page_id, summary)
            lowest = summary.sequence
        newer, page_id = page_id, page.older
    if page_id is not None:
        problems.append(f"the chain of pages comes back to page {page_id}")
    if head.total != len(listed):
        problems.append(f"the head counts {head.total} documents, {len(listed)} are listed")
    async for key, _ in _records(base, PAGE, RECORDS_AT_ONCE):
        if key.removeprefix(PAGE) not in seen:
            problems.append(f"page {key.removeprefix(PAGE)} is not in the chain")
    return listed, problems


async def _check_locators(base: Knowledge, listed: dict[str, tuple[str, DocumentSummary]]) -> list[str]:
    problems: list[str] = []
    found: set[str] = set()
    async for key, value in _records(base, LOCATOR, RECORDS_AT_ONCE):
        document_id = key.removeprefix(LOCATOR)
        locator = index.live(value, "page")
        if locator is None:
            continue
        found.add(document_id)
        if document_id not in listed:
            problems.append(f"{document_id} has a locator but is not listed")
        elif (locator["page"], locator.get("sequence")) != (listed[document_id][0], listed[document_id][1].sequence):
            problems.append(f"{document_id}: its locator does not point to page {listed[document_id][0]}")
    return problems + [f"{document_id} is listed but has no locator" for document_id in sorted(set(listed) - found)]


async def _check_bodies(base: Knowledge, listed: dict[str, tuple[str, DocumentSummary]]) -> list[str]:
    problems: list[str] = []
    stored: set[str] = set()
    async for key, value in _records(base, BODY, BODIES_AT_ONCE):
        document_id = key.removeprefix(BODY)
        if isinstance(value, dict) and value.get("deleted"):
            continue
        stored.add(document_id)
        summary = _summary_of(document_id, value)
        if summary is None:
            problems.append(f"{document_id} is not a document")
        elif document_id not in listed:
            problems.append(f"{document_id} is stored but not listed")
        elif summary != listed[document_id][1] or value.get(ALPHABET) != alphabet_of(value["markdown"]):
            problems.append(f"{document_id} is not what is listed")
    return problems + [f"{document_id} is listed but not stored" for document_id in sorted(set(listed) - stored)]


async def rebuild_index(base: Knowledge) -> int:
    """Make the index anew from the documents, keeping their order; returns how many there are.

    Entries that are not documents are left alone and unlisted. Cursors made before do not work any more.
    """
    async with base.entries.lock() as tx:
        old = await _old_head(tx)
        pages_made = old.pages
        async for key, _ in _records(base, PAGE, RECORDS_AT_ONCE):
            number = key.removeprefix(PAGE)
            pages_made = max(pages_made, int(number) if number.isdecimal() else 0)
            await tx.delete_value(key)
        sequence = old.sequence
        async for key, value in _records(base, LOCATOR, RECORDS_AT_ONCE):
            known = value.get("sequence") if isinstance(value, dict) else None
            known = known if type(known) is int else 0
            sequence = max(sequence, known)
            await tx.set_value(key, index.tombstone(known))
        documents, sequence = await _documents(base, tx, sequence)
        first: str | None = None
        for start in range(0, len(documents), PAGE_SIZE):
            pages_made += 1
            page = Page(index.page_id(pages_made), None, first, documents[start : start + PAGE_SIZE][::-1])
            if start + PAGE_SIZE < len(documents):
                page = page._replace(newer=index.page_id(pages_made + 1))
            await index.write_page(tx, page)
            for summary in page.summaries:
                await tx.set_value(f"{LOCATOR}{summary.id}", {"page": page.id, "sequence": summary.sequence})
            first = page.id
        # A new secret ends the cursors that point to pages of the old index.
        await tx.set_value(HEAD, Head(len(documents), sequence, first, pages_made, "").to_json())
    return len(documents)


async def _documents(base: Knowledge, tx: Transaction, sequence: int) -> tuple[list[DocumentSummary], int]:
    """The stored documents' summaries, oldest first, and the highest sequence. No two have the same one."""
    found: list[DocumentSummary] = []
    async for key, value in _records(base, BODY, BODIES_AT_ONCE):
        summary = _summary_of(key.removeprefix(BODY), value)
        if summary is not None:
            found.append(summary)
            sequence = max(sequence, summary.sequence)
    found.sort(key=lambda summary: (summary.sequence, summary.created_at, summary.id))
    ordered: list[DocumentSummary] = []
    copies: list[DocumentSummary] = []
    for summary in found:
        (copies if ordered and ordered[-1].sequence == summary.sequence else ordered).append(summary)
    for summary in copies:
        sequence += 1
        body = await tx.get_value(f"{BODY}{summary.id}")
        await tx.set_value(f"{BODY}{summary.id}", body | {"sequence": sequence})
        ordered.append(summary._replace(sequence=sequence))
    return ordered, sequence


async def _old_head(tx: Transaction) -> Head:
    try:
        return Head.of(await tx.get_value(HEAD))
    except StorageCorrupt:
        return Head(0, 0, None, 0, "")


def _summary_of(document_id: str, value: Any) -> DocumentSummary | None:
    """The summary that a stored document should have in the index; None for what is not a live document."""
    body = index.live(value, "markdown")
    if body is None:
        return None
    texts = all(isinstance(body.get(name), str) for name in ("title", "markdown", "created_at", "updated_at"))
    numbers = all(type(body.get(name)) is int for name in ("version", "sequence"))
    if not texts or not numbers or body.get("id") != document_id:
        return None
    return DocumentSummary(
        document_id,
        body["title"],
        preview(body["markdown"]),
        len(body["markdown"]),
        body["version"],
        body["sequence"],
        body["created_at"],
        body["updated_at"],
    )


async def _records(base: Knowledge, prefix: str, at_once: int) -> AsyncIterator[tuple[str, Any]]:
    """The committed keys and values below a prefix."""
    after: str | None = None
    while True:
        records = await base.entries.records(prefix, after=after, limit=at_once)
        for record in records:
            yield record.key, decode(record.text)
        if len(records) < at_once:
            return
        after = records[-1].key
