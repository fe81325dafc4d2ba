"""Requests to a stepwell server from one event loop: authentication, retries, errors in our terms."""

import asyncio
import json
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any
from urllib.parse import quote, urlsplit

import httpx

from stepwell.errors import InternalError, Kind, ProjectNotFound, StepwellError, StorageUnavailable, error_of
from stepwell.jsontext import encode
from stepwell.store.entries import Namespace

PATIENCE_SECONDS = 20.0
_LARGE = 500_000
_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
_STREAM_TIMEOUT = httpx.Timeout(60.0, connect=10.0, read=45.0)


def address_of(ns: Namespace) -> tuple[str, dict[str, str]]:
    """Path and query of a namespace under `/api/v1`."""
    base = "/global" if ns.project_id is None else f"/projects/{ns.project_id}"
    query = {"workflow": ns.workflow, "conversation_id": ns.conversation_id}
    return f"{base}/{ns.domain}/{ns.scope}", {name: value for name, value in query.items() if value is not None}


def quoted(key: str) -> str:
    """A key as a part of a path: dots too, which proxies would take for steps up."""
    return quote(key, safe="").replace(".", "%2E")


class Client:
    """Connections to one server.

    Args:
        url: its address.
        key: the token sent with every request.
        names, patience: see `HttpBackend`.
    """

    def __init__(self, url: str, key: str, names: Mapping[str, str], patience: float) -> None:
        self._patience = patience
        self._names = names
        self._registering: dict[str, asyncio.Task[bool]] = {}
        local = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")
        self._http = httpx.AsyncClient(
            base_url=f"{url}/api/v1",
            headers={"Authorization": f"Bearer {key}"},
            timeout=_TIMEOUT,
            limits=httpx.Limits(max_connections=200, max_keepalive_connections=40),
            trust_env=not local,
        )

    async def ask(
        self, method: str, path: str, query: Mapping[str, str], body: Any = None, *, once: bool = False
    ) -> Any:
        """A request and its JSON answer; asked again for a while when the server cannot be reached.

        Args:
            once: the body has a `commit_id`, and is marked when it is sent again.

        Raises:
            StepwellError: what the server answered.
            StorageUnavailable: no answer in time.
        """
        deadline = monotonic() + self._patience
        pause = 0.05
        registered = False
        content = await _content(body)
        while True:
            try:
                answer = await self._http.request(
                    method, path, params=query, content=content, headers={"Content-Type": "application/json"}
                )
            except httpx.TransportError as error:
                failure: StepwellError = StorageUnavailable(
                    f"the server does not answer: {type(error).__name__}", hint="see whether it runs, then try again"
                )
                wait = pause
            else:
                if answer.is_success:
                    return await _decoded(answer)
                failure = _failure(answer)
                if isinstance(failure, ProjectNotFound) and not registered:
                    registered = await self._registered(path)
                    if registered:
                        continue
                if answer.status_code not in (429, 502, 503, 504) or failure.code in _FINAL:
                    raise failure
                wait = max(pause, float(answer.headers.get("Retry-After", 0)) if answer.status_code == 429 else 0)
            if monotonic() + wait > deadline:
                raise failure
            if once and isinstance(body, dict) and not body.get("repeat"):
                body["repeat"] = True
                content = await _content(body)
            await asyncio.sleep(wait * (0.5 + random.random()))
            pause = min(pause * 2, 1.0)

    @asynccontextmanager
    async def stream(
        self, method: str, path: str, query: Mapping[str, str], body: Any = None
    ) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of an answer that stays open.

        Raises:
            StepwellError: what the server answered.
            StorageUnavailable: the connection broke, or cannot be made.
        """
        content = await _content(body)
        headers = {"Content-Type": "application/json"}
        registered = False
        try:
            while True:
                async with self._http.stream(
                    method, path, params=query, content=content, timeout=_STREAM_TIMEOUT, headers=headers
                ) as answer:
                    if answer.is_success:
                        yield answer.aiter_lines()
                        return
                    await answer.aread()
                failure = _failure(answer)
                if registered or not isinstance(failure, ProjectNotFound) or not await self._registered(path):
                    raise failure
                registered = True
        except httpx.TransportError as error:
            raise StorageUnavailable(f"the connection to the server broke: {type(error).__name__}") from None

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def _registered(self, path: str) -> bool:
        """Make the project of a path known to the server, once for all who ask; False if that is not wanted."""
        parts = path.split("/")
        name = self._names.get(parts[2]) if parts[1] == "projects" and len(parts) > 3 else None
        if name is None:
            return False
        making = self._registering.get(parts[2])
        if making is None:
            making = self._registering[parts[2]] = asyncio.create_task(self._register(parts[2], name))
        return await asyncio.shield(making)

    async def _register(self, project_id: str, name: str) -> bool:
        try:
            await self.ask("PUT", f"/projects/{project_id}", {}, {"name": name[:200] or "project"})
        except StepwellError as error:
            self._registering.pop(project_id, None)
            if error.kind in (Kind.UNAVAILABLE, Kind.TOO_MANY):
                raise  # not a refusal: later it may work
            return False
        return True


# Said by the server, and not better for asking again at once.
_FINAL = frozenset({"lock_timeout", "schema_too_new", "storage_corrupt"})


def _failure(answer: httpx.Response) -> StepwellError:
    try:
        shown = answer.json()
        return error_of(
            {"code": shown["code"], "message": shown["detail"], "hint": shown.get("hint"), **shown.get("data", {})}
        )
    except (ValueError, KeyError, TypeError):
        return InternalError(
            f"the server answered {answer.status_code} without saying why", hint="is this a stepwell server?"
        )


async def _content(body: Any) -> bytes | None:
    if body is None:
        return None
    heavy = isinstance(body, dict) and _weight(body) > _LARGE
    return (await asyncio.to_thread(_encoded, body)) if heavy else _encoded(body)


def _weight(body: Mapping[str, Any]) -> int:
    """The characters of a body's large parts."""
    texts = (write.get("text") for write in body.get("writes", ()))
    return sum(len(text) for text in (*texts, body.get("markdown")) if text is not None)


def _encoded(body: Any) -> bytes:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))  # escapes would double a Chinese text
    try:
        return text.encode()
    except UnicodeEncodeError:
        # Escapes half of a surrogate pair; refuses two halves, which would be another text on the other side.
        return encode(body, max_bytes=1 << 31).encode()


async def _decoded(answer: httpx.Response) -> Any:
    if not answer.content:
        return None
    if len(answer.content) > _LARGE:
        return await asyncio.to_thread(json.loads, answer.content)
    return json.loads(answer.content)
