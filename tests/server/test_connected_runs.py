"""Runs of connected projects through the real program: where their state is, and that a server may go and come back."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.connected import Client, ServerProcess
from tests.databases import Database
from tests.servers import ThreadServer

PROJECT_ID = "01936d3f-6a00-7000-8000-0000000000dd"
CHAT = ("--conversation-id", "c1")

CODE = """
import asyncio
from pathlib import Path
from stepwell import Context, Entrypoint, Executor, TokenUsage, workflow
from stepwell.errors import StepwellError

@workflow
async def main(data: dict, ctx: Context) -> dict:
    await ctx.conversation.append_message({"role": "user", "content": "hello"})
    await ctx.conversation.set_title("A greeting")
    await ctx.token_usage.report(input_tokens=5, output_tokens=2)
    await ctx.knowledge.create_document("Note", "# Note", "note")
    found = {}
    for name in ("local", "server"):
        try:
            await getattr(ctx.storage, name).kv.set_value("place", name)
            found[name] = await getattr(ctx.storage, name).kv.get_value("place")
        except StepwellError as error:
            found[name] = error.code
    return found

@workflow
async def slow(data: dict, ctx: Context) -> dict:
    for number in range(data["count"]):
        await ctx.conversation.append_message({"role": "user", "content": f"message {number}"})
        await ctx.storage.server.kv.update_value("count", lambda n: n + 1, default=0)
        await ctx.storage.server.kv.set_value(f"key {number}", number)
        await ctx.token_usage.report(input_tokens=1)
        await ctx.knowledge.create_document(f"Document {number}", "text")
        await asyncio.sleep(0.03)
    return {"count": await ctx.storage.server.kv.get_value("count")}

@workflow
async def locked(data: dict, ctx: Context) -> str:
    here = Path(__file__).parent
    try:
        async with ctx.storage.server.kv.lock() as tx:
            await tx.set_value("a", 1)
            (here / "locked").touch()
            while not (here / "go").exists():
                await asyncio.sleep(0.02)
            await tx.set_value("b", 2)
    except StepwellError as error:
        return error.code
    return "done"

usage = TokenUsage(enabled=True)
executor = Executor(project_type="conversation", entrypoints=[
    Entrypoint("main", main, token_usage=usage),
    Entrypoint("locked", locked),
    Entrypoint("slow", slow, token_usage=usage, create_input=lambda args: {"count": int(args[0])}),
])
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadServer]:
    with ThreadServer() as running:
        yield running


def project(root: Path, data_storage: str, settings: str = "") -> Path:
    """A project with a declaration."""
    folder = root / "project"
    folder.mkdir()
    (folder / "connected.py").write_text(CODE)
    (folder / "stepwell.toml").write_text(
        f'project-id = "{PROJECT_ID[:-2]}{len(data_storage):02x}"\nname = "Connected"\n'
        f'executor = "connected:executor"\ndata-storage = "{data_storage}"\n{settings}'
    )
    return folder


def state(client: Client, folder: Path, *location: str) -> dict[str, object]:
    """What the commands show of a project's state at a location."""
    options = ("--project", folder, *location)
    entries = client.ok("kv", "list", *options)["items"]
    messages = client.ok("conversations", "show", "c1", *options)["messages"]
    return {
        "messages": [message["content"] for message in messages],
        "titles": [item["title"] for item in client.ok("conversations", "list", *options)["items"]],
        "tokens": client.ok("usage", *options)["tokens"]["total"],
        "tokens of c1": client.ok("usage", *CHAT, *options)["tokens"]["total"],
        "documents": [item["title"] for item in client.ok("knowledge", "list", *options)["items"]],
        "place": [entry["value"] for entry in entries if entry["key"] == "place"],
    }


def whole(place: str) -> dict[str, object]:
    """The state of the project where all of it is."""
    return {
        "messages": ["hello"], "titles": ["A greeting"], "tokens": 7, "tokens of c1": 7, "documents": ["Note"],
        "place": [place],
    }  # fmt: skip


def test_a_server_project_keeps_everything_there(server: ThreadServer, tmp_path: Path):
    client, folder = Client(tmp_path / "home", server.url, server.key), project(tmp_path, "server")
    report = client.run(folder, *CHAT)
    assert report["output"] == {"local": "storage_forbidden", "server": "server"}
    assert state(client, folder) == state(client, folder, "--location", "server") == whole("server")
    assert client.stored() == []
    colleague = Client(tmp_path / "other home", server.url, server.key)
    assert state(colleague, folder) == whole("server")
    for command in (("kv", "list"), ("knowledge", "list"), ("conversations", "list"), ("usage",)):
        refused = client("--json", *command, "--location", "local", "--project", folder)
        assert (refused.code, refused.error["code"]) == (5, "storage_forbidden")
    assert client.ok("runs", "list", "--project", folder)["items"][0]["run_id"] == report["run_id"]  # of this machine
    lonely = Client(tmp_path / "lonely")
    for command in (("kv", "list"), ("knowledge", "list"), ("conversations", "list"), ("usage",)):
        failed = lonely("--json", *command, "--project", folder)
        assert (failed.code, failed.error["code"]) == (6, "storage_unavailable")
    assert lonely.run(folder, *CHAT)["error"]["code"] == "storage_unavailable"
    assert lonely.stored() == []


