"""What a node of a graph is given beside its inputs."""

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from stepwell.authoring.context import Context
    from stepwell.graph.folder import WorkflowFolder
    from stepwell.graph.format import GraphNode
    from stepwell.graph.registry import NodeType, Registry

MAX_NESTING = 16


class Services(NamedTuple):
    """What all nodes of a graph run share.

    `stack` holds the keys of the workflows that called this one, and its own; `loaded` what was read of a workflow when
    it was first called: a run sees each workflow as it was then; `shown` the texts that models wrote to its output.
    """

    registry: "Registry"
    folder: "WorkflowFolder"
    stack: tuple[str, ...]
    max_parallelism: int
    loaded: dict[str, Any]
    shown: list[str]


class BoundTool(Protocol):
    """A node that an agent may call."""

    @property
    def name(self) -> str:
        """How the model calls it."""
        ...

    @property
    def description(self) -> str:
        """What it does."""
        ...

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of its arguments: the inputs that the workflow leaves open."""
        ...

    async def call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run it with these arguments; returns what it emitted."""
        ...


class NodeContext(NamedTuple):
    """The context of one node call.

    Attributes:
        run: the run's own context: storage, files, knowledge, output, log, cancellation.
        node: the node as the workflow holds it.
        type: its type.
        given: the names of the inputs that an edge or the configuration gave a value.
        tools: the nodes wired to its tool ports.
        services: what the whole run shares.
    """

    run: "Context"
    node: "GraphNode"
    type: "NodeType"
    given: frozenset[str]
    tools: tuple[BoundTool, ...]
    services: Services
