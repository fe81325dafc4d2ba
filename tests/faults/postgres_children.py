"""Processes that hold a lock of a PostgreSQL namespace or migrate; `python -m tests.faults.postgres_children`."""

import asyncio
import sys

from stepwell.store.entries import Domain, Holder, Namespace, Scope
from stepwell.store.postgres import PostgresBackend
from stepwell.store.postgres_schema import ensure_schema

NS = Namespace("01936d3f-6a00-7000-8000-0000000000aa", Domain.KV, Scope.PROJECT)


async def main(command: str, dsn: str) -> None:
    """Hold the lock for ever, or migrate as soon as the parent says so."""
    if command == "migrate":
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        await ensure_schema(dsn)
        return
    backend = PostgresBackend(dsn)
    await backend.lock(NS, timeout=10, holder=Holder(1, "child"))
    sys.stdout.write("held\n")
    sys.stdout.flush()
    await asyncio.sleep(600)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
