"""JSON Schemas of the command line's JSON, and of the manifest."""

from typing import Any

_TEXT: dict[str, Any] = {"type": "string"}
_OPTIONAL: dict[str, Any] = {"type": ["string", "null"]}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_TOKENS = {
    "type": ["object", "null"],
    "properties": dict.fromkeys(
        ("input", "output", "reasoning", "cache_read", "cache_write", "total", "calls"), _COUNT
    ),
}


def _object(properties: dict[str, Any], *, optional: tuple[str, ...] = ()) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def _list(item: dict[str, Any]) -> dict[str, Any]:
    return _object({"items": {"type": "array", "items": item}, "next_cursor": _OPTIONAL})


_ENTRY = _object(
    {
        "key": _TEXT, "value": {}, "revision": {"type": "integer", "minimum": 1}, "created_at": _TEXT,
        "updated_at": _TEXT, "source": {"type": "object", "additionalProperties": _TEXT},
    }
)  # fmt: skip
# Errors and events carry further data of their own.
_OPEN: dict[str, Any] = {"additionalProperties": {}}
_ERROR_PART = _OPEN | _object(
    {"type": _TEXT, "message": _TEXT, "code": _TEXT, "node": _OPTIONAL}, optional=("code", "node")
)
_REPORT = _object(
    {
        "run_id": _TEXT, "project_id": _TEXT, "entrypoint": _TEXT, "conversation_id": _OPTIONAL,
        "status": {"enum": ["queued", "running", "waiting_input", "completed", "failed", "cancelled"]},
        "output": {}, "display_input": {}, "error": {"anyOf": [_ERROR_PART, {"type": "null"}]}, "tokens": _TOKENS,
        "nodes": {"type": "object", "additionalProperties": _COUNT}, "created_at": _TEXT, "started_at": _OPTIONAL,
        "ended_at": _OPTIONAL, "duration_ms": {"type": ["number", "null"]}, "interrupted": {"type": "boolean"},
    }
)  # fmt: skip
_EVENT = _OPEN | _object({"run_id": _TEXT, "seq": {"type": "integer", "minimum": 1}, "at": _TEXT, "type": _TEXT})
_LISTED_RUN = _REPORT | {"properties": _REPORT["properties"] | {"label": _TEXT}}
_SUMMARY = _object(
    {
        "id": _TEXT, "title": _TEXT, "markdown_preview": _TEXT, "size": _COUNT, "sequence": _COUNT, "version": _COUNT,
        "created_at": _TEXT, "updated_at": _TEXT,
    }
)  # fmt: skip
_DOCUMENT = _object(
    {"id": _TEXT, "title": _TEXT, "markdown": _TEXT, "version": _COUNT, "created_at": _TEXT, "updated_at": _TEXT}
)
_HIT = _object(
    {
        "document_id": _TEXT, "title": _TEXT, "line": {"type": "integer", "minimum": 1}, "column": _COUNT,
        "text": _TEXT,
        "before": {"type": "array", "items": _TEXT}, "after": {"type": "array", "items": _TEXT},
        "truncated": {"type": "boolean"},
    }
)  # fmt: skip
_LINES = _object(
    {"id": _TEXT, "title": _TEXT, "start": _COUNT, "lines": {"type": "array", "items": _TEXT}, "total": _COUNT}
)
_IMPORTED = _object(
    {"created": _COUNT, "updated": _COUNT, "unchanged": _COUNT, "skipped": {"type": "array", "items": _TEXT}}
)
_CONVERSATION = _object(
    {
        "conversation_id": _TEXT, "project_name": _TEXT, "title": _OPTIONAL, "shown_title": _TEXT,
        "created_at": _TEXT, "updated_at": _TEXT, "message_count": _COUNT, "last_seq": _COUNT,
    }
)  # fmt: skip
_MESSAGE = {"type": "object", "required": ["role", "seq", "created_at"]}
_WHOLE_CONVERSATION = _CONVERSATION | {
    "properties": _CONVERSATION["properties"] | {"messages": {"type": "array", "items": _MESSAGE}}
}
_MONEY = {"type": ["number", "null"]}
_USAGE = _object(
    {
        "project_id": _TEXT, "conversation_id": _OPTIONAL, "tokens": _TOKENS, "cost_usd": _MONEY,
        "unpriced_calls": _COUNT,
    }
)  # fmt: skip
_USED = _object({"name": _TEXT, "tokens": _TOKENS, "cost_usd": _MONEY, "unpriced_calls": _COUNT})
_MODES = ["auto", "manual", "disabled"]
_TOOL = _object(
    {
        "name": _TEXT, "description": _TEXT, "mode": {"enum": _MODES}, "default_mode": {"enum": [*_MODES, None]},
        "approval_timeout": {"type": ["number", "null"]}, "schema": {"type": "object"},
    }
)  # fmt: skip
_TOOL_MODE = _object({"name": _TEXT, "mode": {"enum": [*_MODES, None]}, "set": {"type": "boolean"}})
_APPROVAL = _object(
    {
        "id": _TEXT, "run_id": _TEXT, "node": _TEXT, "tool": _TEXT, "arguments": {"type": "object"},
        "status": {"enum": ["pending", "approved", "denied", "expired", "withdrawn"]}, "created_at": _TEXT,
        "expires_at": _OPTIONAL, "answered_at": _OPTIONAL, "reason": _OPTIONAL,
        "edited_arguments": {"type": ["object", "null"]},
    }
)  # fmt: skip
_FINDING = _object({"level": {"enum": ["ok", "warning", "error"]}, "check": _TEXT, "message": _TEXT, "fix": _OPTIONAL})
_DOCTOR = _object({"ok": {"type": "boolean"}, "findings": {"type": "array", "items": _FINDING}})
_SETTING = _object({"name": _TEXT, "value": _OPTIONAL, "origin": _TEXT})
_FLAGS = _object({"enabled": {"type": "boolean"}, "display": {"type": "boolean"}})
_ENTRYPOINT = _object(
    {
        "id": _TEXT, "title": _TEXT, "workflow": _TEXT, "token_usage": _FLAGS, "input_schema": {"type": "object"},
        "output_schema": {"type": "object"},
    }
)  # fmt: skip
_DESCRIPTION = _object(
    {
        "project_id": _TEXT, "name": _TEXT, "folder": _TEXT, "data_storage": {"enum": ["local", "server", "both"]},
        "scope_model": {"enum": ["project", "workflow"]}, "project_type": {"enum": ["workflow", "conversation"]},
        "default_entrypoint": _TEXT, "entrypoints": {"type": "array", "items": _ENTRYPOINT},
    }
)  # fmt: skip
_RULE = _object(
    {
        "mode": {"enum": ["none", "all", "prefixes"]},
        "prefixes": {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 32},
    },
    optional=("prefixes",),
)
_GRANT = _object(
    {
        "read": _RULE, "write": _RULE, "entrypoints": _RULE,
        "knowledge": _object({"read": _RULE, "write": _RULE}, optional=("read", "write")),
    },
    optional=("read", "write", "entrypoints", "knowledge"),
)  # fmt: skip
_STANDING = _object(
    {
        "alias": _TEXT, "project_id": _TEXT,
        "state": {"enum": ["unchecked", "active", "pending", "wrong", "unpublished", "differs"]},
        "problem": _OPTIONAL, "grants": _GRANT, "their_alias": _OPTIONAL,
        "granted": {"anyOf": [_GRANT, {"type": "null"}]},
    }
)  # fmt: skip
_CHANGED_RELATION = _object(
    {
        "alias": _TEXT, "project_id": _TEXT, "state": {"enum": ["active", "pending", "removed"]},
        "changed": {"type": "array", "items": _TEXT},
    }
)  # fmt: skip
_RELATION = _object(
    {
        "alias": {"type": "string", "pattern": "^[a-z][a-z0-9_-]{0,63}$"},
        "project-id": {"type": "string", "format": "uuid"},
        "grant": _GRANT,
    },
    optional=("grant",),
)  # fmt: skip
_PROVIDER = _object(
    {
        "type": {"enum": ["openai", "openai-chat", "anthropic", "google", "openai-compatible", "test"]},
        "model": _TEXT, "base-url": _TEXT, "api-key-env": _TEXT, "api-key-keyring": _TEXT,
        "timeout": {"type": "number"}, "max-retries": _COUNT, "max-wait": {"type": "number"},
        "output": {"enum": ["tool", "native"]}, "text": _TEXT, "settings": {"type": "object"},
    },
    optional=(
        "type", "model", "base-url", "api-key-env", "api-key-keyring", "timeout", "max-retries", "max-wait", "output",
        "text", "settings",
    ),
)  # fmt: skip
_MANIFEST = _object(
    {
        "project-id": {"type": "string", "format": "uuid"},
        "executor": {"type": "string", "pattern": "^[^:]+:[^:]+$"},
        "name": _TEXT,
        "data-storage": {"enum": ["local", "server", "both"], "default": "local"},
        "scope-model": {"enum": ["project", "workflow"], "default": "project"},
        "settings": {"type": "object"},
        "providers": {"type": "object", "additionalProperties": _PROVIDER},
        "related-projects": {"type": "array", "maxItems": 32, "items": _RELATION},
    },
    optional=("name", "data-storage", "scope-model", "settings", "providers", "related-projects"),
) | {"additionalProperties": False}

