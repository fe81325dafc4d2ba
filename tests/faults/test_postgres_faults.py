"""The PostgreSQL backend when connections, tasks and processes end at the wrong moment."""

import asyncio
import random
import re
import select
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Self
from uuid import uuid4

import pytest

from stepwell.errors import Conflict, LockTimeout
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Check, Holder, Span, Write
from stepwell.store.once import CommitOnce
from stepwell.store.postgres import PostgresBackend
from tests.databases import Database
from tests.faults.postgres_children import NS

pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[2]
ME = Holder(1, "parent")


@pytest.fixture
def database() -> Iterator[Database]:
    """A database of the test's own."""
    made = Database()
    yield made
    made.drop()


@pytest.fixture
async def backend(database: Database) -> AsyncIterator[PostgresBackend]:
    """A handle on it."""
    made = PostgresBackend(database.dsn)
    yield made
    await made.close()


def terminate(database: Database, application: str = "stepwell%") -> int:
    """End every connection of the backend; how many there were."""
    statement = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{}' AND {}"
    return len(database.admin(statement.format(database.name, f"application_name LIKE '{application}'")))


def idle_in_transaction(database: Database) -> int:
    statement = f"SELECT 1 FROM pg_stat_activity WHERE datname = '{database.name}' AND state LIKE 'idle in trans%'"
    return len(database.admin(statement))


@pytest.mark.parametrize("how", ["update", "lock", "commit"])
async def test_changes_are_made_once_while_every_connection_is_cut_again_and_again(
    how: str, database: Database, backend: PostgresBackend
) -> None:
    kv = KeyValue(backend, NS)
    revisions: list[int] = []
    total = 0
    over = False

    async def work(task: int) -> None:
        nonlocal total
        number = 0
        while not over:
            number += 1
            if how == "update":
                await kv.update_value("count", lambda n: n + 1, default=0)
            elif how == "commit":
                done = await backend.commit(NS, (), [Write(f"{task}", f"{number}"), Write(f"{task}b", f"{number}")])
                revisions.append(done.revision)
            else:
                try:
                    async with kv.lock() as tx:
                        await tx.set_value("count", await tx.get_value("count", 0) + 1)
                except LockTimeout as error:  # the lease may go with its connection: then nothing was written
                    assert "was lost" in error.message  # noqa: PT017
                    continue
            total += 1

    tasks = [asyncio.create_task(work(task)) for task in range(8)]
    cut = 0
    for _ in range(12):
        await asyncio.sleep(0.1 + random.random() * 0.2)
        cut += await asyncio.to_thread(terminate, database)
    over = True
    await asyncio.gather(*tasks)
    assert cut > 12
    assert total > 50
    assert await backend.revision(NS) == total  # not one commit more than was acknowledged
    if how == "commit":
        assert sorted(revisions) == list(range(1, total + 1))
        assert len(await backend.scan(NS, Span())) == 16
    else:
        assert await kv.get_value("count") == total
    assert idle_in_transaction(database) == 0
    async with asyncio.timeout(5):
        await (await backend.lock(NS, timeout=5, holder=ME)).release()


async def test_more_operations_than_connections(database: Database) -> None:
    backend = PostgresBackend(database.dsn, size=2)
    namespaces = [NS._replace(conversation_id=f"c{number}") for number in range(50)]

    async def work(number: int) -> None:
        ns = namespaces[number]
        await backend.commit(ns, (), [Write("k", f"{number}")])
        await KeyValue(backend, ns).update_value("k", lambda n: n + 1)
        assert await backend.text(ns, "k") == str(number + 1)

    await asyncio.gather(*(work(number) for number in range(50)))
    used = database.admin(
        f"SELECT 1 FROM pg_stat_activity WHERE datname = '{database.name}' AND application_name = 'stepwell'"
    )
    assert 1 <= len(used) <= 2
    await backend.close()


