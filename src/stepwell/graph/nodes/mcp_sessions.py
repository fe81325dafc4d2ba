"""Sessions with MCP servers over Streamable HTTP."""

import json
from typing import Any

from stepwell.errors import NodeRefused
from stepwell.graph.nodes.http import send_request

PROTOCOL = "2025-06-18"
MAX_PAGES = 20


class Session:
    """A session with one server: requests, and the answers to them.

    Args:
        name: shown, and before the names of tools that several servers have.
    """

    def __init__(self, name: str) -> None:
        self.name = name
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
            NodeRefused: the server refused it, or gave no answer that can be read. NodeTimeout.
        """
        if not self._open and method != "initialize":
            self._open = True
            info = {"name": "stepwell", "version": "1"}
            await self.ask("initialize", {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": info})
            await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self._number += 1
        answer = await self.send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": parameters})
        for reply in answer:
            if reply.get("id") == self._number and "method" not in reply:
                if "error" in reply:
                    told = reply["error"].get("message") if isinstance(reply["error"], dict) else reply["error"]
                    raise NodeRefused(f"{self.name}: {method}: {str(told)[:500]}")
                result = reply.get("result")
                return result if isinstance(result, dict) else {}
        raise NodeRefused(f"{self.name}: {method} was not answered")

    async def send(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Send a message; what the server says to it, of which one is the answer if the message is a request."""
        raise NotImplementedError

    async def close(self) -> None:
        """End what the session started."""


class HttpSession(Session):
    """A session over HTTP.

    Args:
        server: an entry of the registry, with `url` and, if wanted, `name` and `headers`.
        seconds: for each request.
    """

    def __init__(self, server: dict[str, Any], seconds: float) -> None:
        super().__init__(str(server.get("name") or server["url"]))
        self._url = str(server["url"])
        self._headers = {str(name): str(value) for name, value in (server.get("headers") or {}).items()}
        self._headers |= {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        self._seconds = seconds

    async def send(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Post a message; the answer may be one JSON value or a stream of events."""
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
