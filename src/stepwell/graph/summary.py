"""A workflow in as few words as an agent needs: one line a node, in the order in which they run."""

from collections import defaultdict
from typing import Any

from stepwell.graph.budget import escaped_data
from stepwell.graph.format import Graph, GraphNode
from stepwell.graph.registry import Registry
from stepwell.graph.topology import order
from stepwell.graph.validation import is_needed, is_tool_edge

MAX_LINES = 120
MAX_NAMED = 30


def agent_summary(graph: Graph, registry: Registry) -> dict[str, Any]:
    """The summary of a graph.

    Each line is `handle type ← input=source.port … → outputs that are used`. A handle is the node's name as one word.
    """
    handles = _handles(graph)
    incoming: dict[str, list[str]] = defaultdict(list)
    outgoing: dict[str, list[str]] = defaultdict(list)
    tools: dict[str, list[str]] = defaultdict(list)
    wired: set[tuple[str, str]] = set()
    for edge in graph.edges:
        source, target = handles.get(edge.source, edge.source[:8]), handles.get(edge.target, edge.target[:8])
        if is_tool_edge(edge):
            tools[target].append(source)
            continue
        wired.add((edge.target, edge.target_port))
        incoming[edge.target].append(f"{edge.target_port}={source}.{edge.source_port}")
        if edge.source_port not in outgoing[edge.source]:
            outgoing[edge.source].append(edge.source_port)
    lines, missing, branches = [], [], []
    for node in _in_order(graph):
        node_type = registry.get(node.type)
        parts = [handles[node.id], escaped_data(node.type)[:80]]
        if incoming[node.id]:
            parts.append("← " + " ".join(incoming[node.id]))
        if outgoing[node.id]:
            parts.append("→ " + ",".join(outgoing[node.id]))
        if node_type is None:
            parts.append("(unknown type)")
        lines.append(" ".join(parts))
        if node_type is not None:
            missing += [
                f"{handles[node.id]}.{port.name}"
                for port in node_type.inputs.values()
                if is_needed(port) and (node.id, port.name) not in wired and node.config.get(port.name) is None
            ]
            if any(port.dynamic is not None for port in node_type.outputs.values()):
                branches.append(f"{handles[node.id]}: {','.join(outgoing[node.id]) or 'none used'}")
    made: dict[str, Any] = {
        "nodes": lines[:MAX_LINES],
        "entry": [handles[n.id] for n in graph.nodes if not incoming[n.id] and not _only_tool(n, handles, tools)],
        "exit": [handles[n.id] for n in graph.nodes if not outgoing[n.id] and not _only_tool(n, handles, tools)],
    }
    for name in ("entry", "exit"):
        if len(made[name]) > MAX_NAMED:
            made[name] = [*made[name][:MAX_NAMED], f"… +{len(made[name]) - MAX_NAMED}"]
    if len(lines) > MAX_LINES:
        made["more"] = f"{len(lines) - MAX_LINES} more nodes are not shown"
    for name, found in (("branches", branches), ("missing_config", missing)):
        if found:
            made[name] = found[:MAX_NAMED] + ([f"… +{len(found) - MAX_NAMED}"] if len(found) > MAX_NAMED else [])
    if tools:
        made["tools"] = {agent: names[:MAX_NAMED] for agent, names in list(tools.items())[:MAX_NAMED]}
    return made


def _only_tool(node: GraphNode, handles: dict[str, str], tools: dict[str, list[str]]) -> bool:
    return any(handles[node.id] in names for names in tools.values())


def _in_order(graph: Graph) -> list[GraphNode]:
    indexes = {node.id: number for number, node in enumerate(graph.nodes)}
    targets: list[list[int]] = [[] for _ in graph.nodes]
    for edge in graph.edges:
        if edge.source in indexes and edge.target in indexes:
            targets[indexes[edge.source]].append(indexes[edge.target])
    ordered, left = order(targets)
    return [graph.nodes[number] for number in (*ordered, *left)]


def _handles(graph: Graph) -> dict[str, str]:
    """A short, unique word for each node."""
    taken: set[str] = set()
    handles = {}
    for number, node in enumerate(graph.nodes):
        words = "".join(c if c.isalnum() else " " for c in node.label.rpartition("/")[2]).lower().split()
        handle = "_".join(words)[:32] or f"n{number}"
        if handle in taken:
            handle = f"{handle}_{number}"
        taken.add(handle)
        handles[node.id] = handle
    return handles
