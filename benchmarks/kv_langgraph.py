"""The same work by LangGraph's SqliteStore: one JSON value by namespace and key, on a file."""

import asyncio
import json
from collections.abc import Iterator
from time import perf_counter

import raw
from harness import Options, Row, Values, in_turn, speed

from stepwell.jsontext import decode, encode
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Write
from stepwell.store.sqlite import SqliteCore
from stepwell.store.sqlite_backend import SqliteBackend

KEYS = 1_000


def rows(options: Options) -> Iterator[Row]:
    """`get`, `set`, `async get`: values decoded and encoded on both sides."""
    if options.peers is None:
        return
    made = Values()
    values = {f"item:{number:05d}": made.next() for number in range(KEYS)}
    values_file = options.folder / "values.json"
    values_file.write_text(json.dumps(values))
    path = raw.prepared_file(options.folder / "ours.sqlite", {key: encode(value) for key, value in values.items()})
    core, backend = SqliteCore(path), SqliteBackend(path)
    kv = KeyValue(backend, raw.KV)
    keys = list(values)
    reads, writes = options.size(2_000, 100), options.size(200, 20)
    loop = asyncio.new_event_loop()
    salt = 0

    def get() -> float:
        started = perf_counter()
        for number in range(reads):
            decode(core.text(raw.KV, keys[number % KEYS]) or "")
        return perf_counter() - started

    def put() -> float:
        nonlocal salt
        salt += 1
        changed = [values[keys[number % KEYS]] | {"salt": f"{salt} {number}"} for number in range(writes)]
        started = perf_counter()
        for number, value in enumerate(changed):
            core.commit(raw.KV, (), (Write(keys[number % KEYS], encode(value)),))
        return perf_counter() - started

    async def get_async() -> float:
        started = perf_counter()
        for number in range(reads):
            await kv.get_value(keys[number % KEYS])
        return perf_counter() - started

    def put_theirs() -> float:
        nonlocal salt
        salt += 1
        return peer.call("put", count=writes, salt=str(salt))

    with options.peers.start("langgraph_store.py", options.folder, values_file) as peer:
        taken = in_turn(options.rounds(9), {"ours": get, "theirs": lambda: peer.call("get", count=reads)})
        yield speed("local get, synchronous", "LangGraph SqliteStore", taken["ours"], taken["theirs"], 3, per=reads)
        taken = in_turn(options.rounds(9), {"ours": put, "theirs": put_theirs})
        yield speed("local set, synchronous", "LangGraph SqliteStore", taken["ours"], taken["theirs"], 4, per=writes)
        taken = in_turn(
            options.rounds(9),
            {"ours": lambda: loop.run_until_complete(get_async()), "theirs": lambda: peer.call("aget", count=reads)},
        )
        yield speed("local get, async", "LangGraph AsyncSqliteStore", taken["ours"], taken["theirs"], 30, per=reads)
    loop.run_until_complete(backend.close())
    loop.close()
    core.close()
