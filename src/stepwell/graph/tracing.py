"""`tools/get_execution_trace`: what a run did, as compact text, of Python and graph workflows alike."""

import json
from collections import Counter
from typing import Any

from stepwell.errors import InvalidArgument, RunNotFound, StepwellError
from stepwell.graph.answers import Answer, Sources
from stepwell.graph.budget import MAX_ANSWER_BYTES, bounded, preview
from stepwell.graph.executions import ENDED, NodeRecord, RunReader
from stepwell.graph.inspect_executions import load_execution

MODES = ("summary", "tool_calls", "detail")
_ROOM = MAX_ANSWER_BYTES - 1_000
_STATUSES = {
    "completed": "success", "failed": "failure", "skipped": "skipped", "running": "pending", "ready": "pending",
    "waiting": "pending",
}  # fmt: skip


def get_execution_trace(sources: Sources, arguments: dict[str, Any]) -> Answer:
    """The trace of a run.

    Where there is none, `unavailable_reason` is `expired` for a run of this project that was deleted, `forbidden` where
    no runs can be read at all, and `not_available` for everything else. A run of another project is `not_available`
    too: whether it exists is none of the caller's business.

    Args:
        arguments: `trace_key` (`conversation_id:turn`, turns count from 1) or `archive_ref` (a run's id), and `mode`:
            `summary` (counts and tool names), `tool_calls` (each call with its arguments) or `detail` (with results).
    """
    mode = arguments.get("mode") or "summary"
    if mode not in MODES:
        return _refused(f"mode {mode!r:.40} is not one of {', '.join(MODES)}")
    if sources.runs is None:
        return _unavailable("forbidden")
    try:
        run_id = _run_id(sources.runs, arguments)
        if run_id is None:
            return _unavailable("not_available")
        try:
            execution = load_execution(sources, run_id)
        except RunNotFound:
            return _unavailable("expired" if sources.runs.was_deleted(run_id) else "not_available")
    except StepwellError as error:
        return _refused(error.message) | ({"hint": error.hint} if error.hint else {})
    lines = _head(execution.run, execution.nodes)
    calls = [record for record in execution.nodes if record.kind == "tool"]
    if mode == "summary":
        lines += _summary(execution.nodes, calls)
    else:
        shown = calls if mode == "tool_calls" else [r for r in execution.nodes if r.status not in ("waiting", "ready")]
        lines += _within([_call(record, with_result=mode == "detail") for record in shown], len("\n".join(lines)))
        if not shown:
            lines.append("no tool was called" if mode == "tool_calls" else "no node ran")
    return {"content": "\n".join(lines), "found": True}


def _unavailable(reason: str) -> Answer:
    return {"content": "", "found": False, "unavailable_reason": reason}


def _refused(message: str) -> Answer:
    """As a node the tool has no port `error`: there `unavailable_reason` is all that is told."""
    return _unavailable("not_available") | {"error": message}


def _run_id(runs: RunReader, arguments: dict[str, Any]) -> str | None:
    reference, key = arguments.get("archive_ref"), arguments.get("trace_key")
    if bool(reference) == bool(key):
        raise InvalidArgument("give trace_key or archive_ref, one of them", argument="trace_key")
    if reference:
        return str(reference).removeprefix("run:")
    session, colon, turn = str(key).rpartition(":")
    if not colon or not session or not turn.isascii() or not turn.isdecimal():
        raise InvalidArgument(
            f"trace_key {str(key)!r:.80} is not session_id:turn", hint="e.g. 0197…:2; turns count from 1",
            argument="trace_key",
        )  # fmt: skip
    return runs.turn(session, int(turn)) if len(turn) < 19 else None


def _head(run: Any, nodes: list[NodeRecord]) -> list[str]:
    status = "interrupted" if run.interrupted else run.status
    took = f" in {run.duration_ms / 1000:.2f} s" if run.duration_ms is not None else ""
    lines = [f"run {run.run_id} of {preview(run.entrypoint, chars=120)}: {status}{took}"]
    counted = Counter(record.status for record in nodes)
    if counted:
        lines.append("nodes: " + ", ".join(f"{count} {name}" for name, count in sorted(counted.items())))
    if run.tokens:
        lines.append(f"tokens: {run.tokens.get('total', 0)}")
    if run.error is not None:
        where = f" in {run.error['node']}" if run.error.get("node") else ""
        message = preview(str(run.error.get("message", "")).partition("\n")[0], chars=300)
        lines.append(f"error{where}: {run.error.get('type')}: {message}")
    elif run.status not in ENDED:
        lines.append("the run has not ended")
    return lines


def _summary(nodes: list[NodeRecord], calls: list[NodeRecord]) -> list[str]:
    lines = []
    failed = [record for record in nodes if record.status == "failed"]
    for record in failed[:5]:
        error = record.error or {}
        message = preview(str(error.get("message", record.reason or "")).partition("\n")[0], chars=160)
        lines.append(
            f"failed: {record.node_id} {_shown(record.name)}: {error.get('code') or error.get('type')}: {message}"
        )
    if len(failed) > 5:
        lines.append(f"… and {len(failed) - 5} more failed nodes: workflow_inspect get_execution shows them")
    tools = Counter(_shown(record.name) for record in calls)
    wrong = Counter(_shown(record.name) for record in calls if _status(record) in ("failure", "rejected", "cancelled"))
    if tools:
        shown = ", ".join(
            f"{name} ×{count}" + (f" ({wrong[name]} without success)" if wrong[name] else "")
            for name, count in tools.most_common(30)
        )
        lines.append(f"tools: {shown}" + (f" and {len(tools) - 30} more" if len(tools) > 30 else ""))
        lines.append("mode=tool_calls shows each call")
    else:
        lines.append("no tool was called")
    return lines


def _status(record: NodeRecord) -> str:
    return "cancelled" if record.reason == "cancelled" else record.verdict or _STATUSES[record.status]


def _call(record: NodeRecord, *, with_result: bool) -> str:
    took = f" {record.duration_ms:.0f} ms" if record.duration_ms is not None else ""
    line = f"{record.node_id} {_shown(record.name)} {_status(record)}{took}"
    if record.input not in (None, {}):
        line += f" {_json(bounded(record.input, 400 if with_result else 700))}"
    if record.error is not None:
        line += f"\n  ! {preview(str(record.error.get('message', '')), chars=300)}"
    if with_result and record.output is not None:
        line += f"\n  = {_json(bounded(record.output, 700))}"
    return line


def _within(lines: list[str], used: int) -> list[str]:
    """As many lines as the budget allows, and how many were left out."""
    kept: list[str] = []
    for number, line in enumerate(lines):
        used += len(line.encode("utf-8", "replace")) + 1
        if used > _ROOM and number:
            left = len(lines) - number
            return [*kept, f"… {left} more were left out: workflow_inspect get_execution shows single nodes"]
        kept.append(line)
    return kept


def _shown(name: str) -> str:
    return str(preview(name, chars=60)).replace("\n", " ")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
