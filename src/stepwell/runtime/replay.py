"""What a resumed run finds in its journal.

Calls are matched by node path and call order, with the fingerprint of their input compared. Where the code took
another path than recorded, the run is refused instead of replayed wrongly: at once when a call that is not recorded
comes where the recorded run had finished one call before it began the next, and at the latest when a node completes
with recorded calls that were never made.

Call order among concurrent branches depends on which result came first. So recorded results are given back in the
order in which they came (`Delivery`), and the branches go on as they did. What is left of chance (`as_completed` starts
its coroutines in any order) is met by matching calls that went on side by side by name and input.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, NamedTuple

from stepwell.authoring.output import RecordedOutput
from stepwell.errors import ReplayMismatch
from stepwell.runtime.events import Event

ORDER_SECONDS = 1.0
"""How long a recorded result waits for one that came before it and that nobody has asked for yet."""

MARKS = frozenset(
    {"graph.started", "node.skipped", "tool.requested", "tool.approved", "tool.denied"}
)  # fmt: skip
"""Events about nodes that are recorded once, also when the run is resumed."""

_LEAD = 4
_NEVER = 1 << 62


class NodeRecord:
    """What is recorded of one node path. `begun` counts how often it was started; the numbers are of events.

    `optional` marks what followed a failure that may turn out well when the run goes on.
    """

    __slots__ = (
        "begun", "completed", "consumed", "ended", "failed", "fingerprint", "name", "optional", "output", "parent",
        "path", "replayable", "spilled", "started",
    )  # fmt: skip

    def __init__(self, path: str, parent: str, name: str, fingerprint: str, started: int, begun: int) -> None:
        self.path = path
        self.parent = parent
        self.name = name
        self.fingerprint = fingerprint
        self.started = started
        self.begun = begun
        self.ended = _NEVER
        self.completed = False
        self.failed: int | None = None
        self.replayable = False
        self.spilled = False
        self.output: Any = None
        self.consumed = False
        self.optional = False


class Delivery:
    """Gives recorded results back in the order in which they came.

    Args:
        records: those that can be given back, in that order.
    """

    def __init__(self, records: Iterable[NodeRecord]) -> None:
        self._order = list(records)
        self._next = 0
        self._done: set[str] = set()
        self._moved = asyncio.Event()

    async def turn(self, record: NodeRecord) -> None:
        """Wait until everything that came before was given back, or is not asked for in time."""
        while (first := self._first()) is not None and first is not record and record.path not in self._done:
            self._moved.clear()
            try:
                async with asyncio.timeout(ORDER_SECONDS):
                    await self._moved.wait()
            except TimeoutError:
                if self._first() is first:
                    self.skip(first)
        # Whoever waits for the result before this one gets some rounds of the event loop to act on it.
        for _ in range(_LEAD):
            await asyncio.sleep(0)
        self.skip(record)

    def skip(self, record: NodeRecord) -> None:
        """This one is done with: the next may come."""
        self._done.add(record.path)
        self._moved.set()

    def _first(self) -> NodeRecord | None:
        while self._next < len(self._order) and self._order[self._next].path in self._done:
            self._next += 1
        return self._order[self._next] if self._next < len(self._order) else None


class History:
    """The recorded past of a run, ready to be matched. Read from its events by `history_of`."""

    def __init__(self) -> None:
        self.last_seq = 0
        self.nodes: dict[str, NodeRecord] = {}
        self.children: dict[str, list[NodeRecord]] = {}
        self.outputs: dict[str, RecordedOutput] = {}
        self.usage_sequence = 0
        self.usage_total: dict[str, int] | None = None
        self.usage_by_node: dict[str, int] = {}
        self.counts: dict[str, int] = {}
        self.marks: dict[tuple[str, str], dict[str, Any]] = {}
        self.copies: dict[str, list[dict[str, Any]]] = {}
        self._alike: dict[tuple[str, str, str], list[NodeRecord]] = {}
        self._used_up: dict[str, int] = {}

    def take(self, parent: str, path: str, name: str, fingerprint: str) -> NodeRecord | None:
        """The record of a call, marked as used; None if there is none.

        Raises:
            ReplayMismatch
        """
        siblings = self.children.get(parent, [])
        record = self.nodes.get(path)
        if record is None or record.consumed or record.fingerprint != fingerprint:
            found = self._twin(siblings, record, name, fingerprint)
            if found is None:
                # The nodes of a graph have names of their own, and may begin in any order.
                if record is not None or ("graph.started", parent) not in self.marks:
                    self._check_new(siblings, record, path)
                return None
            record = found
        record.consumed = True
        if record.failed is not None:
            self.make_optional(parent, record.failed, _NEVER)
        return record

    def _twin(
        self, siblings: list[NodeRecord], own: NodeRecord | None, name: str, fingerprint: str
    ) -> NodeRecord | None:
        """The record of the same call under another number, where numbers say nothing."""
        if not self._alike:
            for record in self.nodes.values():
                self._alike.setdefault((record.parent, record.name, record.fingerprint), []).append(record)
        parent = siblings[0].parent if siblings else ""
        for other in self._alike.get((parent, name, fingerprint), ()):
            if not other.consumed and ((own is not None and own.optional) or _went_on_beside(other, siblings)):
                return other
        return None

    def _check_new(self, siblings: list[NodeRecord], own: NodeRecord | None, path: str) -> None:
        """Raise ReplayMismatch if a call that is not recorded cannot have been made by the recorded code."""
        if own is None:
            left = self._first_missed(siblings) if siblings else None
            if left is not None and all(other.ended < left.started for other in siblings if other.consumed):
                raise ReplayMismatch(f"the code calls {path!r} where {left.path!r} is recorded", node=path)
        elif not (own.consumed or own.optional or (not own.completed and _went_on_beside(own, siblings))):
            raise ReplayMismatch(f"the node {path!r} is called with another input than recorded", node=path)

    def _first_missed(self, siblings: list[NodeRecord]) -> NodeRecord | None:
        # Behind its record a long run makes thousands of new calls: what was found used up is not gone through again.
        start = self._used_up.get(siblings[0].parent, 0)
        while start < len(siblings) and not _is_missed(siblings[start]):
            start += 1
        self._used_up[siblings[0].parent] = start
        return siblings[start] if start < len(siblings) else None

    def check_consumed(self, path: str) -> None:
        """Raise ReplayMismatch if a recorded child of `path` was never called."""
        for record in self.children.get(path, ()):
            if _is_missed(record):
                raise ReplayMismatch(f"the recorded node {record.path!r} is no longer called", node=record.path)

    def make_optional(self, parent: str, after: int, before: int) -> None:
        """A node failed at event `after` and is tried again: what the code did about that may not be done again."""
        for record in self.children.get(parent, ()):
            if after < record.started < before:
                record.optional = True

    def texts(self, path: str, hidden_from: str) -> list[str]:
        """What is recorded of the output items under a node, without what a workflow below `hidden_from` hides."""
        return [
            output.text
            for item, output in self.outputs.items()
            if item.startswith(f"{path}/") and not (output.hidden_by or "").startswith(f"{hidden_from}/")
        ]

    def shown(self, beside: str) -> list[str]:
        """What is recorded of the output items that nobody hid, without those under a node."""
        return [
            output.text
            for item, output in self.outputs.items()
            if output.hidden_by is None and not item.startswith(f"{beside}/")
        ]

    def delivery(self) -> Delivery:
        """The recorded results in the order in which they came."""
        given = [record for record in self.nodes.values() if record.replayable and not self._is_inside(record)]
        return Delivery(sorted(given, key=lambda record: record.ended))

    def forget_inside(self, path: str) -> None:
        """Drop what was called from a node whose attempt failed: the next attempt called it anew."""
        for mark in [mark for mark in self.marks if mark[1] == path or mark[1].startswith(f"{path}/")]:
            del self.marks[mark]
        for copied in [copied for copied in self.copies if copied.startswith(f"{path}/")]:
            del self.copies[copied]
        for counted in [counted for counted in self.usage_by_node if counted.startswith(f"{path}/")]:
            del self.usage_by_node[counted]
        for record in self.children.pop(path, ()):
            self.nodes.pop(record.path, None)
            self.forget_inside(record.path)

    def _is_inside(self, record: NodeRecord) -> bool:
        """True if a node above it is given back as a whole."""
        parent = self.nodes.get(record.parent)
        return parent is not None and (parent.replayable or self._is_inside(parent))


def _is_missed(record: NodeRecord) -> bool:
    return record.completed and not record.consumed and not record.optional


def _went_on_beside(record: NodeRecord, siblings: list[NodeRecord]) -> bool:
    return any(
        other is not record and other.started < record.ended and record.started < other.ended for other in siblings
    )  # fmt: skip


class _Item(NamedTuple):
    parts: list[str]
    completed: list[bool]
    hidden_by: str | None = None


def history_of(events: Iterable[Event]) -> History:
    """Read the past from a run's events."""
    history = History()
    items: dict[str, _Item] = {}
    for event in events:
        history.last_seq = event.seq
        data = event.data
        if event.type in MARKS:
            history.marks[event.type, data["node"]] = data
        if event.type.startswith("node."):
            _read_node(history, event)
        elif event.type == "conversation.copy":
            history.copies.setdefault(data["node"], []).append(data)
        elif event.type in ("output.started", "output.restarted"):
            items[data["item"]] = _Item([], [])
        elif event.type == "output.chunk":
            items[data["item"]].parts.append(data["text"])
        elif event.type == "output.completed":
            items[data["item"]].completed.append(True)
        elif event.type == "output.hidden":
            items[data["item"]] = _Item([data["text"]], [True], data["hidden_by"])
        elif event.type == "token_usage.reported":
            history.usage_sequence, history.usage_total = data["sequence"], data["total"]
            path = data["node"]
            history.usage_by_node[path] = history.usage_by_node.get(path, 0) + 1
    history.outputs = {
        name: RecordedOutput("".join(item.parts), bool(item.completed), item.hidden_by) for name, item in items.items()
    }  # fmt: skip
    return history


def _read_node(history: History, event: Event) -> None:
    data = event.data
    path = data["node"]
    known = history.nodes.get(path)
    if event.type == "node.started":
        begun = known.begun + 1 if known else 1
        record = NodeRecord(path, data["parent"], data["name"], data["fingerprint"], event.seq, begun)
        siblings = history.children.setdefault(record.parent, [])
        if known is not None:  # an earlier attempt: only the last one counts
            record.failed = known.failed
            siblings.remove(known)
        siblings.append(record)
        history.nodes[path] = record
        return
    history.counts[event.type] = history.counts.get(event.type, 0) + 1
    if event.type == "node.retrying":
        history.forget_inside(path)
    elif known is not None:
        known.ended = event.seq
        if event.type == "node.failed":
            known.failed = event.seq
        elif event.type == "node.completed":
            if known.failed is not None:
                history.make_optional(known.parent, known.failed, known.started)
            known.completed, known.failed, known.output = True, None, data["output"]
            known.replayable = data["replayable"]
            known.spilled = data.get("spilled", False)
