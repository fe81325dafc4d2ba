"""Questions about node types: which there are, their schemas and ports, what could replace one."""

from typing import Any

from stepwell.errors import InvalidArgument, WorkflowNotFound
from stepwell.graph.answers import Answer, Sources, needed, page
from stepwell.graph.budget import escaped_data
from stepwell.graph.registry import NodeType
from stepwell.graph.similar import MAX_QUERY_CHARS, closest, score

_FUZZY = 0.6


def list_node_types(sources: Sources, arguments: dict[str, Any]) -> Answer:
    types = sources.registry.all()
    wanted = (arguments.get("node_filter") or "")[:MAX_QUERY_CHARS].strip()
    category = arguments.get("category_filter")
    found = [t for t in types if not category or t.category == category]
    if wanted:
        ranked = [(_match(wanted, node_type), node_type) for node_type in found]
        found = [t for rank, t in sorted(ranked, key=lambda pair: (-pair[0], pair[1].name)) if rank >= _FUZZY]
    verbose = arguments.get("verbose", False)
    made = page(found, arguments, lambda node_type: shown_type(node_type, verbose=verbose))
    categories = sorted({node_type.category for node_type in types})
    if not wanted and not category:
        made["categories"] = categories
    if not found:
        if wanted:
            made["candidates"] = closest(wanted, sources.registry.names(), least=0.45)
        made["hint"] = f"nothing matches: categories are {', '.join(categories)}"
    return made


def _match(wanted: str, node_type: NodeType) -> float:
    lowered = wanted.casefold()
    if lowered in node_type.name or lowered in node_type.title.casefold():
        return 1.0
    if lowered in node_type.description.casefold():
        return 0.7
    return max(score(wanted, node_type.name), score(wanted, node_type.title))


def shown_type(node_type: NodeType, *, verbose: bool) -> dict[str, Any]:
    """A node type as lists show it."""
    made: dict[str, Any] = {"node_type": node_type.name, "name": node_type.title, "category": node_type.category}
    if verbose:
        made |= {
            "description": node_type.description, "version": node_type.version, "is_tool_node": node_type.is_tool
        }  # fmt: skip
    return made


def _known_type(sources: Sources, name: str) -> NodeType:
    node_type = sources.registry.get(name)
    if node_type is None:
        close = closest(name, sources.registry.names())
        raise WorkflowNotFound(
            f"there is no node type {name!r:.80}", candidates=close,
            hint=f"did you mean {close[0]}?" if close else "list_node_types shows what there is",
        )  # fmt: skip
    return node_type


def get_node_schema(sources: Sources, arguments: dict[str, Any]) -> Answer:
    node_type = _known_type(sources, needed(arguments, "node_type"))
    made = shown_type(node_type, verbose=True)
    if arguments.get("compact"):
        made |= {"input_schema": list(node_type.inputs), "output_schema": list(node_type.outputs)}
    else:
        made |= {"input_schema": node_type.input_schema, "output_schema": node_type.output_schema}
    return {"status": "ok", "data": made}


def list_ports(sources: Sources, arguments: dict[str, Any]) -> Answer:
    node_type = _known_type(sources, needed(arguments, "node_type"))
    return {"status": "ok", "data": {"node_type": node_type.name, **ports_of(node_type)}}


def ports_of(node_type: NodeType) -> dict[str, list[dict[str, Any]]]:
    """The ports of a node type: name, type, whether they are required; numbered ones by their range."""
    made: dict[str, list[dict[str, Any]]] = {}
    for side, ports in (("inputs", node_type.inputs), ("outputs", node_type.outputs)):
        rows = made[side] = []
        for port in ports.values():
            row: dict[str, Any] = {"name": port.name, "type": port.type}
            if side == "inputs":
                row["required"] = port.required and port.dynamic is None
                if port.enum:
                    row["enum"] = list(port.enum)
            if port.dynamic is not None:
                last = port.dynamic.max_ports - 1
                row |= {"name": f"{port.dynamic.prefix}0…{port.dynamic.prefix}{last}", "type": port.dynamic.type}
            rows.append(row)
    return made


def find_replacements(sources: Sources, arguments: dict[str, Any]) -> Answer:
    wanted = arguments.get("node_types") or ([arguments["node_type"]] if arguments.get("node_type") else [])
    if not wanted or not all(isinstance(name, str) for name in wanted):
        raise InvalidArgument("find_replacements needs node_types: an array of names", argument="node_types")
    names = sources.registry.names()

    def row(name: str) -> dict[str, Any]:
        if name in names:
            return {"node_type": name, "exists": True, "candidates": []}
        close = closest(name, names, least=0.45)
        return {"node_type": escaped_data(name)[:120], "exists": False, "candidates": close}

    made = page(wanted, arguments, row)
    rows = made["data"]
    existing = [row["node_type"] for row in rows if row["exists"]]
    if existing and "hint" not in made:
        tail = "exists already: use it as it is" if len(existing) == 1 else "exist already: use them as they are"
        made["hint"] = f"{', '.join(existing[:10])} {tail}"
    elif "hint" not in made and not any(row["candidates"] for row in rows):
        made["hint"] = "nothing is alike: list_node_types shows what there is"
    return made
