"""Saving a document of 10 MB against a raw insert of the same text."""

import asyncio
import sqlite3
from collections.abc import Iterator
from time import perf_counter

import raw
from corpus import documents
from harness import Options, Row, cost, in_turn
from knowledge_listing import NAMESPACE

from stepwell.jsontext import encode
from stepwell.knowledge import Knowledge
from stepwell.storage.kv import KeyValue
from stepwell.store.sqlite_backend import SqliteBackend


def rows(options: Options) -> Iterator[Row]:
    """One large document, created anew each time."""
    loop = asyncio.new_event_loop()
    base = Knowledge(KeyValue(SqliteBackend(options.folder / "ours.sqlite"), NAMESPACE))
    connection = raw.connect(raw.prepared_file(options.folder / "raw.sqlite", {"k": "1"}))
    size = options.size(10_000_000, 100_000)
    text = "".join(body for _, body in documents(size // 3_000 + 1)).encode()[:size].decode(errors="ignore")
    count = 0

    def ours() -> float:
        nonlocal count
        count += 1
        changed = f"{count} {text}"
        started = perf_counter()
        loop.run_until_complete(base.create_document("large", changed))
        return perf_counter() - started

    def reference() -> float:
        nonlocal count
        count += 1
        stored = encode({"markdown": f"{count} {text}"})
        started = perf_counter()
        raw.put(connection, f"k{count}", stored)
        return perf_counter() - started

    taken = in_turn(options.rounds(7), {"ours": ours, "raw": reference})
    yield cost("saving a document of 10 MB", "raw insert of its JSON", taken["ours"], taken["raw"], 3)
    loop.run_until_complete(base.entries.backend.close())
    loop.close()
    _close(connection)


def _close(connection: sqlite3.Connection) -> None:
    connection.close()
