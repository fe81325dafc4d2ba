"""Searching 10,000 documents against a raw `instr` over all bodies."""

import asyncio
import sqlite3
from collections.abc import Iterator
from time import perf_counter

from corpus import documents
from harness import Options, Row, cost, in_turn
from knowledge_listing import NAMESPACE

from stepwell.knowledge import Knowledge
from stepwell.storage.kv import KeyValue
from stepwell.store.sqlite_backend import SqliteBackend

RARE = {
    "rare, 2 Latin": "zq",
    "rare, 8 Latin": "zqxjkvwy",
    "rare, 2 Chinese": "龘靐",
    "rare, 8 Chinese": "龘靐齉爩鱻麤龗灪",
}
COMMON = {"common, 2 Latin": "re", "common, 8 Latin": "document", "common, 2 Chinese": "任务"}
SCAN = (
    "SELECT count(*) FROM entry WHERE key >= 'knowledge.document.' AND key < 'knowledge.document/' AND instr(value, ?)"
)


def rows(options: Options) -> Iterator[Row]:
    """The first page of hits, and the longest the event loop had to wait meanwhile."""
    loop = asyncio.new_event_loop()
    path = options.folder / "documents.sqlite"
    base = Knowledge(KeyValue(SqliteBackend(path), NAMESPACE))
    for title, text in documents(options.size(10_000, 200)):
        loop.run_until_complete(base.create_document(title, text))
    connection = sqlite3.connect(path, isolation_level=None)

    def ours(query: str) -> float:
        started = perf_counter()
        loop.run_until_complete(base.search_documents(query))
        return perf_counter() - started

    def reference(query: str) -> float:
        started = perf_counter()
        connection.execute(SCAN, (query,)).fetchone()
        return perf_counter() - started

    for target, queries in ((2.0, RARE), (0.2, COMMON)):
        for name, query in queries.items():
            sides = {"ours": lambda query=query: ours(query), "raw": lambda query=query: reference(query)}
            taken = in_turn(options.rounds(5), sides)
            yield cost(f"search: {name} characters", "raw instr scan", taken["ours"], taken["raw"], target)
    stall = max(loop.run_until_complete(_longest_wait(base, query)) for query in [*RARE.values(), *COMMON.values()])
    yield Row("event loop stall while searching", "50 ms", stall * 1e3, 50, "ms", stall / 0.05, 1, at_least=False)
    connection.close()
    loop.run_until_complete(base.entries.backend.close())
    loop.close()


async def _longest_wait(base: Knowledge, query: str) -> float:
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            started = perf_counter()
            await asyncio.sleep(0.001)
            longest = max(longest, perf_counter() - started)

    beating = asyncio.create_task(beat())
    await asyncio.sleep(0.01)
    await base.search_documents(query)
    beating.cancel()
    return longest
