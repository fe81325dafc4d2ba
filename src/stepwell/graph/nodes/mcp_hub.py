"""Tools of MCP servers, over Streamable HTTP."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel

from stepwell.errors import InvalidArgument, NodeRefused
from stepwell.graph.node_context import NodeContext
from stepwell.graph.nodes.http import send_request
from stepwell.graph.ports import WORKFLOW_ONLY, without_effect
from stepwell.graph.registry import node_type
from stepwell.graph.similar import closest

PROTOCOL = "2025-06-18"
MAX_PAGES = 20
_TOOLS = "tool_names says which tools there are"


@node_type("tools/mcp_hub", title="MCP servers", is_tool=True, kind="tool")
class McpHub:
    """Lists, describes or calls tools of MCP servers: `server_registry` is `[{"name", "url", "headers"}]`.

    Servers are reached over HTTP; addresses of this machine have to be allowed as for tools/http.
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
        env_vars: Annotated[dict[str, Any] | None, without_effect("servers are reached over HTTP, with headers")] = None

    class Outputs(BaseModel):
        result: dict[str, Any]

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        servers = [server for server in inputs.server_registry if isinstance(server, dict) and server.get("url")]
        if not servers:
            raise InvalidArgument("server_registry has no server with a url", argument="server_registry")
        sessions = [_Session(server, inputs.timeout_ms / 1_000) for server in servers]
        tools: dict[str, tuple[_Session, dict[str, Any]]] = {}
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


class _Session:
    """A session with one server."""

    def __init__(self, server: dict[str, Any], seconds: float) -> None:
        self.name = str(server.get("name") or server["url"])
        self._url = str(server["url"])
        self._headers = {str(name): str(value) for name, value in (server.get("headers") or {}).items()}
        self._headers |= {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        self._seconds = seconds
        self._number = 0
        self._open = False

    async def tools(self) -> list[dict[str, Any]]:
        """Every tool of the server."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await self.ask("tools/list", {"cursor": cursor} if cursor else {})
            found += [tool for tool in page.get("tools", ()) if isinstance(tool, dict) and tool.get("name")]
            cursor = page.get("nextCursor")
            if not cursor:
                break
        return found

    async def ask(self, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """The result of a request.

        Raises:
            NodeRefused: the server refused it, or gave no answer that can be read.
        """
        if not self._open and method != "initialize":
            self._open = True
            info = {"name": "stepwell", "version": "1"}
            await self.ask("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": info})
            await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self._number += 1
        answer = await self._post({"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters})
        for reply in answer:
            if reply.get("id") == self._number:
                if "error" in reply:
                    told = str((reply["error"] or {}).get("message", reply["error"]))
                    raise NodeRefused(f"{self.name}: {method}: {told[:500]}")
                result = reply.get("result")
                return result if isinstance(result, dict) else {}
        raise NodeRefused(f"{self.name}: {method} was not answered")

    async def _post(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        answer = await send_request("POST", self._url, self._headers, json.dumps(request).encode(), self._seconds)
        if answer.status >= 400:
            raise NodeRefused(f"{self.name} answered {answer.status}: {answer.body[:300].decode('utf-8', 'replace')}")
        if "mcp-session-id" in answer.headers:
            self._headers["Mcp-Session-Id"] = answer.headers["mcp-session-id"]
        text = answer.body.decode("utf-8", "replace")
        if "text/event-stream" in answer.headers.get("content-type", ""):
            events = text.replace("\r\n", "\n").split("\n\n")
            bodies = [
                "\n".join(line[5:].lstrip() for line in e.split("\n") if line.startswith("data:")) for e in events
            ]
        else:
            bodies = [text]
        replies = []
        for body in bodies:
            if body.strip():
                try:
                    read = json.loads(body)
                except ValueError:
                    raise NodeRefused(f"{self.name} gave no JSON: {body[:200]!r}") from None
                replies += read if isinstance(read, list) else [read]
        return [reply for reply in replies if isinstance(reply, dict)]
