"""The workbench: filters, figures and export over HTTP, and honest answers where not everything is read."""

import asyncio
import csv
import io
import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import httpx
import pytest

from stepwell.server.export import COLUMNS
from stepwell.server.routes.workbench import _preview
from stepwell.store.entries import Domain, Namespace, Scope, Source, Write
from stepwell.store.postgres import PostgresBackend
from stepwell.store.workbench import Bounds, WorkbenchStore
from stepwell.store.workbench_types import Filters, Page, Position
from tests.databases import Database
from tests.servers import ThreadServer

PROJECT = "7d3f3c1e-0000-4000-8000-000000000001"
OTHER = "7d3f3c1e-0000-4000-8000-000000000002"
KV = Namespace(PROJECT, Domain.KV, Scope.PROJECT)
TALK = Namespace(PROJECT, Domain.KV, Scope.CONVERSATION, None, "c1")
STORED = Namespace(PROJECT, Domain.CONVERSATION, Scope.CONVERSATION, None, "c1")
THEIRS = Namespace(OTHER, Domain.KV, Scope.PROJECT)
GLOBAL = Namespace(None, Domain.KV, Scope.GLOBAL)
BIG = "123456789012345678901234567890"
LONG = json.dumps("é" * 700, ensure_ascii=False)
HOSTILE_KEYS = [
    "=1+1",
    "+cmd",
    "-2",
    "@x",
    "\ttab",
    'a"b,c',
    "line\nbreak",
    "%",
    "_",
    "x') OR 1=1 --",
    "é",
    "Key",
    "key",
]
FILLED: list[tuple[Namespace, list[Write], Source]] = [
    (KV, [Write("big", BIG)], Source(PROJECT, "main", "run-1", "c1")),
    (KV, [Write("long", LONG)], Source(PROJECT, "main", "run-2", "gone")),
    (KV, [Write("spaced", '{\n  "a": 1.0\r\n}'), Write("quote", '"say \\"hi\\" \\u0000"')], Source(PROJECT, "other")),
    (KV, [Write(key, "-5" if key == "-2" else json.dumps(key)) for key in HOSTILE_KEYS], Source(PROJECT)),
    (TALK, [Write("mine", "null")], Source(PROJECT, "main", "run-2", "c1")),
    (STORED, [Write("head", "{}")], Source(PROJECT, "main", "run-2", "c1")),
    (THEIRS, [Write("secret", '"of another project"')], Source(OTHER, "main", "run-9", "c1")),
    (GLOBAL, [Write("everywhere", "true")], Source(PROJECT, "main", "run-1", "c1")),
]
OF_PROJECT = [write.key for ns, writes, _ in FILLED if ns.project_id == PROJECT for write in writes]


@pytest.fixture(scope="module")
def server() -> Iterator[ThreadServer]:
    with ThreadServer() as started:
        asyncio.run(_fill(started.database.dsn, FILLED))
        with started.client() as admin:
            for project in (PROJECT, OTHER):
                assert admin.put(f"/projects/{project}", json={"name": "p"}).status_code == 201
        yield started


async def _fill(dsn: str, commits: list[tuple[Namespace, list[Write], Source]]) -> None:
    backend = PostgresBackend(dsn)
    try:
        for namespace, writes, source in commits:
            await backend.commit(namespace, [], writes, source=source)
    finally:
        await backend.close()


@pytest.fixture(scope="module")
def guest(server: ThreadServer) -> Iterator[httpx.Client]:
    """A guest of one project."""
    with server.client() as admin:
        admin.post("/users", json={"name": "guest"}).raise_for_status()
        admin.put(f"/projects/{PROJECT}/members/guest", json={"role": "guest"}).raise_for_status()
        made = admin.post("/tokens", json={"label": "t", "user": "guest"})
        made.raise_for_status()
    with server.client(made.json()["token"]) as client:
        yield client


