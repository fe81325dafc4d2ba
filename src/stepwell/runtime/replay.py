"""What a resumed run finds in its journal.

Calls are matched by node path and call order, with the fingerprint of their input compared. Where the code took
another path than recorded, the run is refused instead of replayed wrongly: at once when a call that is not recorded
comes where the recorded run had finished one call before it began the next, and at the latest when a node completes
with recorded calls that were never made.
"""

from typing import Any, NamedTuple

from stepwell.authoring.output import RecordedOutput
from stepwell.errors import ReplayMismatch
from stepwell.runtime.events import Event


class NodeRecord:
    """What is recorded of one node path."""

    __slots__ = ("completed", "consumed", "ended", "fingerprint", "output", "parent", "path", "replayable", "started")

    def __init__(self, path: str, parent: str, fingerprint: str, started: int) -> None:
        self.started = started
        self.ended: int | None = None
        self.path = path
        self.parent = parent
        self.fingerprint = fingerprint
        self.completed = False
        self.replayable = False
        self.output: Any = None
        self.consumed = False


class History(NamedTuple):
    """The recorded past of a run, ready to be matched."""

    last_seq: int
    nodes: dict[str, NodeRecord]
    children: dict[str, list[NodeRecord]]
    outputs: dict[str, RecordedOutput]
    usage_sequence: int
    usage_total: dict[str, int] | None
    usage_by_node: dict[str, int]
    counts: dict[str, int]

    def take(self, parent: str, path: str, fingerprint: str) -> NodeRecord | None:
        """The completed record of a call, marked as used; None if the call has to run.

        Raises:
            ReplayMismatch
        """
        record = self.nodes.get(path)
        if record is None:
            siblings = self.children.get(parent, ())
            left = [other for other in siblings if other.completed and not other.consumed]
            if left and all(_ended_before(other, left[0]) for other in siblings if other.consumed):
                raise ReplayMismatch(f"the code calls {path!r} where {left[0].path!r} is recorded", node=path)
            return None
        if record.fingerprint != fingerprint:
            raise ReplayMismatch(f"the node {path!r} is called with another input than recorded", node=path)
        record.consumed = True
        return record if record.completed and record.replayable else None

    def check_consumed(self, path: str) -> None:
        """Raise ReplayMismatch if a recorded child of `path` was never called."""
        for record in self.children.get(path, ()):
            if record.completed and not record.consumed:
                raise ReplayMismatch(f"the recorded node {record.path!r} is no longer called", node=record.path)


def _ended_before(record: NodeRecord, later: NodeRecord) -> bool:
    return record.ended is not None and record.ended < later.started


def history_of(events: list[Event]) -> History:
    """Read the past from a run's events."""
    nodes: dict[str, NodeRecord] = {}
    children: dict[str, list[NodeRecord]] = {}
    texts: dict[str, list[str]] = {}
    completed: set[str] = set()
    usage_sequence, usage_total = 0, None
    usage_by_node: dict[str, int] = {}
    counts: dict[str, int] = {}
    for event in events:
        data = event.data
        path = data.get("node", "")
        if event.type == "node.started":
            if path in nodes:  # an earlier attempt: only the last one counts
                children[data["parent"]].remove(nodes[path])
            nodes[path] = record = NodeRecord(path, data["parent"], data["fingerprint"], event.seq)
            children.setdefault(data["parent"], []).append(record)
        elif event.type in ("node.completed", "node.failed", "node.cancelled"):
            counts[event.type] = counts.get(event.type, 0) + 1
            if path in nodes:
                record = nodes[path]
                record.ended = event.seq
                if event.type == "node.completed":
                    record.completed, record.output = True, data["output"]
                    record.replayable = data["replayable"]
        elif event.type in ("output.started", "output.restarted"):
            texts[data["item"]] = []
            completed.discard(data["item"])
        elif event.type == "output.chunk":
            texts[data["item"]].append(data["text"])
        elif event.type == "output.completed":
            completed.add(data["item"])
        elif event.type == "token_usage.reported":
            usage_sequence, usage_total = data["sequence"], data["total"]
            usage_by_node[path] = usage_by_node.get(path, 0) + 1
    outputs = {item: RecordedOutput("".join(parts), item in completed) for item, parts in texts.items()}
    last_seq = events[-1].seq if events else 0
    return History(last_seq, nodes, children, outputs, usage_sequence, usage_total, usage_by_node, counts)
