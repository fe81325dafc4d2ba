"""Checking a graph against the node types: every finding at once, in linear time, at any depth."""

import re
from collections import defaultdict
from typing import Any, NamedTuple

from stepwell.graph.diagnostics import Diagnostic, Report, quoted
from stepwell.graph.format import Graph, GraphEdge, GraphNode, WorkflowFile
from stepwell.graph.ports import MISSING, TEXT_TYPES, Misfit, Port, fit, fits
from stepwell.graph.registry import RESERVED_CONFIG, NodeType, Registry
from stepwell.graph.similar import Candidates
from stepwell.graph.topology import cycles
from stepwell.redaction import Redactor

ON_ERROR = ("fail", "continue")
MAX_RETRIES = 20
_TOOL_PORT = re.compile(r"tools\Z|tool_\d+\Z")
_SHOWN_CYCLE = 12
_MAX_GUARDS = 64


class Known(NamedTuple):
    """A graph with the type of each node; a node of an unknown type has None. `named` has node ids by name."""

    graph: Graph
    types: dict[str, NodeType | None]
    nodes: dict[str, GraphNode]
    named: dict[str, str]
    candidates: Candidates


def is_tool_edge(edge: GraphEdge) -> bool:
    """True for an edge that hands a tool to an agent; no data flows there."""
    return _TOOL_PORT.match(edge.target_port) is not None


def validate_file(file: WorkflowFile, registry: Registry, *, workflow_names: frozenset[str] | None = None) -> Report:
    """Everything that is wrong with a workflow file.

    Args:
        workflow_names: keys and ids of the workflows there are, to find subflows that lead nowhere.
    """
    findings = list(file.problems)
    return Report.of(findings + find_problems(file.graph, registry, workflow_names=workflow_names))


def validate_graph(graph: Graph, registry: Registry, *, workflow_names: frozenset[str] | None = None) -> Report:
    """Everything that is wrong with a definition."""
    return Report.of(find_problems(graph, registry, workflow_names=workflow_names))


def find_problems(
    graph: Graph, registry: Registry, *, workflow_names: frozenset[str] | None = None
) -> list[Diagnostic]:
    """Everything that is wrong with a graph, in no order."""
    nodes: dict[str, GraphNode] = {}
    for node in graph.nodes:
        nodes.setdefault(node.id, node)
    types = {node.id: registry.get(node.type) for node in nodes.values()}
    named = {node.name: node.id for node in graph.nodes if node.name}
    known = Known(graph, types, nodes, named, Candidates())
    findings = list(graph.problems)
    findings += _duplicates(known)
    for node in graph.nodes:
        findings += _check_node(node, registry, workflow_names, known.candidates)
    for edge in graph.edges:
        findings += _check_edge(edge, known)
    findings += _check_cycles(known)
    findings += _check_fan_in(known)
    findings += _check_use(known)
    findings += _check_effect(known)
    return findings


def _duplicates(known: Known) -> list[Diagnostic]:
    findings = []
    places: dict[str, list[int]] = defaultdict(list)
    names: dict[str, int] = {}
    for node in known.graph.nodes:
        places[node.id].append(node.place)
        if node.name and names.setdefault(node.name, node.place) != node.place:
            findings.append(
                Diagnostic(
                    "DUPLICATE_NODE_NAME", f"nodes[{names[node.name]}] has the name {quoted(node.name)} too.",
                    f"nodes[{node.place}].name", node.id,
                )
            )  # fmt: skip
    for node_id, indexes in places.items():
        for index in indexes[1:]:
            others = ", ".join(f"nodes[{other}]" for other in indexes if other != index)
            message = f"The nodeId is that of {others} too: give every node its own."
            findings.append(Diagnostic("DUPLICATE_NODE_ID", message, f"nodes[{index}].nodeId", node_id))
    edge_ids: dict[str, int] = {}
    ends: dict[tuple[str, str, str, str], int] = {}
    for edge in known.graph.edges:
        first = edge_ids.setdefault(edge.id.lower(), edge.place)
        if first != edge.place:
            message = f"The edgeId is that of edges[{first}] too: give every edge its own."
            place = f"edges[{edge.place}].edgeId"
            findings.append(Diagnostic("DUPLICATE_EDGE_ID", message, place, edge_id=edge.id))
        first = ends.setdefault(edge[2:], edge.place)
        if first != edge.place:
            message = f"edges[{first}] connects the same ports: this one changes nothing."
            findings.append(Diagnostic("DUPLICATE_EDGE", message, f"edges[{edge.place}]", edge_id=edge.id))
    return findings


