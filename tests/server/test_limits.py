"""Sizes, rates, streams, hosts and origins: each limit has its own answer, and nothing accepted is lost."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, sleep

import httpx
import pytest

from stepwell.identifiers import new_id
from stepwell.server.limits import Limits
from tests.servers import ThreadServer

PROJECT = "01936d3f-6a00-7000-8000-000000000001"
ENTRIES = f"/projects/{PROJECT}/kv/project/entries"


@pytest.fixture
def small() -> Iterator[ThreadServer]:
    limits = Limits(body_bytes=10_000, requests_per_second=5, burst=30, streams=2)
    with ThreadServer(limits=limits) as server:
        with server.client() as admin:
            assert admin.put(f"/projects/{PROJECT}", json={"name": "small"}).status_code == 201
        yield server


def test_a_body_that_is_too_large_changes_nothing(small: ThreadServer):
    with small.client() as client:
        assert client.put(f"{ENTRIES}/k", json="x" * 20_000).json()["code"] == "request_too_large"

        def chunks() -> Iterator[bytes]:  # without a Content-Length
            yield b'"'
            for _ in range(20):
                yield b"x" * 1_000
            yield b'"'

        answer = client.put(f"{ENTRIES}/k", content=chunks(), headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")
        assert client.get(f"{ENTRIES}/k").status_code == 404


def test_who_is_not_known_yet_sends_little():
    with ThreadServer() as server, httpx.Client(base_url=f"{server.url}/api/v1") as nobody:
        answer = nobody.post("/login", json={"name": "ada", "password": "x" * 900, "label": "x" * 30_000})
        assert (answer.status_code, answer.json()["code"]) == (413, "request_too_large")
        longest = {"name": "n" * 100, "password": "\U0001f511" * 1_000, "label": "\U0001f511" * 100}
        content = json.dumps(longest)  # escaped
        assert nobody.post("/login", content=content).json()["code"] == "unauthenticated"


def test_a_commit_id_is_of_one_commit(small: ThreadServer):
    used = {"commit_id": new_id(), "writes": [{"key": "k", "value": 1}]}
    talk = f"/projects/{PROJECT}/kv/conversation"
    with small.client() as client:
        first = client.post(f"/projects/{PROJECT}/kv/project/commit", json=used)
        assert first.status_code == 200
        for repeat in (False, True):
            asked = used | {"repeat": repeat}
            refused = client.post(f"{talk}/commit", params={"conversation_id": "c"}, json=asked)
            assert (refused.status_code, refused.json()["code"]) == (400, "invalid_argument")
            assert client.post(f"/projects/{PROJECT}/kv/project/commit", json=asked).json() == first.json()
        assert client.get(f"{talk}/entries", params={"conversation_id": "c"}).json()["items"] == []


def test_too_many_requests_are_told_when_to_come_back(small: ThreadServer):
    with small.client() as client:
        answers = [client.get("/me") for _ in range(60)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused
        assert all(answer.json()["code"] == "too_many_requests" for answer in refused)
        assert all(int(answer.headers["Retry-After"]) >= 1 for answer in refused)


def test_open_streams_are_counted(small: ThreadServer):
    watch = f"/projects/{PROJECT}/kv/project/watch"
    with small.client() as client, client.stream("GET", watch) as one, client.stream("GET", watch) as two:
        kept = one.iter_lines(), two.iter_lines()  # a forgotten iterator closes its connection
        assert [next(lines) for lines in kept] == ["retry: 500"] * 2
        third = client.get(watch)
        assert (third.status_code, third.json()["code"]) == (503, "server_busy")
        assert third.headers["Retry-After"]
        del kept
    deadline = monotonic() + 10
    with small.client() as client:
        while True:
            with client.stream("GET", watch) as again:
                if again.status_code == 200:
                    break
            assert monotonic() < deadline
            sleep(0.3)


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil.example:80", "[::1].evil", ""])
def test_a_name_that_was_made_to_point_here_is_refused(small: ThreadServer, host: str):
    answer = httpx.get(f"{small.url}/healthz", headers={"Host": host})
    assert answer.status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.0.0.1:9", "[::1]:8765"])
def test_this_machine_has_its_names(small: ThreadServer, host: str):
    assert httpx.get(f"{small.url}/healthz", headers={"Host": host}).status_code == 200


def test_pages_from_elsewhere_cannot_call(small: ThreadServer):
    for origin in ("https://evil.example", "null", "http://localhost.evil.example"):
        answer = httpx.get(f"{small.url}/readyz", headers={"Origin": origin})
        assert (answer.status_code, answer.json()["code"]) == (403, "origin_refused")
    assert httpx.get(f"{small.url}/readyz", headers={"Origin": small.url}).status_code == 200


def test_answers_carry_what_browsers_and_operators_need(small: ThreadServer):
    answer = httpx.get(f"{small.url}/healthz", headers={"X-Request-Id": "abc-1"})
    assert answer.headers["X-Request-Id"] == "abc-1"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert "server" not in answer.headers
    forged = httpx.get(f"{small.url}/healthz", headers={"X-Request-Id": "a b\tc"})
    assert forged.headers["X-Request-Id"] != "a b\tc"
    text = httpx.get(f"{small.url}/metrics").text
    assert 'stepwell_requests_total{method="GET",route="/healthz",status="200"}' in text
    assert PROJECT not in text


def test_a_watch_goes_on_where_it_was_cut(small: ThreadServer):
    watch = f"/projects/{PROJECT}/kv/project/watch"

    def changes(client: httpx.Client, headers: dict[str, str], count: int) -> tuple[list[tuple[str, int]], str]:
        found, last = [], ""
        with client.stream("GET", watch, headers=headers) as answer:
            for line in answer.iter_lines():
                if line.startswith("id: "):
                    last = line.removeprefix("id: ")
                if line.startswith("data: "):
                    data = json.loads(line.removeprefix("data: "))
                    assert "value" not in data
                    found.append((data["key"], data["revision"]))
                    if len(found) == count:
                        return found, last
        raise AssertionError("the stream ended")

    with small.client() as client:
        for number in range(6):
            assert client.put(f"{ENTRIES}/k{number}", json=number).status_code == 200
        first, last = changes(client, {"Last-Event-ID": "0"}, 3)
        rest, _ = changes(client, {"Last-Event-ID": last}, 6 - int(last))
        together = sorted(set(first + rest), key=lambda each: each[1])
        assert together == [(f"k{number}", number + 1) for number in range(6)]
        assert client.get(watch, headers={"Last-Event-ID": "x"}).status_code == 400


def test_a_mistyped_or_repeated_argument_is_an_error(small: ThreadServer):
    with small.client() as client:
        for query in ("prefx=a", "prefix=a&prefix=b", "prefix=a&x=1", "prefix=a&start=b", "prefix=a&stop=b"):
            answer = client.get(f"{ENTRIES}?{query}")
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument"), query
        assert client.get(f"{ENTRIES}?prefix=a").status_code == 200
        assert client.get(f"{ENTRIES}/k?as=txt").status_code == 400
        assert client.put(f"{ENTRIES}/k?x=1", json=1).status_code == 400
        assert client.get(f"{ENTRIES}/k").status_code == 404


@pytest.mark.parametrize("cursor", [
    [1, None, "kv", "global", None, chr(0xD800)], [1, chr(0), "kv", "global", None, None], [True, None, "kv", "global", None, None],
])  # fmt: skip
def test_a_made_up_cursor_of_namespaces_is_refused(small: ThreadServer, cursor: list[object]):
    with small.client() as client:
        answer = client.get("/namespaces", params={"after": json.dumps(cursor)})
        assert (answer.status_code, answer.json()["data"]) == (400, {"argument": "after"})


def test_text_that_no_column_takes_is_refused_wherever_it_is_given(small: ThreadServer):
    nul, half = chr(0), chr(0xD800)
    kv = f"/projects/{PROJECT}/kv/project"
    with small.client() as client:
        bodies = [
            ("POST", "/login", {"name": f"a{nul}", "password": "x"}),
            ("POST", "/login", {"name": f"a{half}", "password": "x"}),
            ("POST", "/login", {"name": "a", "password": half}),
            ("POST", "/users", {"name": "a", "password": "long enough" + half}),
            ("POST", "/tokens", {"label": half}),
            ("PUT", f"/projects/{PROJECT}", {"name": f"x{half}"}),
            ("POST", f"{kv}/commit", {"writes": [{"key": "k", "value": 1}], "source": {"run_id": nul}}),
            ("POST", f"{kv}/commit", {"writes": [{"key": "k", "value": 1}], "source": {"entrypoint": half}}),
            ("POST", f"{kv}/lock", {"holder": {"host": half}}),
        ]
        for method, path, body in bodies:
            answer = client.request(method, path, content=json.dumps(body))
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_argument"), (path, body)
        for method, path in (("PATCH", "/users/a%00"), ("DELETE", "/users/%00"), ("GET", f"{ENTRIES}/a%00"),
                             ("DELETE", f"/projects/{PROJECT}/members/%00"), ("GET", f"{ENTRIES}?prefix=%00"),
                             ("GET", f"/projects/{PROJECT}/workbench/entries?key_contains=%00"),
                             ("GET", f"/projects/{PROJECT}/related/%00/kv/entries/k")):  # fmt: skip
            content = "{}" if method == "PATCH" else None
            assert client.request(method, path, content=content).status_code in (400, 404), path
        assert client.get(f"{ENTRIES}/k").status_code == 404


def test_few_passwords_are_checked_at_once_whatever_names_are_made_up(small: ThreadServer):
    def ask(number: int) -> int:
        body = {"name": f"nobody{number}", "password": "guess"}
        return httpx.post(f"{small.url}/api/v1/login", json=body, timeout=60).status_code

    with ThreadPoolExecutor(60) as pool:
        statuses = list(pool.map(ask, range(60)))
    assert set(statuses) == {401, 503}
    assert httpx.get(f"{small.url}/healthz").status_code == 200


def test_a_watcher_that_is_ahead_of_the_database_hears_what_comes(small: ThreadServer):
    with small.client() as client:
        watch = f"/projects/{PROJECT}/kv/project/watch"
        with client.stream("GET", watch, params={"since": 10**29}) as answer:
            told = answer.iter_lines()
            assert next(told) == "retry: 500"
            assert client.put(f"{ENTRIES}/k", json=1).status_code == 200
            assert any('"key":"k"' in line for line in told if line.startswith("data:"))


def test_an_entry_that_is_there_is_not_sent_again_for_a_star(small: ThreadServer):
    with small.client() as client:
        assert client.put(f"{ENTRIES}/k", json=1).status_code == 200
        assert client.get(f"{ENTRIES}/k", headers={"If-None-Match": "*"}).status_code == 304
