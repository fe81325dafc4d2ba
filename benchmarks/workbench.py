"""The KV workbench over a million entries: half in one namespace, half in 10,000 conversations."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from time import perf_counter
from typing import Any

import psycopg
from harness import Options, Row, in_turn

from stepwell.server.embedded_postgres import EmbeddedPostgres
from stepwell.store.postgres import PostgresBackend
from stepwell.store.workbench import WorkbenchStore
from stepwell.store.workbench_types import Filters

MANY, SPREAD = "01936d3f-6a00-7000-8000-0000000000c1", "01936d3f-6a00-7000-8000-0000000000c2"
FILL = f"""
INSERT INTO stepwell.namespace (project_id, domain, scope, workflow, conversation_id, revision, updated_at, minute, entries)
SELECT '{MANY}', 'kv', 'project', '', '', %(rows)s, 1700000000000000 + %(rows)s, (1700000000000000 + %(rows)s) / 60000000,
  %(rows)s
UNION ALL SELECT '{SPREAD}', 'kv', 'conversation', '', 'c' || g, 50, 1600000000000000 + g * 50,
  (1600000000000000 + g * 50) / 60000000, 50
  FROM generate_series(1, %(rows)s / 50) AS g;
INSERT INTO stepwell.entry
SELECT n.id, 'k' || lpad(k::text, 7, '0'), ('"' || repeat(md5((n.id + k)::text), 6) || '"')::json, 'string', 194, k,
  1600000000000000, n.updated_at - n.entries + k, n.project_id, 'main', CASE WHEN k %% 2 = 0 THEN 'run' END, NULL
FROM stepwell.namespace AS n CROSS JOIN LATERAL generate_series(1, n.entries) AS k;
"""


def rows(options: Options) -> Iterator[Row]:
    """Seconds of each question, beside the second that a person waits for without wondering."""
    size = options.size(500_000, 5_000)
    with EmbeddedPostgres(options.folder / "postgres") as postgres:
        loop = asyncio.new_event_loop()
        backend = PostgresBackend(postgres.dsn)
        loop.run_until_complete(backend.prepare())
        with psycopg.ClientCursor(psycopg.connect(postgres.dsn, autocommit=True)) as cursor:
            cursor.execute(FILL, {"rows": size})
            cursor.execute("VACUUM ANALYZE stepwell.entry")
            cursor.execute("ANALYZE stepwell.namespace")
            cursor.connection.close()
        store = WorkbenchStore(backend)
        for what, question, sampled in (
            ("newest first", lambda: store.newest(Filters(MANY), limit=100), lambda page: page.sampled),
            ("newest first, by run", lambda: store.newest(Filters(MANY, has_run=True), limit=100), lambda page: page.sampled),
            ("newest of 10,000 conversations", lambda: store.newest(Filters(SPREAD), limit=100), lambda page: page.sampled),
            ("newest, text that is nowhere", lambda: store.newest(Filters(MANY, value_contains="nowhere"), limit=100),
             lambda page: page.sampled),
            ("by key, part of a key", lambda: store.by_key(Filters(MANY, key_contains="999"), limit=100), lambda _: None),
            ("statistics of a project", lambda: store.statistics(Filters(MANY)), lambda found: found.sampled),
            ("statistics of everything", lambda: store.statistics(Filters()), lambda found: found.sampled),
        ):  # fmt: skip
            seconds, answer = _timed(loop, options, question)
            note = "" if sampled(answer) is None else f"sampled: {sampled(answer)}"
            yield Row(
                f"workbench, {2 * size:,} entries: {what}", "1 s", seconds * 1e3, 1_000, "ms", seconds, 1,
                at_least=False, note=note,
            )  # fmt: skip
        loop.run_until_complete(backend.close())
        loop.close()


def _timed(
    loop: asyncio.AbstractEventLoop, options: Options, question: Callable[[], Awaitable[Any]]
) -> tuple[float, Any]:
    last: Any = None

    def once() -> float:
        nonlocal last
        started = perf_counter()
        last = loop.run_until_complete(question())
        return perf_counter() - started

    return in_turn(options.rounds(3), {"ours": once})["ours"], last
