"""What the processes of the storage crash tests do; run as `python -m tests.crash.store_children COMMAND PATH ...`.

Many rounds share one process tree: `_fork` starts the processes of a round from an interpreter that has imported
everything and opened nothing.
"""

import asyncio
import gc
import json
import os
import random
import select
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial

from stepwell.errors import StepwellError
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Domain, Holder, Namespace, Scope, Span, Write
from stepwell.store.sqlite import SqliteCore
from stepwell.store.sqlite_backend import SqliteBackend

NS = Namespace("01936d3f-6a00-7000-8000-0000000000aa", Domain.KV, Scope.PROJECT)
OTHER = NS._replace(domain=Domain.CONVERSATION)
FILLER = "x" * 4_000  # so that checkpoints come often


# -- 8 x 50 ------------------------------------------------------------------------------------------------------------


def increment(path: str, times: str, how: str) -> None:
    """Add one to a counter so many times."""
    if how == "core":
        core = SqliteCore(path)
        for _ in range(int(times)):
            core.update(NS, "count", lambda text: str(int(text or 0) + 1))
        core.close()
        return

    async def work() -> None:
        backend = SqliteBackend(path)
        kv = KeyValue(backend, NS)
        for _ in range(int(times)):
            if how == "lock":
                async with kv.lock() as tx:
                    await tx.set_value("count", await tx.get_value("count", 0) + 1)
            else:
                await kv.update_value("count", lambda n: n + 1, default=0)
        await backend.close()

    asyncio.run(work())


# -- first opening -----------------------------------------------------------------------------------------------------


def open_at_once(folder: str, rounds: str, processes: str) -> None:
    """Rounds in which several processes open the same new store; prints how many wrote into it successfully."""
    print(sum(_open_once(f"{folder}/{number}/new.sqlite", int(processes)) for number in range(int(rounds))))


def _open_once(path: str, processes: int) -> int:
    start_read, start_write = os.pipe()

    def work(child: int) -> None:
        os.close(start_write)
        os.read(start_read, 1)  # returns in all of them when the other end is closed
        core = SqliteCore(path)
        if child % 2:
            core.text(NS, "k")
        core.commit(NS, (), [Write(f"k{child}", str(child))])

    def check() -> None:
        assert len(SqliteCore(path).scan(NS, Span())) == processes

    children = [_fork(partial(work, child)) for child in range(processes)]
    os.close(start_read)
    os.close(start_write)
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
    return codes.count(0) if _in_child(check) else 0


# -- kill -9 -----------------------------------------------------------------------------------------------------------


def kill_rounds(path: str, rounds: str, seed: str) -> None:
    """Kill writers at random instants; after each round check that what they acknowledged is there, whole.

    Prints how many kills there were, and how many commits were acknowledged.
    """
    chance = random.Random(int(seed))
    acknowledged = {"pair0": 0, "pair1": 0, "count": 0}
    kills = 0
    for number in range(int(rounds)):
        writers = [_start_writer(path, f"pair{which}", chance.random() < 0.5) for which in range(2)]
        if number % 3:  # else they may not even have opened the file
            select.select([writers[number % 2][1]], [], [], 20)
        time.sleep(chance.random() * 0.03)
        for pid, _ in writers:
            os.kill(pid, signal.SIGKILL)
        for which, (pid, pipe) in enumerate(writers):
            assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL, "a writer failed"
            kills += 1
            acks = _read_all(pipe)
            for at in range(0, len(acks), 4):
                (value,) = struct.unpack_from("<i", acks, at)
                if value > 0:
                    acknowledged[f"pair{which}"] = value
                else:
                    acknowledged["count"] += 1
        check = partial(_check, path, acknowledged, kills, thorough=number % 25 == 24)
        assert _in_child(check), f"round {number}: {acknowledged}"
    print(json.dumps({"kills": kills, "commits": sum(acknowledged.values())}))


def _start_writer(path: str, name: str, asynchronous: bool) -> tuple[int, int]:
    reading, writing = os.pipe()

    def acknowledge(value: int) -> None:
        os.write(writing, struct.pack("<i", value))

    def work() -> None:
        os.close(reading)
        if asynchronous:
            asyncio.run(_write_pairs_async(path, name, acknowledge))
        else:
            _write_pairs(path, name, acknowledge)

    pid = _fork(work)
    os.close(writing)
    return pid, reading


def _write_pairs(path: str, name: str, acknowledge: Callable[[int], None]) -> None:
    core = SqliteCore(path)
    number = int(core.text(NS, f"{name}:a") or 0)
    while True:
        number += 1
        core.commit(NS, (), _pair(name, number))
        acknowledge(number)
        core.update(NS, "count", lambda text: str(int(text or 0) + 1))
        acknowledge(-1)


