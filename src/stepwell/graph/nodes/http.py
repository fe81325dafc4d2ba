"""HTTP requests, kept away from this machine and its network's own services."""

import asyncio
import hashlib
import ipaddress
import os
import socket
from time import monotonic
from typing import Annotated, Any, Literal
from urllib.parse import urljoin, urlsplit

from pydantic import BaseModel

from stepwell.errors import InvalidArgument, NodeRefused, NodeTimeout
from stepwell.graph.artifacts import artifact_of
from stepwell.graph.node_context import NodeContext
from stepwell.graph.nodes.credential import variable_of
from stepwell.graph.ports import WORKFLOW_ONLY, typed
from stepwell.graph.registry import node_type

ALLOW_VARIABLE = "STEPWELL_HTTP__ALLOW"
"""Hosts, `host:port` pairs and networks that requests may reach although they are private, separated by commas."""

MAX_REDIRECTS = 5
INLINE_BYTES = 64 * 1024
MAX_BODY_BYTES = 32 * 1024 * 1024
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/javascript", "application/x-ndjson")


@node_type("tools/http", title="HTTP request", is_tool=True, kind="tool")
class HttpRequest:
    """Sends a request. Loopback, link-local and private addresses are refused unless the environment allows them."""

    class Inputs(BaseModel):
        url: str
        method: Literal["GET", "POST", "PUT", "DELETE", "PATCH"] = "GET"
        headers: dict[str, Any] = {}
        body: str | None = None
        body_artifact: typed("file", dict[str, Any] | str | None) = None  # type: ignore[valid-type]
        body_artifact_uri: str | None = None
        credential_id: Annotated[str | None, WORKFLOW_ONLY] = None
        mode: Literal["manual", "llm"] = "manual"
        request_profile: Literal["general", "discovery"] = "general"
        timeout_seconds: float = 30

    class Outputs(BaseModel):
        body: str
        body_artifact: typed("file", dict[str, Any])  # type: ignore[valid-type]
        body_bytes: int
        body_mime_type: str
        body_preview: dict[str, Any]
        body_sha256: str
        body_truncated: bool
        credential_used: bool
        download_filename: str
        elapsed_ms: int
        headers: dict[str, Any]
        location: str
        mode: str
        retained_bytes: int
        status_code: int
        timeout_seconds: int

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        began = monotonic()
        headers = {str(name): str(value) for name, value in inputs.headers.items()}
        content = inputs.body.encode() if inputs.body is not None else None
        source = inputs.body_artifact or inputs.body_artifact_uri
        if content is None and source is not None:
            content = await ctx.run.files.read(artifact_of(source))
        if inputs.credential_id:
            headers["Authorization"] = f"Bearer {_secret(inputs.credential_id)}"
        answer = await send_request(inputs.method, inputs.url, headers, content, inputs.timeout_seconds)
        mime = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        emitted: dict[str, Any] = {
            "status_code": answer.status, "headers": answer.headers, "mode": inputs.mode,
            "body_bytes": len(answer.body), "body_mime_type": mime, "credential_used": bool(inputs.credential_id),
            "body_sha256": hashlib.sha256(answer.body).hexdigest(), "timeout_seconds": round(inputs.timeout_seconds),
            "elapsed_ms": round((monotonic() - began) * 1_000),
        }  # fmt: skip
        if "location" in answer.headers:
            emitted["location"] = answer.headers["location"]
        is_text = mime == "" or mime.startswith(_TEXT_TYPES) or mime.endswith(("+json", "+xml"))
        limit = INLINE_BYTES if inputs.request_profile == "general" else INLINE_BYTES // 4
        text = answer.body[:limit].decode(answer.charset, "replace") if is_text else ""
        emitted |= {"body": text, "body_truncated": not is_text or len(answer.body) > limit}
        emitted["retained_bytes"] = min(len(answer.body), limit) if is_text else 0
        if emitted["body_truncated"] and answer.body:
            name = _file_name(inputs.url)
            stored = await ctx.run.files.write(name, answer.body, media_type=mime if "/" in mime else None)
            emitted |= {"body_artifact": stored.to_dict(), "download_filename": name}
        return emitted


