"""Where the nodes of a graph stand on a canvas: in layers from left to right, each as near to its sources as it can."""

from collections.abc import Sequence

from stepwell.graph.topology import order

X_STEP, Y_STEP = 300, 140


def positions(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> dict[str, dict[str, int]]:
    """A position for every node.

    Args:
        nodes: their ids.
        edges: pairs of ids; an end that is no node is ignored.
    """
    return {
        node: {"x": layer * X_STEP, "y": row * Y_STEP}
        for layer, column in enumerate(layers(nodes, edges))
        for row, node in enumerate(column)
    }


def layers(nodes: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[list[str]]:
    """The nodes in columns: each one right of everything that leads to it. Linear, iterative, also with cycles."""
    indexes = {node: number for number, node in enumerate(nodes)}
    targets: list[list[int]] = [[] for _ in nodes]
    sources: list[list[int]] = [[] for _ in nodes]
    for source, target in edges:
        if source in indexes and target in indexes and source != target:
            targets[indexes[source]].append(indexes[target])
            sources[indexes[target]].append(indexes[source])
    ordered, left = order(targets)
    depth = [0] * len(nodes)
    for node in ordered:
        for follower in targets[node]:
            depth[follower] = max(depth[follower], depth[node] + 1)
    columns: list[list[int]] = [[] for _ in range(max(depth, default=-1) + 1)]
    for node in (*ordered, *left):
        columns[depth[node]].append(node)
    row = {node: number for number, node in enumerate(columns[0])} if columns else {}
    for column in columns[1:]:
        column.sort(key=lambda node: _middle([row[source] for source in sources[node] if source in row]))
        row |= {node: number for number, node in enumerate(column)}
    return [[nodes[number] for number in column] for column in columns]


def _middle(rows: list[int]) -> float:
    return sum(rows) / len(rows) if rows else float("inf")
