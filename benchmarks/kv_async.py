"""The asynchronous handle (`ctx.storage.local.kv`), JSON included, against the raw driver with JSON."""

import asyncio
import json
import random
from collections.abc import Iterator
from time import perf_counter

import raw
from harness import Options, Row, Values, in_turn, speed

from stepwell.storage.kv import KeyValue
from stepwell.store.sqlite_backend import SqliteBackend

KEYS = 1_000
TASKS = 64


def rows(options: Options) -> Iterator[Row]:
    """`async get`, and `set` by 64 tasks at once."""
    values = Values()
    keys = [f"item:{number:05d}" for number in range(KEYS)]
    entries = {key: values.text() for key in keys}
    connection = raw.connect(raw.prepared_file(options.folder / "raw.sqlite", entries))
    backend = SqliteBackend(raw.prepared_file(options.folder / "ours.sqlite", entries))
    kv = KeyValue(backend, raw.KV)
    random.Random(3).shuffle(keys)
    chosen = keys * options.size(10, 1)
    each = options.size(20, 2)
    loop = asyncio.new_event_loop()

    async def get_all() -> float:
        started = perf_counter()
        for key in chosen:
            await kv.get_value(key)
        return perf_counter() - started

    def get_raw() -> float:
        execute, loads = connection.execute, json.loads
        started = perf_counter()
        for key in chosen:
            loads(execute(raw.GET, (key,)).fetchone()[0])
        return perf_counter() - started

    async def set_all() -> float:
        made = [[values.next() for _ in range(each)] for _ in range(TASKS)]

        async def task(number: int) -> None:
            for position, value in enumerate(made[number]):
                await kv.set_value(keys[(number * each + position) % KEYS], value)

        started = perf_counter()
        await asyncio.gather(*(task(number) for number in range(TASKS)))
        return perf_counter() - started

    def set_raw() -> float:
        made = [values.next() for _ in range(TASKS * each)]
        started = perf_counter()
        for number, value in enumerate(made):
            raw.put(connection, keys[number % KEYS], json.dumps(value, ensure_ascii=False))
        return perf_counter() - started

    try:
        taken = in_turn(options.rounds(15), {"ours": lambda: loop.run_until_complete(get_all()), "raw": get_raw})
        yield speed("local get, async", "raw sqlite3 + json", taken["ours"], taken["raw"], 0.50, per=len(chosen))
        taken = in_turn(options.rounds(11), {"ours": lambda: loop.run_until_complete(set_all()), "raw": set_raw})
        yield speed(
            "local set, 64 tasks", "raw sqlite3 + json, one by one", taken["ours"], taken["raw"], 0.65,
            per=TASKS * each,
        )  # fmt: skip
    finally:
        loop.run_until_complete(backend.close())
        loop.close()
        connection.close()
