"""The paged index of a Knowledge base, newest document first.

    knowledge.documents                  head: format 2, count, sequence, first page, next page number, cursor secret
    knowledge.documents.page.<pageId>    at most 128 summaries, newest first, and the id of the next older page
    knowledge.documents.locator.<id>     the page that lists a document; a tombstone after its deletion
    knowledge.document.<id>              the document itself; a tombstone after its deletion

A new document goes to the front of the first page; a full first page gets a new one before it; an emptied page is
taken out of the chain. A document keeps its sequence for life, so positions in the list are sequences, and a
listing can go on correctly whatever came or went in between.
"""

import secrets
from typing import Any, Final

from stepwell.storage.transaction import Transaction

PAGE_SIZE: Final = 128
HEAD: Final = "knowledge.documents"
PAGE: Final = "knowledge.documents.page."
LOCATOR: Final = "knowledge.documents.locator."
BODY: Final = "knowledge.document."
FORMAT: Final = 2

Summary = dict[str, Any]
Page = dict[str, Any]


def new_head() -> dict[str, Any]:
    """The head of an empty base."""
    return {
        "version": FORMAT,
        "count": 0,
        "sequence": 0,
        "first_page": None,
        "next_page": 1,
        "cursor_secret": secrets.token_hex(16),
    }


async def insert(tx: Transaction, head: dict[str, Any], summary: Summary) -> None:
    """Put a new document's summary in front, with its locator, and store the head."""
    first = head["first_page"]
    page: Page | None = await tx.get_value(f"{PAGE}{first}") if first is not None else None
    if page is None or len(page["documents"]) >= PAGE_SIZE:
        page = {"id": str(head["next_page"]), "older": first, "newer": None, "documents": []}
        if first is not None:
            older = await tx.get_value(f"{PAGE}{first}")
            await tx.set_value(f"{PAGE}{first}", older | {"newer": page["id"]})
        head = head | {"first_page": page["id"], "next_page": head["next_page"] + 1}
    page["documents"].insert(0, summary)
    await tx.set_value(f"{PAGE}{page['id']}", page)
    await tx.set_value(f"{LOCATOR}{summary['id']}", {"page": page["id"], "sequence": summary["sequence"]})
    await tx.set_value(HEAD, head | {"count": head["count"] + 1, "sequence": summary["sequence"]})


async def replace(tx: Transaction, locator: dict[str, Any], summary: Summary) -> None:
    """Put a changed summary in its place."""
    key = f"{PAGE}{locator['page']}"
    page: Page = await tx.get_value(key)
    page["documents"] = [summary if known["id"] == summary["id"] else known for known in page["documents"]]
    await tx.set_value(key, page)


async def remove(tx: Transaction, document_id: str, locator: dict[str, Any]) -> None:
    """Take a document out of the index and bury its locator; an emptied page leaves the chain."""
    head = await tx.get_value(HEAD)
    key = f"{PAGE}{locator['page']}"
    page: Page = await tx.get_value(key)
    page["documents"] = [known for known in page["documents"] if known["id"] != document_id]
    if page["documents"]:
        await tx.set_value(key, page)
    else:
        await tx.delete_value(key)
        for side, other in (("newer", "older"), ("older", "newer")):
            if page[side] is not None:
                neighbour = await tx.get_value(f"{PAGE}{page[side]}")
                await tx.set_value(f"{PAGE}{page[side]}", neighbour | {other: page[other]})
        if head["first_page"] == page["id"]:
            head = head | {"first_page": page["older"]}
    await tx.set_value(f"{LOCATOR}{document_id}", {"deleted": True, "sequence": locator["sequence"]})
    await tx.set_value(HEAD, head | {"count": head["count"] - 1})