def _check_node(
    node: GraphNode, registry: Registry, workflow_names: frozenset[str] | None, names: Candidates
) -> list[Diagnostic]:
    where = f"nodes[{node.place}]"
    node_type = registry.get(node.type)
    if node_type is None:
        candidates = names.closest(node.type, registry.names())
        meant = f": did you mean {candidates[0]}?" if candidates else ": list_node_types shows what there is."
        message = f"There is no node type {quoted(node.type)}{meant}"
        return [Diagnostic("UNKNOWN_NODE_TYPE", message, f"{where}.nodeType", node.id, candidates=tuple(candidates))]
    findings = []
    for field, value in node.config.items():
        place = f"{where}.config.{field[:80]}"
        if field in RESERVED_CONFIG:
            problem = _reserved_problem(field, value)
            if problem is not None:
                findings.append(Diagnostic("INVALID_CONFIG", f"{field} {problem}", place, node.id))
            continue
        port = node_type.input_port(field)
        if port is None:
            close = names.closest(field, _names(node_type.inputs), limit=1, least=0.7)
            meant = f": did you mean {close[0]}?" if close else "."
            message = f"{node_type.name} has no input {quoted(field)}; it is ignored{meant}"
            findings.append(Diagnostic("UNKNOWN_FIELD", message, place, node.id, candidates=tuple(close)))
            continue
        try:
            fit_config(value, port)
        except Misfit as misfit:
            message = f"{port.name}: {misfit}."
            enum = tuple(str(allowed) for allowed in port.enum)
            close = names.closest(str(value), enum, least=0.5) if isinstance(value, str) else []
            findings.append(Diagnostic("INVALID_CONFIG", message, place, node.id, candidates=tuple(close)))
        if isinstance(value, str) and _looks_secret(value):
            message = f"{port.name} looks like a secret: use a utils/credential node or an environment variable."
            findings.append(Diagnostic("SECRET_IN_DEFINITION", message, place, node.id))
    named = node.config.get("workflow_path")
    if workflow_names is not None and isinstance(named, str) and named:
        lowered = named.lower()
        key = lowered.removesuffix("/workflow.json").rpartition("/")[2]
        if lowered not in workflow_names and key not in workflow_names:
            close = names.closest(named, workflow_names)
            message = f"There is no workflow {quoted(named)} here: import it before this one runs."
            place = f"{where}.config.workflow_path"
            findings.append(Diagnostic("DANGLING_SUBFLOW", message, place, node.id, candidates=tuple(close)))
    return findings


def fit_config(value: Any, port: Port) -> Any:
    """A configured value as its port takes it; null stands for leaving the field out.

    Raises:
        Misfit: it does not fit.
    """
    if value is None:
        return None
    # Editors write an empty text for a field that was left empty, whatever its type.
    is_text = port.type in TEXT_TYPES or port.type in ("any", "json")
    if value == "" and not (is_text and (not port.enum or "" in port.enum)):
        return None
    return fit(value, port.type, nullable=port.nullable, enum=port.enum)


def _reserved_problem(field: str, value: Any) -> str | None:
    if field == "onError":
        return None if value in ON_ERROR else f"is {quoted(value)}: it is fail or continue."
    if field == "tool_description":
        return None if isinstance(value, str) else "is not a text."
    if field == "retries":
        good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_RETRIES
        return None if good else f"is {quoted(value)}: it is a whole number from 0 to {MAX_RETRIES}."
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0
    return None if good else f"is {quoted(value)}: it is a number of seconds above 0."


_shapes = Redactor()


def _looks_secret(value: str) -> bool:
    return 12 <= len(value) <= 10_000 and _shapes.value(value) is not value and _shapes.value(value) != value


def _check_edge(edge: GraphEdge, known: Known) -> list[Diagnostic]:
    where = f"edges[{edge.place}]"
    findings = []
    for field, node_id in (("sourceNode", edge.source), ("targetNode", edge.target)):
        if node_id in known.nodes:
            continue
        if node_id in known.graph.containers:
            message = f"{field} is a container: connect the node inside it."
            findings.append(Diagnostic("CONTAINER_ENDPOINT_UNSUPPORTED", message, f"{where}.{field}", edge_id=edge.id))
            continue
        own = known.named.get(node_id)
        close = [own] if own is not None else known.candidates.closest(node_id, known.nodes)
        tail = " (edges name node ids, not node names)" if own is not None else ""
        message = f"There is no node {quoted(node_id)}{tail}: connect one that exists, or remove the edge."
        findings.append(
            Diagnostic("MISSING_EDGE_ENDPOINT", message, f"{where}.{field}", edge_id=edge.id, candidates=tuple(close))
        )
    source_type, target_type = known.types.get(edge.source), known.types.get(edge.target)
    target = source = None
    if target_type is not None:
        target = target_type.input_port(edge.target_port)
        if target is None:
            findings += _bad_port(edge, target_type, known.candidates, incoming=True)
    if source_type is not None and not (target is not None and is_tool_edge(edge)):
        source = source_type.output_port(edge.source_port)
        if source is None:
            findings += _bad_port(edge, source_type, known.candidates, incoming=False)
    if source is not None and target is not None and not fits(source.type, target.type):
        message = (
            f"{edge.source_port} gives {source.type}, {edge.target_port} takes {target.type}: put a utils/type_cast "
            "node between them."
        )
        findings.append(Diagnostic("PORT_TYPE_MISMATCH", message, where, edge_id=edge.id))
    return findings