async def test_a_storm_of_cancellations_leaves_no_transaction_no_lock_and_no_half(
    database: Database, backend: PostgresBackend
) -> None:
    kv = KeyValue(backend, NS)

    async def work(number: int) -> None:
        match number % 5:
            case 0:
                await kv.update_value("count", lambda n: n + 1, default=0)
            case 1:
                async with kv.lock() as tx:
                    await tx.set_value("left", number)
                    await tx.set_value("right", number)
            case 2:
                await backend.commit(NS, (), [Write("left", f"{number}"), Write("right", f"{number}")])
            case 3:
                await backend.scan(NS, Span())
            case 4:
                await kv.get_value("left")

    tasks = [asyncio.create_task(work(number)) for number in range(200)]
    choose = random.Random(7)
    waiting = list(tasks)
    choose.shuffle(waiting)
    while waiting:
        waiting.pop().cancel()
        await asyncio.sleep(choose.random() * 0.003)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(each) for each in outcomes} <= {type(None), asyncio.CancelledError}
    assert 20 < sum(isinstance(each, asyncio.CancelledError) for each in outcomes) < 200
    async with asyncio.timeout(5):
        await (await backend.lock(NS, timeout=5, holder=ME)).release()
        await kv.set_value("after", 1)
    assert await kv.get_value("left") == await kv.get_value("right")
    counted = sum(each is None for each in outcomes[::5])
    assert counted <= await kv.get_value("count", 0) <= 40
    assert idle_in_transaction(database) == 0


class Cutter:
    """A proxy before PostgreSQL's socket that cuts connections when an answer to a commit is on its way.

    Args:
        database: what is behind it.
    """

    def __init__(self, database: Database) -> None:
        folder = database.dsn.partition("host=")[2].partition("&")[0]
        self._target = f"{folder}/.s.PGSQL.5432"
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        self.dsn = f"postgresql://stepwell@127.0.0.1:{port}/{database.name}?gssencmode=disable&sslmode=disable"
        self.cuts = 0
        self.early = False
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_next(self, times: int = 1, *, early: bool = False) -> None:
        """Cut at the next commits: when the answer comes, or with `early` as soon as the statement was passed on."""
        self.cuts, self.early = times, early

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self._target)
            names: set[bytes] = set()
            commits = False
            while True:
                for source in select.select([client, server], [], [])[0]:
                    data = source.recv(1 << 20)
                    if not data:
                        return
                    if source is server and commits and self._cuts():
                        return
                    if source is client:
                        if re.search(rb"stepwell\.(commit|clear)_", data):
                            names.update(re.findall(rb"_pg3_\d+", data))  # prepared: named from here on
                            commits = True
                        commits = commits or any(name + b"\0" in data for name in names)
                    (client if source is server else server).sendall(data)
                    if source is server:
                        commits = False
                    elif commits and self.early and self._cuts():
                        return

    def _cuts(self) -> bool:
        if self.cuts == 0:
            return False
        self.cuts -= 1
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


@pytest.mark.parametrize("early", [False, True], ids=["answer lost", "cut at once"])
async def test_a_commit_whose_outcome_is_unknown_is_settled_and_made_once(early: bool, database: Database) -> None:
    with Cutter(database) as cutter:
        backend = PostgresBackend(cutter.dsn)
        kv = KeyValue(backend, NS)
        await kv.set_value("k", 0)
        for number in range(1, 4):  # the first statements are sent whole, later ones are prepared
            cutter.cut_next(number, early=early)
            revision = await backend.revision(NS)
            assert (await kv.set_value("k", number)).revision == revision + 1
            assert cutter.cuts == 0
            cutter.cut_next(number, early=early)
            assert await kv.update_value("k", lambda n: -n) == -number
            cutter.cut_next(number, early=early)
            current = (await backend.read(NS, ["k"]))["k"].revision
            done = await backend.commit(NS, [Check("k", current)], [Write("k", "5"), Write("x", "1")])
            assert (done.revision, set(done.created)) == (revision + 3, {"k", "x"})
            cutter.cut_next(number, early=early)
            assert await kv.delete_value("x")  # told as it was, although the lost answer was the one that knew
            cutter.cut_next(number, early=early)
            async with kv.lock() as tx:
                await tx.set_value("k", number)
            assert cutter.cuts == 0
            assert await backend.revision(NS) == revision + 5
            cutter.cut_next(number, early=early)
            with pytest.raises(Conflict):
                await backend.commit(NS, [Check("k", current)], [Write("k", "6")])
            assert await backend.revision(NS) == revision + 5
        cutter.cut_next(early=early)
        assert await backend.clear(NS) == 1
        assert (cutter.cuts, await backend.scan(NS, Span())) == (0, [])
        await backend.close()


