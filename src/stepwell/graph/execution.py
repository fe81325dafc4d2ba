"""Running a graph: nodes become ready as their edges settle, in parallel, iteratively, each of them once.

A data edge is settled when its source is done, and live if the source completed and emitted that port. A node whose
edges are all settled runs if one of them is live, or if it has none; else it is skipped. Every node call is an
ordinary node of the run, under the node's id: recorded, retried, replayed when the run is resumed.
"""

import asyncio
import inspect
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwell.authoring.calls import Frame, NodeSpec, call, current_frame, describe_error
from stepwell.errors import GraphFailed, InvalidArgument, ReplayMismatch, RunClosed
from stepwell.graph.diagnostics import quoted
from stepwell.graph.inputs import Delivered, Gathered, checked, emitted, gather
from stepwell.graph.node_context import NodeContext, Services
from stepwell.graph.node_tools import NodeTool
from stepwell.graph.plan import Plan, Wire
from stepwell.graph.ports import MISSING
from stepwell.graph.similar import closest

if TYPE_CHECKING:
    from stepwell.authoring.context import Context

MAX_SHOWN_FAILURES = 20
_CAUSES = 10

WAITING, READY, RUNNING, COMPLETED, FAILED, SKIPPED = "waiting", "ready", "running", "completed", "failed", "skipped"


class Start(NamedTuple):
    """What a graph is started with.

    Attributes:
        input: the run's own input, for `chat/input` and `io/input_text`; MISSING for none.
        nodes: values for single nodes, by id or name: `{"fetch": {"url": "…"}}`.
    """

    input: Any = MISSING
    nodes: Mapping[str, dict[str, Any]] = {}


class Failure(NamedTuple):
    """A node that failed. `handled` by `onError: continue`."""

    node_id: str
    name: str
    error: dict[str, Any]
    handled: bool


class Outcome(NamedTuple):
    """How a graph run ended. `outputs` are those of the nodes that nothing takes from, by node name (or id)."""

    reply: str | None
    outputs: dict[str, dict[str, Any]]
    counts: dict[str, int]
    failures: tuple[Failure, ...]

    def raise_if_failed(self) -> None:
        """Raise GraphFailed if a node failed and that was not handled."""
        failed = [failure for failure in self.failures if not failure.handled]
        if failed:
            first = failed[0]
            raise GraphFailed(
                f"{len(failed)} of {sum(self.counts.values())} nodes failed; the first is {quoted(first.name, 60)}: "
                f"{first.error['type']}: {first.error['message']:.500}",
                hint=first.error.get("hint"),
                failed=[{"node_id": f.node_id, "name": f.name, "error": f.error} for f in failed[:MAX_SHOWN_FAILURES]],
            )


async def run_plan(plan: Plan, start: Start, ctx: "Context", services: Services) -> Outcome:
    """Run a graph to its end inside the current node (or the run itself).

    Raises:
        GraphFailed: it has nodes that wait for each other.
    """
    frame = current_frame()
    assert frame is not None  # noqa: S101  (only called inside a run)
    return await _Execution(plan, start, ctx, services, frame).run()