def _bad_port(edge: GraphEdge, node_type: NodeType, names: Candidates, *, incoming: bool) -> list[Diagnostic]:
    ports, name = (node_type.inputs, edge.target_port) if incoming else (node_type.outputs, edge.source_port)
    field = "targetPort" if incoming else "sourcePort"
    place = f"edges[{edge.place}].{field}"
    for port in ports.values():
        if port.dynamic is not None and port.dynamic.number(name) is not None:
            last = f"{port.dynamic.prefix}{port.dynamic.max_ports - 1}"
            message = f"{quoted(name)} is out of range: {node_type.name} has {port.dynamic.prefix}0 to {last}."
            return [Diagnostic("DYNAMIC_PORT_RANGE", message, place, edge_id=edge.id)]
    close = names.closest(name, _names(ports), least=0.5)
    there = ", ".join(_names(ports)[:20]) or "none"
    word = "input" if incoming else "output"
    message = f"{node_type.name} has no {word} {quoted(name)}: there are {there}."
    code = "INVALID_TARGET_PORT" if incoming else "INVALID_SOURCE_PORT"
    return [Diagnostic(code, message, place, edge_id=edge.id, candidates=tuple(close))]


def _names(ports: dict[str, Port]) -> list[str]:
    return [name for port in ports.values() for name in ((f"{port.dynamic.prefix}0",) if port.dynamic else ())] + [
        *ports
    ]


def _check_cycles(known: Known) -> list[Diagnostic]:
    indexes = {node_id: number for number, node_id in enumerate(known.nodes)}
    ids = list(known.nodes)
    targets: list[list[int]] = [[] for _ in ids]
    between: dict[tuple[int, int], GraphEdge] = {}
    for edge in known.graph.edges:
        if edge.source in indexes and edge.target in indexes and not is_tool_edge(edge):
            pair = (indexes[edge.source], indexes[edge.target])
            if between.setdefault(pair, edge) is edge:
                targets[pair[0]].append(pair[1])
    findings = []
    for cycle in cycles(targets):
        names = [known.nodes[ids[number]].label for number in cycle]
        shown = names[:_SHOWN_CYCLE] + (["…"] if len(names) > _SHOWN_CYCLE else []) + names[:1]
        edges = [
            between[number, following].place for number, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True)
        ]
        message = f"These nodes wait for each other: {' → '.join(quoted(name, 40) for name in shown)}; remove one edge."
        last = between[cycle[-1], cycle[0]]
        findings.append(
            Diagnostic(
                "CYCLE_DETECTED", message, f"edges[{last.place}]", ids[cycle[0]], last.id,
                data={"cycle": [ids[number] for number in cycle[:100]], "edges": edges[:100]},
            )
        )  # fmt: skip
    return findings


def _check_fan_in(known: Known) -> list[Diagnostic]:
    into: dict[tuple[str, str], list[GraphEdge]] = defaultdict(list)
    seen: set[tuple[str, str, str, str]] = set()
    for edge in known.graph.edges:
        if (
            edge.source in known.nodes
            and edge.target in known.nodes
            and not is_tool_edge(edge)
            and edge[2:] not in seen
        ):
            seen.add(edge[2:])
            into[edge.target, edge.target_port].append(edge)
    crowded = [edges for edges in into.values() if len(edges) > 1]
    if not crowded:
        return []
    guards = _Guards(known)
    findings = []
    for edges in crowded:
        for number, edge in enumerate(edges[1:], start=1):
            rival = next((other for other in edges[:number] if not guards.exclude(other, edge)), None)
            if rival is not None:
                message = (
                    f"edges[{rival.place}] goes into {quoted(edge.target_port)} too: an input takes one value; join "
                    "them with a node, or take them from exclusive branches of one router."
                )
                place = f"edges[{edge.place}].targetPort"
                findings.append(Diagnostic("MULTIPLE_EDGES_INTO_INPUT", message, place, edge.target, edge_id=edge.id))
    return findings


