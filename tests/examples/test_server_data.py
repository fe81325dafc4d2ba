"""The three `server-data` examples through the real program and a real server: what crosses, and what never does."""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.connected import Client, Wire, person
from tests.servers import ThreadServer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NAMES = ("parent", "child", "grandchild")
IDS = {name: f"01936d3f-6a00-7000-8000-00000000a00{number}" for name, number in zip(NAMES, "789", strict=True)}
NEIGHBOURS = [
    ("parent", "child", "child"), ("child", "parent", "parent"), ("child", "grandchild", "grandchild"),
    ("grandchild", "up", "child"),
]  # fmt: skip


class World:
    """Copies of the examples, their owner, and a server that knows them."""

    def __init__(self, root: Path, server: ThreadServer, wire: Wire) -> None:
        self.root = root
        self.server = server
        self.wire = wire
        self.owner = person(server, "owner", root / "owner", wire.url)
        for name in NAMES:
            shutil.copytree(EXAMPLES / f"server-data-{name}", root / name, ignore=shutil.ignore_patterns("__pycache__"))

    def publish(self, *names: str) -> dict[str, Any]:
        """Publish relations; gives the states of the last project by alias."""
        for name in names:
            found = self.owner.ok("relations", "publish", "--project", self.root / name)["items"]
        return {item["alias"]: item["state"] for item in found}

    def run(self, name: str, entrypoint: str, *args: str, by: Client | None = None) -> dict[str, Any]:
        """The report of a run."""
        return (by or self.owner).run(self.root / name, "-e", entrypoint, "--", *args)

    def change(self, name: str, old: str, new: str) -> None:
        """Change a manifest."""
        file = self.root / name / "pyproject.toml"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def data(self, name: str) -> dict[str, Any]:
        """What the server has stored for a project."""
        with self.server.client() as admin:
            answer = admin.get(f"/projects/{IDS[name]}/kv/project/entries")
        return {item["key"]: item["value"] for item in answer.json().get("items", [])}

    def member(self, name: str, roles: dict[str, str]) -> Client:
        """A colleague with a role in some projects."""
        colleague = person(self.server, name, self.root / f"home-{name}")
        for project, role in roles.items():
            self.owner.ok("members", "set", name, role, "--project", self.root / project)
        return colleague


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ThreadServer() as server, Wire(server.url) as wire:
        yield World(tmp_path, server, wire)


def test_neighbours_reach_each_other_in_both_directions_and_nobody_else(world: World):
    assert world.publish(*NAMES, "child") == {"parent": "active", "grandchild": "active"}
    for number, (caller, alias, target) in enumerate(NEIGHBOURS):
        before = {name: world.data(name) for name in NAMES}
        made = world.run(caller, "store", "--content", f"crossed {number}", "--alias", alias)["output"]
        assert made["alias"] == alias
        assert world.run(caller, "get", "--id", made["id"], "--alias", alias)["output"]["content"] == made["content"]
        assert world.data(target)[f"item:{made['id']}"] == f"crossed {number}"
        assert {name: world.data(name) for name in NAMES if name != target} == {
            name: stored for name, stored in before.items() if name != target
        }
    own = world.run("parent", "store", "--content", "own")["output"]
    assert world.data("parent")[f"item:{own['id']}"] == "own"
    for caller, alias in (("parent", "grandchild"), ("grandchild", "parent"), ("grandchild", "child")):
        report = world.run(caller, "get", "--id", "1", "--alias", alias)
        assert report["error"]["code"] == "relation_unknown"
    assert world.owner.stored() == []  # nothing fell back to this machine


def test_requests_name_the_caller_and_the_alias_alone(world: World):
    world.publish(*NAMES)
    world.wire.forget()
    world.run("parent", "store", "--content", "x", "--alias", "child")
    assert world.wire.requests
    for request in world.wire.requests:
        assert re.match(rf"\w+ /api/v1/projects/{IDS['parent']}/related/child/kv/", request)
    assert IDS["child"] not in world.wire.sent
    assert str(world.root) not in world.wire.sent


