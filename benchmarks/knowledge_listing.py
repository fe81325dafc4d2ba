"""The first page of a list costs the same whatever the size."""

import asyncio
from collections.abc import Iterator
from time import perf_counter

import raw
from corpus import documents
from harness import Options, Row, cost, in_turn

from stepwell.knowledge import Knowledge
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Domain
from stepwell.store.sqlite_backend import SqliteBackend

NAMESPACE = raw.KV._replace(domain=Domain.PERSISTENT_VALUE)


def rows(options: Options) -> Iterator[Row]:
    """The first page of 10,000 documents against the first page of 10."""
    loop = asyncio.new_event_loop()
    sizes = {"many": options.size(10_000, 200), "few": 10}
    bases = {}
    for name, count in sizes.items():
        backend = SqliteBackend(options.folder / f"{name}.sqlite")
        bases[name] = Knowledge(KeyValue(backend, NAMESPACE))
        for title, text in documents(count):
            loop.run_until_complete(bases[name].create_document(title, text[:400]))

    async def first_page(name: str) -> float:
        started = perf_counter()
        for _ in range(100):
            await bases[name].list_document_page(limit=10)
        return perf_counter() - started

    sides = {name: lambda name=name: loop.run_until_complete(first_page(name)) for name in bases}
    taken = in_turn(options.rounds(9), sides)
    yield cost(
        f"first page of {sizes['many']:,} documents", "first page of 10", taken["many"], taken["few"], 1.5, per=100
    )
    for base in bases.values():
        loop.run_until_complete(base.entries.backend.close())
    loop.close()
