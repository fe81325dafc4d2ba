"""Node types: what a graph is made of, and the registry that knows them.

A node type is a class with two pydantic models and a coroutine:

    @node_type("text/upper", title="Upper case", category="text")
    class Upper:
        '''Text in capitals.'''

        class Inputs(BaseModel):
            text: str

        class Outputs(BaseModel):
            text: str

        async def run(self, inputs: Inputs, ctx: NodeContext) -> dict[str, Any]:
            return {"text": inputs.text.upper()}

`run` returns the ports that fired, with their values: a port that is not in the returned dict was not emitted. The
schemas, the ports and the checks all come from the models. Other packages add types through the entry-point group
`stepwell.nodes`, each entry a decorated class or a list of them.
"""

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from stepwell.errors import NodeTypeInvalid
from stepwell.graph.ports import MISSING, Dynamic, Misfit, Port, fit

ENTRY_POINTS = "stepwell.nodes"
RESERVED_CONFIG = ("onError", "retries", "timeout", "tool_description")
"""Settings that every node has, beside the inputs of its type; the last is what an agent is told of it as a tool."""

_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}/[a-z][a-z0-9_]{0,63}\Z")
_MARK = "__stepwell_node_type__"
_JSON_TYPES = frozenset({"string", "integer", "number", "boolean", "array", "object"})

C = TypeVar("C", bound=type)


class Declared(NamedTuple):
    """What `@node_type` was told about a class."""

    name: str
    title: str
    category: str
    is_tool: bool
    kind: str
    version: str


class NodeType(NamedTuple):
    """A node type as the registry knows it. `kind` is that of `@node`; `tool` and `llm` are durable at once."""

    name: str
    title: str
    category: str
    description: str
    version: str
    is_tool: bool
    kind: str
    implementation: type
    inputs: dict[str, Port]
    outputs: dict[str, Port]
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]

    def input_port(self, name: str) -> Port | None:
        """The input of that name, also a numbered one in its range; None if there is none."""
        return _port(self.inputs, name)

    def output_port(self, name: str) -> Port | None:
        """The output of that name, also a numbered one in its range; None if there is none."""
        return _port(self.outputs, name)

    def is_exclusive(self, config: dict[str, Any]) -> bool:
        """True if a node of this type, configured so, fires at most one of its numbered outputs."""
        decide: Callable[[dict[str, Any]], bool] | None = getattr(self.implementation, "is_exclusive", None)
        return decide is not None and decide(config)

    def idle_inputs(self, config: dict[str, Any], wired: frozenset[str]) -> dict[str, str]:
        """Inputs that change nothing in a node that is configured and connected so, each with the reason."""
        always = {port.name: port.without_effect for port in self.inputs.values() if port.without_effect}
        decide: Callable[[dict[str, Any], frozenset[str]], dict[str, str]] | None
        decide = getattr(self.implementation, "idle_inputs", None)
        return always | (decide(config, wired) if decide is not None else {})


def node_type(
    name: str, *, title: str, category: str | None = None, is_tool: bool = False, kind: str = "code", version: str = "1"
) -> Callable[[C], C]:
    """Declare a class as a node type.

    Args:
        name: `category/name`, in lower case.
        title: shown to people.
        category: the part before the slash by default.
        is_tool: an agent may be given it as a tool.
        kind: `code`, `llm`, `tool` or `output`, as for `@node`.
        version: shown in listings.

    Raises:
        NodeTypeInvalid: the name has another form.
    """
    if not _NAME.match(name):
        raise NodeTypeInvalid(f"the node type {name!r:.80} is not category/name in lower case")

    def mark(cls: C) -> C:
        setattr(cls, _MARK, Declared(name, title, category or name.partition("/")[0], is_tool, kind, version))
        return cls

    return mark


class Registry:
    """The node types of a process.

    Args:
        types: classes decorated with `@node_type`.

    Raises:
        NodeTypeInvalid: a class is not declared rightly, or two have one name.
    """

    def __init__(self, types: Iterable[type] = ()) -> None:
        self._types: dict[str, NodeType] = {}
        self.failures: list[str] = []
        for cls in types:
            self.add(cls)

    def add(self, cls: type) -> NodeType:
        """Register a class."""
        made = describe(cls)
        if made.name in self._types and self._types[made.name].implementation is not cls:
            raise NodeTypeInvalid(f"two node types are called {made.name!r}")
        self._types[made.name] = made
        return made

    def get(self, name: str) -> NodeType | None:
        """A type by name; None if it is not known."""
        return self._types.get(name)

    def names(self) -> list[str]:
        """Every name, sorted."""
        return sorted(self._types)

    def all(self) -> list[NodeType]:
        """Every type, sorted by name."""
        return [self._types[name] for name in self.names()]

    def with_types(self, *types: type) -> "Registry":
        """A registry with these types too."""
        return Registry([*(known.implementation for known in self._types.values()), *types])