class HttpAnswer:
    """What a server answered. `headers` are by lower-case name."""

    def __init__(self, status: int, headers: dict[str, str], charset: str, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.charset = charset
        self.body = body


async def send_request(
    method: str, url: str, headers: dict[str, str], content: bytes | None, seconds: float
) -> HttpAnswer:
    """Send a request to a target that may be reached, following redirects to such targets.

    Raises:
        NodeRefused: the target is not allowed, cannot be reached, or answers too much. NodeTimeout.
    """
    import httpx

    try:
        async with asyncio.timeout(max(0.001, min(seconds, 600))) as limit:
            return await _send(method, url, headers, content)
    except TimeoutError:
        if limit.expired():
            raise NodeTimeout(f"{url!r:.200} did not answer within {seconds:g} s") from None
        raise
    except httpx.HTTPError as error:
        raise NodeRefused(f"{url!r:.200} cannot be reached: {str(error) or type(error).__name__}") from None


async def _send(method: str, url: str, headers: dict[str, str], content: bytes | None) -> HttpAnswer:
    import httpx

    first = _origin(url)
    for _ in range(MAX_REDIRECTS + 1):
        host, address = await _checked_target(url)
        sent = dict(headers)
        if _origin(url) != first:  # what is meant for one host is not for the one it points at
            sent = {name: value for name, value in sent.items() if name.lower() in _FOR_EVERYBODY}
        # The name was looked up and checked; the connection goes to that very address.
        transport = _Pinned(host, address)
        async with (
            httpx.AsyncClient(transport=transport, follow_redirects=False, timeout=600, trust_env=False) as client,
            client.stream(method, url, headers=sent, content=content) as response,
        ):
            target = response.headers.get("location")
            if response.status_code in (301, 302, 303, 307, 308) and target and method in ("GET", "POST"):
                url = urljoin(url, target)
                if response.status_code == 303 or (method == "POST" and response.status_code in (301, 302)):
                    method, content = "GET", None
                continue
            body = b""
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise NodeRefused(f"the answer of {host} is over {MAX_BODY_BYTES:,} bytes", url=url[:200])
            return HttpAnswer(response.status_code, dict(response.headers), _charset(response.charset_encoding), body)
    raise NodeRefused(f"over {MAX_REDIRECTS} redirects", url=url[:200])


def _charset(named: str | None) -> str:
    """The encoding a server names, if it is one of texts; else UTF-8."""
    try:
        b"text".decode(named or "utf-8", "replace")
    except LookupError:
        return "utf-8"
    return named or "utf-8"


def _Pinned(host: str, address: str) -> Any:  # noqa: N802  (a class in all but the late import)
    import httpcore
    import httpx

    class Backend(httpcore.AnyIOBackend):
        """Connects to the address that was checked, whatever the name says by now."""

        async def connect_tcp(self, host: str, port: int, *args: Any, **kwargs: Any) -> Any:
            return await super().connect_tcp(address, port, *args, **kwargs)

    transport = httpx.AsyncHTTPTransport(retries=0)
    transport._pool._network_backend = Backend()  # noqa: SLF001  (httpx has no public way to choose the address)
    return transport


async def _checked_target(url: str) -> tuple[str, str]:
    """The host of a URL and one of its addresses that may be reached.

    Raises:
        InvalidArgument: no http(s) URL. NodeRefused: it points at this machine or a private network.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError as error:
        raise InvalidArgument(f"{url!r:.200} is not a URL: {error}", argument="url") from None
    if parts.scheme not in ("http", "https") or not host:
        raise InvalidArgument(f"{url!r:.200} is not an http(s) URL", argument="url")
    if parts.username or parts.password:
        raise InvalidArgument("the URL holds a password", hint="use credential_id", argument="url")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NodeRefused(f"the host {host!r:.120} is not known: {error}", url=url[:200]) from None
    for *_, sockaddr in found:
        address = str(sockaddr[0]).partition("%")[0]
        if is_allowed(host, port, address):
            return host, address
    raise NodeRefused(
        f"{host!r:.120} is on this machine or in a private network", url=url[:200],
        hint=f"whoever runs stepwell can allow it with {ALLOW_VARIABLE}={host}:{port}",
    )  # fmt: skip


# IPv6 addresses that stand for an IPv4 address: behind a gateway they reach what that one reaches.
_STAND_FOR_IPV4 = tuple(map(ipaddress.ip_network, ("64:ff9b::/96", "64:ff9b:1::/48", "::/96")))
_METADATA = frozenset({"168.63.129.16", "192.0.0.192"})  # of clouds, at addresses that look public
_FOR_EVERYBODY = frozenset({"accept", "accept-language", "content-type", "user-agent"})


def is_allowed(host: str, port: int, address: str) -> bool:
    """True for a public address, and for what the environment allows."""
    ip: Any = ipaddress.ip_address(address)
    mapped = getattr(ip, "ipv4_mapped", None) or getattr(ip, "sixtofour", None)
    if ip.version == 6 and any(ip in network for network in _STAND_FOR_IPV4):
        mapped = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    is_public = ip.is_global and not ip.is_multicast and not getattr(ip, "is_site_local", False)
    if is_public and str(mapped or ip) not in _METADATA and (mapped is None or mapped.is_global):
        return True
    for allowed in filter(None, (part.strip() for part in os.environ.get(ALLOW_VARIABLE, "").split(","))):
        if allowed in (host, f"{host}:{port}", address, f"{address}:{port}"):
            return True
        try:
            network = ipaddress.ip_network(allowed, strict=False)
        except ValueError:
            continue
        if ip in network:
            return True
    return False


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port


def _secret(name: str) -> str:
    found = os.environ.get(variable_of(name))
    if not found:
        raise NodeRefused(f"there is no credential {name!r:.60}", hint=f"set the variable {variable_of(name)}")
    return found


def _file_name(url: str) -> str:
    last = urlsplit(url).path.rpartition("/")[2]
    made = "".join(character for character in last if character.isalnum() or character in "._- ").strip(". ")
    return made[:120] or "body"
