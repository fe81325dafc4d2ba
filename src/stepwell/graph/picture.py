"""A picture of a workflow as SVG, without any other program."""

from xml.sax.saxutils import escape

from stepwell.graph.format import Graph
from stepwell.graph.layout import layers
from stepwell.graph.registry import Registry
from stepwell.graph.validation import is_tool_edge

WIDTH, HEIGHT, GAP_X, GAP_Y, MARGIN = 200, 52, 70, 26, 20
MAX_NODES = 2_000
_COLORS = {
    "chat": "#2563eb", "ai": "#7c3aed", "agent": "#7c3aed", "io": "#0891b2", "rag": "#0891b2", "utils": "#64748b",
    "tools": "#b45309", "storage": "#15803d", "workflow": "#15803d",
}  # fmt: skip


def svg_of(graph: Graph, registry: Registry, title: str) -> str:
    """The picture: nodes in layers from left to right, data edges solid, tool edges dashed, unknown types red."""
    nodes = graph.nodes[:MAX_NODES]
    columns = layers([node.id for node in nodes], [(edge.source, edge.target) for edge in graph.edges])
    tallest = max((len(column) for column in columns), default=1)
    place: dict[str, tuple[float, float]] = {}
    for number, column in enumerate(columns):
        top = MARGIN + 24 + (tallest - len(column)) * (HEIGHT + GAP_Y) / 2
        for row, node_id in enumerate(column):
            place[node_id] = (MARGIN + number * (WIDTH + GAP_X), top + row * (HEIGHT + GAP_Y))
    width = 2 * MARGIN + max(1, len(columns)) * (WIDTH + GAP_X) - GAP_X
    height = 2 * MARGIN + 24 + tallest * (HEIGHT + GAP_Y) - GAP_Y
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}" font-family="system-ui,sans-serif" font-size="12">'
    )
    shown = _text(title, 100)
    lines = [
        head,
        f"<title>{shown}</title>",
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="{MARGIN}" y="{MARGIN + 4}" font-size="14" font-weight="600" fill="#111827">{shown}</text>',
    ]
    for edge in graph.edges:
        if edge.source in place and edge.target in place:
            lines.append(_edge(place[edge.source], place[edge.target], dashed=is_tool_edge(edge),
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


def _edge(source: tuple[float, float], target: tuple[float, float], *, dashed: bool, label: str) -> str:
    x1, y1 = source[0] + WIDTH, source[1] + HEIGHT / 2
    x2, y2 = target[0], target[1] + HEIGHT / 2
    bend = max(30.0, abs(x2 - x1) / 2)
    dash = ' stroke-dasharray="5 4"' if dashed else ""
    return (
        f'<path d="M{x1:g} {y1:g} C{x1 + bend:g} {y1:g} {x2 - bend:g} {y2:g} {x2:g} {y2:g}" fill="none" '
        f'stroke="#94a3b8" stroke-width="1.5"{dash}><title>{_text(label, 160)}</title></path>'
    )


def _text(text: str, limit: int) -> str:
    """Text for XML: cut, escaped, without characters that XML does not allow."""
    cut = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return escape("".join(c if c.isprintable() else "·" for c in cut), {'"': "&quot;"})