class _Execution:
    """One run of a plan: what is settled, what is ready, what is running."""

    def __init__(self, plan: Plan, start: Start, ctx: "Context", services: Services, frame: Frame) -> None:
        self.plan = plan
        self.start = start
        self.ctx = ctx
        self.services = services
        self.frame = frame
        count = len(plan.nodes)
        self.status = [WAITING] * count
        self.pending = [len(wires) for wires in plan.incoming]
        self.results: list[dict[str, Any] | None] = [None] * count
        self.takers = [len(wires) for wires in plan.outgoing]
        self.causes: dict[int, tuple[str, ...]] = {}
        self.failures: dict[int, Failure] = {}
        self.ready: deque[int] = deque()
        self.running: dict[asyncio.Task[None], int] = {}
        self.done: deque[asyncio.Task[None]] = deque()
        self.wake = asyncio.Event()
        self.held_up: list[str] = []
        self.overrides = node_values(plan, start.nodes)

    async def run(self) -> Outcome:
        for index, count in enumerate(self.pending):
            if index in self.plan.tool_only:
                self._skip(index, "tool")
            elif count == 0:
                self._make_ready(index)
        self._tell_ready()
        try:
            while self.ready or self.running:
                while self.ready and len(self.running) < self.services.max_parallelism:
                    self._begin(self.ready.popleft())
                await self.wake.wait()
                self.wake.clear()
                while self.done:
                    task = self.done.popleft()
                    index = self.running.pop(task)
                    task.result()  # what is no failure of the node itself ends the whole graph
                    await self._settle(index)
                self._tell_ready()
        finally:
            await self._stop_running()
        self._check_deadlock()
        return self._outcome()

    def _make_ready(self, index: int) -> None:
        self.status[index] = READY
        if len(self.running) + len(self.ready) >= self.services.max_parallelism:
            # Worth telling only where it is not followed by node.started at once.
            self.held_up.append(self.plan.nodes[index].id)
        self.ready.append(index)

    def _tell_ready(self) -> None:
        """One event for all that became ready and have to wait: a fan-out of thousands is one piece of news."""
        if self.held_up:
            self.frame.session.emit("graph.ready", node=self.frame.path, nodes=self.held_up)
            self.held_up = []

    def _begin(self, index: int) -> None:
        self.status[index] = RUNNING
        task = asyncio.create_task(self._run_node(index))
        self.running[task] = index
        task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self.done.append(task)
        self.wake.set()

    async def _run_node(self, index: int) -> None:
        node, node_type = self.plan.nodes[index], self.plan.types[index]
        gathered = gather(
            node, node_type, self._delivered(index), self.overrides.get(index, {}), self.start.input
        )  # fmt: skip

        async def execute(inputs: dict[str, Any]) -> dict[str, Any]:
            given = Gathered(inputs, gathered.sources)
            arguments = checked(node, node_type, given)
            context = NodeContext(
                self.ctx, node, node_type, frozenset(inputs), self._tools(index), self.services
            )  # fmt: skip
            returned = await node_type.implementation().run(arguments, context)
            return emitted(node, node_type, returned)

        spec = NodeSpec(
            node.id, node_type.kind, node.config.get("retries", 0), node.config.get("timeout"), durable=False,
            replay=True, returns=None, details={"title": node.label, "node_type": node.type},
        )  # fmt: skip
        try:
            self.results[index] = await call(spec, execute, _SIGNATURE, (gathered.values,), {})
            self.status[index] = COMPLETED
        except (ReplayMismatch, RunClosed):
            raise
        except Exception as error:  # noqa: BLE001  (a node's failure is data: its siblings go on)
            self.status[index] = FAILED
            handled = node.config.get("onError") == "continue"
            self.failures[index] = Failure(node.id, node.label, describe_error(error), handled)

    def _delivered(self, index: int) -> dict[str, Delivered]:
        """What came over the live edges of a node. Results that nobody waits for any more are let go."""
        values = {}
        for wire in self.plan.incoming[index]:
            result = self.results[wire.source]
            if not wire.orders and result is not None and wire.source_port in result:
                values[wire.target_port] = Delivered(
                    result[wire.source_port], self.plan.nodes[wire.source].label, wire.source_port
                )
        for wire in self.plan.incoming[index]:
            self._taken(wire.source)
        return values

    def _taken(self, source: int) -> None:
        self.takers[source] -= 1
        if self.takers[source] == 0 and not self._feeds_a_tool(source):
            self.results[source] = None

    def _feeds_a_tool(self, source: int) -> bool:
        return any(wire.orders or wire.target in self.plan.tool_only for wire in self.plan.outgoing[source])

    def _tools(self, index: int) -> tuple[NodeTool, ...]:
        return tuple(
            NodeTool(
                self.plan.nodes[wire.node], self.plan.types[wire.node], self.ctx, self.services,
                self._fed(wire.node), wire.port,
            )
            for wire in self.plan.tools[index]
        )  # fmt: skip

    def _fed(self, tool: int) -> dict[str, Delivered]:
        """What edges give a tool before an agent calls it."""
        values = {}
        for wire in self.plan.incoming[tool]:
            result = self.results[wire.source]
            if result is not None and wire.source_port in result:
                name = self.plan.nodes[wire.source].label
                values[wire.target_port] = Delivered(result[wire.source_port], name, wire.source_port)
        return values

    async def _settle(self, index: int) -> None:
        """A node is done: settle its edges, and those of every node that is skipped because of it."""
        work = [index]
        while work:
            source = work.pop()
            await self.frame.session.breathe()  # a branch of thousands of nodes may be skipped at once
            for wire in self.plan.outgoing[source]:
                self.pending[wire.target] -= 1
                if self.pending[wire.target] or self.status[wire.target] != WAITING:
                    continue
                if self._has_live(wire.target):
                    self._make_ready(wire.target)
                else:
                    self._skip_behind(wire.target)
                    work.append(wire.target)

    def _has_live(self, index: int) -> bool:
        wires = [wire for wire in self.plan.incoming[index] if not wire.orders]
        return not wires or any(self._is_live(wire) for wire in wires)

    def _is_live(self, wire: Wire) -> bool:
        result = self.results[wire.source]
        return self.status[wire.source] == COMPLETED and result is not None and wire.source_port in result

    def _skip_behind(self, index: int) -> None:
        causes: list[str] = []
        for wire in self.plan.incoming[index]:
            if self.status[wire.source] == FAILED:
                causes.append(self.plan.nodes[wire.source].id)
            causes += self.causes.get(wire.source, ())
            self._taken(wire.source)
        if causes:
            self.causes[index] = tuple(dict.fromkeys(causes))[:_CAUSES]
        self._skip(index, "upstream_failed" if causes else "branch_not_taken", self.causes.get(index, ()))

    def _skip(self, index: int, reason: str, causes: tuple[str, ...] = ()) -> None:
        self.status[index] = SKIPPED
        path, node = self._path(index), self.plan.nodes[index]
        if self.frame.session.recorded_mark("node.skipped", path) is None:
            self.frame.session.emit(
                "node.skipped", node=path, parent=self.frame.path, name=node.id, title=node.label,
                node_type=node.type, reason=reason, **({"causes": list(causes)} if causes else {}),
            )  # fmt: skip

    def _path(self, index: int) -> str:
        own = self.plan.nodes[index].id
        return f"{self.frame.path}/{own}" if self.frame.path else own

    async def _stop_running(self) -> None:
        """Whatever ends the graph early: leave no node running."""
        for task in self.running:
            task.cancel()
        if self.running:
            await asyncio.wait(self.running)
            for task in self.running:
                if not task.cancelled():
                    task.exception()

    def _check_deadlock(self) -> None:
        stuck = [index for index, status in enumerate(self.status) if status == WAITING]
        for index in stuck:
            self._skip(index, "deadlock")
        if stuck:
            names = ", ".join(quoted(self.plan.nodes[index].label, 40) for index in stuck[:5])
            raise GraphFailed(f"{len(stuck)} nodes wait for each other: {names}", hint="validate the workflow")

    def _outcome(self) -> Outcome:
        outputs: dict[str, dict[str, Any]] = {}
        reply = None
        for index, result in enumerate(self.results):
            if result is None or any(not wire.orders for wire in self.plan.outgoing[index]):
                continue
            outputs[self.plan.shown_name(index)] = result
            if self.plan.types[index].kind == "output" and isinstance(result.get("reply"), str):
                reply = result["reply"]
        counts = {status: self.status.count(status) for status in (COMPLETED, FAILED, SKIPPED)}
        return Outcome(reply, outputs, counts, tuple(self.failures[index] for index in sorted(self.failures)))


