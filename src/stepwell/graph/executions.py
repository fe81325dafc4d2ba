"""What a run did, node by node, read from its events: the truth at each moment."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from stepwell.graph.format import read_definition
from stepwell.jsontext import decode

NODE_STATUSES = ("waiting", "ready", "running", "completed", "failed", "skipped")
ENDED = frozenset({"completed", "failed", "cancelled"})

_APART = frozenset({"input", "output", "kind", "verdict"})
_REJECTED = frozenset({"tool_denied", "tool_disabled"})

ReadFile = Callable[[str], bytes]


class RunReader(Protocol):
    """The runs of a project, as the runtime keeps them."""

    def get(self, run_id: str) -> Any:
        """The report of a run. Raises RunNotFound."""
        ...

    def all_events(self, run_id: str) -> list[Any]:
        """Every event of a run so far."""
        ...

    def list(self, which: Any = ..., *, limit: int = 50, cursor: str | None = None) -> Any:
        """A page of runs, newest first."""
        ...

    def count(self, which: Any) -> int:
        """How many runs there are."""
        ...

    def turn(self, conversation_id: str, number: int) -> str | None:
        """The id of the run that was a conversation's turn of that number, also of one that was deleted."""
        ...

    def was_deleted(self, run_id: str) -> bool:
        """True if there was a run of that id and it was deleted."""
        ...


class NodeRecord:
    """What is known of one node of a run. Times are ISO-8601 UTC, durations milliseconds."""

    __slots__ = (
        "attempts", "causes", "duration_ms", "ended_at", "error", "input", "kind", "name", "node_id", "node_type",
        "output", "reason", "started_at", "status", "verdict",
    )  # fmt: skip

    def __init__(self, node_id: str, name: str, node_type: str | None, status: str = "waiting") -> None:
        self.node_id = node_id
        self.name = name
        self.node_type = node_type
        self.status = status
        self.kind: str | None = None
        self.attempts = 0
        self.started_at: str | None = None
        self.ended_at: str | None = None
        self.duration_ms: float | None = None
        self.error: dict[str, Any] | None = None
        self.verdict: str | None = None  # of a tool whose node completed, although the tool was denied or failed
        self.reason: str | None = None
        self.causes: list[str] | None = None
        self.input: Any = None
        self.output: Any = None

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON, without what is not known."""
        found = {name: getattr(self, name) for name in self.__slots__ if name not in _APART}
        return {name: value for name, value in found.items() if value is not None and value != 0}


class Execution(NamedTuple):
    """A run as a graph's execution: nodes in the order of the file, those of subflows behind their node."""

    run: Any
    workflow_id: str | None
    workflow_key: str | None
    nodes: list[NodeRecord]

    @property
    def counts(self) -> dict[str, int]:
        """How many nodes have each status."""
        counted = Counter(record.status for record in self.nodes)
        return {status: counted[status] for status in NODE_STATUSES if counted[status]}


def execution_of(run: Any, events: Iterable[Any], read_file: ReadFile) -> Execution:
    """Read an execution from a run's report and its events.

    Args:
        read_file: reads an artifact, for definitions that are too large for an event.
    """
    records: dict[str, NodeRecord] = {}
    workflow: tuple[str | None, str | None] = (None, None)
    released = False
    for event in events:
        data = event.data
        if event.type == "graph.started":
            if data["node"] == "":
                workflow = (data["workflow_id"], data["workflow_key"])
            _add_waiting(records, data, read_file)
        elif event.type == "graph.ready":
            prefix = f"{data['node']}/" if data["node"] else ""
            for node_id in data["nodes"]:
                record = records.get(f"{prefix}{node_id}")
                if record is not None and record.status == "waiting":
                    record.status = "ready"
        elif event.type in ("tool.completed", "tool.denied"):
            _judge(records.get(data["node"]), data, denied=event.type == "tool.denied")
        elif event.type == "run.waiting":
            released = True
        elif event.type == "run.resumed":
            _put_back(records, released=released)
            released = False
        elif event.type.startswith("node."):
            _apply(records, event.type.removeprefix("node."), event.at, data)
    if run.status in ENDED or run.interrupted:
        _close(records, run)
    return Execution(run, *workflow, _nested(records))


