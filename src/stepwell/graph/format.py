"""The workflow file, V1: read as it is, checked in shape, written back with everything it held.

A file is an envelope (`name`, `definition` and what an editor keeps beside them) around nodes and edges. Reading never
loses an unknown field, a note or a container; ports that a file lists are ignored, because they come from the node
types, and counts are made anew.
"""

import hashlib
import json
import re
from typing import Any, NamedTuple, TypeGuard

from stepwell.errors import InvalidJson, WorkflowContentInvalid
from stepwell.graph.diagnostics import Diagnostic, quoted
from stepwell.graph.similar import closest
from stepwell.jsontext import decode_untrusted

SCHEMA_VERSION = 1
MAX_BYTES = 8 * 1024 * 1024
MAX_NODES = 10_000
MAX_NAME_CHARS = 100
MAX_NODE_NAME_CHARS = 200

ENVELOPE_FIELDS = (
    "schemaVersion", "workflowId", "name", "description", "version", "tags", "visibility", "state", "isTemplate",
    "isDraft", "isFavorite", "nodeCount", "edgeCount", "createdAt", "updatedAt", "capabilities", "definition",
)  # fmt: skip
DEFINITION_FIELDS = ("nodes", "edges", "notes", "containers")
NODE_FIELDS = ("nodeId", "nodeType", "name", "position", "config", "description", "inputs", "outputs")
EDGE_FIELDS = ("edgeId", "sourceNode", "sourcePort", "targetNode", "targetPort")

