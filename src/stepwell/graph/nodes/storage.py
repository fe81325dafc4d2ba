"""The project's storage as nodes."""

from typing import Any, Literal

from pydantic import BaseModel

from stepwell.errors import DocumentNotFound, InvalidArgument
from stepwell.graph.node_context import NodeContext
from stepwell.graph.ports import Anything, Json
from stepwell.graph.registry import node_type
from stepwell.storage.entry import MISSING
from stepwell.storage.kv import KeyValue

MAX_LISTED = 1_000


@node_type("storage/kv", title="Key-value storage", is_tool=True, kind="tool")
class KeyValueNode:
    """Reads and writes entries of the project (or of the conversation): get, set, delete, list, increment."""

    class Inputs(BaseModel):
        action: Literal["get", "set", "delete", "list", "increment"] = "get"
        key: str | None = None
        value: Anything = None
        default: Anything = None
        scope: Literal["project", "conversation"] = "project"
        prefix: str = ""
        limit: int = 100

    class Outputs(BaseModel):
        value: Json
        found: bool
        revision: int
        items: list[Any]
        count: int

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        host = ctx.run.storage.host
        kv: KeyValue = host.kv.conversation if inputs.scope == "conversation" else host.kv
        if inputs.action == "list":
            limit = max(1, min(inputs.limit, MAX_LISTED))
            items: list[dict[str, Any]] = []
            async for entry in kv.scan(inputs.prefix):
                if len(items) == limit:
                    break
                items.append({"key": entry.key, "value": entry.value})
            return {"items": items, "count": len(items), "found": bool(items)}
        if not inputs.key:
            raise InvalidArgument(f"storage/kv needs a key to {inputs.action}", argument="key")
        if inputs.action == "set":
            entry = await kv.set_value(inputs.key, inputs.value)
            return {"value": inputs.value, "found": True, "revision": entry.revision}
        if inputs.action == "delete":
            return {"value": None, "found": await kv.delete_value(inputs.key)}
        if inputs.action == "increment":
            step = inputs.value if isinstance(inputs.value, (int, float)) else 1
            return {"value": await kv.update_value(inputs.key, lambda known: known + step, default=0), "found": True}
        value = await kv.get_value(inputs.key, MISSING)
        found = value is not MISSING
        return {"value": value if found else inputs.default, "found": found}


@node_type("storage/knowledge", title="Knowledge", is_tool=True, kind="tool")
class KnowledgeNode:
    """The project's Knowledge documents: search, get, lines, list, create, edit, delete."""

    class Inputs(BaseModel):
        action: Literal["search", "get", "lines", "list", "create", "edit", "delete"] = "search"
        query: str | None = None
        document_id: str | None = None
        title: str | None = None
        markdown: str | None = None
        start_line: int = 1
        end_line: int = 50
        limit: int = 20
        cursor: str | None = None

    class Outputs(BaseModel):
        result: Json
        items: list[Any]
        count: int
        found: bool
        next_cursor: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        base = ctx.run.knowledge
        if inputs.action == "search":
            page = await base.search_documents(
                _needed(inputs, "query"), document_id=inputs.document_id, page_size=max(1, min(inputs.limit, 200)),
                cursor=inputs.cursor,
            )  # fmt: skip
            return _page([hit.to_dict() for hit in page.hits], page.next_cursor)
        if inputs.action == "list":
            listed = await base.list_document_page(inputs.cursor, limit=max(1, min(inputs.limit, 128)))
            return _page([document.to_dict() for document in listed.documents], listed.next_cursor)
        if inputs.action == "create":
            title, markdown = _needed(inputs, "title"), _needed(inputs, "markdown")
            return _one((await base.create_document(title, markdown, inputs.document_id)).to_dict())
        document_id = _needed(inputs, "document_id")
        try:
            if inputs.action == "get":
                return _one((await base.get_document(document_id)).to_dict())
            if inputs.action == "lines":
                return _one((await base.read_document_lines(document_id, inputs.start_line, inputs.end_line)).to_dict())
            if inputs.action == "edit":
                edited = await base.edit_document(document_id, title=inputs.title, markdown=inputs.markdown)
                return _one(edited.to_dict())
        except DocumentNotFound:
            return {"found": False, "result": None}
        return {"found": await base.delete_document(document_id), "result": None}


def _needed(inputs: Any, name: str) -> str:
    value = getattr(inputs, name)
    if not isinstance(value, str) or not value:
        raise InvalidArgument(f"storage/knowledge needs {name} to {inputs.action}", argument=name)
    return value


def _page(items: list[dict[str, Any]], cursor: str | None) -> dict[str, Any]:
    made: dict[str, Any] = {"items": items, "count": len(items), "found": bool(items), "result": items}
    return made | ({"next_cursor": cursor} if cursor is not None else {})


def _one(result: dict[str, Any]) -> dict[str, Any]:
    return {"result": result, "found": True}