@pytest.fixture
def entries(guest: httpx.Client) -> Callable[..., list[dict[str, Any]]]:
    def ask(**query: Any) -> list[dict[str, Any]]:
        """Every page of an answer."""
        found: list[dict[str, Any]] = []
        while True:
            answer = guest.get(f"/projects/{PROJECT}/workbench/entries", params=query)
            assert answer.status_code == 200, answer.text
            found += answer.json()["items"]
            query["cursor"] = answer.json()["next_cursor"]
            if query["cursor"] is None:
                return found

    return ask


def keys(items: list[dict[str, Any]]) -> set[str]:
    return {item["key"] for item in items}


@pytest.mark.parametrize("order", ["updated", "key"])
@pytest.mark.parametrize("limit", [1, 3, 200])
@pytest.mark.parametrize("full", [True, False])
def test_pages_show_everything_once(
    entries: Callable[..., list[dict[str, Any]]], order: str, limit: int, full: bool
) -> None:
    found = entries(order=order, limit=limit, full=full)
    assert sorted(item["key"] for item in found) == sorted(OF_PROJECT)
    if order == "updated":
        assert [item["updated_at"] for item in found] == sorted((item["updated_at"] for item in found), reverse=True)
    else:
        project_wide = [item["key"] for item in found if item["scope"] == "project"]
        assert project_wide == sorted(project_wide, key=str.encode)


def test_each_filter_narrows(entries: Callable[..., list[dict[str, Any]]]) -> None:
    everything = entries()
    middle = next(item["updated_at"] for item in everything if item["key"] == "spaced")
    before = {key for key in OF_PROJECT if key in ("big", "long")}
    cases: list[tuple[dict[str, Any], set[str]]] = [
        ({"domain": "conversation"}, {"head"}),
        ({"domain": "persistent_value"}, set()),
        ({"scope": "conversation"}, {"mine", "head"}),
        ({"conversation_id": "c1", "domain": "kv"}, {"mine"}),
        ({"conversation_id": "c"}, set()),
        ({"source_conversation_id": "c1"}, {"big", "mine", "head"}),
        ({"workflow": "other"}, {"spaced", "quote"}),
        ({"key_prefix": "l"}, {"long", "line\nbreak"}),
        ({"key_prefix": "%"}, {"%"}),
        ({"key_prefix": "_"}, {"_"}),
        ({"key_contains": "e", "key_prefix": "K"}, {"Key"}),
        ({"key_contains": "') OR 1=1"}, {"x') OR 1=1 --"}),
        ({"value_contains": "5678901234567890123"}, {"big"}),
        ({"value_contains": 'say "hi"'}, {"quote"}),
        ({"value_contains": "\\u0000"}, {"quote"}),
        ({"value_contains": "%"}, {"%"}),
        ({"value_contains": "another"}, set()),
        ({"type": "null"}, {"mine"}),
        ({"type": "number"}, {"big", "-2"}),
        ({"has_run": "true"}, {"big", "long", "mine", "head"}),
        ({"has_run": "false", "type": "object"}, {"spaced"}),
        ({"run_id": "run-2", "domain": "kv"}, {"long", "mine"}),
        ({"run_id": "run-9"}, set()),
        ({"updated_until": middle}, before),
        ({"updated_since": middle}, set(OF_PROJECT) - before),
    ]
    for query, expected in cases:
        for order in ("updated", "key"):
            assert keys(entries(**query, order=order)) == expected, (query, order)


def test_items_say_where_from_and_what(entries: Callable[..., list[dict[str, Any]]]) -> None:
    big = entries(key_prefix="big")[0]
    assert {name: part for name, part in big.items() if not name.endswith("_at")} == {
        "project_id": PROJECT, "domain": "kv", "scope": "project", "workflow": None, "conversation_id": None,
        "key": "big", "type": "number", "bytes": 30, "revision": 1, "preview": BIG, "truncated": False,
        "source": {"project_id": PROJECT, "workflow": "main", "run_id": "run-1", "conversation_id": "c1"},
        "run": {"id": "run-1", "stored": False}, "conversation": {"id": "c1", "stored": True},
    }  # fmt: skip
    long = entries(key_prefix="long")[0]
    assert (long["truncated"], len(long["preview"]), long["conversation"]["stored"]) == (True, 500, False)
    assert entries(key_prefix="%")[0]["run"] is None