async def _write_pairs_async(path: str, name: str, acknowledge: Callable[[int], None]) -> None:
    backend = SqliteBackend(path)
    kv = KeyValue(backend, NS)

    async def pairs() -> None:
        number = int(await backend.text(NS, f"{name}:a") or 0)
        while True:
            number += 1
            if number % 3 == 0:
                lease = await backend.lock(NS, timeout=20, holder=Holder(os.getpid(), "here"))
                await backend.commit(NS, (), _pair(name, number), lease=lease)
                await lease.release()
            else:
                await backend.commit(NS, (), _pair(name, number))
            acknowledge(number)

    async def count() -> None:
        while True:
            await kv.update_value("count", lambda n: n + 1, default=0)
            acknowledge(-1)

    await asyncio.gather(pairs(), count())


def _pair(name: str, number: int) -> list[Write]:
    writes = [Write(f"{name}:a", str(number)), Write(f"{name}:filler{number % 20}", f'"{FILLER}"')]
    # A key that comes and goes with the pair, to have deletions too.
    writes.append(Write(f"{name}:odd", str(number) if number % 2 else None))
    return [*writes, Write(f"{name}:b", str(number))]


def _check(path: str, acknowledged: dict[str, int], kills: int, *, thorough: bool) -> None:
    core = SqliteCore(path)
    found = core.read(NS, ["pair0:a", "pair0:b", "pair0:odd", "pair1:a", "pair1:b", "pair1:odd", "count"])
    for name in ("pair0", "pair1"):
        if not acknowledged[name] and f"{name}:a" not in found:
            continue
        first, second = found[f"{name}:a"], found[f"{name}:b"]
        assert first.text == second.text, "half a commit"
        assert first.revision == second.revision, "half a commit"
        assert (f"{name}:odd" in found) == bool(int(first.text) % 2), "half a commit"
        assert acknowledged[name] <= int(first.text) <= acknowledged[name] + kills, "an acknowledged commit is lost"
    count = int(found["count"].text) if "count" in found else 0
    assert acknowledged["count"] <= count <= acknowledged["count"] + kills, "an acknowledged update is lost"
    core.lock(NS, timeout=1).unlock()
    core.commit(OTHER, (), [Write("k", str(kills))])
    if thorough:
        assert core.file.read(lambda c: c.execute("PRAGMA integrity_check").fetchall()) == [("ok",)]


# -- locks -------------------------------------------------------------------------------------------------------------


def hold(path: str, how: str) -> None:
    """Hold the lock until killed; says `held` when it has it. `parent` leaves a child behind that lives on."""

    async def work() -> None:
        backend = SqliteBackend(path)
        await backend.lock(NS, timeout=10, holder=Holder(os.getpid(), "host-x", "run-x"))
        if how == "parent":
            print(_fork(lambda: time.sleep(60)), flush=True)
        else:
            await asyncio.sleep(0.2)  # long enough to be asked about
            print("held", flush=True)
        await asyncio.sleep(60)

    asyncio.run(work())


# -- fork --------------------------------------------------------------------------------------------------------------


def fork_in_use(path: str) -> None:
    """Fork while connections, the writer thread and a lock are in use; parent and children all go on."""

    async def parent() -> SqliteBackend:
        backend = SqliteBackend(path)
        await asyncio.gather(*(backend.commit(NS, (), [Write(f"before{n}", "1")]) for n in range(20)))
        await backend.text(NS, "before1")
        return backend

    async def in_child(backend: SqliteBackend, number: int) -> None:
        async with asyncio.timeout(20):
            assert await backend.text(NS, "before1") == "1"
            await asyncio.gather(*(backend.commit(OTHER, (), [Write(f"c{number}.{n}", "1")]) for n in range(20)))
            kv = KeyValue(backend, OTHER)
            async with kv.lock(timeout=10) as tx:
                await tx.set_value(f"locked{number}", 1)

    async def go_on(backend: SqliteBackend, count: int) -> None:
        for number in range(count):
            await backend.commit(NS, (), [Write(f"after{number}", f'"{FILLER}"')])

    def work(number: int) -> None:
        assert not backend.core.file.locks().is_holder(lease.ticket), "a lock was inherited"
        asyncio.run(in_child(backend, number))
        assert backend.core.file.borrow() not in inherited, "a connection was inherited"
        if number % 2:
            asyncio.run(backend.close())
        gc.collect()
        sys.exit(0)  # a whole interpreter shutdown, not _exit: inherited connections must survive it

    backend = asyncio.run(parent())
    inherited = list(backend.core.file._readers)
    assert inherited
    lease = asyncio.run(backend.lock(NS, timeout=5, holder=Holder(os.getpid(), "here")))
    children = []
    for number in range(4):
        children.append(_fork(partial(work, number)))
    asyncio.run(lease.release())
    asyncio.run(go_on(backend, 1_000))
    for pid in children:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "a child failed"
    core = backend.core
    assert len(core.scan(NS, Span.prefix("after"), limit=2_000)) == 1_000
    assert len(core.scan(OTHER, Span(), limit=200)) == 4 * 21
    assert core.file.read(lambda c: c.execute("PRAGMA integrity_check").fetchall()) == [("ok",)]
    print("ok")


