"""The example `workflow-scopes`: six places at a real server, and what happens where none is connected."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connected import Client, person
from tests.servers import ThreadServer

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "workflow-scopes"
SURFACES = [
    f"ctx.{domain}{scope}" for domain in ("kv", "persistent_value") for scope in ("", ".workflow", ".conversation")
]
CHAT = ("--conversation-id", "c1")


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadServer]:
    with ThreadServer() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the example."""
    return Path(shutil.copytree(EXAMPLE, tmp_path / "example", ignore=shutil.ignore_patterns("__pycache__")))


def values(report: dict) -> dict[str, str | None]:
    """What each place held; insists that none gave an error."""
    assert report["status"] == "completed", report["error"]
    assert [place["error"] for place in report["output"]] == [None] * 6
    return {place["surface"]: place["value"] for place in report["output"]}


def errors(report: dict) -> list[str | None]:
    """The error of each place, in the order of SURFACES."""
    assert report["status"] == "completed", report["error"]
    assert [place["surface"] for place in report["output"]] == SURFACES
    return [place["error"] for place in report["output"]]


def test_six_places_are_six_places(server: ThreadServer, folder: Path, tmp_path: Path):
    admin = Client(tmp_path / "home", server.url, server.key)
    written = values(admin.run(folder, *CHAT, "--", "--value", "hello"))
    assert written == {surface: f"hello in {surface}" for surface in SURFACES}
    assert values(admin.run(folder, *CHAT)) == written
    other_chat = values(admin.run(folder, "--conversation-id", "c2"))
    assert other_chat == {
        surface: None if surface.endswith("conversation") else value for surface, value in written.items()
    }
    other_workflow = values(admin.run(folder, "-e", "reader", *CHAT))
    assert other_workflow == {surface: None if surface.count(".") > 1 else value for surface, value in written.items()}
    assert admin.stored() == []

    def shown(*options: str) -> str:
        return str(admin.ok("kv", "get", "note", "--project", folder, *options)["value"])

    assert shown() == "hello in ctx.kv"
    assert shown("--workflow", "diary") == "hello in ctx.kv.workflow"
    assert shown("--workflow", "diary", *CHAT) == "hello in ctx.kv.conversation"
    assert shown("--domain", "persistent_value") == "hello in ctx.persistent_value"
    assert admin("kv", "get", "note", "--workflow", "reader", "--project", folder).code == 3


def test_without_a_conversation_its_scope_says_so(server: ThreadServer, folder: Path, tmp_path: Path):
    admin = Client(tmp_path / "home", server.url, server.key)
    found = errors(admin.run(folder, "--", "--value", "x"))
    assert found == [None, None, "conversation_required"] * 2


def test_without_a_server_every_call_says_so_and_no_local_file_is_touched(folder: Path, tmp_path: Path):
    lonely = Client(tmp_path / "home")
    assert errors(lonely.run(folder, *CHAT, "--", "--value", "x")) == ["storage_unavailable"] * 6
    assert lonely.stored() == []


@pytest.mark.parametrize("declared", ["local", "both"])
def test_at_a_local_host_kv_is_local_and_persistent_values_are_at_the_server_all_the_same(
    server: ThreadServer, folder: Path, tmp_path: Path, declared: str
):
    manifest = folder / "pyproject.toml"
    manifest.write_text(manifest.read_text().replace('data-storage = "server"', f'data-storage = "{declared}"'))
    lonely = Client(tmp_path / "lonely")
    found = errors(lonely.run(folder, *CHAT, "--", "--key", declared, "--value", "kept"))
    assert found == [None] * 3 + ["storage_unavailable"] * 3
    assert lonely.stored()
    assert not [name for name in lonely.stored() if "persistent" in name]
    assert not any((lonely.home / "persistent").rglob("*"))
    connected = Client(lonely.home, server.url, server.key)
    read = values(connected.run(folder, *CHAT, "--", "--key", declared))
    assert read == {s: None if "persistent" in s else f"kept in {s}" for s in SURFACES}
    written = values(connected.run(folder, *CHAT, "--", "--key", declared, "--value", "new"))
    with server.client() as client:
        there = client.get(f"/global/persistent_value/global/entries/{declared}").json()
        assert there["value"] == written["ctx.persistent_value"] == "new in ctx.persistent_value"
        assert client.get(f"/global/kv/global/entries/{declared}").status_code == 404
    found = errors(lonely.run(folder, *CHAT, "--", "--key", declared))
    assert found == [None] * 3 + ["storage_unavailable"] * 3  # what was reached once is not kept here


def test_a_guest_cannot_write_what_belongs_to_everybody(server: ThreadServer, folder: Path, tmp_path: Path):
    newcomer = person(server, "newcomer", tmp_path / "home")
    found = errors(newcomer.run(folder, *CHAT, "--", "--value", "x"))
    assert found == ["access_denied"] * 6
