"""LangGraph's AsyncPostgresStore as it comes, with its connection pool."""

import asyncio
import json
import sys
from pathlib import Path
from time import perf_counter

from langgraph.store.postgres.aio import AsyncPostgresStore
from serve import serve

NAMESPACE = ("project", "kv")


def main(dsn: str, values_file: Path) -> None:
    """Fill the store, then answer."""
    values = json.loads(values_file.read_text())
    keys = list(values)
    loop = asyncio.new_event_loop()
    context = AsyncPostgresStore.from_conn_string(dsn, pool_config={"min_size": 1, "max_size": 8})
    store = loop.run_until_complete(context.__aenter__())

    async def fill() -> None:
        await store.setup()
        for key, value in values.items():
            await store.aput(NAMESPACE, key, value)

    async def get(count: int) -> float:
        started = perf_counter()
        for number in range(count):
            await store.aget(NAMESPACE, keys[number % len(keys)])
        return perf_counter() - started

    async def put(count: int, salt: str) -> float:
        changed = [values[keys[number % len(keys)]] | {"salt": f"{salt} {number}"} for number in range(count)]
        started = perf_counter()
        for number, value in enumerate(changed):
            await store.aput(NAMESPACE, keys[number % len(keys)], value)
        return perf_counter() - started

    loop.run_until_complete(fill())
    serve({
        "aget": lambda count: loop.run_until_complete(get(count)),
        "aput": lambda count, salt: loop.run_until_complete(put(count, salt)),
    })  # fmt: skip
    loop.run_until_complete(context.__aexit__(None, None, None))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