_ERROR = _OPEN | _object({"code": _TEXT, "message": _TEXT, "hint": _TEXT}, optional=("hint",))
_ATTACHMENT = _object(
    {
        "reference": _TEXT,
        "name": _TEXT,
        "media_type": _TEXT,
        "size": _COUNT,
        "kind": {"enum": ["images", "files", "videos"]},
    }
)
_WAITING = _object(
    {
        "request_id": _TEXT, "run_id": _TEXT, "message": _TEXT, "attachments": {"type": "array", "items": _ATTACHMENT},
        "parameters": {"type": "object", "additionalProperties": {"type": ["string", "boolean"]}},
        "entrypoint": _OPTIONAL,
    }
)  # fmt: skip
_QUEUE: dict[str, Any] = {"type": "array", "items": _WAITING}
_CHOICE = _object({"text": _TEXT, "takes": _TEXT, "title": _TEXT})
_CHAT_EVENTS: dict[str, dict[str, Any]] = {
    "opened": {"conversation_id": _TEXT},
    "accepted": {
        "request_id": _TEXT, "run_id": _TEXT, "state": {"enum": ["waiting", "taken", "removed"]},
        "repeated": {"type": "boolean"},
    },
    "started": {"request_id": _TEXT, "run_id": _TEXT, "message": _TEXT},
    "asks": {"request_id": _TEXT, "run_id": _TEXT, "tool": _TEXT, "arguments": {"type": "object"}},
    "waiting": {"run_id": _TEXT},
    "held": {"reason": _TEXT, "waiting": _QUEUE},
    "interrupted": {"run_id": _TEXT},
    "ended": {"report": _REPORT},
    "idle": {},
    "error": {"error": _ERROR},
    "attached": {"attachment": _ATTACHMENT},
    "detached": {"attachment": _ATTACHMENT},
    "parameter": {"parameter": _TEXT, "value": {"type": ["string", "boolean"]}},
    "queue": {"held": _OPTIONAL, "waiting": _QUEUE},
    "title": {"title": _OPTIONAL},
    "exported": {"path": _TEXT, "messages": _COUNT, "size": _COUNT},
    "compact": {"state": {"enum": ["running", "completed", "failed"]}, "messages": _COUNT, "upto": _COUNT},
    "help": {"menu": {"type": "array", "items": _CHOICE}},
}  # fmt: skip
_CHAT_EVENT = {
    "anyOf": [
        _object(
            {"type": {"enum": [f"chat.{name}"]}, **data}, optional=("messages", "upto") if name == "compact" else ()
        )
        for name, data in _CHAT_EVENTS.items()
    ]
}

SCHEMAS: dict[str, dict[str, Any]] = {
    "entry": _ENTRY,
    "entries": _list(_ENTRY),
    "report": _REPORT,
    "runs": _list(_LISTED_RUN),
    "event": _EVENT,
    "chat_event": _CHAT_EVENT,
    "document": _DOCUMENT,
    "documents": _list(_SUMMARY),
    "search": _list(_HIT),
    "lines": _LINES,
    "imported": _IMPORTED,
    "conversation": _WHOLE_CONVERSATION,
    "conversations": _list(_CONVERSATION),
    "relations": _list(_STANDING),
    "relation": _CHANGED_RELATION,
    "usage": _USAGE,
    "usage_by": _list(_USED),
    "tools": _list(_TOOL),
    "tool_mode": _TOOL_MODE,
    "approvals": _list(_APPROVAL),
    "approval": _APPROVAL,
    "doctor": _DOCTOR,
    "settings": _list(_SETTING),
    "description": _DESCRIPTION,
    "error": _object({"error": _ERROR}),
    "manifest": _MANIFEST,
}
