"""File operations below one folder. What changes or destroys is off until the workflow switches it on."""

import asyncio
import difflib
import hashlib
import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel

from stepwell.errors import InvalidJson, NodeRefused, StepwellError, ToolDenied
from stepwell.graph.node_context import NodeContext
from stepwell.graph.nodes.confined import Confined
from stepwell.graph.ports import WORKFLOW_ONLY
from stepwell.graph.registry import node_type
from stepwell.graph.similar import closest
from stepwell.jsontext import decode_untrusted

MAX_TEXT_BYTES = 4 * 1024 * 1024
MAX_SHOWN_CHARS = 64 * 1024
MAX_FOUND = 500
MAX_BATCH = 50
BACKUPS = ".stepwell-backups"

Switch = Annotated[bool, WORKFLOW_ONLY]

READING = ("list_directory", "file_tree", "read_content", "read_info", "search", "diff", "validate")
_TAKES = {
    "list_directory": ("limit",), "file_tree": ("limit",), "search": ("pattern", "limit"),
    "diff": ("destination", "content"), "write": ("content",), "edit": ("old", "new", "all"), "patch": ("edits",),
    "copy": ("destination",), "move": ("destination",), "batch": ("operations",),
}  # fmt: skip
_TAKEN_BY_ALL = ("allow_sensitive", "allow_ignored")
CHANGING = ("write", "edit", "patch", "copy", "move", "delete", "backup", "rollback", "batch")


@node_type("tools/file_ops_hub", title="Files", is_tool=True, kind="tool")
class FileOpsHub:
    """Works with the files below sandbox_root (the project's folder without one): one operation a call.

    Operations: list_directory, file_tree, read_content, read_info, search, diff, validate; and, where the workflow
    allows them, write, edit, patch, copy, move, delete, backup, rollback, batch; each waits for a person unless
    require_approval is off. Their arguments stand in config:
    content, old, new, destination, pattern, limit, operations.
    """

    class Inputs(BaseModel):
        operation: str = "list_directory"
        path: str = "."
        config: dict[str, Any] = {}
        sandbox_root: Annotated[str | None, WORKFLOW_ONLY] = None
        require_approval: Annotated[Switch, WORKFLOW_ONLY] = True
        allow_list_directory: Switch = True
        allow_file_tree: Switch = True
        allow_read_content: Switch = True
        allow_read_info: Switch = True
        allow_search: Switch = True
        allow_diff: Switch = True
        allow_validate: Switch = True
        allow_write: Switch = False
        allow_edit: Switch = False
        allow_patch: Switch = False
        allow_copy: Switch = False
        allow_move: Switch = False
        allow_delete: Switch = False
        allow_backup: Switch = False
        allow_rollback: Switch = False
        allow_batch: Switch = False

    class Outputs(BaseModel):
        correct_call: dict[str, Any]
        disabled_operations: list[Any]
        enabled_operations: list[Any]
        error: str
        error_field: str
        error_kind: str
        mutation_receipt: dict[str, Any]
        mutation_receipts: list[Any]
        mutation_summary: str
        operation: str
        result: Any
        retry_disposition: str
        suggested_action: str
        summary: str
        terminal: bool
        workspace_delta: dict[str, Any]

    @staticmethod
    def idle_inputs(config: dict[str, Any], wired: frozenset[str]) -> dict[str, str]:
        """What of config changes nothing."""
        own = config.get("config")
        if not isinstance(own, dict) or own.get("allow_ignored") is not False:
            return {}
        return {"config": "allow_ignored hides nothing here: files that git ignores are files like the others"}

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        enabled = [name for name in (*READING, *CHANGING) if getattr(inputs, f"allow_{name}")]
        disabled = [name for name in (*READING, *CHANGING) if name not in enabled]
        emitted: dict[str, Any] = {
            "operation": inputs.operation, "enabled_operations": enabled, "disabled_operations": disabled,
            "terminal": False,
        }  # fmt: skip
        try:
            root = _root(ctx.run.project.folder, inputs.sandbox_root)
            files = Confined(root, allow_sensitive=_allows_sensitive(ctx))
            work = _Files(files, enabled)
            if inputs.require_approval and inputs.operation in CHANGING and inputs.operation in enabled:
                await _approved(inputs, ctx)
            result = await asyncio.to_thread(work.perform, inputs.operation, inputs.path, inputs.config)
        except StepwellError as error:
            known = inputs.operation in (*READING, *CHANGING)
            return emitted | {
                "error": error.message, "error_kind": error.code, "terminal": True,
                "error_field": "path" if known else "operation",
                "retry_disposition": "do_not_retry" if inputs.operation in disabled else "correct_and_retry",
                "suggested_action": error.hint or f"use one of: {', '.join(enabled)}",
                "summary": f"{inputs.operation} was refused",
            }  # fmt: skip
        emitted |= {"result": result, "summary": f"{inputs.operation} {inputs.path}", "error": ""}
        takes = (*_TAKES.get(inputs.operation, ()), *_TAKEN_BY_ALL)
        unknown = [name for name, value in inputs.config.items() if value is not None and name not in takes]
        if unknown:
            told = ", ".join(takes[: -len(_TAKEN_BY_ALL)]) or "nothing"
            emitted["suggested_action"] = (
                f"{', '.join(unknown)[:200]} in config changed nothing: {inputs.operation} takes {told}"
            )  # fmt: skip
        if work.receipts:
            emitted["mutation_receipt"] = work.receipts[-1]
            emitted["mutation_receipts"] = work.receipts
            emitted["mutation_summary"] = f"{len(work.receipts)} changes"
            emitted["workspace_delta"] = {"changed": [receipt["path"] for receipt in work.receipts]}
        return emitted