class _Guards:
    """Which branches of exclusive routers have to fire before an edge can carry a value."""

    def __init__(self, known: Known) -> None:
        self._known = known
        self._incoming: dict[str, list[GraphEdge]] = defaultdict(list)
        for edge in known.graph.edges:
            if edge.source in known.nodes and not is_tool_edge(edge):
                self._incoming[edge.target].append(edge)
        self._of_node: dict[str, frozenset[tuple[str, str]]] = {}

    def exclude(self, left: GraphEdge, right: GraphEdge) -> bool:
        """True if at most one of the two edges carries a value."""
        ports = dict(self._of_edge(left))
        return any(ports.get(router, port) != port for router, port in self._of_edge(right))

    def _of_edge(self, edge: GraphEdge) -> frozenset[tuple[str, str]]:
        above = self._guards(edge.source)
        node_type = self._known.types.get(edge.source)
        if node_type is None or not node_type.is_exclusive(self._known.nodes[edge.source].config):
            return above
        port = node_type.outputs.get(edge.source_port)
        always = port is not None and port.dynamic is None and edge.source_port != "fallback_out"
        return above if always else above | {(edge.source, edge.source_port)}

    def _guards(self, wanted: str) -> frozenset[tuple[str, str]]:
        """What is common to every way into a node; found without recursion."""
        if wanted in self._of_node:
            return self._of_node[wanted]
        stack, open_ = [wanted], {wanted}
        while stack:
            node = stack[-1]
            incoming = self._incoming.get(node, [])
            waiting = [e.source for e in incoming if e.source not in self._of_node and e.source not in open_]
            if waiting:
                stack.append(waiting[0])
                open_.add(waiting[0])
                continue
            stack.pop()
            sets = [self._of_edge_known(edge) for edge in incoming]
            common = frozenset.intersection(*sets) if sets else frozenset()
            self._of_node[node] = common if len(common) <= _MAX_GUARDS else frozenset(sorted(common)[-_MAX_GUARDS:])
        return self._of_node[wanted]

    def _of_edge_known(self, edge: GraphEdge) -> frozenset[tuple[str, str]]:
        if edge.source not in self._of_node:  # on a cycle, which is an error of its own
            return frozenset()
        return self._of_edge(edge)


def _check_use(known: Known) -> list[Diagnostic]:
    """Required inputs that nothing feeds, and nodes that nothing is connected to."""
    fed: set[tuple[str, str]] = set()
    connected: set[str] = set()
    for edge in known.graph.edges:
        fed.add((edge.target, edge.target_port))
        connected |= {edge.source, edge.target}
    findings = []
    for node in known.graph.nodes:
        node_type = known.types.get(node.id)
        if len(known.nodes) > 1 and node.id not in connected:
            message = "No edge touches this node: it runs on its own."
            findings.append(Diagnostic("UNUSED_NODE", message, f"nodes[{node.place}]", node.id))
        for port in node_type.inputs.values() if node_type is not None else ():
            if is_needed(port) and (node.id, port.name) not in fed and node.config.get(port.name) is None:
                message = f"{port.name} is required: connect it, or set it in config."
                findings.append(
                    Diagnostic("REQUIRED_INPUT_UNSATISFIED", message, f"nodes[{node.place}].config", node.id)
                )
    return findings


def _check_effect(known: Known) -> list[Diagnostic]:
    """Inputs that are set, or connected, and change nothing."""
    into: dict[str, list[GraphEdge]] = defaultdict(list)
    for edge in known.graph.edges:
        if not is_tool_edge(edge):
            into[edge.target].append(edge)
    findings = []
    for node in known.graph.nodes:
        node_type = known.types.get(node.id)
        if node_type is None:
            continue
        edges = into.get(node.id, ())
        idle = node_type.idle_inputs(node.config, frozenset(edge.target_port for edge in edges))
        for name, why in idle.items():
            message = f"{name} changes nothing: {why}."
            port = node_type.inputs[name]
            if name in node.config and not _is_default(node.config[name], port):
                place = f"nodes[{node.place}].config.{name}"
                findings.append(Diagnostic("INPUT_WITHOUT_EFFECT", message, place, node.id))
            for edge in edges:
                if edge.target_port == name:
                    place = f"edges[{edge.place}].targetPort"
                    findings.append(Diagnostic("INPUT_WITHOUT_EFFECT", message, place, node.id, edge.id))
    return findings


def _is_default(value: Any, port: Port) -> bool:
    try:
        fitted = fit_config(value, port)
    except Misfit:
        return True  # it is an error of its own
    return fitted is None or fitted == port.default


def is_needed(port: Port) -> bool:
    """True for an input without which its node cannot run, and that the run's own input does not fill."""
    return port.required and port.default is MISSING and port.dynamic is None and port.run_input is None