def test_both_keeps_state_here_and_reaches_both(server: ThreadServer, tmp_path: Path):
    client, folder = Client(tmp_path / "home", server.url, server.key), project(tmp_path, "both")
    assert client.run(folder, *CHAT)["output"] == {"local": "local", "server": "server"}
    assert state(client, folder) == state(client, folder, "--location", "local") == whole("local")
    assert client.ok("kv", "get", "place", "--location", "server", "--project", folder)["value"] == "server"
    for command in (("conversations", "list"), ("knowledge", "list")):
        assert client.ok(*command, "--location", "server", "--project", folder)["items"] == []
    assert client.ok("usage", "--location", "server", "--project", folder)["tokens"]["total"] == 0
    lonely = Client(client.home)  # the same home, without the server
    lonely.ok("knowledge", "delete", "note", "--yes", "--project", folder)
    again = lonely.run(folder, *CHAT)
    assert again["output"] == {"local": "local", "server": "storage_unavailable"}


def test_a_local_project_does_not_get_to_the_server(server: ThreadServer, tmp_path: Path):
    client, folder = Client(tmp_path / "home", server.url, server.key), project(tmp_path, "local")
    assert client.run(folder, *CHAT)["output"] == {"local": "local", "server": "storage_forbidden"}
    assert state(client, folder) == whole("local")
    refused = client("--json", "kv", "list", "--location", "server", "--project", folder)
    assert (refused.code, refused.error["code"]) == (5, "storage_forbidden")
    with server.client() as admin:
        assert "Connected" not in [
            each["name"] for each in admin.get("/projects").json()["items"] if each["id"].endswith("05")
        ]


def test_the_server_knows_the_last_writer(server: ThreadServer, tmp_path: Path):
    client, folder = Client(tmp_path / "home", server.url, server.key), project(tmp_path, "server")
    client("knowledge", "delete", "note", "--yes", "--project", folder)
    report = client.run(folder, *CHAT)
    source = client.ok("kv", "get", "place", "--project", folder)["source"]
    assert source == {
        "project_id": report["project_id"], "entrypoint": "main", "run_id": report["run_id"], "conversation_id": "c1",
    }  # fmt: skip


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_a_run_survives_a_server_that_goes_and_comes_back(tmp_path: Path, ending: str):
    database = Database()
    try:
        with ServerProcess(tmp_path / "server", database) as server:
            client, folder = Client(tmp_path / "home", server.url, server.key), project(tmp_path, "server")
            count = 40
            running = subprocess.Popen(
                client.command("run", folder, "-e", "slow", "--json", *CHAT, "--", str(count)),
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | client.environment,
            )  # fmt: skip
            try:
                _until(lambda: database.run("SELECT count(*) FROM stepwell.workflow_project_kv_view")[0][0] > 5)
                for _ in range(2):
                    getattr(server, ending)()
                    time.sleep(0.7)
                    assert "admin_key" not in server.start()  # shown once, at the first start
                    time.sleep(0.5)
                out, err = running.communicate(timeout=90)
            finally:
                running.kill()
            assert running.returncode == 0, err
            assert '"count": 40' in out
            assert _messages(client, folder) == [f"message {number}" for number in range(count)]
            assert client.ok("usage", *CHAT, "--project", folder)["tokens"]["total"] == count
            assert client.ok("usage", "--project", folder)["tokens"]["calls"] == count
            documents = client.ok("knowledge", "list", "--limit", "100", "--project", folder)["items"]
            assert sorted(item["title"] for item in documents) == sorted(f"Document {n}" for n in range(count))
            assert client("knowledge", "check", "--project", folder).code == 0
            assert client.stored() == []
    finally:
        database.drop()


def test_a_lock_does_not_outlive_its_server_and_leaves_nothing_half_done(tmp_path: Path):
    database = Database()
    try:
        with ServerProcess(tmp_path / "server", database) as server:
            client, folder = Client(tmp_path / "home", server.url, server.key), project(tmp_path, "server")
            running = subprocess.Popen(
                client.command("run", folder, "-e", "locked", "--json"), stdout=subprocess.PIPE, text=True,
                env=os.environ | client.environment,
            )  # fmt: skip
            try:
                _until((folder / "locked").exists)
                server.kill()
                server.start()
                # Somebody else gets the lock meanwhile: what the first one wanted to do is void.
                client.ok("kv", "set", "a", '"other"', "--project", folder)
                (folder / "go").touch()
                out, _ = running.communicate(timeout=60)
            finally:
                running.kill()
            assert json.loads(out)["output"] == "lock_timeout"
            items = client.ok("kv", "list", "--project", folder)["items"]
            assert [(item["key"], item["value"]) for item in items] == [("a", "other")]
    finally:
        database.drop()


def test_a_run_ends_with_a_clear_error_when_the_server_stays_away(tmp_path: Path):
    database = Database()
    try:
        with ServerProcess(tmp_path / "server", database) as server:
            client, folder = Client(tmp_path / "home", server.url, server.key), project(tmp_path, "server")
            assert client.run(folder, *CHAT)["status"] == "completed"
            assert server.stop() == 0
            started = time.monotonic()
            report = client.run(folder, *CHAT)
            assert 15 < time.monotonic() - started < 60
            assert (report["status"], report["error"]["code"]) == ("failed", "storage_unavailable")
            assert client.stored() == []
            started = time.monotonic()
            shown = client("kv", "list", "--json", "--project", folder)
            assert (shown.code, shown.error["code"]) == (6, "storage_unavailable")
            assert time.monotonic() - started < 15  # somebody waits at the terminal
    finally:
        database.drop()


def _messages(client: Client, folder: Path) -> list[str]:
    """The conversation's messages so far."""
    shown = client("conversations", "show", "c1", "--limit", "200", "--json", "--project", folder)
    return [message["content"] for message in shown.json["messages"]] if shown.code == 0 else []


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 40
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)