async def _approved(inputs: Any, ctx: NodeContext) -> None:
    """Have a person agree to a change.

    Raises:
        ToolDenied: nothing was changed.
    """
    asked = {"operation": inputs.operation, "path": inputs.path, "config": inputs.config}
    decision = await ctx.run.tools.approval("file_ops_hub", asked)
    if not decision.approved:
        raise ToolDenied(
            f"{inputs.operation} of {inputs.path!r:.200} was denied: {decision.reason or 'no reason was given'}",
            hint="do something else, or ask the person",
        )


def _allows_sensitive(ctx: NodeContext) -> bool:
    """As the workflow's file says; never as an agent or another node asks."""
    own = ctx.node.config.get("config")
    return isinstance(own, dict) and own.get("allow_sensitive") is True


def _root(project: Path, wanted: str | None) -> Path:
    """The folder that everything happens in: inside the project, whatever is asked for."""
    if not wanted or wanted in (".", "./"):
        return project
    base = project.resolve()
    root = (base / wanted).resolve()
    if not root.is_relative_to(base):
        raise NodeRefused(
            f"sandbox_root {wanted!r:.200} is not inside the project", hint="give a folder of the project"
        )
    root.mkdir(parents=True, exist_ok=True)
    return root


class _Files:
    """The operations, on one confined folder."""

    def __init__(self, files: Confined, enabled: list[str]) -> None:
        self._files = files
        self._enabled = enabled
        self.receipts: list[dict[str, Any]] = []

    def perform(self, operation: str, path: str, given: dict[str, Any]) -> Any:
        if operation not in (*READING, *CHANGING):
            close = closest(operation, (*READING, *CHANGING), limit=1)
            raise NodeRefused(
                f"there is no operation {operation!r:.60}",
                hint=f"did you mean {close[0]}?" if close else f"there are: {', '.join(self._enabled)}",
            )
        if operation not in self._enabled:
            raise NodeRefused(
                f"{operation} is switched off", hint=f"the workflow has to set allow_{operation}; on are: "
                f"{', '.join(self._enabled)}",
            )  # fmt: skip
        return getattr(self, f"_{operation}")(path, given)

    def _list_directory(self, path: str, given: dict[str, Any]) -> Any:
        return [item._asdict() for item in self._files.entries(path)[: _limit(given)]]

    def _file_tree(self, path: str, given: dict[str, Any]) -> Any:
        limit = _limit(given)
        items = list(self._files.walk(path, limit=limit + 1))
        return {"items": [f"{i.path}/" if i.kind == "folder" else i.path for i in items[:limit]],
                "truncated": len(items) > limit}  # fmt: skip

    def _read_content(self, path: str, given: dict[str, Any]) -> Any:
        text = self._text(path)
        return {"content": text[:MAX_SHOWN_CHARS], "truncated": len(text) > MAX_SHOWN_CHARS, "characters": len(text)}

    def _read_info(self, path: str, given: dict[str, Any]) -> Any:
        item = self._files.info(path)
        digest = hashlib.sha256(self._files.read(path)).hexdigest() if item.kind == "file" else None
        return {**item._asdict(), "sha256": digest}

    def _search(self, path: str, given: dict[str, Any]) -> Any:
        wanted = _text_of(given, "pattern")
        limit, found = _limit(given), []
        for item in self._files.walk(path):
            if item.kind != "file" or item.size > MAX_TEXT_BYTES:
                continue
            try:
                raw = self._files.read(item.path)
            except NodeRefused:  # gone by now, or not readable: the others still are
                continue
            if wanted.encode() not in raw:
                continue
            for number, line in enumerate(raw.decode("utf-8", "replace").split("\n"), start=1):
                if wanted in line:
                    found.append({"path": item.path, "line": number, "text": line[:300]})
                    if len(found) >= limit:
                        return {"hits": found, "truncated": True}
        return {"hits": found, "truncated": False}

    def _diff(self, path: str, given: dict[str, Any]) -> Any:
        other = self._text(_text_of(given, "destination")) if "destination" in given else _text_of(given, "content")
        lines = difflib.unified_diff(self._text(path).splitlines(), other.splitlines(), path, "other", lineterm="")
        return "\n".join(lines)[:MAX_SHOWN_CHARS]

    def _validate(self, path: str, given: dict[str, Any]) -> Any:
        text = self._text(path)
        try:
            if path.endswith(".json"):
                decode_untrusted(text, what=path)
            elif path.endswith(".toml"):
                tomllib.loads(text)
            elif path.endswith(".py"):
                compile(text, path, "exec", dont_inherit=True)
        except (InvalidJson, tomllib.TOMLDecodeError, SyntaxError, ValueError) as error:
            return {"valid": False, "problem": str(error)[:500]}
        return {"valid": True}

    def _write(self, path: str, given: dict[str, Any]) -> Any:
        return self._put("write", path, _text_of(given, "content"))

    def _edit(self, path: str, given: dict[str, Any]) -> Any:
        text, old, new = self._text(path), _text_of(given, "old"), _text_of(given, "new", empty=True)
        count = text.count(old)
        if count != 1 and given.get("all") is not True:
            raise NodeRefused(f"the old text is there {count} times", hint="give more of it, or set all")
        return self._put("edit", path, text.replace(old, new))

    def _patch(self, path: str, given: dict[str, Any]) -> Any:
        edits = given.get("edits")
        if not isinstance(edits, list) or not edits:
            raise NodeRefused("patch needs edits: [{old, new}, …]")
        text = self._text(path)
        for edit in edits:
            old, new = _text_of(edit, "old"), _text_of(edit, "new", empty=True)
            if text.count(old) != 1:
                raise NodeRefused(f"{old!r:.80} is there {text.count(old)} times; nothing was changed")
            text = text.replace(old, new)
        return self._put("patch", path, text)

    def _copy(self, path: str, given: dict[str, Any]) -> Any:
        target = _text_of(given, "destination")
        self._files.write(target, self._files.read(path))
        return self._receipt("copy", target)

    def _move(self, path: str, given: dict[str, Any]) -> Any:
        target = _text_of(given, "destination")
        self._files.move(path, target)
        return self._receipt("move", target)

    def _delete(self, path: str, given: dict[str, Any]) -> Any:
        self._files.delete(path)
        return self._receipt("delete", path)

    def _backup(self, path: str, given: dict[str, Any]) -> Any:
        target = f"{BACKUPS}/{'/'.join(self._files.parts(path))}"
        self._files.write(target, self._files.read(path))
        return self._receipt("backup", target)

    def _rollback(self, path: str, given: dict[str, Any]) -> Any:
        self._files.write(path, self._files.read(f"{BACKUPS}/{'/'.join(self._files.parts(path))}"))
        return self._receipt("rollback", path)

    def _batch(self, path: str, given: dict[str, Any]) -> Any:
        operations = given.get("operations")
        if not isinstance(operations, list) or not 1 <= len(operations) <= MAX_BATCH:
            raise NodeRefused(f"batch needs operations: 1 to {MAX_BATCH} of {{operation, path, config}}")
        results = []
        for step in operations:
            fields = step if isinstance(step, dict) else {}
            operation = str(fields.get("operation", ""))
            if operation == "batch":
                raise NodeRefused("a batch holds no batch")
            inner = fields.get("config")
            results.append(
                self.perform(operation, str(fields.get("path", ".")), inner if isinstance(inner, dict) else fields)
            )
        return results

    def _text(self, path: str) -> str:
        raw = self._files.read(path, max_bytes=MAX_TEXT_BYTES)
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise NodeRefused(f"{path!r:.200} is no UTF-8 text ({len(raw):,} bytes)") from None

    def _put(self, what: str, path: str, text: str) -> Any:
        self._files.write(path, text.encode("utf-8", "surrogatepass"))
        return self._receipt(what, path)

    def _receipt(self, what: str, path: str) -> dict[str, Any]:
        receipt: dict[str, Any] = {"operation": what, "path": path}
        if what != "delete" and (item := self._files.info(path)).kind == "file":
            digest = hashlib.sha256(self._files.read(path)).hexdigest()
            receipt |= {"size": item.size, "sha256": digest}
        self.receipts.append(receipt)
        return receipt


def _text_of(given: dict[str, Any], name: str, *, empty: bool = False) -> str:
    value = given.get(name)
    if isinstance(value, (dict, list)):
        value = json.dumps(value, ensure_ascii=False, indent=2)
    if not isinstance(value, str) or not (value or empty or name == "content"):
        raise NodeRefused(f"{name} is needed in config: a text")
    return value


def _limit(given: dict[str, Any]) -> int:
    value = given.get("limit", MAX_FOUND)
    return max(1, min(value, MAX_FOUND)) if isinstance(value, int) else MAX_FOUND
