"""Texts for retrieval: cut into chunks, put together into prompts."""

import json
from typing import Annotated, Any

from pydantic import BaseModel

from stepwell.errors import InvalidArgument
from stepwell.graph.artifacts import artifact_of
from stepwell.graph.node_context import NodeContext
from stepwell.graph.ports import typed, without_effect
from stepwell.graph.registry import node_type

INLINE_CHUNKS = 200
INLINE_CHARS = 100_000
_BREAKS = ("\n\n", "\n", "。", ". ", "! ", "? ", "；", "; ", "，", ", ", " ")


@node_type("rag/chunker", title="Chunks")
class Chunker:
    """Cuts a text into parents and, inside them, children, at the best break before each limit."""

    class Inputs(BaseModel):
        content: str = ""
        content_artifact: typed("file", dict[str, Any] | str | None) = None  # type: ignore[valid-type]
        content_artifact_uri: str | None = None
        document_id: str = "document"
        mode: str = "parent_child"
        parent_chunk_chars: int = 2_000
        child_chunk_chars: int = 400
        max_embedding_chars: int = 8_000
        legacy_inline_chunks: bool = False

    class Outputs(BaseModel):
        child_chunks: list[Any]
        child_count: int
        child_preview: list[Any]
        chunks_artifact: typed("file", dict[str, Any])  # type: ignore[valid-type]
        document_id: str
        mode: str
        parent_chunks: list[Any]
        parent_count: int
        parent_preview: list[Any]
        preview_truncated: bool

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        text = inputs.content
        source = inputs.content_artifact or inputs.content_artifact_uri
        if not text and source is not None:
            text = (await ctx.run.files.read(artifact_of(source))).decode("utf-8", "replace")
        if not text:
            raise InvalidArgument("rag/chunker needs content or content_artifact", argument="content")
        parent_size = max(1, inputs.parent_chunk_chars)
        child_size = max(1, min(inputs.child_chunk_chars, inputs.max_embedding_chars))
        parents, children = [], []
        for number, (start, part) in enumerate(chunks(text, parent_size)):
            parent_id = f"{inputs.document_id}#{number}"
            parents.append({"id": parent_id, "text": part, "start": start, "end": start + len(part)})
            if inputs.mode != "parent_only":
                for inner, (offset, piece) in enumerate(chunks(part, child_size)):
                    begin = start + offset
                    children.append({
                        "id": f"{parent_id}.{inner}", "parent_id": parent_id, "text": piece, "start": begin,
                        "end": begin + len(piece),
                    })  # fmt: skip
        emitted: dict[str, Any] = {
            "document_id": inputs.document_id, "mode": inputs.mode, "parent_count": len(parents),
            "child_count": len(children), "parent_preview": parents[:3], "child_preview": children[:3],
        }  # fmt: skip
        small = len(children) <= INLINE_CHUNKS and len(text) <= INLINE_CHARS
        if small or inputs.legacy_inline_chunks:
            return emitted | {"parent_chunks": parents, "child_chunks": children, "preview_truncated": False}
        stored = await ctx.run.files.write(
            "chunks.json", json.dumps({"parents": parents, "children": children}, ensure_ascii=False)
        )
        cut = {"parent_chunks": parents[:INLINE_CHUNKS], "child_chunks": children[:INLINE_CHUNKS]}
        return emitted | cut | {"chunks_artifact": stored.to_dict(), "preview_truncated": True}


def chunks(text: str, size: int) -> list[tuple[int, str]]:
    """The text in pieces of at most `size` characters with their offsets; together they are the text."""
    found = []
    start = 0
    while start < len(text):
        end = min(start + size, len(text))
        if end < len(text):
            for mark in _BREAKS:
                cut = text.rfind(mark, start + size // 3, end)
                if cut >= 0:
                    end = cut + len(mark)
                    break
        found.append((start, text[start:end]))
        start = end
    return found


@node_type("rag/formatter", title="Prompt from documents")
class Formatter:
    """Puts documents and a question into one prompt: `{{documents}}` and `{{query}}` in a template of your own."""

    class Inputs(BaseModel):
        query: str
        documents: list[Any] = []
        documents_artifact: typed("file", dict[str, Any] | str | None) = None  # type: ignore[valid-type]
        documents_artifact_uri: str | None = None
        custom_template: str | None = None
        include_scores: bool = False
        include_sources: bool = True
        max_doc_chars: int = 4_000
        template: Annotated[str, without_effect("custom_template is the template")] = "default"

    class Outputs(BaseModel):
        document_count: int
        prompt: str
        prompt_artifact: typed("file", dict[str, Any])  # type: ignore[valid-type]
        prompt_truncated: bool
        query: str
        total_chars: int

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        documents = inputs.documents
        source = inputs.documents_artifact or inputs.documents_artifact_uri
        if not documents and source is not None:
            documents = json.loads(await ctx.run.files.read(artifact_of(source)))
        cut = False
        blocks = []
        for number, document in enumerate(documents, start=1):
            fields = document if isinstance(document, dict) else {"text": document}
            texts = [fields[key] for key in ("text", "content", "markdown") if isinstance(fields.get(key), str)]
            text = texts[0] if texts else json.dumps(fields, ensure_ascii=False)
            cut = cut or len(text) > inputs.max_doc_chars
            head = f"[{number}]"
            where = fields.get("source") or fields.get("title") or fields.get("id")
            if inputs.include_sources and where:
                head += f" {where}"
            if inputs.include_scores and "score" in fields:
                head += f" (score {fields['score']})"
            blocks.append(f"{head}\n{text[: inputs.max_doc_chars]}")
        template = inputs.custom_template or "Answer from these documents.\n\n{{documents}}\n\nQuestion: {{query}}"
        # In one pass: what a document says of {{query}} is its text, not ours.
        parts = [part.split("{{query}}") for part in template.split("{{documents}}")]
        prompt = "\n\n".join(blocks).join(inputs.query.join(part) for part in parts)
        return {
            "document_count": len(documents), "prompt": prompt, "prompt_truncated": cut, "query": inputs.query,
            "total_chars": len(prompt),
        }  # fmt: skip