# -- disk full ---------------------------------------------------------------------------------------------------------


def fill_disk(path: str, how: str) -> None:
    """Write until the file size limit is reached, lift it, and write on. Prints the error's code and hint."""
    import resource

    core = SqliteCore(path)
    core.commit(NS, (), [Write("a", "0"), Write("b", "0")])
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
    backend = SqliteBackend(path)

    async def commit(number: int) -> None:
        await backend.commit(NS, (), _sized(number))

    async def commit_many(number: int) -> None:
        tasks = [backend.commit(OTHER, (), [Write(f"o{number}.{n}", f'"{FILLER}"')]) for n in range(3)]
        outcomes = await asyncio.gather(commit(number), *tasks, return_exceptions=True)
        errors = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if errors:
            raise errors[0]

    error: StepwellError | None = None
    number = 0
    with asyncio.Runner() as runner:
        while error is None:
            number += 1
            try:
                if how == "core":
                    core.commit(NS, (), _sized(number))
                else:
                    runner.run(commit_many(number))
            except StepwellError as caught:
                error = caught
        assert number > 1, "the limit was too small"
        found = core.read(NS, ["a", "b"])
        assert found["a"].text == found["b"].text in (str(number - 1), str(number)), "half a commit"
        assert found["a"].revision == found["b"].revision
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        core.commit(NS, (), _sized(number + 1))
        runner.run(commit(number + 2))
        runner.run(backend.close())
    assert core.text(NS, "b") == str(number + 2)
    assert core.file.facts().problems == []
    print(json.dumps(error.to_dict()))


def _sized(number: int) -> list[Write]:
    filler = f'"{FILLER * 5}"'
    return [Write("a", str(number)), Write(f"filler{number}", filler), Write("b", str(number))]


# -- reading without the right to write --------------------------------------------------------------------------------


def read_as_nobody(path: str) -> None:
    """Give up all rights, read, and try to write; prints the value and the error's code."""
    os.setgid(65_534)
    os.setuid(65_534)
    core = SqliteCore(path)
    value = core.text(NS, "k")
    try:
        core.commit(NS, (), [Write("k", "2")])
        code = None
    except StepwellError as error:
        code = error.code
    print(json.dumps([value, core.text(NS, "k"), code]))


# -- a steady writer ---------------------------------------------------------------------------------------------------


def write_on(path: str) -> None:
    """Commit pairs until killed."""
    print("writing", flush=True)
    _write_pairs(path, "pair0", lambda _: None)


def write_much(path: str, count: str, size: str) -> None:
    """Commit so many values of that size, reading in between."""
    core = SqliteCore(path)
    for number in range(int(count)):
        core.commit(NS, (), [Write(f"{os.getpid()}.{number % 50}", json.dumps(f"{number} " + "x" * int(size)))])
        core.scan(NS, Span(), limit=20)


# -- processes ---------------------------------------------------------------------------------------------------------


def _fork(work: Callable[[], object]) -> int:
    """Run `work` in a forked process: exit code 0, or 1 if it raised."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except SystemExit:
        raise
    except Exception:  # noqa: BLE001  (the exit code tells; the trace is for whoever reads the test)
        traceback.print_exc()
    os._exit(code)


def _in_child(work: Callable[[], object]) -> bool:
    return os.waitstatus_to_exitcode(os.waitpid(_fork(work), 0)[1]) == 0


def _read_all(pipe: int) -> bytes:
    data = b""
    while part := os.read(pipe, 65_536):
        data += part
    os.close(pipe)
    return data


COMMANDS = {
    command.__name__: command
    for command in (
        increment, open_at_once, kill_rounds, hold, fork_in_use, fill_disk, read_as_nobody, write_on, write_much
    )
}  # fmt: skip

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
