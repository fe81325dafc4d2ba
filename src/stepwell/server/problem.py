"""Errors as RFC 9457 problem details: one shape for every failure, with the product's stable codes."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from stepwell.errors import InvalidArgument, RouteNotFound, StepwellError
from stepwell.jsontext import encode

MEDIA_TYPE = "application/problem+json"


def problem(error: StepwellError, request: Request, *, status: int | None = None) -> Response:
    """The answer for an error.

    Args:
        error: what happened.
        request: its id is in the answer.
        status: instead of the error's own.
    """
    status = status or error.kind.http_status
    body: dict[str, Any] = {
        "type": f"urn:stepwell:error:{error.code}",
        "title": error.code.replace("_", " "),
        "status": status,
        "detail": error.message,
        "code": error.code,
        "request_id": request.scope.get("stepwell.request_id", ""),
    }
    if error.hint is not None:
        body["hint"] = error.hint
    if error.data:
        body["data"] = error.data
    headers = {}
    if status in (429, 503):
        headers["Retry-After"] = str(max(1, round(error.data.get("retry_after", 1))))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(encode(body, max_bytes=1 << 31), status, headers, MEDIA_TYPE)


def of_http(status: int, request: Request) -> StepwellError:
    """The error for what the framework refused by itself."""
    if status in (404, 405):
        return RouteNotFound(f"there is no {request.method} {request.url.path!r:.200}")
    return InvalidArgument("the request is malformed")


def of_validation(problems: list[dict[str, Any]]) -> InvalidArgument:
    """The error for arguments of the wrong form: each with its place, never with the value given."""
    shown = [f"{'.'.join(str(part) for part in each['loc'])}: {each['msg']}" for each in problems[:20]]
    return InvalidArgument("; ".join(shown)[:2_000], problems=shown)
