"""Where a conversation enters and leaves a graph."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from stepwell.conversation.state import NoConversation
from stepwell.graph.contexts import last_text, message, messages_of, text_of, with_messages
from stepwell.graph.node_context import NodeContext
from stepwell.graph.nodes.attachments import NO_OCR, attachments_of
from stepwell.graph.nodes.talking import unshown
from stepwell.graph.ports import AgentContextOrNone, typed, without_effect
from stepwell.graph.registry import node_type
from stepwell.jsontext import decode_untrusted

HISTORY_MESSAGES = 40
_WINDOW = "whatever shows the conversation decides how it looks"
RunInput = Annotated[str, Field(json_schema_extra={"x-run-input": "always"})]


@node_type("chat/input", title="Chat input")
class ChatInput:
    """What the user said: a text, or JSON `{text, images, files, videos}`. The run's own input comes in here."""

    class Inputs(BaseModel):
        raw_input: RunInput
        context: AgentContextOrNone = None
        conversation_id: str | None = None
        document_id: str | None = None
        enable_ocr: Annotated[bool, without_effect(NO_OCR)] = False
        max_file_size_mb: int = 50
        merge_strategy: Annotated[str, without_effect("each file is an attachment of its own")] = "per_file"
        model_override: str | None = None
        stream_mode: Annotated[bool, without_effect("stream of ai/llm_config decides")] = False
        user_message_rich: dict[str, Any] | None = None
        workspace_id: str | None = None

    class Outputs(BaseModel):
        attachments_json: str
        context: typed("agent_context")  # type: ignore[valid-type]
        conversation_id: str
        document_id: str
        model_override: str
        stats: dict[str, Any]
        ui_event: dict[str, Any]
        user_message: str
        user_message_rich: dict[str, Any]
        workspace_id: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        said = _said(inputs.raw_input)
        attachments = [
            {"kind": kind, "reference": reference}
            for kind in ("images", "files", "videos")
            for reference in said.get(kind) or ()
            if isinstance(said[kind], list)
        ]
        rich = inputs.user_message_rich or {"text": said["text"], "attachments": attachments}
        attached, problems = await attachments_of(
            ctx, [part["reference"] for part in attachments], inputs.max_file_size_mb
        )
        for problem in problems:
            ctx.run.log(f"not attached: {problem}", level="warning")
        if inputs.enable_ocr:
            ctx.run.log(f"no text is read from pictures: {NO_OCR}", level="warning")
        own = message("user", said["text"]) | ({"attachments": attached} if attached else {})
        conversation, history = ctx.run.conversation, []
        if not isinstance(conversation, NoConversation):
            history = [
                {name: known[name] for name in ("role", "content", "attachments") if name in known}
                for known in await conversation.messages(HISTORY_MESSAGES)
            ]
            await conversation.append_message(own | {"id": f"{ctx.run.run_id}/{ctx.node.id}"})
        context = with_messages(inputs.context, *history, own)
        stats = {"characters": len(said["text"]), "attachments": len(attachments), "history": len(history)}
        return {
            "attachments_json": json.dumps(attachments, ensure_ascii=False), "context": context,
            "conversation_id": inputs.conversation_id or ctx.run.conversation_id or "",
            "document_id": inputs.document_id or "", "model_override": inputs.model_override or "",
            "stats": stats | {"problems": problems} | ({"ocr_status": "unavailable"} if inputs.enable_ocr else {}),
            "ui_event": {"type": "user_message", "text": said["text"]}, "user_message": said["text"],
            "user_message_rich": rich, "workspace_id": inputs.workspace_id or "",
        }  # fmt: skip


def _said(raw: str) -> dict[str, Any]:
    """The message in a raw input: JSON with a text of its own, or the text itself."""
    if raw.lstrip().startswith("{"):
        try:
            read = decode_untrusted(raw)
        except Exception:  # noqa: BLE001  (braces do not make JSON: then it is what the user wrote)
            read = None
        if isinstance(read, dict) and isinstance(read.get("text"), str):
            return read
    return {"text": raw}


@node_type("chat/output", title="Chat output", kind="output")
class ChatOutput:
    """What the user is shown: a text, or the last reply of an agent context."""

    class Inputs(BaseModel):
        context: typed("agent_context", dict[str, Any])  # type: ignore[valid-type]
        artifacts: list[Any] | None = None
        autoscroll: Annotated[bool, without_effect(_WINDOW)] = True
        display_format: str = "standard"
        keep_messages: Annotated[int, without_effect(_WINDOW)] = 1_000
        show_timestamp: Annotated[bool, without_effect(_WINDOW)] = True
        theme: Annotated[Literal["light", "dark", "system"], without_effect(_WINDOW)] = "system"
        trace: str | None = None
        virtualize_threshold: int = 100

    class Outputs(BaseModel):
        message_count: int
        reply: str
        stats: dict[str, Any]
        trace: str
        ui_events: list[Any]
        virtualized: bool

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        messages = messages_of(inputs.context)
        # A text that came over the edge is the context's only message, whoever it is from.
        reply = text_of(messages[0].get("content")) if len(messages) == 1 else last_text(inputs.context, "assistant")
        rest = unshown(ctx, reply)
        if rest or not reply:
            async with ctx.run.output("reply") as output:
                await output.write(rest)
        conversation = ctx.run.conversation
        if not isinstance(conversation, NoConversation) and reply:
            await conversation.append_message(
                {"role": "assistant", "content": reply, "id": f"{ctx.run.run_id}/{ctx.node.id}"}
            )
        return {
            "message_count": len(messages), "reply": reply, "trace": inputs.trace or "",
            "stats": {"characters": len(reply), "artifacts": len(inputs.artifacts or [])},
            "ui_events": [{"type": "assistant_message", "text": reply, "format": inputs.display_format}],
            "virtualized": len(messages) > inputs.virtualize_threshold,
        }  # fmt: skip
