"""Questions about executions: what ran, how it went, which node failed and why."""

from typing import Any

from stepwell.errors import FileMissing, InvalidArgument
from stepwell.graph.answers import MAX_LIMIT, Answer, Sources, needed, window
from stepwell.graph.budget import MAX_ANSWER_BYTES, bounded, fit_list, preview, size_of
from stepwell.graph.executions import Execution, RunReader, execution_of
from stepwell.store.journal import RunFilter


def _runs(sources: Sources) -> RunReader:
    if sources.runs is None:
        raise InvalidArgument("no runs can be read here")
    return sources.runs


def load_execution(sources: Sources, run_id: str) -> Execution:
    """An execution by run id.

    Raises:
        RunNotFound: no such run is stored here.
    """
    runs = _runs(sources)

    def missing(reference: str) -> bytes:
        raise FileMissing(reference)

    return execution_of(runs.get(run_id), runs.all_events(run_id), sources.read_file or missing)


def get_execution(sources: Sources, arguments: dict[str, Any]) -> Answer:
    execution = load_execution(sources, needed(arguments, "execution_id"))
    run = execution.run
    data: dict[str, Any] = {
        "execution_id": run.run_id, "workflow_id": execution.workflow_id, "workflow_key": execution.workflow_key,
        "status": "interrupted" if run.interrupted else run.status, "started_at": run.started_at,
        "ended_at": run.ended_at, "duration_ms": run.duration_ms, "node_counts": execution.counts,
    }  # fmt: skip
    if run.error is not None:
        data["error"] = preview(run.error, chars=400, items=5, depth=3)
    part, status = arguments.get("execution_node_filter"), arguments.get("node_status_filter")
    if part is None and status is None:
        failed = [record for record in execution.nodes if record.status == "failed"]
        if failed:
            data["failed_nodes"] = [_failed(record) for record in failed[:10]]
        outputs = [r for r in execution.nodes if r.status == "completed" and "/" not in r.node_id]
        room = MAX_ANSWER_BYTES - 2_000 - size_of(data)
        each = max(120, min(1_500, room // max(1, len(outputs))))
        shown = fit_list([{"node_id": r.node_id, "name": preview(r.name, chars=80), "output": bounded(r.output, each)}
                          for r in outputs[:MAX_LIMIT]], room=room) if outputs else []  # fmt: skip
        data["node_outputs"] = shown
        made: Answer = {"status": "ok", "data": data}
        if len(shown) < len(outputs):
            made["hint"] = (
                f"{len(outputs) - len(shown)} more outputs: name nodes with execution_node_filter, or a status with "
                "node_status_filter"
            )
        return made
    matched = [
        record
        for record in execution.nodes
        if (part is None or part in record.node_id) and (status is None or record.status == status)
    ]
    limit, offset = window(arguments)
    records = [
        preview(record.to_dict(), chars=300, items=10) | {"output": bounded(record.output, 800)}
        for record in matched[offset : offset + limit]
    ]
    data["nodes"] = kept = fit_list(records, room=MAX_ANSWER_BYTES - 2_000 - size_of(data)) if records else []
    made = {"status": "ok", "data": data, "count": len(kept), "total": len(matched), "matched_count": len(matched)}
    data["matched_count"] = len(matched)
    made["truncated"] = offset + len(kept) < len(matched)
    if made["truncated"]:
        made["next_offset"] = offset + len(kept)
    return made


def _failed(record: Any) -> dict[str, Any]:
    error = record.error or {"type": record.reason or "failed", "message": ""}
    message = str(error.get("message", "")).partition("\n")[0]
    return {
        "node_id": record.node_id, "name": preview(record.name, chars=80), "code": error.get("code") or error["type"],
        "message": preview(message, chars=300), "attempts": record.attempts,
    }  # fmt: skip


def list_executions(sources: Sources, arguments: dict[str, Any]) -> Answer:
    reference = needed(arguments, "workflow_id")
    stored = sources.folder.find(reference) or sources.folder.get(reference)  # also of a file that cannot be read now
    runs = _runs(sources)
    which = RunFilter(entrypoint=f"workflow:{stored.key}")
    limit, offset = window(arguments)
    found: list[Any] = []
    cursor = None
    while len(found) < offset + limit:
        page, cursor = runs.list(which, limit=MAX_LIMIT, cursor=cursor)
        found += [report for report, _ in page]
        if cursor is None:
            break
    total = runs.count(which)
    rows = fit_list([_listed_run(report) for report in found[offset : offset + limit]])
    made: Answer = {"status": "ok", "data": rows, "count": len(rows), "total": total}
    made["truncated"] = offset + len(rows) < total
    return made | ({"next_offset": offset + len(rows)} if made["truncated"] else {})


def _listed_run(report: Any) -> dict[str, Any]:
    made = {
        "execution_id": report.run_id, "status": "interrupted" if report.interrupted else report.status,
        "started_at": report.started_at, "ended_at": report.ended_at, "duration_ms": report.duration_ms,
        "node_counts": dict(report.nodes),
    }  # fmt: skip
    if report.error is not None:
        made["error"] = preview(str(report.error.get("message", "")), chars=200)
    return made
