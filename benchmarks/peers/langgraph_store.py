"""LangGraph's SqliteStore and AsyncSqliteStore as they come, on a file each."""

import asyncio
import json
import sqlite3
import sys
from pathlib import Path
from time import perf_counter

from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore
from serve import serve

NAMESPACE = ("project", "kv")


def main(folder: Path, values_file: Path) -> None:
    """Fill both stores with the same values, then answer."""
    values = json.loads(values_file.read_text())
    connection = sqlite3.connect(folder / "store.sqlite", isolation_level=None, check_same_thread=False)
    store = SqliteStore(connection)
    store.setup()
    for key, value in values.items():
        store.put(NAMESPACE, key, value)
    keys = list(values)

    def get(count: int) -> float:
        started = perf_counter()
        for number in range(count):
            store.get(NAMESPACE, keys[number % len(keys)])
        return perf_counter() - started

    def put(count: int, salt: str) -> float:
        changed = [values[keys[number % len(keys)]] | {"salt": f"{salt} {number}"} for number in range(count)]
        started = perf_counter()
        for number, value in enumerate(changed):
            store.put(NAMESPACE, keys[number % len(keys)], value)
        return perf_counter() - started

    loop = asyncio.new_event_loop()
    context = AsyncSqliteStore.from_conn_string(str(folder / "async.sqlite"))
    async_store = loop.run_until_complete(context.__aenter__())

    async def fill() -> None:
        await async_store.setup()
        await asyncio.gather(*(async_store.aput(NAMESPACE, key, value) for key, value in values.items()))

    async def get_all(count: int) -> float:
        started = perf_counter()
        for number in range(count):
            await async_store.aget(NAMESPACE, keys[number % len(keys)])
        return perf_counter() - started

    loop.run_until_complete(fill())
    serve({"get": get, "put": put, "aget": lambda count: loop.run_until_complete(get_all(count))})
    loop.run_until_complete(context.__aexit__(None, None, None))
    connection.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