@lru_cache(maxsize=1)
def default_registry() -> Registry:
    """The core types, and those of installed packages. A package that fails to load is named in `failures`."""
    from importlib.metadata import entry_points

    from stepwell.graph.nodes import CORE_TYPES

    registry = Registry(CORE_TYPES)
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            found = entry.load()
            for cls in found if isinstance(found, (list, tuple)) else (found,):
                registry.add(cls)
        except Exception as error:  # noqa: BLE001  (somebody else's package must not take the product down)
            registry.failures.append(f"{entry.name} ({entry.value}): {type(error).__name__}: {error}")
    return registry


def describe(cls: type) -> NodeType:
    """The node type that a decorated class declares.

    Raises:
        NodeTypeInvalid: something is missing, or a default is not one of its own allowed values.
    """
    declared: Declared | None = getattr(cls, _MARK, None)
    inputs, outputs = getattr(cls, "Inputs", None), getattr(cls, "Outputs", None)
    if declared is None or inputs is None or outputs is None or not callable(getattr(cls, "run", None)):
        raise NodeTypeInvalid(f"{cls.__qualname__} needs @node_type(...), Inputs, Outputs and run()")
    input_schema, output_schema = inputs.model_json_schema(), outputs.model_json_schema(mode="serialization")
    made = NodeType(
        declared.name, declared.title, declared.category, _summary(cls), declared.version, declared.is_tool,
        declared.kind, cls, _ports(input_schema), _ports(output_schema), _tidy(input_schema), _tidy(output_schema),
    )  # fmt: skip
    for port in made.inputs.values():
        if port.name in RESERVED_CONFIG:
            raise NodeTypeInvalid(f"{made.name}: the input name {port.name!r} is reserved")
        if port.default is MISSING or (port.default is None and port.nullable):
            continue
        try:
            fit(port.default, port.type, nullable=port.nullable, enum=port.enum)
        except Misfit as misfit:
            raise NodeTypeInvalid(f"{made.name}: the default of {port.name!r} does not fit it: {misfit}") from None
    return made


def _summary(cls: type) -> str:
    return " ".join((cls.__doc__ or "").split())


def _ports(schema: dict[str, Any]) -> dict[str, Port]:
    definitions = schema.get("$defs", {})
    required = set(schema.get("required", ()))
    return {
        name: _port_of(name, property_, name in required, definitions)
        for name, property_ in schema.get("properties", {}).items()
    }


def _port_of(name: str, schema: dict[str, Any], required: bool, definitions: dict[str, Any]) -> Port:
    members = [_resolved(member, definitions) for member in schema.get("anyOf", ())]
    nullable = any(member.get("type") == "null" for member in members)
    members = [member for member in members if member.get("type") != "null"]
    whole = _resolved(schema, definitions)
    if len(members) == 1:
        whole = members[0] | {key: value for key, value in schema.items() if key != "anyOf"}
    json_type = whole.get("type") if len(members) < 2 else None
    port_type = str(whole.get("x-port-type") or (json_type if json_type in _JSON_TYPES else "any"))
    enum = tuple(whole["enum"]) if "enum" in whole else ((whole["const"],) if "const" in whole else ())
    dynamic = whole.get("x-dynamic-array")
    made = (
        Dynamic(dynamic["portPrefix"], dynamic["minPorts"], dynamic["maxPorts"], dynamic["portType"])
        if dynamic
        else None
    )
    default = schema.get("default", MISSING)
    if port_type in ("any", "json") and not members:
        nullable = True
    return Port(
        name, port_type, required, default, nullable, enum, whole.get("description", ""), made,
        whole.get("x-run-input"), bool(whole.get("x-secret")), bool(whole.get("x-workflow-only")),
        str(whole.get("x-without-effect", "")),
    )  # fmt: skip


def _resolved(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    reference = schema.get("$ref")
    if reference is None:
        return schema
    target: dict[str, Any] = definitions.get(str(reference).rpartition("/")[2], {})
    return target | {key: value for key, value in schema.items() if key != "$ref"}


def _tidy(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without pydantic's generated titles: they say nothing that the names do not."""
    tidied = {key: value for key, value in schema.items() if key not in ("title", "description")}
    tidied["properties"] = {
        name: {key: value for key, value in property_.items() if key != "title"}
        for name, property_ in schema.get("properties", {}).items()
    }
    return tidied


def _port(ports: dict[str, Port], name: str) -> Port | None:
    own = ports.get(name)
    if own is not None:
        return own
    for port in ports.values():
        if port.dynamic is not None:
            index = port.dynamic.number(name)
            if index is not None and index < port.dynamic.max_ports:
                return Port(name, port.dynamic.type, nullable=True, description=port.description)
    return None
