"""The application: routes, errors and what wraps every request."""

import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

import stepwell
from stepwell.errors import InternalError, OriginRefused, RequestTooLarge, StepwellError
from stepwell.server import logs
from stepwell.server.problem import of_http, of_validation, problem
from stepwell.server.routes import accounts, health, knowledge, projects, related, storage, streams, workbench
from stepwell.server.services import Services

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
_LOCAL = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?\Z")
_PORT = re.compile(r":\d+\Z")
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cache-control", b"no-store"),
]
ROUTES = (storage, streams, knowledge, related, workbench, projects, accounts, health)  # the most used first


def create_app(held: Services, *, hosts: Sequence[str] | None = None, origins: Sequence[str] = ()) -> FastAPI:
    """The API as an ASGI application.

    Args:
        held: what it works with; closed by the caller.
        hosts: names under which requests may come, besides local ones: others come from a page that had its name
            point here. None allows all.
        origins: web origins that may call it from a browser, besides its own.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await held.backend.prepare()
        yield
        held.streams.closing.set()

    app = FastAPI(
        title="stepwell", version=stepwell.__version__, openapi_url="/api/openapi.json", docs_url=None, redoc_url=None,
        lifespan=lifespan, redirect_slashes=False,
    )  # fmt: skip
    app.state.services = held
    for module in ROUTES:
        app.include_router(module.router, prefix="" if module is health else "/api/v1")
    app.add_exception_handler(StepwellError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]
    app.add_middleware(_Envelope, held=held, hosts=hosts, origins=origins)
    return app


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, StepwellError)  # noqa: S101  (registered for these)
    return problem(error, request)


async def _on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    return problem(of_validation(list(error.errors())), request)


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    answer = problem(of_http(error.status_code, request), request, status=error.status_code)
    answer.headers.update(error.headers or {})
    return answer


def _document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, routes=app.routes)
        components = document.setdefault("components", {})
        components.setdefault("schemas", {})["Problem"] = {
            "type": "object",
            "required": ["type", "title", "status", "detail", "code", "request_id"],
            "properties": {
                name: {"type": "string"} for name in ("type", "title", "detail", "code", "hint", "request_id")
            }
            | {"status": {"type": "integer"}, "data": {"type": "object"}},
        }
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
                if operation.get("x-role") != "public":
                    operation["security"] = [{"key": []}]
        app.openapi_schema = document
    return app.openapi_schema


class _Envelope:
    """What is the same for every request: an id, limits on its size, safe headers, one log line, figures."""

    def __init__(self, app: ASGIApp, *, held: Services, hosts: Sequence[str] | None, origins: Sequence[str]) -> None:
        self._app = app
        self._held = held
        self._hosts = None if hosts is None else frozenset(name.lower() for name in hosts)
        self._origins = frozenset(origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = perf_counter()
        headers = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = scope["stepwell.request_id"] = given if _REQUEST_ID.match(given) else secrets.token_hex(8)
        status = 500
        begun = False

        async def answer(message: Message) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                status, begun = message["status"], True
                message["headers"] = [*message.get("headers", ()), *_HEADERS, (b"x-request-id", request_id.encode())]
                route = getattr(scope.get("route"), "path", "unknown")
                self._held.metrics.count(scope["method"], route, status, perf_counter() - started)
            await send(message)

        try:
            self._check_origin(headers)
            await self._app(scope, self._limited(headers, receive), answer)
        except StepwellError as error:
            if begun:
                raise  # too late for another answer: the connection is cut, so that nobody takes it for whole
            await problem(error, Request(scope))(scope, receive, answer)
        except Exception as error:
            logs.failure(request_id, error)
            if begun:
                raise
            await problem(InternalError("the server failed"), Request(scope))(scope, receive, answer)
        finally:
            logs.request(scope, request_id, status, perf_counter() - started)

    def _check_origin(self, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if self._hosts is not None and not _LOCAL.match(host) and _PORT.sub("", host).lower() not in self._hosts:
            raise OriginRefused(f"requests to the host {host!r:.100} are not allowed", hint="see --allow-host")
        origin = headers.get(b"origin", b"").decode("latin-1")
        if origin and origin.partition("://")[2] != host and origin not in self._origins:
            raise OriginRefused(
                f"requests from the web origin {origin!r:.100} are not allowed", hint="see --allow-origin"
            )

    def _limited(self, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        limit = self._held.limits.body_bytes
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > limit:
            raise _too_large(limit)
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > limit:
                raise _too_large(limit)
            return message

        return counted


def _too_large(limit: int) -> RequestTooLarge:
    return RequestTooLarge(f"the request's body is over {limit:,} bytes", hint="send it in parts", limit=limit)
