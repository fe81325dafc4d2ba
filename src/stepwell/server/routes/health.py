"""Is it alive, is it ready, how is it doing."""

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from stepwell.server.access import Role
from stepwell.server.routing import api, json_answer
from stepwell.server.services import services

router = APIRouter(tags=["health"])


@api(router, "GET", "/healthz", Role.PUBLIC)
async def healthz() -> Response:
    """The process answers."""
    return json_answer({"status": "ok"})


@api(router, "GET", "/readyz", Role.PUBLIC)
async def readyz(request: Request) -> Response:
    """The database answers, and the server is not stopping."""
    held = services(request)
    await held.backend.connections.fetch("SELECT 1")
    stopping = held.streams.closing.is_set()
    return json_answer({"status": "stopping" if stopping else "ok"}, 503 if stopping else 200)


@api(router, "GET", "/metrics", Role.PUBLIC, media="text/plain")
async def metrics(request: Request) -> Response:
    """Figures in Prometheus' format."""
    held = services(request)
    return Response(
        held.metrics.text({"open_streams": float(held.streams.open)}), media_type="text/plain; version=0.0.4"
    )
