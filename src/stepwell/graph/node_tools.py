"""A node as a tool of an agent."""

import inspect
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwell.authoring.calls import NodeSpec, call
from stepwell.graph.format import GraphNode
from stepwell.graph.inputs import Delivered, checked, emitted, gather
from stepwell.graph.node_context import NodeContext, Services
from stepwell.graph.ports import MISSING
from stepwell.graph.registry import NodeType

if TYPE_CHECKING:
    from stepwell.authoring.context import Context


class NodeTool(NamedTuple):
    """A node that an agent may call: what the workflow configures or wires is fixed, the rest are arguments."""

    node: GraphNode
    type: NodeType
    ctx: "Context"
    services: Services
    wired: dict[str, Delivered]
    port: str

    @property
    def name(self) -> str:
        """How the model calls it: the node's name or its type's, as an identifier of up to 64 characters."""
        own = self.node.name or self.node.type.rpartition("/")[2]
        made = re.sub(r"\W+", "_", own.lower(), flags=re.ASCII).strip("_")[:64]
        return made or self.node.type.replace("/", "_")

    @property
    def description(self) -> str:
        """What it does: the node's own description, or its type's."""
        own = self.node.config.get("tool_description")
        return own if isinstance(own, str) and own else self.type.description

    @property
    def _fixed(self) -> set[str]:
        """The inputs that are not the agent's: configured, wired, or deciding what the node is allowed to do."""
        configured = {name for name, value in self.node.config.items() if value is not None}
        return configured | set(self.wired) | {port.name for port in self.type.inputs.values() if port.workflow_only}

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the inputs that the workflow leaves open."""
        schema = self.type.input_schema
        properties = {
            name: _plain(property_)
            for name, property_ in schema.get("properties", {}).items()
            if name not in self._fixed and self.type.inputs[name].dynamic is None
        }
        required = [name for name in schema.get("required", ()) if name in properties]
        shown: dict[str, Any] = {"type": "object", "properties": properties}
        if required:
            shown["required"] = required
        if "$defs" in schema:
            shown["$defs"] = schema["$defs"]
        return shown

    async def call(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Run the node with the agent's arguments; what the workflow fixed wins over them."""
        open_ = {name: value for name, value in arguments.items() if name not in self._fixed}
        gathered = gather(self.node, self.type, self.wired, open_, MISSING)

        async def execute(inputs: dict[str, Any]) -> dict[str, Any]:
            made = checked(self.node, self.type, gathered._replace(values=inputs))
            context = NodeContext(self.ctx, self.node, self.type, frozenset(inputs), (), self.services)
            returned = await self.type.implementation().run(made, context)
            return emitted(self.node, self.type, returned)

        # The call of the tool is a node of its own around this one, and the one that counts as a tool call.
        spec = NodeSpec(
            self.node.id, "code", 0, self.node.config.get("timeout"), durable=True, replay=True, returns=None,
            details={"title": self.node.label, "node_type": self.node.type},
        )  # fmt: skip
        result: dict[str, Any] = await call(spec, execute, _SIGNATURE, (gathered.values,), {})
        return result


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """A property as models expect it: without our own marks."""
    return {key: value for key, value in schema.items() if not key.startswith("x-")}


def _shape(inputs: dict[str, Any]) -> None:
    """The signature under which tool calls are recorded."""


_SIGNATURE = inspect.signature(_shape)