def test_one_side_alone_is_pending(world: World):
    assert world.publish("parent") == {"child": "pending"}
    report = world.run("parent", "get", "--id", "1", "--alias", "child")
    assert report["error"]["code"] == "relation_pending"
    checked = world.owner("relations", "check", "--location", "server", "--json", "--project", world.root / "parent")
    assert (checked.code, checked.json["items"][0]["state"]) == (5, "pending")
    world.publish("child")
    assert world.owner("relations", "check", "--location", "server", "--project", world.root / "parent").code == 0
    report = world.run("parent", "get", "--id", "1", "--alias", "child")
    assert report["output"] == {"id": "1", "content": None, "alias": "child"}


def test_a_narrowed_grant_holds_from_the_next_call_on_once_it_is_published(world: World):
    world.publish(*NAMES)
    stored = world.run("parent", "store", "--content", "x", "--alias", "child")
    assert stored["status"] == "completed"
    write = 'grant.write = { mode = "prefixes", prefixes = ["item:"] }'
    world.change("child", f"{write}\n\n", 'grant.write = { mode = "prefixes", prefixes = ["note:"] }\n\n')
    checked = world.owner("relations", "check", "--location", "server", "--json", "--project", world.root / "child")
    states = {item["alias"]: item["state"] for item in checked.json["items"]}
    assert (checked.code, states) == (5, {"parent": "differs", "grandchild": "active"})
    world.publish("child")
    denied = world.run("parent", "store", "--content", "y", "--alias", "child")["error"]
    assert (denied["code"], denied["grant"]) == ("relation_denied", "write")
    assert world.run("parent", "get", "--id", "1", "--alias", "child")["output"]["content"] == "x"
    assert world.run("grandchild", "store", "--content", "z", "--alias", "up")["status"] == "completed"
    assert set(world.data("child").values()) == {2, "x", "z"}


def test_a_relation_that_is_gone_here_is_taken_out_there(world: World):
    world.publish(*NAMES)
    world.owner.ok("relations", "remove", "child", "--project", world.root / "parent")
    checked = world.owner("relations", "check", "--location", "server", "--json", "--project", world.root / "parent")
    assert [(item["alias"], item["state"]) for item in checked.json["items"]] == [("child", "differs")]
    assert (
        world.run("parent", "get", "--id", "1", "--alias", "child")["status"] == "completed"
    )  # what is published counts
    assert world.publish("parent") == {}
    assert world.run("parent", "get", "--id", "1", "--alias", "child")["error"]["code"] == "relation_unknown"
    assert world.run("child", "get", "--id", "1", "--alias", "parent")["error"]["code"] == "relation_pending"


@pytest.mark.parametrize(
    "roles", [{"parent": "guest", "child": "developer"}, {"parent": "developer", "child": "guest"}]
)
def test_a_guest_on_one_side_reads_and_cannot_write(world: World, roles: dict[str, str]):
    world.publish(*NAMES)
    world.run("child", "store", "--content", "of child")
    colleague = world.member("ada", roles)
    read = world.run("parent", "get", "--id", "1", "--alias", "child", by=colleague)
    assert read["output"]["content"] == "of child"
    refused = world.run("parent", "store", "--content", "x", "--alias", "child", by=colleague)["error"]
    assert refused["code"] == "access_denied"
    assert world.data("child") == {"item:1": "of child", "item:count": 1}
    published = colleague("relations", "publish", "--json", "--project", world.root / "parent")
    assert (published.code, published.error["code"]) == (5, "access_denied")


def test_no_role_in_the_other_project_is_as_good_as_no_other_project(world: World):
    world.publish(*NAMES)
    colleague = world.member("eve", {"parent": "maintainer"})
    report = world.run("parent", "get", "--id", "1", "--alias", "child", by=colleague)
    assert report["error"]["code"] == "relation_pending"
    checked = colleague("relations", "check", "--location", "server", "--json", "--project", world.root / "parent")
    assert [item["state"] for item in checked.json["items"]] == ["pending"]
    stranger = world.run("child", "get", "--id", "1", by=colleague)
    assert stranger["error"]["code"] == "project_not_found"
    unseen = colleague("relations", "check", "--location", "server", "--json", "--project", world.root / "child")
    assert {item["state"] for item in unseen.json["items"]} == {"unpublished"}
    taken = colleague("relations", "publish", "--json", "--project", world.root / "child")
    assert (taken.code, taken.error["code"]) == (3, "project_not_found")