async def test_commits_that_share_a_transaction_are_each_made_once_when_it_breaks(database: Database) -> None:
    with Cutter(database) as cutter:
        backend = PostgresBackend(cutter.dsn)
        await backend.commit(NS, (), [Write("first", "1")])
        for round_ in range(1, 6):
            cutter.cut_next(2, early=bool(round_ % 2))
            commits = [backend.commit(NS, (), [Write(f"k{number}", "1"), Write("all", "1")]) for number in range(20)]
            done = await asyncio.gather(*commits)
            assert sorted(each.revision for each in done) == list(range(20 * round_ - 18, 20 * round_ + 2))
            assert cutter.cuts == 0
        await backend.close()


async def test_a_change_asked_for_again_under_its_id_is_not_made_again(backend: PostgresBackend) -> None:
    await backend.commit(NS, (), [Write("k", "1")])
    name = str(uuid4())
    first = CommitOnce(backend, name, repeat=False)
    again = CommitOnce(backend, name, repeat=True)
    assert not await again.is_done(NS)
    done = await first.commit(NS, (), [Write("k", "2"), Write("new", "1")])
    assert await again.is_done(NS)
    await backend.commit(NS, (), [Write("k", "3"), Write("new", None)])
    repeated = await again.commit(NS, (), [Write("k", "2"), Write("new", "1")])
    assert (repeated.revision, repeated.at, set(repeated.created)) == (done.revision, done.at, {"k", "new"})
    assert await backend.text(NS, "k") == "3"
    assert await backend.revision(NS) == 3


async def test_a_killed_holder_frees_its_lock_within_a_second(database: Database, backend: PostgresBackend) -> None:
    await backend.text(NS, "k")
    words = [sys.executable, "-m", "tests.faults.postgres_children", "hold", database.dsn]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockTimeout) as caught:
            await backend.lock(NS, timeout=0.05, holder=ME)
        assert "process 1 on child" in caught.value.message
        waiting = asyncio.create_task(backend.commit(NS, (), [Write("k", "1")]))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        holder.kill()
        holder.wait()
        began = monotonic()
        async with asyncio.timeout(5):
            await waiting
            await (await backend.lock(NS, timeout=5, holder=ME)).release()
        assert monotonic() - began < 1


async def test_a_watcher_misses_nothing_when_its_connection_is_cut(
    database: Database, backend: PostgresBackend
) -> None:
    writer = PostgresBackend(database.dsn)
    changes = backend.watch(NS, Span())
    seen: dict[str, tuple[int, bool]] = {}

    async def watch() -> None:
        async for change in changes:
            seen[change.key] = (change.revision, change.deleted)
            if change.key == "last":
                return

    watching = asyncio.create_task(watch())
    await writer.commit(NS, (), [Write("gone", "1")])
    cut = 0
    for number in range(60):
        await writer.commit(NS, (), [Write(f"k{number}", "1")])
        if number % 10 == 5:
            cut += await asyncio.to_thread(terminate, database, "stepwell listener")
    assert cut >= 3
    await asyncio.to_thread(terminate, database)
    await writer.commit(NS, (), [Write("gone", None)])
    await writer.commit(NS, (), [Write("last", "1")])
    async with asyncio.timeout(10):
        await watching
    expected = {f"k{number}": (number + 2, False) for number in range(60)}
    assert seen == expected | {"gone": (62, True), "last": (63, False)}
    await changes.aclose()
    await writer.close()


async def test_event_loops_in_threads_share_a_backend(database: Database, backend: PostgresBackend) -> None:
    failures: list[BaseException] = []

    async def work() -> None:
        kv = KeyValue(backend, NS)
        for _ in range(15):
            await kv.update_value("count", lambda n: n + 1, default=0)

    def run() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001  (shown by the test)
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    await work()
    while any(thread.is_alive() for thread in threads):
        await asyncio.to_thread(terminate, database)
        await asyncio.sleep(0.2)
    assert not failures
    assert await backend.text(NS, "count") == "60"
