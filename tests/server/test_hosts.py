"""Under which names the server answers: a page elsewhere may have its own name point to this machine."""

import pytest
from starlette.testclient import TestClient

from stepwell.server.app import create_app
from stepwell.server.services import Services
from stepwell.store.postgres import PostgresBackend

LOCAL = ("localhost", "localhost:8765", "127.0.0.1:1", "[::1]:8765")


def asked(host: str, hosts: tuple[str, ...] | None, **headers: str) -> int:
    """The status of a request that needs nothing but a name."""
    app = create_app(
        Services(PostgresBackend("postgresql:///nowhere")), hosts=hosts, origins=("https://board.example",)
    )
    return TestClient(app).get("/healthz", headers={"Host": host, **headers}).status_code


@pytest.mark.parametrize("host", [*LOCAL, "api.example.com", "API.example.com:443", "10.0.0.5:8765"])
def test_named_hosts_and_local_ones(host: str):
    assert asked(host, ("api.example.com", "10.0.0.5")) == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "api.example.com.evil.example", "127.0.0.1.nip.io", ""])  # fmt: skip
def test_no_other_host(host: str):
    assert asked(host, ("api.example.com",)) == 403
    assert asked(host, ()) == 403
    assert asked(host, None) == 200


def test_web_origins():
    host = "api.example.com"
    assert asked(host, (host,), Origin=f"https://{host}") == 200
    assert asked(host, (host,), Origin="https://board.example") == 200
    assert asked(host, (host,), Origin="https://evil.example") == 403
    assert asked(host, None, Origin="null") == 403