WAITING = """
import asyncio
from pathlib import Path
from stepwell import Context, Executor, workflow
from stepwell.errors import StepwellError

@workflow
async def main(data: dict, ctx: Context) -> list:
    kv = ctx.storage.server.related_projects.get("child").kv
    here, found = Path(__file__).parent, []
    for number in range(3):
        try:
            await kv.update_value("item:n", lambda n: n + 1, default=0)
            found.append("done")
        except StepwellError as error:
            found.append(error.code)
        (here / f"did{number}").touch()
        while not (here / f"go{number}").exists():
            await asyncio.sleep(0.02)
    return found

executor = Executor(workflow=main)
"""


def test_a_run_that_is_going_on_feels_what_is_published(world: World):
    world.publish(*NAMES)
    folder = world.root / "parent"
    (folder / "server_data_parent.py").write_text(WAITING)
    running = subprocess.Popen(
        world.owner.command("run", folder, "--json"), stdout=subprocess.PIPE, text=True,
        env=os.environ | world.owner.environment,
    )  # fmt: skip
    try:
        write = 'grant.write = { mode = "prefixes", prefixes = ["item:"] }\n\n'
        none = 'grant.write = { mode = "none" }\n\n'
        for number, (old, new) in enumerate([(write, none), (none, write)]):
            deadline = time.monotonic() + 30
            while not (folder / f"did{number}").exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            world.change("child", old, new)
            world.publish("child")
            (folder / f"go{number}").touch()
        (folder / "go2").touch()
        out, _ = running.communicate(timeout=60)
    finally:
        running.kill()
    assert json.loads(out)["output"] == ["done", "relation_denied", "done"]
    assert world.data("child") == {"item:n": 2}


ENTRYPOINTS = """
from stepwell import Context, Executor, workflow
from stepwell.errors import StepwellError

@workflow
async def main(data: dict, ctx: Context) -> dict:
    child = ctx.storage.server.related_projects.get("child")
    found = {}
    for name, call in (("list", child.list_entrypoints), ("run", lambda: child.run_entrypoint("store", ["--content", "x"]))):
        try:
            found[name] = await call()
        except StepwellError as error:
            found[name] = error.code
    try:
        found["local"] = ctx.storage.local.kv
    except StepwellError as error:
        found["local"] = error.code
    for missing in ("scan", "lock", "watch", "conversation"):
        found[missing] = hasattr(child.kv, missing)
    return found

executor = Executor(workflow=main)
"""


def test_entrypoints_are_not_run_through_a_server(world: World):
    world.change("child", "grant.read", 'grant.entrypoints = { mode = "all" }\ngrant.read')
    world.publish(*NAMES)
    (world.root / "parent" / "server_data_parent.py").write_text(ENTRYPOINTS)
    world.wire.forget()
    found = world.owner.run(world.root / "parent")["output"]
    assert found == {
        "list": "storage_forbidden", "run": "storage_forbidden", "local": "storage_forbidden",
        "scan": False, "lock": False, "watch": False, "conversation": False,
    }  # fmt: skip
    assert world.wire.requests == []
    assert world.data("child") == {}


def test_without_a_server_nothing_is_stored_anywhere(world: World):
    lonely = Client(world.root / "lonely")
    for options in ((), ("--alias", "child")):
        report = world.run("parent", "store", "--content", "x", *options, by=lonely)
        assert report["error"]["code"] == "storage_unavailable"
    published = lonely("relations", "publish", "--json", "--project", world.root / "parent")
    assert (published.code, published.error["code"]) == (6, "storage_unavailable")
    assert "stepwell login" in published.error["hint"]
    assert lonely.stored() == []
    local = lonely("relations", "check", "--location", "server", "--json", "--project", EXAMPLES / "local-data-parent")
    assert (local.code, local.error["code"]) == (5, "storage_forbidden")
