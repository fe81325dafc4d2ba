"""Every route × every role × one's own, another's and an unknown project: routes are found, not listed."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from stepwell.errors import StepwellError
from stepwell.identifiers import new_id
from stepwell.server.access import Gate, Role, allows, hashed, new_secret
from stepwell.server.app import create_app
from stepwell.server.routing import RoledRoute
from stepwell.server.services import Services
from stepwell.store.accounts import AccountStore
from stepwell.store.postgres import PostgresBackend
from tests.databases import Database
from tests.servers import ThreadServer

OWN, OTHER, UNKNOWN = (f"01936d3f-6a00-7000-8000-00000000000{digit}" for digit in "123")
DOCUMENTS = {"/api/openapi.json"}  # served by the framework: what there is, and nothing of anybody
SAMPLES = {
    "domain": "kv", "domain:domain": "kv", "scope": "project", "key:key": "k", "key": "k", "document_id": "d", "alias": "beta",
    "name": "nobody", "token_id": new_id(), "lease": new_id(),
}  # fmt: skip


def roles_of(app: FastAPI) -> Iterator[tuple[str, str, Role]]:
    """Every method, path and role of an application; a route that states none is an error."""
    for prefix, route in _flat(app.routes, ""):
        path = prefix + getattr(route, "path", str(route))
        if path in DOCUMENTS:
            continue
        if not isinstance(route, RoledRoute):
            raise TypeError(f"{path} states no role")
        for method in sorted(route.methods):
            yield method, path, Role((route.openapi_extra or {})["x-role"])


def _flat(routes: Sequence[Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for route in routes:
        inner = getattr(route, "original_router", None)  # how FastAPI keeps an included router
        if inner is None:
            yield prefix, route
        else:
            yield from _flat(inner.routes, prefix + route.include_context.prefix)


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadServer]:
    with ThreadServer() as running:
        yield running


@pytest.fixture(scope="module")
def keys(server: ThreadServer) -> dict[str, str]:
    """A key for each role in the project OWN, which nobody has in OTHER, but for its owner `stranger`."""
    made: dict[str, str] = {}
    with server.client() as admin:
        for name in ("user", "guest", "developer", "maintainer", "owner", "stranger"):
            assert admin.post("/users", json={"name": name}).status_code == 201
            made[name] = admin.post("/tokens", json={"label": "test", "user": name}).json()["token"]
        for owner, project in (("owner", OWN), ("stranger", OTHER)):
            with server.client(made[owner]) as client:
                assert client.put(f"/projects/{project}", json={"name": project[-4:]}).status_code == 201
        with server.client(made["owner"]) as client:
            for name in ("guest", "developer", "maintainer"):
                assert client.put(f"/projects/{OWN}/members/{name}", json={"role": name}).status_code == 200
        made["admin"] = server.key or ""
        made["capped"] = admin.post("/tokens", json={"label": "capped", "role": "guest"}).json()["token"]
        bound = {"label": "bound", "user": "owner", "project_id": OWN}
        made["bound"] = admin.post("/tokens", json=bound).json()["token"]
        gone = admin.post("/tokens", json={"label": "gone", "user": "owner"}).json()
        assert admin.delete(f"/tokens/{gone['id']}").status_code == 204
        made["revoked"] = gone["token"]
    return made


def _url(path: str, project_id: str) -> str:
    def sample(match: re.Match[str]) -> str:
        name = match[1]
        return project_id if name in ("project_id", "id") else SAMPLES[name]

    return re.sub(r"\{([^}]+)\}", sample, path)


def _ask(client: httpx.Client, method: str, path: str) -> tuple[int, dict[str, Any]]:
    with client.stream(method, path) as answer:
        if answer.status_code >= 400:
            answer.read()
            return answer.status_code, answer.json()
        return answer.status_code, {}


def test_every_route_admits_exactly_whom_it_says(server: ThreadServer, keys: dict[str, str]):
    routes = list(roles_of(create_app(_nothing())))
    assert len(routes) > 60
    who = {
        "anonymous": None, "forged": "sw_forged", "revoked": keys["revoked"], "user": keys["user"],
        "guest": keys["guest"], "developer": keys["developer"], "maintainer": keys["maintainer"],
        "owner": keys["owner"], "admin": keys["admin"],
    }  # fmt: skip
    wrong = []
    for name, key in who.items():
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=server.url, headers=headers, timeout=30) as client:
            for method, path, needed in routes:
                if path == "/api/v1/tokens/{token_id}" and name == "user":
                    continue  # asked for below with a real token
                for project in (OWN, OTHER, UNKNOWN) if "{project_id}" in path else (OWN,):
                    expected = _expected(name, needed, project if "{project_id}" in path else None)
                    status, problem = _ask(client, method, _url(path, project))
                    if not _fits(expected, status, problem):
                        wrong.append((name, method, path, project[-1], expected, status, problem.get("code")))
    assert not wrong


def _expected(name: str, needed: Role, project: str | None) -> int:
    """The status that refuses, or 0 if the request has to be admitted."""
    if needed is Role.PUBLIC:
        return 0
    if name in ("anonymous", "forged", "revoked"):
        return 401
    if project in (OTHER, UNKNOWN) and not (name == "admin" and project == OTHER):
        return 404
    if project == OWN and name == "user":
        return 404
    return 0 if allows(Role(name), needed) else 403


def _fits(expected: int, status: int, problem: dict[str, Any]) -> bool:
    code = problem.get("code")
    if expected == 0:
        return status < 500 and code not in ("unauthenticated", "access_denied", "project_not_found")
    code_of = {401: "unauthenticated", 403: "access_denied", 404: "project_not_found"}
    return (status, code) == (expected, code_of[expected])


def test_not_yours_and_not_there_are_the_same_answer(server: ThreadServer, keys: dict[str, str]):
    routes = [(method, path) for method, path, _ in roles_of(create_app(_nothing())) if "{project_id}" in path]
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {keys['owner']}"}) as client:
        for method, path in routes:
            answers = []
            for project in (OTHER, UNKNOWN):
                answer = client.request(method, _url(path, project))
                text = answer.text.replace(project, "P").replace(answer.json()["request_id"], "R")
                shown = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
                answers.append((answer.status_code, text, shown))
            assert answers[0] == answers[1], path


def test_a_route_without_a_role_fails_the_matrix():
    app = create_app(_nothing())
    app.add_api_route("/api/v1/forgotten", _nothing_said)
    with pytest.raises(TypeError, match="/api/v1/forgotten states no role"):
        list(roles_of(app))
    with pytest.raises(KeyError):
        RoledRoute("/x", _nothing_said).get_route_handler()  # and cannot be served


def test_a_restricted_token_is_restricted(server: ThreadServer, keys: dict[str, str]):
    with server.client(keys["capped"]) as client:  # of the administrator, at most a guest
        assert client.get(f"/projects/{OWN}/kv/project/entries").status_code == 200
        assert client.put(f"/projects/{OWN}/kv/project/entries/k", json=1).status_code == 403
        assert client.get("/users").status_code == 403
        assert client.get("/namespaces").status_code == 400  # all projects' are for administrators
        assert client.post("/tokens", json={"label": "more"}).status_code == 403
        assert client.put(f"/projects/{UNKNOWN}", json={"name": "mine"}).status_code == 404
    with server.client(keys["bound"]) as client:
        assert client.put(f"/projects/{OWN}/kv/project/entries/k", json=1).status_code == 200
        assert client.get(f"/projects/{OTHER}/kv/project/entries").status_code == 404
        assert client.get("/global/kv/global/entries").status_code == 403
        assert client.put(f"/projects/{UNKNOWN}", json={"name": "mine"}).status_code == 404
        assert client.post("/tokens", json={"label": "more"}).status_code == 403
    with server.client(keys["owner"]) as client:
        assert client.get("/tokens", params={"everyone": True}).status_code == 403
        assert client.post("/tokens", json={"label": "x", "user": "guest"}).status_code == 403
        others = server.client().get("/tokens", params={"everyone": True}).json()["items"]
        of_guest = next(token["id"] for token in others if token["user"] == "guest")
        assert client.delete(f"/tokens/{of_guest}").json()["code"] == "account_not_found"
    with server.client(keys["guest"]) as client:
        assert client.get("/me").status_code == 200


def test_a_restricted_token_revokes_itself_alone(server: ThreadServer, keys: dict[str, str]):
    with server.client() as admin:
        made = {"role": "guest", "user": "owner"}, {"project_id": OWN, "user": "owner"}
        of_owner = admin.post("/tokens", json={"label": "unrestricted", "user": "owner"}).json()
        for limits in made:
            limited = admin.post("/tokens", json={"label": "limited", **limits}).json()
            with server.client(limited["token"]) as client:
                assert client.delete(f"/tokens/{of_owner['id']}").status_code == 403
                assert client.delete(f"/tokens/{new_id()}").status_code == 403
                assert client.delete("/tokens/self").status_code == 204
                assert client.get("/me").status_code == 401
    with server.client(of_owner["token"]) as client:
        assert client.delete(f"/tokens/{of_owner['id']}").status_code == 204


def test_a_taken_role_is_gone_at_once(server: ThreadServer, keys: dict[str, str]):
    path = f"/projects/{OWN}/members/developer"
    with server.client(keys["owner"]) as owner, server.client(keys["developer"]) as developer:
        assert developer.put(f"/projects/{OWN}/kv/project/entries/k", json=1).status_code == 200
        assert owner.put(path, json={"role": "guest"}).status_code == 200
        assert developer.put(f"/projects/{OWN}/kv/project/entries/k", json=1).status_code == 403
        assert owner.delete(path).status_code == 204
        assert developer.get(f"/projects/{OWN}/kv/project/entries/k").status_code == 404
        assert owner.put(path, json={"role": "developer"}).status_code == 200
        assert owner.put(f"/projects/{OWN}/members/owner", json={"role": "guest"}).status_code == 409


def test_a_stream_ends_with_the_role_it_was_opened_with(server: ThreadServer, keys: dict[str, str]):
    path, at = f"/projects/{OWN}/members/developer", f"/projects/{OWN}/kv/project"
    with server.client(keys["owner"]) as owner, server.client(keys["developer"]) as developer:
        with developer.stream("GET", f"{at}/watch") as watch, developer.stream("POST", f"{at}/lock", json={}) as lock:
            told, held = watch.iter_lines(), lock.iter_lines()
            assert next(told) == "retry: 500"
            lease = json.loads(next(held))["lease"]
            assert owner.delete(path).status_code == 204
            assert set(held) <= {""}  # it ends, within the client's patience
            renewed = owner.put(f"{at}/lock/{lease}").json()
            assert owner.put(f"{at}/entries/unseen", json=1).status_code == 200
            assert "unseen" not in "".join(told)
        assert renewed["lives"] is False
        assert owner.put(path, json={"role": "developer"}).status_code == 200


async def test_another_process_notices_a_revoked_key_within_two_seconds():
    database = Database()
    backend = PostgresBackend(database.dsn)
    try:
        await backend.prepare()
        accounts = AccountStore(backend)
        gate = Gate(accounts)
        secret = new_secret()
        account = await accounts.add_account("ada", admin=True)
        token_id = await accounts.add_token(account.id, "key", hashed(secret))
        assert (await gate.admit(f"Bearer {secret}", Role.ADMIN, None)).role is Role.ADMIN
        await accounts.delete_token(token_id, account.id, anyones=False)  # as another API process does it
        async with asyncio.timeout(4):
            with pytest.raises(StepwellError, match="unknown, expired or revoked"):
                while True:
                    await gate.admit(f"Bearer {secret}", Role.ADMIN, None)
                    await asyncio.sleep(0.1)
    finally:
        await backend.close()
        database.drop()


def test_passwords_and_their_limits(server: ThreadServer):
    with server.client() as admin, httpx.Client(base_url=f"{server.url}/api/v1", timeout=30) as nobody:
        assert admin.post("/users", json={"name": "pat", "password": "short"}).status_code == 400
        assert admin.post("/users", json={"name": "pat", "password": "correct horse"}).status_code == 201
        wrong = nobody.post("/login", json={"name": "pat", "password": "wrong horse"})
        unknown = nobody.post("/login", json={"name": "who", "password": "wrong horse"})
        assert wrong.status_code == unknown.status_code == 401
        assert wrong.json()["detail"] == unknown.json()["detail"]
        made = nobody.post("/login", json={"name": "pat", "password": "correct horse"})
        assert made.status_code == 200
        with server.client(made.json()["token"]) as pat:
            assert pat.get("/me").json()["name"] == "pat"
            assert pat.delete("/tokens/self").status_code == 204
            assert pat.get("/me").status_code == 401
        statuses = [nobody.post("/login", json={"name": "pat", "password": "x"}).status_code for _ in range(12)]
        assert statuses[0] == 401
        assert statuses[-1] == 429  # guessing takes for ever
        assert admin.patch("/users/pat", json={"disabled": True}).status_code == 200
        assert admin.delete("/users/admin").status_code == 409  # the last administrator


def _nothing() -> Services:
    """Services that are never used: only the routes of the application are looked at."""
    return Services(PostgresBackend("postgresql:///nowhere"))


def _nothing_said() -> dict[str, str]:
    return {}
