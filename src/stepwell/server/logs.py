"""The server's log: one JSON object a line on stderr. Addresses are logged as route patterns, so no key is in it."""

import json
import logging
import sys
import traceback
from typing import Any

from starlette.types import Scope

from stepwell.identifiers import iso_time, now_micros
from stepwell.redaction import Redactor

_logger = logging.getLogger("stepwell.server")


def configure(level: str = "INFO") -> None:
    """Write the log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    for name in ("stepwell.server", "uvicorn.error", "psycopg.pool"):
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level if name != "psycopg.pool" else "ERROR")
        logger.propagate = False


def request(scope: Scope, request_id: str, status: int, seconds: float) -> None:
    """A request was answered."""
    route = scope.get("route")
    _logger.info(
        "request",
        extra={
            "fields": {
                "request_id": request_id,
                "method": scope["method"],
                "route": getattr(route, "path", "unknown"),
                "project_id": scope.get("path_params", {}).get("project_id"),
                "status": status,
                "milliseconds": round(seconds * 1_000, 2),
            }
        },
    )


def failure(request_id: str, error: BaseException) -> None:
    """A request failed by our fault: the traceback, without values."""
    places = traceback.extract_tb(error.__traceback__)
    _logger.error(
        "failure",
        extra={
            "fields": {
                "request_id": request_id,
                "error": type(error).__name__,
                "message": Redactor().text(str(error))[:500],
                "trace": [f"{place.filename.rpartition('/')[2]}:{place.lineno} {place.name}" for place in places[-20:]],
            }
        },
    )


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": iso_time(now_micros()),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        return json.dumps(line, ensure_ascii=False, default=str)