_UUID = re.compile(r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")
_OTHER_SHAPES = {
    "node_id": "nodeId", "node_type": "nodeType", "id": "nodeId", "type": "nodeType", "data": "config",
    "edge_id": "edgeId", "source_node": "sourceNode", "source_port": "sourcePort", "target_node": "targetNode",
    "target_port": "targetPort", "source": "sourceNode", "target": "targetNode", "sourceHandle": "sourcePort",
    "targetHandle": "targetPort",
}  # fmt: skip


class GraphNode(NamedTuple):
    """A node of a definition. `place` is its number in the file."""

    place: int
    id: str
    type: str
    name: str
    config: dict[str, Any]

    @property
    def label(self) -> str:
        """What people call it: its name, or its type."""
        return self.name or self.type


class GraphEdge(NamedTuple):
    """An edge of a definition. `place` is its number in the file."""

    place: int
    id: str
    source: str
    source_port: str
    target: str
    target_port: str


class Graph(NamedTuple):
    """The nodes and edges of a definition that could be read, and what was wrong with its shape."""

    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    containers: frozenset[str]
    problems: tuple[Diagnostic, ...]


class WorkflowFile(NamedTuple):
    """A workflow as its file holds it: `data` is the whole document, `graph` what of it runs."""

    data: dict[str, Any]
    graph: Graph
    problems: tuple[Diagnostic, ...]

    @property
    def id(self) -> str | None:
        """The workflow's id in lower case; None where the file has none."""
        found = self.data.get("workflowId")
        return found.lower() if isinstance(found, str) and _UUID.match(found) else None

    @property
    def name(self) -> str:
        """The workflow's name; empty where it has none."""
        return self.data["name"] if isinstance(self.data.get("name"), str) else ""


def parse_content(content: str | bytes, *, what: str = "the workflow") -> dict[str, Any]:
    """The document in a file's text or bytes.

    Raises:
        WorkflowContentInvalid: over 8 MiB, no UTF-8, no JSON, duplicate keys, NaN, nested too deep, or no object.
    """
    size = len(content) if isinstance(content, bytes) else len(content.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise WorkflowContentInvalid(f"{what} has {size:,} bytes; the limit is {MAX_BYTES:,}", size=size)
    if isinstance(content, bytes) and content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise WorkflowContentInvalid(f"{what} is UTF-16", hint="save it as UTF-8")
    try:
        document = decode_untrusted(content, what=what)
    except InvalidJson as error:
        raise WorkflowContentInvalid(error.message, hint=error.hint, **error.data) from None
    if not isinstance(document, dict):
        raise WorkflowContentInvalid(
            f"{what} is not a JSON object", hint='a workflow is {"name": …, "definition": {"nodes": […], "edges": […]}}'
        )
    return document


def read_workflow(document: dict[str, Any]) -> WorkflowFile:
    """The workflow in a document. Whatever is wrong with its shape is a diagnostic, not an exception."""
    problems: list[Diagnostic] = []
    version = document.get("schemaVersion", SCHEMA_VERSION)
    if isinstance(version, bool) or version != SCHEMA_VERSION:
        problems.append(
            Diagnostic("INVALID_FIELD", f"schemaVersion is {quoted(version)}: only 1 is known.", "schemaVersion")
        )
    name = document.get("name")
    if not is_name(name, MAX_NAME_CHARS) or not name.strip():
        code = "MISSING_FIELD" if name is None else "INVALID_FIELD"
        problems.append(Diagnostic(code, f"name is needed: a text of 1 to {MAX_NAME_CHARS} characters.", "name"))
    workflow_id = document.get("workflowId")
    if workflow_id is not None and not (isinstance(workflow_id, str) and _UUID.match(workflow_id)):
        problems.append(Diagnostic("INVALID_ID", f"workflowId {quoted(workflow_id)} is not a UUID.", "workflowId"))
    definition = document.get("definition")
    if definition is None and ("nodes" in document or "edges" in document):
        message = "nodes and edges stand at the top level: put them into definition."
        problems.append(Diagnostic("UNSUPPORTED_SHAPE", message, "nodes", candidates=("definition",)))
        return WorkflowFile(document, Graph((), (), frozenset(), ()), tuple(problems))
    if not isinstance(definition, dict):
        code = "MISSING_FIELD" if definition is None else "INVALID_FIELD"
        problems.append(Diagnostic(code, "definition is needed: an object with nodes and edges.", "definition"))
        definition = {"nodes": [], "edges": []}
    for field in document:
        close = closest(field, ENVELOPE_FIELDS, limit=1, least=0.8) if field not in ENVELOPE_FIELDS else []
        if close:
            message = f"The field {quoted(field)} is not known: did you mean {close[0]}?"
            problems.append(Diagnostic("UNKNOWN_FIELD", message, field[:80], candidates=tuple(close)))
    graph = read_definition(definition)
    for field, count in (("nodeCount", len(graph.nodes)), ("edgeCount", len(graph.edges))):
        given = document.get(field)
        if given is not None and given != count:
            problems.append(Diagnostic("COUNT_MISMATCH", f"{field} is {quoted(given)}, there are {count}.", field))
    return WorkflowFile(document, graph, tuple(problems))


def read_definition(definition: dict[str, Any], *, any_ids: bool = False) -> Graph:
    """The graph in a definition.

    Args:
        definition: `{"nodes": […], "edges": […]}`.
        any_ids: accept any text as an id, and edges without one (a draft).
    """
    problems: list[Diagnostic] = []
    nodes = [
        _node(index, raw, problems, any_ids=any_ids)
        for index, raw in enumerate(_list(definition, "nodes", problems)[: MAX_NODES + 1])
    ]
    if len(nodes) > MAX_NODES:
        problems.append(
            Diagnostic("TOO_MANY_NODES", f"There are over {MAX_NODES:,} nodes: split the workflow.", "nodes")
        )
    edges = [
        _edge(index, raw, problems, any_ids=any_ids) for index, raw in enumerate(_list(definition, "edges", problems))
    ]
    containers = definition.get("containers")
    names: set[str] = set()
    for container in containers if isinstance(containers, list) else ():
        if isinstance(container, dict):
            names |= {str(container[key]) for key in ("containerId", "id", "nodeId") if key in container}
    return Graph(
        tuple(node for node in nodes[:MAX_NODES] if node is not None),
        tuple(edge for edge in edges if edge is not None),
        frozenset(names),
        tuple(problems),
    )


def is_name(value: Any, limit: int) -> TypeGuard[str]:
    """True for a text of up to `limit` characters that can be written as UTF-8."""
    return isinstance(value, str) and len(value.strip()) <= limit and _SURROGATE.search(value) is None


def _list(definition: dict[str, Any], field: str, problems: list[Diagnostic]) -> list[Any]:
    found = definition.get(field)
    if isinstance(found, list):
        return found
    code = "MISSING_FIELD" if found is None else "INVALID_FIELD"
    if field == "nodes" or found is not None:
        problems.append(Diagnostic(code, f"{field} is needed: an array.", field))
    return []


def _node(index: int, raw: Any, problems: list[Diagnostic], *, any_ids: bool) -> GraphNode | None:
    where = f"nodes[{index}]"
    if not isinstance(raw, dict):
        problems.append(Diagnostic("INVALID_FIELD", f"{where} is not an object.", where))
        return None
    node_id = raw.get("nodeId")
    known = node_id if isinstance(node_id, str) else None
    _check_fields(raw, NODE_FIELDS, where, problems, node_id=known)
    type_ = raw.get("nodeType")
    for field, value in (("nodeId", node_id), ("nodeType", type_)):
        if not isinstance(value, str) or not value:
            if not any(_OTHER_SHAPES.get(other) == field for other in raw):
                problems.append(Diagnostic("MISSING_FIELD", f"{field} is needed: a text.", f"{where}.{field}", known))
            return None
    assert isinstance(node_id, str)  # noqa: S101
    assert isinstance(type_, str)  # noqa: S101
    if not any_ids and not _UUID.match(node_id):
        message = f"nodeId {quoted(node_id)} is not a UUID."
        problems.append(Diagnostic("INVALID_ID", message, f"{where}.nodeId", node_id))
    config = raw.get("config")
    if config is not None and not isinstance(config, dict):
        problems.append(Diagnostic("INVALID_FIELD", "config is not an object.", f"{where}.config", node_id))
    if raw.get("inputs") or raw.get("outputs"):
        message = "inputs and outputs of a file are ignored: ports come from the node type."
        problems.append(Diagnostic("LEGACY_PORTS", message, where, node_id))
    name = raw.get("name")
    if name is None or name == "":
        problems.append(Diagnostic("MISSING_NAME", "The node has no name; its type is shown.", where, node_id))
    elif not is_name(name, MAX_NODE_NAME_CHARS):
        message = f"name is not a text of up to {MAX_NODE_NAME_CHARS} characters."
        problems.append(Diagnostic("INVALID_FIELD", message, f"{where}.name", node_id))
    return GraphNode(
        index, node_id if any_ids else node_id.lower(), type_, name if isinstance(name, str) else "",
        config if isinstance(config, dict) else {},
    )  # fmt: skip


def _edge(index: int, raw: Any, problems: list[Diagnostic], *, any_ids: bool) -> GraphEdge | None:
    where = f"edges[{index}]"
    if not isinstance(raw, dict):
        problems.append(Diagnostic("INVALID_FIELD", f"{where} is not an object.", where))
        return None
    edge_id = raw.get("edgeId")
    known = edge_id if isinstance(edge_id, str) else None
    before = len(problems)
    _check_fields(raw, EDGE_FIELDS, where, problems, edge_id=known)
    if not any_ids and not (known is not None and _UUID.match(known)):
        code = "MISSING_FIELD" if edge_id is None else "INVALID_ID"
        message = "edgeId is needed: a UUID." if edge_id is None else f"edgeId {quoted(edge_id)} is not a UUID."
        problems.append(Diagnostic(code, message, f"{where}.edgeId", edge_id=known))
    complete = True
    for field in EDGE_FIELDS[1:]:
        if not isinstance(raw.get(field), str) or not raw[field]:
            complete = False
            if not any(_OTHER_SHAPES.get(other) == field for other in raw) or len(problems) == before:
                problems.append(
                    Diagnostic("MISSING_FIELD", f"{field} is needed: a text.", f"{where}.{field}", edge_id=known)
                )
    if not complete:
        return None
    ends = (raw["sourceNode"], raw["targetNode"])
    source, target = ends if any_ids else (ends[0].lower(), ends[1].lower())
    return GraphEdge(index, known or f"#{index}", source, raw["sourcePort"], target, raw["targetPort"])


def _check_fields(
    raw: dict[str, Any], known: tuple[str, ...], where: str, problems: list[Diagnostic], *, node_id: str | None = None,
    edge_id: str | None = None,
) -> None:  # fmt: skip
    """Refuse fields of the other shapes that editors write; other unknown fields are kept, and named if like ours."""
    for field in raw:
        if field in known:
            continue
        right = _OTHER_SHAPES.get(field)
        if right in known and right not in raw:
            message = f"The field {field} belongs to another format: call it {right}."
            problems.append(
                Diagnostic("UNSUPPORTED_SHAPE", message, f"{where}.{field}", node_id, edge_id, candidates=(right,))
            )
            continue
        close = [right] if right in known else closest(field, known, limit=1, least=0.8)
        if close:
            message = f"The field {quoted(field)} is not known and is ignored: did you mean {close[0]}?"
            place = f"{where}.{field[:80]}"
            problems.append(Diagnostic("UNKNOWN_FIELD", message, place, node_id, edge_id, candidates=tuple(close)))


def written(document: dict[str, Any]) -> str:
    """The text of a workflow file: known fields first and in order, ports left out, counts made anew."""
    definition = document.get("definition", {})
    nodes = definition.get("nodes") if isinstance(definition, dict) else None
    made = {field: document[field] for field in ENVELOPE_FIELDS if field in document and field != "definition"}
    made["schemaVersion"] = SCHEMA_VERSION
    made = {"schemaVersion": SCHEMA_VERSION} | made
    if isinstance(nodes, list):
        made |= {"nodeCount": len(nodes), "edgeCount": len(definition.get("edges") or ())}
    made |= {field: value for field, value in document.items() if field not in ENVELOPE_FIELDS}
    made["definition"] = importable(definition) if isinstance(definition, dict) else definition
    text = json.dumps(made, ensure_ascii=False, indent=2, allow_nan=False)
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def importable(definition: dict[str, Any]) -> dict[str, Any]:
    """The definition as it is written and handed out: without ports."""
    nodes = [
        {key: value for key, value in node.items() if key not in ("inputs", "outputs")}
        if isinstance(node, dict)
        else node
        for node in definition.get("nodes") or ()
    ]
    return {**definition, "nodes": nodes}


_NOT_CONTENT = frozenset({"schemaVersion", "workflowId", "nodeCount", "edgeCount", "createdAt", "updatedAt"})


def content_hash(document: dict[str, Any]) -> str:
    """What identifies the content: equal however keys, nodes, edges, numbers, spaces and escapes are written."""
    content = {key: value for key, value in document.items() if key not in _NOT_CONTENT}
    definition = content.get("definition")
    if isinstance(definition, dict):
        definition = importable(definition)
        for field in ("nodes", "edges"):
            if isinstance(definition.get(field), list):
                definition[field] = sorted((_plain(item) for item in definition[field]), key=_dumped)
        content["definition"] = definition
    return hashlib.sha256(_dumped(_plain(content)).encode("utf-8", "surrogatepass")).hexdigest()


def _plain(value: Any) -> Any:
    """The value with `1.0` as `1`."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(child) for key, child in value.items()}
    return [_plain(child) for child in value] if isinstance(value, list) else value


def _dumped(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