def node_values(plan: Plan, given: Mapping[str, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The values that a run was started with, by the index of their node.

    Raises:
        InvalidArgument: no node, or several, have that name or id, or the node has no such input.
    """
    if not given:
        return {}
    ids = {node.id: index for index, node in enumerate(plan.nodes)}
    made: dict[int, dict[str, Any]] = {}
    for name, values in given.items():
        index = ids.get(name.lower(), plan.names.get(name, -1))
        if index < 0:
            why = "several nodes have that name: give the id" if name in plan.names else None
            close = closest(name, plan.names, limit=1, least=0.5)
            raise InvalidArgument(
                f"the run was given values for {quoted(name)}, which is no one node of the workflow", argument="nodes",
                hint=why or (f"did you mean {quoted(close[0])}?" if close else "give the name or the id of a node"),
            )  # fmt: skip
        for port in values:
            if plan.types[index].input_port(port) is None:
                close = closest(port, plan.types[index].inputs, limit=1, least=0.5)
                raise InvalidArgument(
                    f"{quoted(name)} has no input {quoted(port)}", argument="nodes",
                    hint=f"did you mean {close[0]}?" if close else f"it has {', '.join(plan.types[index].inputs)}",
                )  # fmt: skip
        made[index] = made.get(index, {}) | values
    return made


def _shape(inputs: dict[str, Any]) -> None:
    """The signature under which node calls are recorded."""


_SIGNATURE = inspect.signature(_shape)
