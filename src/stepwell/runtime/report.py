"""The report that closes a run."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from stepwell.identifiers import iso_time
from stepwell.jsontext import decode
from stepwell.store.journal import RunRow


class Report(NamedTuple):
    """A run's outcome. Times are ISO-8601 UTC, durations milliseconds; `nodes` counts calls by how they ended.

    `status` is queued, running, waiting_input, completed, failed or cancelled; `interrupted` marks a run that is
    recorded as running while its process is gone: it can be resumed.
    """

    run_id: str
    project_id: str
    entrypoint: str
    conversation_id: str | None
    status: str
    output: Any
    display_input: Any
    error: dict[str, Any] | None
    tokens: dict[str, int] | None
    nodes: dict[str, int]
    created_at: str
    started_at: str | None
    ended_at: str | None
    duration_ms: float | None
    interrupted: bool = False

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return self._asdict()


def closing_of(
    *, output: Any = None, display_input: Any = None, error: Any = None, tokens: Any = None,
    nodes: Mapping[str, int],
) -> dict[str, Any]:  # fmt: skip
    """What the journal keeps of a report when a run ends; `nodes` counts node events by type."""
    counts = {name.removeprefix("node."): count for name, count in nodes.items() if name != "node.started"}
    return {"output": output, "display_input": display_input, "error": error, "tokens": tokens, "nodes": counts}


def report_of(row: RunRow, *, interrupted: bool = False) -> Report:
    """The report of a journal row; of a run that has not ended, what is known so far."""
    stored = decode(row.report) if row.report is not None else {}
    return Report(
        run_id=row.id,
        project_id=row.project_id,
        entrypoint=row.entrypoint,
        conversation_id=row.conversation_id,
        status=row.status,
        output=stored.get("output"),
        display_input=stored.get("display_input"),
        error=stored.get("error"),
        tokens=stored.get("tokens"),
        nodes=stored.get("nodes", {}),
        created_at=iso_time(row.created_at),
        started_at=None if row.started_at is None else iso_time(row.started_at),
        ended_at=None if row.ended_at is None else iso_time(row.ended_at),
        duration_ms=None if row.started_at is None or row.ended_at is None else (row.ended_at - row.started_at) / 1000,
        interrupted=interrupted,
    )
