"""Eight processes increment one key: nothing may be lost, and waiting for each other must not cost too much."""

import asyncio
import multiprocessing
import sqlite3
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from time import perf_counter

import raw
from harness import Options, Row, in_turn, speed

from stepwell.storage.kv import KeyValue
from stepwell.store.sqlite_backend import SqliteBackend

PROCESSES = 8
INCREMENTS = 50
TOTAL = PROCESSES * INCREMENTS

Work = Callable[[Path, Barrier], None]


def rows(options: Options) -> Iterator[Row]:
    """The public `update_value` against `BEGIN IMMEDIATE … COMMIT`."""
    ours = raw.prepared_file(options.folder / "ours.sqlite", {"count": "0"})
    reference = raw.prepared_file(options.folder / "raw.sqlite", {"count": "0"})
    counted = {ours: 0, reference: 0}

    def measured(path: Path, work: Work) -> float:
        seconds = _together(path, work)
        counted[path] += TOTAL
        connection = sqlite3.connect(path)
        found = int(connection.execute(raw.GET, ("count",)).fetchone()[0])
        connection.close()
        if found != counted[path]:
            raise RuntimeError(f"{path.name}: {found} of {counted[path]} increments")
        return seconds

    taken = in_turn(
        options.rounds(7), {"ours": lambda: measured(ours, _ours), "raw": lambda: measured(reference, _raw)}
    )
    yield speed(
        f"{PROCESSES} processes x {INCREMENTS} increments, all counted", "raw BEGIN IMMEDIATE", taken["ours"],
        taken["raw"], 0.6, per=TOTAL,
    )  # fmt: skip


def _together(path: Path, work: Work) -> float:
    """Seconds from the moment all processes are ready until the last one is done."""
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(PROCESSES + 1, timeout=120)
    processes = [context.Process(target=work, args=(path, barrier)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    barrier.wait()
    started = perf_counter()
    barrier.wait()
    seconds = perf_counter() - started
    for process in processes:
        process.join()
        if process.exitcode:
            raise RuntimeError(f"a process ended with {process.exitcode}")
    return seconds


def _ours(path: Path, barrier: Barrier) -> None:
    async def increments() -> None:
        backend = SqliteBackend(path)
        kv = KeyValue(backend, raw.KV)
        await kv.get_value("count")
        barrier.wait()
        for _ in range(INCREMENTS):
            await kv.update_value("count", lambda count: count + 1)
        barrier.wait()
        await backend.close()

    asyncio.run(increments())


def _raw(path: Path, barrier: Barrier) -> None:
    connection = raw.connect(path)
    connection.execute(raw.GET, ("count",)).fetchone()
    barrier.wait()
    for _ in range(INCREMENTS):
        raw.increment(connection, "count")
    barrier.wait()
    connection.close()
