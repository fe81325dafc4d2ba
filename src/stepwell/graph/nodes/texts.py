"""Texts and files that enter a graph."""

import asyncio
import base64
import json
from typing import Annotated, Any

from pydantic import BaseModel, Field

from stepwell.errors import FileRejected, InvalidArgument
from stepwell.graph.artifacts import artifact_of, read_window
from stepwell.graph.contexts import message
from stepwell.graph.node_context import NodeContext
from stepwell.graph.nodes.attachments import BYTES_PER_MB, NO_OCR
from stepwell.graph.nodes.confined import Confined
from stepwell.graph.ports import typed, without_effect
from stepwell.graph.registry import node_type
from stepwell.jsontext import decode_untrusted

MAX_FILES = 100
RunInput = Annotated[str | None, Field(json_schema_extra={"x-run-input": "missing"})]


@node_type("io/input_text", title="Text")
class InputText:
    """A text, or JSON as text. Takes the run's own input where neither is configured."""

    class Inputs(BaseModel):
        text: RunInput = None
        json_text: str | None = None

    class Outputs(BaseModel):
        context: typed("agent_context")  # type: ignore[valid-type]
        json_value: typed("json")  # type: ignore[valid-type]
        length: int
        text: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        text = inputs.text if inputs.text is not None else inputs.json_text or ""
        emitted: dict[str, Any] = {
            "text": text, "length": len(text), "context": {"messages": [message("user", text)]},
        }  # fmt: skip
        if inputs.json_text:
            emitted["json_value"] = decode_untrusted(inputs.json_text, what="json_text")
        return emitted


@node_type("io/read_file", title="Read file", is_tool=True)
class ReadFile:
    """Reads a window of a text file of the project, or of an artifact: by bytes, or by lines."""

    class Inputs(BaseModel):
        artifact: typed("file", dict[str, Any] | str | None) = None  # type: ignore[valid-type]
        file_path: str | None = None
        max_bytes: int = 16_384
        max_lines: int | None = None
        prefix: str | None = None
        start_byte: int | None = None
        start_line: int | None = None
        suffix: str | None = None

    class Outputs(BaseModel):
        bytes_read: int
        content: str
        error: str
        file_path: str
        source_artifact: dict[str, Any]
        total_bytes: int
        truncated: bool

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        if inputs.artifact is not None:
            reference = artifact_of(inputs.artifact)
            content = await ctx.run.files.read(reference)
            source = (await ctx.run.files.record(reference)).to_dict()
        elif inputs.file_path:
            confined = Confined(ctx.run.project.folder)
            content = await asyncio.to_thread(confined.read, inputs.file_path)
            source = {}
        else:
            raise InvalidArgument("io/read_file needs an artifact or a file_path", argument="file_path")
        window = read_window(
            content, start_byte=inputs.start_byte or 0, max_bytes=inputs.max_bytes, start_line=inputs.start_line,
            max_lines=inputs.max_lines,
        )  # fmt: skip
        return {
            "content": f"{inputs.prefix or ''}{window.content}{inputs.suffix or ''}",
            "bytes_read": window.bytes_read, "total_bytes": window.total_bytes, "truncated": window.truncated,
            "file_path": inputs.file_path or "", **({"source_artifact": source} if source else {}),
        }  # fmt: skip


@node_type("io/file_upload", title="Files")
class FileUpload:
    """Files that are already stored, by reference: `[{"reference": "artifact://…"}]`, sorted by kind."""

    class Inputs(BaseModel):
        files_json: str
        allowed_category: str = "auto"
        enable_ocr: Annotated[bool, without_effect(NO_OCR)] = False
        llm_inline_max_bytes: int = 65_536
        max_file_size_mb: int = 50
        parse_documents: bool = False

    class Outputs(BaseModel):
        artifacts: list[Any]
        first_artifact: dict[str, Any]
        image_artifact: dict[str, Any]
        image_filename: str
        audio_artifact: dict[str, Any]
        audio_filename: str
        video_artifact: dict[str, Any]
        document_artifact: dict[str, Any]
        document_filename: str
        document_text: str
        chat_input_raw: str
        file_count: int
        file_paths: list[Any]
        total_size: int
        errors: list[Any]
        llm_text: str
        user_message_rich: dict[str, Any]
        image_base64: str
        audio_base64: str
        document_base64: str
        video_file_path: str
        ocr_status: str
        ocr_text: str
        ocr_results_json: str
        ocr_structured_json: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        listed = decode_untrusted(inputs.files_json, what="files_json")
        if not isinstance(listed, list) or len(listed) > MAX_FILES:
            raise InvalidArgument(f"files_json is not an array of at most {MAX_FILES} files", argument="files_json")
        records, errors, texts = [], [], []
        encoded: dict[str, str] = {}
        for item in listed:
            try:
                record = await ctx.run.files.record(artifact_of(item))
                kind = _kind(record.media_type)
                if record.size > inputs.max_file_size_mb * BYTES_PER_MB:
                    raise FileRejected(f"{record.name} is over {inputs.max_file_size_mb} MB")  # noqa: TRY301
                if inputs.allowed_category not in ("auto", kind):
                    raise FileRejected(f"{record.name} is {kind}, not {inputs.allowed_category}")  # noqa: TRY301
            except (FileRejected, InvalidArgument) as error:
                errors.append(error.message)
                continue
            records.append((kind, record))
            if kind == "video":
                encoded.setdefault("video_file_path", record.name)
            elif record.size <= inputs.llm_inline_max_bytes:
                content = await ctx.run.files.read(record.reference)
                encoded.setdefault(f"{kind}_base64", base64.b64encode(content).decode())
                if kind == "document" and is_text(record.media_type):
                    texts.append(content.decode("utf-8", "replace"))
            if kind == "document" and inputs.parse_documents and not is_text(record.media_type):
                errors.append(f"{record.name}: there is nothing here that takes the text out of {record.media_type}")
        emitted: dict[str, Any] = {
            "artifacts": [record.to_dict() for _, record in records], "file_count": len(records),
            "file_paths": [record.name for _, record in records], "errors": errors, "llm_text": "\n\n".join(texts),
            "total_size": sum(record.size for _, record in records),
            "chat_input_raw": json.dumps({"text": "", "files": [record.reference for _, record in records]}),
            "user_message_rich": {"text": "", "attachments": [record.reference for _, record in records]},
        }  # fmt: skip
        if records:
            emitted["first_artifact"] = records[0][1].to_dict()
        for kind, record in reversed(records):
            emitted[f"{kind}_artifact"] = record.to_dict()
            if kind != "video":
                emitted[f"{kind}_filename"] = record.name
        if texts:
            emitted["document_text"] = texts[0]
        if inputs.enable_ocr:
            emitted["ocr_status"] = "unavailable"
            errors.append(f"enable_ocr: {NO_OCR}")
        emitted |= encoded  # the first of each kind, where it is small
        return emitted


def is_text(media_type: str) -> bool:
    """True for a media type whose files are text as they are."""
    return media_type.startswith("text/") or media_type.endswith(("json", "xml", "yaml", "csv", "toml", "javascript"))


def _kind(media_type: str) -> str:
    main = media_type.partition("/")[0]
    return main if main in ("image", "audio", "video") else "document"
