"""PostgreSQL against the raw driver, and a server's entries over HTTP against an empty route of the same server."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import psycopg
from harness import Options, Row, Values, in_turn, speed

from stepwell.identifiers import new_id
from stepwell.server.embedded_postgres import EmbeddedPostgres
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Domain, Namespace, Scope, Write
from stepwell.store.postgres import PostgresBackend

KEYS = 1_000
CLIENTS = 8
CONNECTIONS = 16
TABLE = """
CREATE TABLE raw_entry (
  key text COLLATE "C" PRIMARY KEY, value json NOT NULL, revision bigint NOT NULL, created_at bigint NOT NULL,
  updated_at bigint NOT NULL, last_run_id text
) WITH (fillfactor = 85)"""
GET = "SELECT value::text FROM raw_entry WHERE key = %s"
PUT = """
INSERT INTO raw_entry VALUES (%s, %s, 1, 1, 1, NULL) ON CONFLICT (key) DO UPDATE SET
  value = excluded.value, revision = raw_entry.revision + 1, updated_at = raw_entry.updated_at + 1"""


def rows(options: Options) -> Iterator[Row]:
    """One client, eight clients, LangGraph's PostgresStore, and HTTP with sixteen connections."""
    values = Values()
    entries = {f"item:{number:05d}": values.text() for number in range(KEYS)}
    with EmbeddedPostgres(options.folder / "postgres") as postgres:
        loop = asyncio.new_event_loop()
        run = loop.run_until_complete
        backend = PostgresBackend(postgres.dsn, size=CLIENTS)
        here = Namespace(new_id(), Domain.KV, Scope.PROJECT)
        apart = [Namespace(new_id(), Domain.KV, Scope.PROJECT) for _ in range(CLIENTS)]
        for namespace in (here, *apart):
            run(backend.commit(namespace, (), [Write(key, text) for key, text in entries.items()]))
        raw = [run(_raw(postgres.dsn, entries if number == 0 else {})) for number in range(CLIENTS)]
        with psycopg.connect(postgres.dsn, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
        yield from _one_client(options, run, backend, here, raw[0], values)
        yield from _eight_clients(options, run, backend, apart, raw, values)
        for each in raw:
            run(each.close())
        if options.peers is not None:
            yield from _langgraph(options, run, KeyValue(backend, here), entries, postgres)
        run(backend.close())
        yield from _http(options, run, postgres.dsn, values)
        loop.close()


async def _raw(dsn: str, entries: dict[str, str]) -> psycopg.AsyncConnection[Any]:
    connection = await psycopg.AsyncConnection.connect(dsn, autocommit=True, prepare_threshold=2)
    if entries:
        await connection.execute(TABLE)
        for key, text in entries.items():
            await connection.execute(PUT, (key, text))
    return connection


Run = Callable[[Awaitable[Any]], Any]


def _one_client(
    options: Options, run: Run, backend: PostgresBackend, ns: Namespace, raw: Any, values: Values
) -> Iterator[Row]:
    count = options.size(1_000, 20)

    async def get() -> float:
        started = perf_counter()
        for number in range(count):
            await backend.text(ns, f"item:{number % KEYS:05d}")
        return perf_counter() - started

    async def get_raw() -> float:
        started = perf_counter()
        for number in range(count):
            await (await raw.execute(GET, (f"item:{number % KEYS:05d}",))).fetchone()
        return perf_counter() - started

    async def put() -> float:
        texts = [values.text() for _ in range(count)]
        started = perf_counter()
        for number, text in enumerate(texts):
            await backend.commit(ns, (), (Write(f"item:{number % KEYS:05d}", text),))
        return perf_counter() - started

    async def put_raw() -> float:
        texts = [values.text() for _ in range(count)]
        started = perf_counter()
        for number, text in enumerate(texts):
            await raw.execute(PUT, (f"item:{number % KEYS:05d}", text))
        return perf_counter() - started

    taken = in_turn(options.rounds(9), {"ours": lambda: run(get()), "raw": lambda: run(get_raw())})
    yield speed("PostgreSQL get, one client", "raw psycopg", taken["ours"], taken["raw"], 0.65, per=count)
    taken = in_turn(options.rounds(9), {"ours": lambda: run(put()), "raw": lambda: run(put_raw())})
    note = "raw writes the entry; ours also the namespace's revision and the commit's receipt"
    yield speed("PostgreSQL set, one client", "raw psycopg", taken["ours"], taken["raw"], 0.75, per=count, note=note)


def _eight_clients(
    options: Options, run: Run, backend: PostgresBackend, apart: list[Namespace], raw: list[Any], values: Values
) -> Iterator[Row]:
    count = options.size(150, 5)

    async def put() -> float:
        texts = [values.text() for _ in range(count)]

        async def client(number: int) -> None:
            for position, text in enumerate(texts):
                await backend.commit(apart[number], (), (Write(f"item:{number * count + position:05d}", text),))

        started = perf_counter()
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        return perf_counter() - started

    async def put_same() -> float:
        texts = [values.text() for _ in range(count)]

        async def client(number: int) -> None:
            for position, text in enumerate(texts):
                await backend.commit(apart[0], (), (Write(f"item:{number * count + position:05d}", text),))

        started = perf_counter()
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        return perf_counter() - started

    async def put_raw() -> float:
        texts = [values.text() for _ in range(count)]

        async def client(number: int) -> None:
            for position, text in enumerate(texts):
                await raw[number].execute(PUT, (f"item:{(number * count + position) % KEYS:05d}", text))

        started = perf_counter()
        await asyncio.gather(*(client(number) for number in range(CLIENTS)))
        return perf_counter() - started

    sides = {"ours": lambda: run(put()), "same": lambda: run(put_same()), "raw": lambda: run(put_raw())}
    taken = in_turn(options.rounds(9), sides)
    each = count * CLIENTS
    yield speed("PostgreSQL set, 8 clients, distinct keys", "raw psycopg", taken["ours"], taken["raw"], 0.6, per=each)
    work = "PostgreSQL set, 8 clients, distinct keys of one namespace"
    yield speed(work, "raw psycopg", taken["same"], taken["raw"], 0.6, per=each)


def _langgraph(
    options: Options, run: Run, kv: KeyValue, entries: dict[str, str], postgres: EmbeddedPostgres
) -> Iterator[Row]:
    assert options.peers is not None
    values = {key: json.loads(text) for key, text in entries.items()}
    file = options.folder / "values.json"
    file.write_text(json.dumps(values))
    count = options.size(500, 20)
    keys = list(values)
    salt = 0

    async def get() -> float:
        started = perf_counter()
        for number in range(count):
            await kv.get_value(keys[number % KEYS])
        return perf_counter() - started

    async def put() -> float:
        nonlocal salt
        salt += 1
        changed = [values[keys[number % KEYS]] | {"salt": f"{salt} {number}"} for number in range(count)]
        started = perf_counter()
        for number, value in enumerate(changed):
            await kv.set_value(keys[number % KEYS], value)
        return perf_counter() - started

    def put_theirs() -> float:
        nonlocal salt
        salt += 1
        return peer.call("aput", count=count, salt=str(salt))

    with options.peers.start("langgraph_postgres.py", postgres.dsn, file) as peer:
        against = "LangGraph AsyncPostgresStore"
        taken = in_turn(
            options.rounds(7), {"ours": lambda: run(get()), "theirs": lambda: peer.call("aget", count=count)}
        )
        yield speed("PostgreSQL get, JSON decoded", against, taken["ours"], taken["theirs"], None, per=count)
        taken = in_turn(options.rounds(7), {"ours": lambda: run(put()), "theirs": put_theirs})
        yield speed("PostgreSQL set, JSON encoded", against, taken["ours"], taken["theirs"], None, per=count)


def _http(options: Options, run: Run, dsn: str, values: Values) -> Iterator[Row]:
    count = options.size(100, 3)
    script = Path(__file__).with_name("http_server.py")
    server = subprocess.Popen([sys.executable, script, dsn], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        started = json.loads(server.stdout.readline())
        project = new_id()
        entries = f"/api/v1/projects/{project}/kv/project/entries"
        head = f"Host: 127.0.0.1\r\nAuthorization: Bearer {started['key']}\r\n"

        async def ask_all(requests: list[list[bytes]]) -> float:
            connections = [await asyncio.open_connection("127.0.0.1", started["port"]) for _ in requests]
            began = perf_counter()
            await asyncio.gather(*(_talk(*pair, each) for pair, each in zip(connections, requests, strict=True)))
            seconds = perf_counter() - began
            for _, writer in connections:
                writer.close()
            return seconds

        def empty() -> float:
            request = f"GET /empty HTTP/1.1\r\n{head}\r\n".encode()
            return run(ask_all([[request] * count for _ in range(CONNECTIONS)]))

        def get() -> float:
            requests = [
                [
                    f"GET {entries}/k{number * count + position} HTTP/1.1\r\n{head}\r\n".encode()
                    for position in range(count)
                ]
                for number in range(CONNECTIONS)
            ]
            return run(ask_all(requests))

        def put() -> float:
            requests = []
            for number in range(CONNECTIONS):
                bodies = [values.text().encode() for _ in range(count)]
                requests.append([
                    f"PUT {entries}/k{number * count + position} HTTP/1.1\r\n{head}Content-Type: application/json\r\n"
                    f"Content-Length: {len(body)}\r\n\r\n".encode()
                    + body
                    for position, body in enumerate(bodies)
                ])  # fmt: skip
            return run(ask_all(requests))

        known = b'{"name":"bench"}'
        register = f"PUT /api/v1/projects/{project} HTTP/1.1\r\n{head}Content-Length: {len(known)}\r\n\r\n".encode()
        run(ask_all([[register + known]]))
        put()
        taken = in_turn(options.rounds(7), {"get": get, "put": put, "empty": empty})
        each = count * CONNECTIONS
        against = "empty route, same server"
        yield speed("HTTP get, 16 connections", against, taken["get"], taken["empty"], 0.5, per=each)
        yield speed("HTTP set, 16 connections", against, taken["put"], taken["empty"], 0.5, per=each)
    finally:
        server.terminate()
        server.wait()


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, requests: list[bytes]) -> None:
    """Ask and read the answers in turn: a client as thin as it can be, so that the server is measured."""
    for request in requests:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 20"), head
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        await reader.readexactly(length)
