"""Tools of MCP servers, over Streamable HTTP or as programs of this machine."""

import asyncio
import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from stepwell.errors import InvalidArgument, NodeRefused
from stepwell.graph.node_context import NodeContext
from stepwell.graph.nodes.credential import PREFIX
from stepwell.graph.nodes.mcp_sessions import HttpSession, Session
from stepwell.graph.nodes.mcp_stdio import StdioSession
from stepwell.graph.ports import WORKFLOW_ONLY, fit, without_effect
from stepwell.graph.registry import node_type
from stepwell.graph.similar import closest

_FIELDS = frozenset({"name", "url", "headers", "command", "args", "env", "type"})
_TOOLS = "tool_names says which tools there are"


@node_type("tools/mcp_hub", title="MCP servers", is_tool=True, kind="tool")
class McpHub:
    """Lists, describes or calls tools of MCP servers: `server_registry` has `{"name", "url", "headers"}` each.

    Addresses of this machine have to be allowed as for tools/http. A server that is a program, `{"name", "command",
    "args", "env"}`, has to be allowed too, and gets the variables `env_vars`.
    """

    class Inputs(BaseModel):
        action: Literal["list", "describe", "call"] = "list"
        server_registry: Annotated[list[Any], WORKFLOW_ONLY] = []
        tool_name: str | None = None
        tool_names: list[Any] | None = None
        arguments: dict[str, Any] | None = None
        discover_only: bool = False
        timeout_ms: int = 30_000
        tool_visibility: Annotated[str | None, without_effect(_TOOLS)] = None
        visibility_config: Annotated[dict[str, Any] | None, without_effect(_TOOLS)] = None
        env_vars: Annotated[dict[str, Any] | None, WORKFLOW_ONLY] = None

    class Outputs(BaseModel):
        result: dict[str, Any]

    @staticmethod
    def idle_inputs(config: dict[str, Any], wired: frozenset[str]) -> dict[str, str]:
        """Variables are for programs: where there is none, they change nothing."""
        listed = config.get("server_registry")
        if "server_registry" in wired or not isinstance(listed, list):
            return {}
        if any(isinstance(server, dict) and server.get("command") for server in listed):
            return {}
        return {"env_vars": "only servers with a command have an environment; those with a url take headers"}

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        if not inputs.server_registry:
            raise InvalidArgument("server_registry names no server", argument="server_registry")
        sessions = [_session(server, number, inputs, ctx) for number, server in enumerate(inputs.server_registry)]
        try:
            return await _answer(inputs, sessions)
        finally:
            await asyncio.gather(*(session.close() for session in sessions))


def _session(server: Any, number: int, inputs: Any, ctx: NodeContext) -> Session:
    """The session with a server of the registry.

    Raises:
        InvalidArgument: it is no server. NodeRefused: it is a program that may not be started.
    """
    seconds = inputs.timeout_ms / 1_000
    for field in server if isinstance(server, dict) else ():
        if field not in _FIELDS:
            ctx.run.log(f"server_registry[{number}]: {field!r:.60} is not known and changes nothing", level="warning")
    if isinstance(server, dict) and server.get("url"):
        return HttpSession(server, seconds)
    if not isinstance(server, dict) or not server.get("command"):
        raise InvalidArgument(f"server_registry[{number}] has neither a url nor a command", argument="server_registry")
    if server not in fit(ctx.node.config.get("server_registry") or [], "array"):
        raise NodeRefused(
            f"server_registry[{number}] is a program that the workflow file does not name",
            hint="set server_registry in the config of the node: programs are not taken from edges",
        )
    variables = _texts(server.get("env"), "env") | _variables(inputs, ctx)
    return StdioSession(server, variables, ctx.run.project.folder, seconds)


def _variables(inputs: Any, ctx: NodeContext) -> dict[str, str]:
    """The environment of programs. What names a credential stands for it; texts come from the workflow file only."""
    own = fit(ctx.node.config.get("env_vars") or {}, "object")
    variables: dict[str, str] = {}
    for name, value in (inputs.env_vars or {}).items():
        if (isinstance(value, str) and value.startswith(PREFIX)) or (name in own and own[name] == value):
            variables |= _texts({name: value}, "env_vars")
        else:
            raise NodeRefused(
                f"env_vars.{name} names no credential", hint="connect env_vars of utils/credential, or set it in config"
            )
    return variables


def _texts(variables: Mapping[str, Any] | None, field: str) -> dict[str, str]:
    """Variables as texts; what names a credential is replaced by it."""
    made = {}
    for name, value in (variables or {}).items():
        made[name] = str(value)
        if made[name].startswith(PREFIX):
            if not os.environ.get(made[name]):
                raise NodeRefused(f"{field}.{name} has no value", hint=f"set {made[name]}")
            made[name] = os.environ[made[name]]
    return made


async def _answer(inputs: Any, sessions: list[Session]) -> dict[str, Any]:
    tools: dict[str, tuple[Session, dict[str, Any]]] = {}
    for session in sessions:
        for tool in await session.tools():
            name = tool["name"] if tool["name"] not in tools else f"{session.name}.{tool['name']}"
            tools[name] = (session, tool)
    wanted = set(map(str, inputs.tool_names)) if inputs.tool_names else None
    tools = {name: found for name, found in tools.items() if wanted is None or name in wanted}
    if inputs.action == "list":
        listed = [
            {"name": name, "server": session.name, "description": str(tool.get("description", ""))[:500]}
            for name, (session, tool) in tools.items()
        ]
        return {"result": {"tools": listed}}
    name = inputs.tool_name or ""
    if name not in tools:
        close = closest(name, tools, limit=1)
        raise InvalidArgument(
            f"no server has a tool {name!r:.80}", argument="tool_name",
            hint=f"did you mean {close[0]}?" if close else f"there are: {', '.join(list(tools)[:20])}",
        )  # fmt: skip
    session, tool = tools[name]
    if inputs.action == "describe" or inputs.discover_only:
        return {"result": tool}
    return {"result": await session.ask("tools/call", {"name": tool["name"], "arguments": inputs.arguments or {}})}
