"""What of a graph has to be known to run it: wires by index, in which order nodes can become ready, tools of agents."""

from typing import Any, NamedTuple

from stepwell.graph.format import Graph, GraphNode
from stepwell.graph.registry import NodeType, Registry
from stepwell.graph.validation import is_tool_edge


class Wire(NamedTuple):
    """A data edge between nodes by index. A wire that only `orders` carries no value: its target waits, no more."""

    source: int
    source_port: str
    target: int
    target_port: str
    orders: bool = False


class ToolWire(NamedTuple):
    """A node that an agent may call as a tool, at which of its tool ports."""

    node: int
    port: str


class Plan(NamedTuple):
    """A graph ready to run. Lists are by node index."""

    nodes: tuple[GraphNode, ...]
    types: tuple[NodeType, ...]
    incoming: tuple[tuple[Wire, ...], ...]
    outgoing: tuple[tuple[Wire, ...], ...]
    tools: tuple[tuple[ToolWire, ...], ...]
    tool_only: frozenset[int]
    names: dict[str, int]

    def shown_name(self, index: int) -> str:
        """What a node is called in results: its name, where no other has it; else its id."""
        node = self.nodes[index]
        return node.name if node.name and self.names.get(node.name) == index else node.id


def make_plan(graph: Graph, registry: Registry) -> Plan:
    """The plan of a valid graph."""
    nodes = graph.nodes
    indexes = {node.id: index for index, node in enumerate(nodes)}
    types: list[Any] = [registry.get(node.type) for node in nodes]
    incoming: list[list[Wire]] = [[] for _ in nodes]
    outgoing: list[list[Wire]] = [[] for _ in nodes]
    tools: list[list[ToolWire]] = [[] for _ in nodes]
    seen: set[tuple[str, str, str, str]] = set()
    for edge in graph.edges:
        if (ends := edge[2:]) in seen:
            continue
        seen.add(ends)
        source, target = indexes[edge.source], indexes[edge.target]
        if is_tool_edge(edge):
            if all(known.node != source for known in tools[target]):
                tools[target].append(ToolWire(source, edge.target_port))
            continue
        wire = Wire(source, edge.source_port, target, edge.target_port)
        incoming[target].append(wire)
        outgoing[source].append(wire)
    as_tool = {wire.node for wires in tools for wire in wires}
    tool_only = frozenset(index for index in as_tool if not outgoing[index])
    _let_agents_wait(incoming, outgoing, tools, tool_only)
    counted: dict[str, int] = {}
    for index, node in enumerate(nodes):
        counted[node.name] = -1 if node.name in counted else index
    return Plan(
        nodes, tuple(types), tuple(map(tuple, incoming)), tuple(map(tuple, outgoing)), tuple(map(tuple, tools)),
        tool_only, counted,
    )  # fmt: skip


def _let_agents_wait(
    incoming: list[list[Wire]], outgoing: list[list[Wire]], tools: list[list[ToolWire]], tool_only: frozenset[int]
) -> None:
    """What feeds a tool has to be there before the agent that may call it begins."""
    for agent, wires in enumerate(tools):
        for tool in wires:
            for wire in list(incoming[tool.node]) if tool.node in tool_only else ():
                order = Wire(wire.source, wire.source_port, agent, "", orders=True)
                incoming[agent].append(order)
                outgoing[wire.source].append(order)
