"""The API against its own OpenAPI document: whatever is sent, no 5xx and no answer that is not documented."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.servers import ThreadServer

PROJECT = "01936d3f-6a00-7000-8000-000000000001"
CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
EXAMPLES = 12
OPEN_STREAMS = {"watch", "watch_global", "lock", "lock_global"}  # they end when the client goes: asked for by hand


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadServer]:
    with ThreadServer() as running:
        with running.client() as admin:
            assert admin.put(f"/projects/{PROJECT}", json={"name": "fuzzed"}).status_code == 201
        yield running


def _operations(server: ThreadServer) -> Iterator[Any]:
    schema = schemathesis.openapi.from_url(f"{server.url}/api/openapi.json")
    for result in schema.get_all_operations():
        yield result.ok()


def test_no_request_breaks_the_server_or_its_document(server: ThreadServer):
    headers = {"Authorization": f"Bearer {server.key}"}
    asked = 0
    for operation in _operations(server):
        if operation.definition.raw.get("operationId") in OPEN_STREAMS:
            continue

        @settings(
            max_examples=EXAMPLES, deadline=None, database=None, phases=[Phase.generate], derandomize=True,
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(case=operation.as_strategy())
        def send(case: Any) -> None:
            nonlocal asked
            if "project_id" in (case.path_parameters or {}):
                case.path_parameters["project_id"] = PROJECT  # or most answers were 404
            answer = case.call(headers=headers, timeout=30)
            case.validate_response(answer, checks=CHECKS, headers=headers)
            asked += 1

        send()
    assert asked > 400


def test_the_document_says_who_may_ask_and_how_to_fail(server: ThreadServer):
    document = httpx.get(f"{server.url}/api/openapi.json").json()
    ids = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(ids) == len(set(ids)) > 60
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["x-role"], path
            assert operation["summary"], path
            problems = [status for status in operation["responses"] if status >= "400"]
            assert "400" in problems, (method, path)
            assert ("401" in problems) or operation["x-role"] == "public", (method, path)
