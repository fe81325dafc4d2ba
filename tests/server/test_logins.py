"""Logging in, and users, members and tokens by the command line: who gets in, and where a key is sent."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stepwell.identifiers import new_id
from stepwell.project.manifest import load_manifest
from tests.connected import Client, Result, Wire, person
from tests.servers import ThreadServer


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadServer]:
    with ThreadServer() as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return declared(tmp_path / "project")


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """Somebody who has no server yet."""
    return Client(tmp_path / "home")


def declared(folder: Path, settings: str = "") -> Path:
    """A project that keeps its data at a server."""
    folder.mkdir()
    (folder / "code.py").write_text("executor = None\n")
    (folder / "stepwell.toml").write_text(
        f'project-id = "{new_id()}"\nname = "P"\nexecutor = "code:executor"\ndata-storage = "server"\n{settings}'
    )
    return folder


def login_file(client: Client) -> Path:
    return client.home / "workflow-auth.json"


def refused(done: Result, exit_code: int, code: str) -> dict[str, Any]:
    """The error a command has to end with."""
    assert (done.code, done.error["code"]) == (exit_code, code), done.err
    return done.error


def test_a_key_is_kept_for_its_owner_only_and_never_shown(server: ThreadServer, client: Client, folder: Path):
    assert server.key is not None
    told = client("login", f"{server.url}/", stdin=f"{server.key}\n")
    assert (told.code, told.out.strip()) == (0, f"logged in to {server.url} as admin (administrator)")
    assert login_file(client).stat().st_mode & 0o777 == 0o600
    who = client.ok("whoami")
    assert (who["name"], who["admin"], who["url"]) == ("admin", True, server.url)
    assert client.ok("kv", "set", "k", '"v"', "--project", folder)["value"] == "v"
    assert client.ok("kv", "get", "k", "--project", folder)["value"] == "v"
    shown = told.out + told.err
    for command in (("whoami",), ("tokens", "list"), ("config", "show"), ("doctor",), ("whoami", "--debug", "-v")):
        done = client(*command, "--project", folder)
        shown += done.out + done.err
    assert server.key not in shown
    assert client.ok("logout") == {"url": server.url, "revoked": False}  # the key was not made by logging in
    error = refused(client("kv", "get", "k", "--json", "--project", folder), 6, "storage_unavailable")
    assert "stepwell login" in error["hint"]
    refused(client("whoami", "--json"), 6, "storage_unavailable")
    refused(client("logout", "--json"), 2, "invalid_argument")
    assert Client(client.home, server.url, server.key).ok("whoami")["name"] == "admin"
    assert client.stored() == []


def test_a_wrong_key_is_not_kept(server: ThreadServer, client: Client):
    refused(client("login", server.url, "--json", stdin="sw_wrong\n"), 5, "unauthenticated")
    refused(client("login", server.url, "--json", stdin="\n"), 2, "invalid_argument")
    refused(client("login", "ftp://example.com", "--json", stdin="x\n"), 2, "invalid_argument")
    refused(client("login", "http://name:secret@example.com", "--json", stdin="x\n"), 2, "invalid_argument")
    assert not login_file(client).exists()
    assert client("login", server.url, stdin=f"{server.key}\n").code == 0
    refused(client("login", server.url, "--json", stdin="sw_wrong\n"), 5, "unauthenticated")
    assert client.ok("whoami")["name"] == "admin"  # the one that was right is still there


def test_nobody_answers(client: Client):
    refused(client("login", "http://127.0.0.1:9", "--json", stdin="sw_x\n"), 6, "storage_unavailable")
    assert not login_file(client).exists()


def test_a_password_makes_a_key_that_logging_out_revokes(server: ThreadServer, client: Client):
    admin = Client(client.home.parent / "admin", server.url, server.key)
    assert admin("users", "add", "pat", "--password", stdin="correct horse\n").code == 0
    refused(client("login", server.url, "--user", "pat", "--json", stdin="wrong horse\n"), 5, "unauthenticated")
    assert client("login", server.url, "--user", "pat", stdin="correct horse\n").code == 0
    assert client.ok("whoami")["name"] == "pat"
    assert "correct horse" not in login_file(client).read_text()
    key = json.loads(login_file(client).read_text())["logins"][0]["key"]
    assert client.ok("logout")["revoked"] is True
    refused(Client(client.home, server.url, key)("whoami", "--json"), 5, "unauthenticated")


def test_a_login_file_that_is_damaged_or_open_to_others_is_not_used(server: ThreadServer, client: Client, folder: Path):
    client("login", server.url, stdin=f"{server.key}\n")
    file = login_file(client)
    file.chmod(0o644)
    commands = (
        ("whoami",),
        ("kv", "list", "--project", folder),
        ("logout",),
        ("relations", "publish", "--project", folder),
    )
    for command in commands:
        error = refused(client("--json", *command), 2, "invalid_argument")
        assert error["hint"].startswith(f"chmod 600 {file}")
    file.chmod(0o600)
    whole = file.read_text()
    for damaged in ("", "[]", whole[:-20], whole.replace('"key"', '"keys"'), "\x00"):
        file.write_text(damaged)
        for command in commands:
            error = refused(client("--json", *command), 2, "invalid_argument")
            assert str(file) in error["message"]
        assert file.read_text() == damaged
    file.unlink()
    assert client("login", server.url, stdin=f"{server.key}\n").code == 0


def test_a_projects_own_server_gets_no_key_that_was_not_made_for_it(
    server: ThreadServer, client: Client, tmp_path: Path
):
    """The manifest of a project from elsewhere names a server: the user's key stays at home."""
    secret = "sw_secret-of-the-user"
    with Wire(server.url) as elsewhere:
        folder = declared(tmp_path / "cloned", f'[settings]\nserver-url = "{elsewhere.url}"\n')
        client("login", server.url, stdin=f"{server.key}\n")
        commands = (("kv", "list"), ("relations", "publish"), ("relations", "check", "--location", "server"),
                    ("members", "list"), ("conversations", "list"), ("knowledge", "list"), ("usage",))  # fmt: skip
        for command in commands:
            done = client("--json", *command, "--project", folder, STEPWELL_SERVER_KEY=secret)
            error = refused(done, 6, "storage_unavailable")
            assert f"stepwell login {elsewhere.url}" in error["hint"]
            assert secret not in done.out + done.err
        assert elsewhere.sent == ""
        known = client("login", elsewhere.url, stdin=f"{server.key}\n")
        assert known.code == 0
        assert client.ok("kv", "set", "k", "1", "--project", folder, STEPWELL_SERVER_KEY=secret)["value"] == 1
        assert client.ok("members", "list", "--project", folder)["items"] == [{"name": "admin", "role": "owner"}]
        assert secret not in elsewhere.sent
        elsewhere.forget()
        # Whoever names the address in their own environment means it.
        named = Client(tmp_path / "other", server.url, server.key)
        assert named.ok("kv", "get", "k", "--project", folder)["value"] == 1
        assert elsewhere.sent == ""


