"""From what came over edges and what is configured to the inputs of a node."""

from typing import Any, NamedTuple

from stepwell.errors import MissingRequiredInput, NodeInputType, NodeOutputInvalid, StepwellError, ValueNotSerializable
from stepwell.graph.diagnostics import quoted
from stepwell.graph.format import GraphNode
from stepwell.graph.ports import MISSING, Misfit, Port, fit, isolated
from stepwell.graph.registry import RESERVED_CONFIG, NodeType
from stepwell.graph.validation import fit_config, is_needed
from stepwell.jsontext import encode

UNLIMITED = 1 << 40


class Delivered(NamedTuple):
    """A value that came over an edge, and from where."""

    value: Any
    source: str
    source_port: str


class Gathered(NamedTuple):
    """The values for a node by port, before they are checked; `sources` names where wired ones came from."""

    values: dict[str, Any]
    sources: dict[str, str]


def gather(
    node: GraphNode, node_type: NodeType, wired: dict[str, Delivered], overrides: dict[str, Any], run_input: Any
) -> Gathered:
    """The values a node is given: from live edges, else the run's input, else the configuration.

    Args:
        wired: what came over edges, by target port.
        overrides: values that the run was started with for this node.
        run_input: the run's own input, or MISSING.
    """
    values = {
        name: value for name, value in node.config.items() if name not in RESERVED_CONFIG and value is not None
    } | overrides  # fmt: skip
    if run_input is not MISSING:
        for port in node_type.inputs.values():
            if port.run_input is not None and port.name not in wired:
                _take_run_input(values, node_type, port, run_input)
    sources = {}
    for name, delivered in wired.items():
        values[name] = isolated(delivered.value)
        sources[name] = f"{quoted(delivered.source, 60)}.{delivered.source_port}"
    return Gathered({name: value for name, value in values.items() if node_type.input_port(name) is not None}, sources)


def _take_run_input(values: dict[str, Any], node_type: NodeType, port: Port, run_input: Any) -> None:
    """A text goes into the port itself; anything else into its partner for JSON, where the type has one."""
    if port.run_input == "missing" and any(values.get(name) not in (None, "") for name in ("text", "json_text")):
        return
    if isinstance(run_input, str) or port.type in ("any", "json"):
        values[port.name] = run_input
    elif "json_text" in node_type.inputs:
        values["json_text"] = encode(run_input)
    else:
        values[port.name] = encode(run_input)


def checked(node: GraphNode, node_type: NodeType, gathered: Gathered) -> Any:
    """The node's inputs as its model.

    Raises:
        NodeInputType: a value does not fit its port; names source and target.
        MissingRequiredInput: nothing gave a required input.
    """
    static: dict[str, Any] = {}
    numbered: dict[str, dict[int, Any]] = {}
    for name, value in gathered.values.items():
        port = node_type.input_port(name)
        if port is None:
            continue
        source = gathered.sources.get(name)
        try:
            if source is None:
                fitted = fit_config(value, port)
                if fitted is None and not port.nullable:
                    continue
            else:
                fitted = fit(value, port.type, nullable=port.nullable, enum=port.enum)
        except Misfit as misfit:
            where = f"{source} → {quoted(node.label, 60)}.{name}" if source else f"{quoted(node.label, 60)}.{name}"
            raise NodeInputType(
                f"{where}: {misfit}", hint="a utils/type_cast node converts values", node_id=node.id, port=name
            ) from None
        if name in node_type.inputs:
            static[name] = fitted
        else:
            array, number = _slot(node_type, name)
            numbered.setdefault(array, {})[number] = fitted
    for array, slots in numbered.items():
        filled = list(static.get(array) or [])
        filled += [None] * (max(slots) + 1 - len(filled))
        for number, value in slots.items():
            filled[number] = value
        static[array] = filled
    missing = [port.name for port in node_type.inputs.values() if is_needed(port) and port.name not in static]
    missing += [
        port.name
        for port in node_type.inputs.values()
        if port.required and port.run_input is not None and port.name not in static
    ]
    if missing:
        raise MissingRequiredInput(
            f"{quoted(node.label, 60)} needs {', '.join(missing)}",
            hint="connect it, set it in config, or give the run an input", node_id=node.id, ports=missing,
        )  # fmt: skip
    from pydantic import ValidationError

    try:
        return node_type.implementation.Inputs.model_validate(static)  # type: ignore[attr-defined]
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors()]
        raise NodeInputType(
            f"{quoted(node.label, 60)}: {'; '.join(problems)}", node_id=node.id, problems=problems
        ) from None


def _slot(node_type: NodeType, name: str) -> tuple[str, int]:
    for port in node_type.inputs.values():
        if port.dynamic is not None and (number := port.dynamic.number(name)) is not None:
            return port.name, number
    raise AssertionError(name)


def emitted(node: GraphNode, node_type: NodeType, returned: Any) -> dict[str, Any]:
    """What a node emitted, by port.

    Raises:
        NodeOutputInvalid: not an object, a port the type does not have, or a value that is not JSON.
    """
    if hasattr(returned, "model_dump"):
        returned = returned.model_dump(mode="json", exclude_unset=True)
    if not isinstance(returned, dict):
        raise NodeOutputInvalid(
            f"{node_type.name} returned {type(returned).__name__}, not a dict of ports", node_id=node.id
        )
    for port in returned:
        if node_type.output_port(port) is None:
            raise NodeOutputInvalid(f"{node_type.name} has no output {port!r:.80}", node_id=node.id)
    try:
        encode(returned, max_bytes=UNLIMITED)
    except ValueNotSerializable as error:
        raise NodeOutputInvalid(
            f"{node_type.name} returned what is not JSON at {error.message}", node_id=node.id, path=error.data["path"]
        ) from None
    except StepwellError as error:
        raise NodeOutputInvalid(f"{node_type.name}: {error.message}", node_id=node.id) from None
    return returned