def test_whole_values_come_to_the_character(guest: httpx.Client) -> None:
    answer = guest.get(f"/projects/{PROJECT}/workbench/entries", params={"full": True, "key_prefix": "big"})
    assert f'"value":{BIG}' in answer.text
    answer = guest.get(f"/projects/{PROJECT}/workbench/entries", params={"full": True, "key_prefix": "spaced"})
    assert '"value":{\n  "a": 1.0\r\n}' in answer.text


@pytest.mark.parametrize(
    "query",
    ["typo=1", "key=x", "limit=0", "limit=201", "limit=x", "type=integer", "order=size", "domain=", "conversation_id=",
     "key_prefix=", "value_contains=", "value_contains=a%00b", "updated_since=yesterday", "updated_since=2026-01-01T00:00:00",
     "type=null&type=number", "cursor=x", "cursor=[]", 'cursor=["key",0,1,"a"]', 'cursor=["updated",true,1,"a"]',
     'cursor=["updated",1,1,"\\ud800"]', 'cursor=["updated",99999999999999999999,1,"a"]', "project_id=x",
     "value_contains=" + "x" * 10_000, "full=maybe"],
)  # fmt: skip
def test_what_is_not_understood_is_refused(guest: httpx.Client, query: str) -> None:
    for what in ("entries", "statistics", "export"):
        answer = guest.get(f"/projects/{PROJECT}/workbench/{what}?{query}")
        assert answer.status_code == 400, (what, answer.text)
        assert answer.json()["code"] in ("invalid_argument", "invalid_json", "invalid_key")
    answer = guest.get(f"/projects/{PROJECT}/workbench/entries?typo=1")
    assert answer.json()["code"] == "invalid_argument"
    assert "typo" in answer.json()["detail"]


def test_nobody_looks_into_another_project(server: ThreadServer, guest: httpx.Client) -> None:
    for what in ("entries", "statistics", "export?format=csv"):
        assert guest.get(f"/projects/{OTHER}/workbench/{what}").status_code == 404
        assert guest.get(f"/workbench/{what}").status_code == 403
        assert httpx.get(f"{server.url}/api/v1/workbench/{what}").status_code == 401


def test_administrators_see_all_projects_and_what_belongs_to_none(server: ThreadServer) -> None:
    with server.client() as admin:
        everything = admin.get("/workbench/entries", params={"limit": 200}).json()["items"]
        assert keys(everything) == {*OF_PROJECT, "secret", "everywhere"}
        of_none = admin.get("/workbench/entries", params={"scope": "global"}).json()["items"]
        assert [(item["project_id"], item["key"]) for item in of_none] == [(None, "everywhere")]
        other = admin.get("/workbench/entries", params={"project_id": OTHER.upper()}).json()["items"]
        assert keys(other) == {"secret"}
        assert other[0]["conversation"] == {"id": "c1", "stored": False}
        assert admin.get("/workbench/statistics", params={"project_id": OTHER}).json()["entries"] == 1


