"""Events: the one ordered stream that everything about a run is read from.

Types: `run.started|resumed|waiting|completed|failed|cancelled`, `node.started|completed|failed|cancelled|retrying`,
`output.started|chunk|completed|restarted|hidden`, `tool.requested|approved|denied|completed`, `title.changed`,
`conversation.copy`, `token_usage.reported`, `progress`, `log`, `custom.*`.
"""

from typing import Any, NamedTuple

from stepwell.identifiers import iso_time
from stepwell.jsontext import decode
from stepwell.store.journal import EventRow

FINAL = frozenset({"run.completed", "run.failed", "run.cancelled"})


class Event(NamedTuple):
    """One event of a run. `seq` counts from 1 without gaps; `at` is ISO-8601 UTC; `data` depends on the type."""

    run_id: str
    seq: int
    at: str
    type: str
    data: dict[str, Any]

    @classmethod
    def of(cls, run_id: str, row: EventRow) -> "Event":
        """The event of a journal row."""
        return cls(run_id, row.seq, iso_time(row.at), row.type, decode(row.data))

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON, its data beside its own fields."""
        return {"run_id": self.run_id, "seq": self.seq, "at": self.at, "type": self.type, **self.data}
