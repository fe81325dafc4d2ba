"""Checking and rebuilding a Knowledge base's index."""

from typing import Any

from stepwell.knowledge import index
from stepwell.knowledge.documents import Knowledge
from stepwell.knowledge.index import BODY, HEAD, LOCATOR, PAGE
from stepwell.knowledge.preview import preview


async def check_base(base: Knowledge) -> list[str]:
    """Where head, pages, locators and documents disagree, a line each; empty for a sound base."""
    problems: list[str] = []
    head = await base.entries.get_value(HEAD)
    if head is None:
        stray = [entry.key async for entry in base.entries.scan(BODY) if not entry.value.get("deleted")]
        return [f"no index, but documents: {', '.join(stray[:5])}"] if stray else []
    listed: dict[str, dict[str, Any]] = {}
    async for page in base.pages():
        for summary in page["documents"]:
            if summary["id"] in listed:
                problems.append(f"{summary['id']} is listed twice")
            listed[summary["id"]] = summary
            locator = await base.entries.get_value(f"{LOCATOR}{summary['id']}")
            if locator is None or locator.get("deleted") or locator["page"] != page["id"]:
                problems.append(f"{summary['id']}: its locator does not point to page {page['id']}")
    if head["count"] != len(listed):
        problems.append(f"the head counts {head['count']} documents, {len(listed)} are listed")
    stored: set[str] = set()
    async for entry in base.entries.scan(BODY):
        document_id = entry.key.removeprefix(BODY)
        if entry.value.get("deleted"):
            if document_id in listed:
                problems.append(f"{document_id} is listed but deleted")
            continue
        stored.add(document_id)
        if document_id not in listed:
            problems.append(f"{document_id} is stored but not listed")
        elif entry.value["title"] != listed[document_id]["title"]:
            problems.append(f"{document_id} has another title than listed")
    problems += [f"{document_id} is listed but not stored" for document_id in sorted(set(listed) - stored)]
    return problems


async def rebuild_index(base: Knowledge) -> int:
    """Make the index anew from the documents, keeping their order; returns how many there are."""
    bodies: list[dict[str, Any]] = []
    async with base.entries.lock() as tx:
        old = await tx.get_value(HEAD) or {}
        for prefix in (PAGE, LOCATOR):
            for key in [entry.key async for entry in tx.scan(prefix)]:
                await tx.delete_value(key)
        async for entry in tx.scan(BODY):
            if not entry.value.get("deleted"):
                body = entry.value | {"id": entry.key.removeprefix(BODY)}
                body["markdown_preview"], body["size"] = preview(body["markdown"]), len(body.pop("markdown"))
                bodies.append(body)
        bodies.sort(key=lambda body: body["sequence"])
        head = index.new_head() | {key: old[key] for key in ("cursor_secret", "next_page") if key in old}
        await tx.set_value(HEAD, head)
        for body in bodies:
            await index.insert(tx, await tx.get_value(HEAD), body)
        head = await tx.get_value(HEAD)
        await tx.set_value(HEAD, head | {"sequence": max(head["sequence"], old.get("sequence", 0))})
    return len(bodies)