def test_statistics(guest: httpx.Client) -> None:
    shown = guest.get(f"/projects/{PROJECT}/workbench/statistics").json()
    sizes = sorted(len(write.text.encode()) for ns, writes, _ in FILLED if ns.project_id == PROJECT for write in writes)
    rows = len(sizes)
    assert shown["entries"] == rows
    assert shown["sampled"] is None
    assert shown["payload"] == {
        "total_bytes": sum(sizes), "mean_bytes": round(sum(sizes) / rows, 1), "max_bytes": sizes[-1],
        "p50_bytes": sizes[(rows + 1) // 2 - 1], "p95_bytes": sizes[-(-rows * 95 // 100) - 1],
    }  # fmt: skip
    assert shown["association"] == {
        "run": round(4 / rows, 4), "conversation": round(4 / rows, 4), "workflow": round(6 / rows, 4)
    }  # fmt: skip
    assert shown["scopes"] == [
        {"domain": "kv", "scope": "project", "namespaces": 1, "entries": rows - 2},
        {"domain": "conversation", "scope": "conversation", "namespaces": 1, "entries": 1},
        {"domain": "kv", "scope": "conversation", "namespaces": 1, "entries": 1},
    ]
    assert {each["type"]: each["entries"] for each in shown["types"]} == {
        "string": rows - 5, "number": 2, "object": 2, "null": 1
    }  # fmt: skip
    assert [item["key"] for item in shown["recent"]["items"][:2]] == ["head", "mine"]
    assert len(shown["recent"]["items"]) == min(20, rows)
    part = guest.get(
        f"/projects/{PROJECT}/workbench/statistics", params={"scope": "conversation", "domain": "kv"}
    ).json()
    assert (part["entries"], part["payload"]["max_bytes"]) == (1, 4)
    empty = guest.get(f"/projects/{PROJECT}/workbench/statistics", params={"conversation_id": "none"}).json()
    assert (empty["entries"], empty["payload"]["mean_bytes"], empty["association"]["run"]) == (0, None, None)


def test_hot_keys_are_those_written_most(server: ThreadServer) -> None:
    project = str(uuid4())
    namespace = Namespace(project, Domain.KV, Scope.PROJECT)
    commits = [(namespace, [Write("hot", str(n)), Write(f"cold{n % 4}", "1")], Source()) for n in range(12)]
    asyncio.run(_fill(server.database.dsn, [*commits, (namespace, [Write("hot", None)], Source())]))
    with server.client() as admin:
        hot = admin.get("/workbench/statistics", params={"project_id": project}).json()["hot_keys"]
    assert (hot["commits"], hot["complete"], hot["window_seconds"]) == (13, True, 86_400)
    assert hot["items"][0]["key"] == "hot"
    assert {each["key"]: each["commits"] for each in hot["items"]} == {"hot": 13, **{f"cold{n}": 3 for n in range(4)}}


def test_export_as_ndjson_is_to_the_character(guest: httpx.Client) -> None:
    answer = guest.get(f"/projects/{PROJECT}/workbench/export", params={"format": "ndjson"})
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = answer.text.removesuffix("\n").split("\n")
    assert len(lines) == len(OF_PROJECT)
    texts = {write.key: write.text for ns, writes, _ in FILLED if ns.project_id == PROJECT for write in writes}
    for line in lines:
        entry = json.loads(line)
        assert json.dumps(entry["value"]) == json.dumps(json.loads(texts[entry["key"]] or ""))
        if entry["key"] != "spaced":
            assert line.endswith(f'"value":{texts[entry["key"]]}}}')


def test_export_as_csv_holds_no_formula(guest: httpx.Client) -> None:
    answer = guest.get(f"/projects/{PROJECT}/workbench/export", params={"format": "csv", "domain": "kv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == len(OF_PROJECT) - 1
    for row in rows:
        for cell in row.values():
            assert not cell.startswith(("=", "+", "@", "\t", "\r")), cell
            assert not cell.startswith("-") or cell == "-5" or row["key"] == "-2"
    assert {"'=1+1", "'+cmd", "'@x", "'\ttab", 'a"b,c', "line\nbreak", "-2"} <= {row["key"] for row in rows}
    assert next(row["value"] for row in rows if row["key"] == "big") == BIG


def test_an_empty_export_is_an_answer(guest: httpx.Client) -> None:
    for form, text in (("ndjson", ""), ("csv", ",".join(COLUMNS) + "\r\n")):
        answer = guest.get(f"/projects/{PROJECT}/workbench/export", params={"format": form, "run_id": "none"})
        assert (answer.status_code, answer.text) == (200, text)


@pytest.mark.parametrize("padding", range(12))
@pytest.mark.parametrize(
    ("part", "whole"), [('\\"', 2), ("\\\\", 2), ("\\u0001", 6), ("\\ud83d\\ude00", 12), ("\\\\u0041", 3)]
)
def test_a_preview_is_cut_between_characters(part: str, whole: int, padding: int) -> None:
    cut = _preview('"' + "x" * (500 - 1 - padding) + part * 3 + "y" * 20 + '"')
    assert 500 - whole < len(cut) <= 500
    assert json.loads(f'{cut}"').isprintable() or "\x01" in json.loads(f'{cut}"')


# -- many rows -------------------------------------------------------------------------------------------------------

MANY = "7d3f3c1e-0000-4000-8000-00000000000a"
SPREAD = "7d3f3c1e-0000-4000-8000-00000000000b"
ROWS = 30_000
_FILL = """
INSERT INTO stepwell.namespace (project_id, domain, scope, workflow, conversation_id, revision, updated_at, entries)
SELECT '{many}', 'kv', 'project', '', '', {rows}, 1700000000000000 + {rows}, {rows}
UNION ALL SELECT '{spread}', 'kv', 'conversation', '', 'c' || g, 10, 1600000000000000 + g * 10, 10
  FROM generate_series(1, {rows} / 10) AS g;
INSERT INTO stepwell.entry
SELECT n.id, 'k' || lpad(k::text, 6, '0'), ('"' || md5((n.id + k)::text) || '"')::json, 'string', 34, k,
  1600000000000000, n.updated_at - n.entries + k, n.project_id, 'main', CASE WHEN k % 2 = 0 THEN 'run' END, NULL
FROM stepwell.namespace AS n CROSS JOIN LATERAL generate_series(1, n.entries) AS k;
UPDATE stepwell.entry SET value = '"a needle"', value_bytes = 10 WHERE key IN ('k000007', 'k020000');
ANALYZE stepwell.entry"""


@pytest.fixture(scope="module")
def many() -> Iterator[Database]:
    database = Database()
    database.run(_FILL.format(many=MANY, spread=SPREAD, rows=ROWS))
    yield database
    database.drop()


async def _asked(database: Database, bounds: Bounds, question: Callable[[WorkbenchStore], Any]) -> Any:
    backend = PostgresBackend(database.dsn)
    try:
        return await question(WorkbenchStore(backend, bounds))
    finally:
        await backend.close()


async def _pages(ask: Callable[..., Any], filters: Filters, limit: int) -> list[Page]:
    pages: list[Page] = []
    after: Position | None = None
    while not pages or after is not None:
        pages.append(await ask(filters, limit=limit, after=after))
        after = pages[-1].after
    return pages


async def test_a_search_of_values_says_where_it_stopped_and_goes_on(many: Database) -> None:
    for name in ("newest", "by_key"):
        filters = Filters(MANY, value_contains="a needle")
        pages = await _asked(many, Bounds(scan_rows=7_000), lambda s: _pages(getattr(s, name), filters, 5))
        assert sorted(item.key for page in pages for item in page.items) == ["k000007", "k020000"]
        assert [page.complete for page in pages] == [False] * (len(pages) - 1) + [True]
        assert sum(page.scanned for page in pages) == ROWS
        assert max(page.scanned for page in pages) <= 7_000


async def test_a_search_of_values_stops_after_so_many_bytes(many: Database) -> None:
    for name in ("newest", "by_key"):
        page = await _asked(
            many, Bounds(scan_bytes=3_400), lambda s: getattr(s, name)(Filters(MANY, value_contains="none"), limit=5)
        )
        assert not page.complete
        assert page.items == []
        assert page.after is not None
        assert page.scanned in (100, 101)


async def test_newest_first_is_exact_as_far_as_it_reads_and_says_when_it_samples(many: Database) -> None:
    bounds = Bounds(rows=5_000, sample_rows=3_000)
    pages = await _asked(many, bounds, lambda s: _pages(s.newest, Filters(SPREAD), 200))
    exact = [page for page in pages if page.sampled is None]
    shown = [(item.conversation_id, item.key) for page in exact for item in page.items]
    expected = [(f"c{3_000 - n // 10}", f"k{10 - n % 10:06d}") for n in range(len(shown))]
    assert shown == expected
    assert 4_000 < len(shown) <= 5_000
    assert [page.complete for page in exact] == [True] * (len(exact) - 1) + [False]
    rest = [page for page in pages if page.sampled is not None]
    assert rest
    assert all(page.sampled.of == ROWS and page.sampled.rows < ROWS for page in rest)
    times = [item.updated_at for page in pages for item in page.items]
    assert times == sorted(times, reverse=True)
    whole = await _asked(many, Bounds(), lambda s: _pages(s.newest, Filters(SPREAD), 200))
    assert sum(len(page.items) for page in whole) == ROWS
    assert all(page.sampled is None for page in whole)


async def test_one_large_namespace_is_sampled(many: Database) -> None:
    page = await _asked(many, Bounds(rows=5_000, sample_rows=3_000), lambda s: s.newest(Filters(MANY), limit=50))
    assert len(page.items) == 50
    assert page.sampled is not None
    assert (page.sampled.of, 0 < page.sampled.rows <= 10_000) == (ROWS, True)


async def test_by_key_goes_through_everything_whatever_the_bounds(many: Database) -> None:
    bounds = Bounds(rows=100, scan_rows=500)
    pages = await _asked(many, bounds, lambda s: _pages(s.by_key, Filters(type="string", has_run=True), 200))
    found = [(item.project_id, item.conversation_id, item.key) for page in pages for item in page.items]
    assert len(found) == len(set(found)) == ROWS
    assert max(page.scanned for page in pages) <= 500


async def test_statistics_are_exact_or_say_what_they_sampled(many: Database) -> None:
    exact = await _asked(many, Bounds(), lambda s: s.statistics(Filters(MANY)))
    assert (exact.sampled, exact.figures.rows, exact.figures.with_run) == (None, ROWS, ROWS // 2)
    assert exact.recent.items[0].key == f"k{ROWS:06d}"
    sampled = await _asked(many, Bounds(rows=5_000, sample_rows=3_000), lambda s: s.statistics(Filters(MANY)))
    assert sampled.entries == ROWS
    assert sampled.scopes == [("kv", "project", 1, ROWS)]
    assert sampled.sampled is not None
    assert sampled.sampled == (sampled.figures.rows, ROWS)
    assert 0 < sampled.figures.rows < ROWS // 2


async def test_hot_keys_say_when_they_left_commits_out(many: Database) -> None:
    project = str(uuid4())
    namespace = Namespace(project, Domain.KV, Scope.PROJECT)
    await _fill(many.dsn, [(namespace, [Write("hot", str(n))], Source()) for n in range(10)])
    hot = (await _asked(many, Bounds(commits=4), lambda s: s.statistics(Filters(project)))).hot
    assert (hot.complete, hot.commits, hot.items[0].commits) == (False, 4, 4)


async def test_whole_values_of_a_page_have_a_bound_and_nothing_is_lost(many: Database) -> None:
    project = str(uuid4())
    namespace = Namespace(project, Domain.KV, Scope.PROJECT)
    await _fill(many.dsn, [(namespace, [Write(f"k{n:02d}", json.dumps("x" * 5_000))], Source()) for n in range(20)])
    for name in ("newest", "by_key"):

        async def ask(filters: Filters, *, limit: int, after: Position | None, name: str = name) -> Page:
            return await _asked(
                many, Bounds(answer_bytes=12_000),
                lambda s: getattr(s, name)(filters, limit=limit, after=after, full=True),
            )  # fmt: skip

        pages = await _pages(ask, Filters(project), 50)
        assert len({item.key for page in pages for item in page.items}) == 20
        assert max(len(page.items) for page in pages) == 3
        assert all(len(item.shown) == 5_002 for page in pages for item in page.items)


async def test_export_reads_everything_in_pages(many: Database) -> None:
    async def count(store: WorkbenchStore) -> int:
        return len([1 async for _ in store.every(Filters(SPREAD))])

    assert await _asked(many, Bounds(scan_rows=400), count) == ROWS


async def test_what_takes_too_long_is_sampled(many: Database) -> None:
    bounds = Bounds(sample_rows=9_000, seconds=0.001)
    shown = await _asked(many, bounds, lambda s: s.statistics(Filters(MANY)))
    assert shown.entries == ROWS
    assert shown.sampled is not None
    assert 0 < shown.sampled.rows == shown.figures.rows < ROWS
    assert shown.recent.sampled is not None
    patient = await _asked(many, Bounds(sample_rows=ROWS, seconds=0.001), lambda s: s.statistics(Filters(MANY)))
    assert (patient.sampled, patient.recent.sampled, patient.figures.rows) == (None, None, ROWS)
