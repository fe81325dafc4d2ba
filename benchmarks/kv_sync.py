"""Reading, writing and updating entries on the calling thread, against the raw driver."""

import json
import random
import sqlite3
from collections.abc import Iterator
from time import perf_counter

import raw
from harness import Options, Row, Values, in_turn, speed

from stepwell.store.entries import Write
from stepwell.store.sqlite import SqliteCore

KEYS = 1_000


def rows(options: Options) -> Iterator[Row]:
    """`local get`, `local set`, `local update`."""
    values = Values()
    entries = {f"item:{number:05d}": values.text() for number in range(KEYS)} | {"count": "0"}
    core = SqliteCore(raw.prepared_file(options.folder / "ours.sqlite", entries))
    connection = raw.connect(raw.prepared_file(options.folder / "raw.sqlite", entries))
    keys = [f"item:{number:05d}" for number in range(KEYS)]
    random.Random(2).shuffle(keys)
    try:
        yield _get(options, core, connection, keys)
        yield _set(options, core, connection, keys, values)
        yield _update(options, core, connection)
    finally:
        core.close()
        connection.close()


def _get(options: Options, core: SqliteCore, connection: sqlite3.Connection, keys: list[str]) -> Row:
    chosen = keys * options.size(10, 1)

    def ours() -> float:
        text = core.text
        started = perf_counter()
        for key in chosen:
            text(raw.KV, key)
        return perf_counter() - started

    def reference() -> float:
        execute = connection.execute
        started = perf_counter()
        for key in chosen:
            execute(raw.GET, (key,)).fetchone()[0]
        return perf_counter() - started

    taken = in_turn(options.rounds(15), {"ours": ours, "raw": reference})
    return speed("local get, synchronous", "raw sqlite3", taken["ours"], taken["raw"], 0.90, per=len(chosen))


def _set(
    options: Options, core: SqliteCore, connection: sqlite3.Connection, keys: list[str], values: Values
) -> Row:  # fmt: skip
    count = options.size(300, 20)

    def texts() -> list[tuple[str, str]]:
        return [(keys[number % KEYS], values.text()) for number in range(count)]

    def ours() -> float:
        chosen = texts()
        started = perf_counter()
        for key, text in chosen:
            core.commit(raw.KV, (), (Write(key, text),))
        return perf_counter() - started

    def reference() -> float:
        chosen = texts()
        started = perf_counter()
        for key, text in chosen:
            raw.put(connection, key, text)
        return perf_counter() - started

    taken = in_turn(options.rounds(15), {"ours": ours, "raw": reference})
    return speed("local set (FULL), synchronous", "raw sqlite3", taken["ours"], taken["raw"], 0.75, per=count)


def _update(options: Options, core: SqliteCore, connection: sqlite3.Connection) -> Row:
    count = options.size(300, 20)

    def increment(text: str | None) -> str:
        return json.dumps(json.loads(text or "0") + 1)

    def ours() -> float:
        started = perf_counter()
        for _ in range(count):
            core.update(raw.KV, "count", increment)
        return perf_counter() - started

    def reference() -> float:
        started = perf_counter()
        for _ in range(count):
            raw.increment(connection, "count")
        return perf_counter() - started

    taken = in_turn(options.rounds(15), {"ours": ours, "raw": reference})
    return speed("local update_value, synchronous", "raw sqlite3", taken["ours"], taken["raw"], 0.55, per=count)
