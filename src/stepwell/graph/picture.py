"""A picture of a workflow as SVG, without any other program.

An edge that leads past columns has a lane of its own in each of them, so that no node hides it.
"""

from collections.abc import Sequence
from itertools import pairwise
from xml.sax.saxutils import escape

from stepwell.graph.format import Graph
from stepwell.graph.layout import layers
from stepwell.graph.registry import Registry
from stepwell.graph.validation import is_tool_edge

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 200, 52, 70, 26, 20
LANE = 10
MAX_NODES = 2_000
MAX_LANES = 4_000

Point = tuple[float, float]
_COLORS = {
    "chat": "#2563eb", "ai": "#7c3aed", "agent": "#7c3aed", "io": "#0891b2", "rag": "#0891b2", "utils": "#64748b",
    "tools": "#b45309", "storage": "#15803d", "workflow": "#15803d",
}  # fmt: skip

_ARROW = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0 L8 4 L0 8 z" fill="#94a3b8"/></marker></defs>'
)


def svg_of(graph: Graph, registry: Registry, title: str) -> str:
    """The picture: nodes in layers from left to right, data edges solid, tool edges dashed, unknown types red."""
    nodes = graph.nodes[:MAX_NODES]
    columns, lanes = _with_lanes([node.id for node in nodes], [(edge.source, edge.target) for edge in graph.edges])
    heights = [sum(map(_height, column)) + GAP_Y * (len(column) - 1) for column in columns]
    tallest = max(heights, default=HEIGHT)
    place: dict[str, Point] = {}
    for number, column in enumerate(columns):
        y = MARGIN + 24 + (tallest - heights[number]) / 2
        for node_id in column:
            place[node_id] = (MARGIN + number * (WIDTH + GAP_X), y)
            y += _height(node_id) + GAP_Y
    width = 2 * MARGIN + max(1, len(columns)) * (WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + 24 + tallest
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="system-ui,sans-serif" font-size="12">'
    )
    shown = _text(title, 100)
    lines = [
        head,
        f"<title>{shown}</title>",
        _ARROW,
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 4}" font-size="14" font-weight="600" fill="#111827">{shown}</text>',
    ]
    for edge in graph.edges:
        if edge.source in place and edge.target in place:
            between = [place[lane] for lane in lanes.get((edge.source, edge.target), ())]
            lines.append(_edge(place[edge.source], between, place[edge.target], dashed=is_tool_edge(edge),
                               label=f"{edge.source_port} → {edge.target_port}"))  # fmt: skip
    for node in nodes:
        x, y = place[node.id]
        known = registry.get(node.type) is not None
        color = _COLORS.get(node.type.partition("/")[0], "#64748b") if known else "#dc2626"
        lines.append(
            f'<g><title>{_text(node.id, 80)}</title><rect x="{x:g}" y="{y:g}" width="{WIDTH}" height="{HEIGHT}" rx="8" '
            f'fill="#f8fafc" stroke="{color}" stroke-width="1.5"/>'
            f'<rect x="{x:g}" y="{y:g}" width="5" height="{HEIGHT}" rx="2" fill="{color}"/>'
            f'<text x="{x + 14:g}" y="{y + 22:g}" fill="#111827">{_text(node.label, 28)}</text>'
            f'<text x="{x + 14:g}" y="{y + 40:g}" fill="#6b7280" font-size="10.5">{_text(node.type, 34)}</text></g>'
        )
    if len(graph.nodes) > MAX_NODES:
        left = len(graph.nodes) - MAX_NODES
        lines.append(f'<text x="{MARGIN}" y="{height - 6:g}" fill="#6b7280">{left} more nodes are not shown</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def _with_lanes(
    nodes: list[str], edges: Sequence[tuple[str, str]]
) -> tuple[list[list[str]], dict[tuple[str, str], list[str]]]:
    """The columns of a graph with the lanes in them, and the lanes of each pair of nodes that needs some.

    A lane is called like no node: it begins with a space.
    """
    columns = layers(nodes, edges)
    depth = {node: number for number, column in enumerate(columns) for node in column}
    lanes: dict[tuple[str, str], list[str]] = {}
    count = 0
    for source, target in edges:
        long = depth.get(target, 0) - depth.get(source, 0) - 1 if source in depth else 0
        if long > 0 and (source, target) not in lanes and count + long <= MAX_LANES:
            lanes[source, target] = [f" {count + number}" for number in range(long)]
            count += long
    pieces: list[tuple[str, str]] = []
    for source, target in edges:
        way = [source, *lanes.get((source, target), ()), target]
        pieces += pairwise(way)
    return layers([*nodes, *(lane for way in lanes.values() for lane in way)], pieces), lanes


def _height(node: str) -> float:
    return LANE if node.startswith(" ") else HEIGHT


def _edge(source: Point, between: Sequence[Point], target: Point, *, dashed: bool, label: str) -> str:
    x1, y1 = source[0] + WIDTH, source[1] + HEIGHT / 2
    x2, y2 = target[0], target[1] + HEIGHT / 2
    if x2 < x1:  # back, on a cycle: over the top
        over = min(source[1], target[1]) - GAP_Y
        path = f"M{x1:g} {y1:g} C{x1 + 40:g} {over:g} {x2 - 40:g} {over:g} {x2:g} {y2:g}"
    else:
        path, at = f"M{x1:g} {y1:g}", (x1, y1)
        for x, y in between:
            path += f"{_curve(at, (x, y + LANE / 2))} H{x + WIDTH:g}"
            at = (x + WIDTH, y + LANE / 2)
        path += _curve(at, (x2, y2))
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<path d="{path}" fill="none" stroke="#94a3b8" stroke-width="1.5" marker-end="url(#arrow)"{dash}>'
        f"<title>{_text(label, 160)}</title></path>"
    )


def _curve(start: Point, end: Point) -> str:
    bend = max(30.0, (end[0] - start[0]) / 2)
    return f" C{start[0] + bend:g} {start[1]:g} {end[0] - bend:g} {end[1]:g} {end[0]:g} {end[1]:g}"


def _text(text: str, limit: int) -> str:
    """Text for XML: cut, escaped, without characters that XML does not allow."""
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return escape("".join(c if c.isprintable() else "·" for c in cut), {'"': "&quot;"})