def test_users_members_and_tokens(server: ThreadServer, tmp_path: Path, folder: Path):
    admin = Client(tmp_path / "admin", server.url, server.key)
    owner = person(server, "olga", tmp_path / "olga")
    project_id = load_manifest(str(folder)).project_id
    owner.ok("kv", "set", "k", "1", "--project", folder)  # makes the project known, and her its owner
    members = ("--project", folder, "members")
    assert owner.ok(*members, "list")["items"] == [{"name": "olga", "role": "owner"}]
    refused(owner("--json", "users", "list"), 5, "access_denied")

    admin.ok("users", "add", "ada")
    made = admin.ok("tokens", "create", "for ada", "--user", "ada", "--days", "1")
    ada = Client(tmp_path / "ada", server.url, made["token"])
    refused(ada("kv", "get", "k", "--json", "--project", folder), 3, "project_not_found")
    for role, code in (("guest", 5), ("developer", 0)):
        owner.ok(*members, "set", "ada", role)
        assert ada("kv", "set", "k", "2", "--project", folder).code == code
        refused(ada("--json", *members, "set", "ada", "owner"), 5, "access_denied")
    refused(owner("--json", *members, "set", "nobody", "guest"), 3, "account_not_found")
    refused(owner("--json", *members, "set", "olga", "guest"), 4, "account_conflict")  # the last owner

    limited = ada.ok("tokens", "create", "ci", "--role", "guest", "--project-id", project_id)
    ci = Client(tmp_path / "ci", server.url, limited["token"])
    assert ci.ok("kv", "get", "k", "--project", folder)["value"] == 2
    refused(ci("kv", "set", "k", "3", "--json", "--project", folder), 5, "access_denied")
    shown = ci("whoami")
    assert "at most guest" in shown.out
    assert project_id in shown.out
    listed = ada.ok("tokens", "list")["items"]
    assert {(token["label"], token["role"], token["project_id"]) for token in listed} == {
        ("for ada", None, None), ("ci", "guest", project_id),
    }  # fmt: skip
    assert limited["token"] not in json.dumps(listed)
    ada.ok("tokens", "revoke", limited["id"])
    refused(ci("whoami", "--json"), 5, "unauthenticated")

    assert admin("members", "remove", "ada", "--project-id", project_id).code == 2  # asks, and there is no terminal
    owner.ok(*members, "remove", "ada", "--yes")
    refused(ada("kv", "get", "k", "--json", "--project", folder), 3, "project_not_found")
    admin.ok("users", "set", "ada", "--disabled")
    refused(ada("whoami", "--json"), 5, "unauthenticated")
    assert {user["name"]: user["disabled"] for user in admin.ok("users", "list")["items"]}["ada"] is True
    admin.ok("users", "set", "ada", "--enabled")
    assert ada.ok("whoami")["name"] == "ada"
    admin.ok("users", "remove", "ada", "--yes")
    deadline = time.monotonic() + 5
    while ada("whoami").code == 0:
        assert time.monotonic() < deadline
    refused(admin("users", "remove", "ada", "--yes", "--json"), 3, "account_not_found")
    refused(admin("users", "set", "admin", "--no-admin", "--json"), 4, "account_conflict")
    refused(admin("users", "set", "olga", "--json"), 2, "invalid_argument")