def _nested(records: dict[str, NodeRecord]) -> list[NodeRecord]:
    """The records with those of a node's own nodes right behind it; else as they came."""
    if not any("/" in path for path in records):
        return list(records.values())
    order = {path: number for number, path in enumerate(records)}
    places = {}
    for path in records:
        parts = path.split("/")
        above = ("/".join(parts[:end]) for end in range(1, len(parts) + 1))
        places[path] = [order.get(place, order[path]) for place in above]
    return [records[path] for path in sorted(records, key=places.__getitem__)]


def _add_waiting(records: dict[str, NodeRecord], data: dict[str, Any], read_file: ReadFile) -> None:
    definition = data["definition"]
    if data["spilled"]:
        try:
            definition = decode(read_file(definition["$artifact"]).decode())
        except Exception:  # noqa: BLE001  (deleted or damaged: the nodes that ran are known from their own events)
            return
    prefix = f"{data['node']}/" if data["node"] else ""
    for node in read_definition(definition, any_ids=True).nodes:
        path = f"{prefix}{node.id.lower()}"
        known = records.get(path)
        records[path] = NodeRecord(path, node.label, node.type)
        if known is not None:  # a subflow that is tried again
            records[path].attempts = known.attempts


def _apply(records: dict[str, NodeRecord], what: str, at: str, data: dict[str, Any]) -> None:
    path = data["node"]
    record = records.get(path)
    if record is None:
        name = data.get("title") or data.get("name") or path.rpartition("/")[2]
        record = records[path] = NodeRecord(path, name, data.get("node_type"))
    if what == "started":
        record.status, record.started_at, record.kind = "running", at, data.get("kind")
        record.attempts += 1
        record.ended_at = record.duration_ms = record.error = record.reason = record.causes = record.output = None
        record.verdict = None
        given = data.get("input")
        wrapped = (
            "arguments" if record.kind == "tool" and isinstance(given, dict) and "arguments" in given else "inputs"
        )
        record.input = given[wrapped] if isinstance(given, dict) and set(given) == {wrapped} else given
    elif what == "retrying":
        record.attempts += 1
    elif what == "skipped":
        record.status, record.reason, record.causes = "skipped", data["reason"], data.get("causes")
    else:
        record.status = "failed" if what == "cancelled" else what
        record.ended_at, record.duration_ms = at, data.get("duration_ms")
        record.error, record.output = data.get("error"), data.get("output")
        if record.error is not None and record.error.get("code") in _REJECTED:
            record.verdict = "rejected"
        if what == "cancelled":
            record.reason = "cancelled"


def _judge(record: NodeRecord | None, data: dict[str, Any], *, denied: bool) -> None:
    """What became of a tool's call: a model is told of a denial or a failure, so the node itself completes."""
    if record is not None and denied:
        record.verdict = "rejected"
    elif record is not None and data["is_error"]:
        record.verdict = record.verdict or "failure"


def _put_back(records: dict[str, NodeRecord], *, released: bool) -> None:
    """What was running when the run was cut off runs no more, and begins again when its turn comes.

    A run that was `released`, because all it did was to wait for a person, goes on with the same attempt.
    """
    for record in records.values():
        if record.status == "running" and released:
            record.attempts -= 1
        if record.status in ("running", "ready"):
            record.status = "waiting"


def _close(records: dict[str, NodeRecord], run: Any) -> None:
    """A run that is over, or whose process is gone, has nothing running."""
    for record in records.values():
        if record.status == "running":
            record.status = "failed"
            record.reason = "process_lost" if run.interrupted else "cancelled"
        elif record.status in ("waiting", "ready") and run.status in ENDED:
            record.status, record.reason = "skipped", f"run_{run.status}"
