"""Clients of API servers whose database or whose server dies under them."""

import asyncio
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pytest

from stepwell.errors import LockTimeout
from stepwell.server.embedded_postgres import EmbeddedPostgres
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Domain, Holder, Namespace, Scope, Span, Write
from tests.faults.http_children import PROJECT, space
from tests.server_process import ServerProcess, eventually

pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[2]
ME = Holder(1, "parent")


def child(command: str, server: ServerProcess, *arguments: object) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "tests.faults.http_children", command, server.url, server.key, *arguments]
    return subprocess.Popen([str(word) for word in words], cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL of these tests' own, as it is delivered: it syncs to disk."""
    server = EmbeddedPostgres(tmp_path_factory.mktemp("crash") / "postgres")
    server.start()
    yield server
    server.stop()
    shutil.rmtree(server.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def servers(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    """Two API processes on it."""
    folder = tmp_path_factory.mktemp("servers")
    with (
        ServerProcess(folder / "one", postgres.dsn) as one,
        ServerProcess(folder / "two", postgres.dsn, key=one.key) as two,
    ):
        yield [one, two]


def postmaster(postgres: EmbeddedPostgres) -> int:
    return int((postgres.data / "postmaster.pid").read_text().splitlines()[0])


class Counted:
    """The increments that child processes had acknowledged."""

    def __init__(self, children: "list[subprocess.Popen[str]]") -> None:
        self.children = children
        self.seen: list[int] = []
        self.threads = [threading.Thread(target=self._read, args=(process,)) for process in children]
        for thread in self.threads:
            thread.start()

    def end(self) -> None:
        """Kill who still runs, and read to the end."""
        for process in self.children:
            process.kill()
        for thread in self.threads:
            thread.join()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.seen.append(json.loads(line))


async def test_eight_processes_count_to_400_on_two_servers_while_postgresql_goes_down_twice(
    postgres: EmbeddedPostgres, servers: list[ServerProcess]
) -> None:
    children = [child("increment", servers[number % 2], "eight", 50) for number in range(8)]
    counted = Counted(children)
    try:
        eventually(lambda: len(counted.seen) >= 100, 60)
        postgres.restart()
        eventually(lambda: len(counted.seen) >= 230, 60)
        os.kill(postmaster(postgres), signal.SIGKILL)
        postgres.start()
        assert len(counted.seen) < 380  # the rest comes after
        for process in children:
            assert process.wait(timeout=60) == 0
    finally:
        counted.end()
    assert sorted(counted.seen) == list(range(1, 401))  # each number was given to exactly one of them
    backend = servers[0].backend()
    assert await backend.text(space("eight"), "count") == "400"
    async with asyncio.timeout(20):
        await (await backend.lock(space("eight"), timeout=20, holder=ME)).release()
    await backend.close()
    assert not [line for server in servers for line in server.log.splitlines() if '"status": 500' in line]


async def test_a_killed_server_loses_nothing_acknowledged_and_halves_nothing(
    postgres: EmbeddedPostgres, servers: list[ServerProcess], tmp_path: Path
) -> None:
    with ServerProcess(tmp_path / "server", postgres.dsn, key=servers[0].key) as server:
        children = [child("random_operations", server, "r", f"c{n}", 50, tmp_path / f"n{n}") for n in range(4)]
        try:
            for done in (30, 90, 150):
                eventually(lambda done=done: len(finished(tmp_path)) >= done, 40)
                server.kill()
                await asyncio.sleep(0.2)
                server.start()
            for process in children:
                assert process.wait(timeout=60) == 0
        finally:
            for process in children:
                process.kill()
        backend = server.backend()
        async with asyncio.timeout(20):
            await (await backend.lock(space("r"), timeout=20, holder=ME)).release()
        stored = {record.key: json.loads(record.text) for record in await backend.scan(space("r"), Span(), limit=1_000)}
        await backend.close()
    outcomes = finished(tmp_path)
    assert len(outcomes) == 200
    failed = [each for each in outcomes if each[0] == "failed"]
    assert {each[4] for each in failed} <= {"storage_unavailable", "lock_timeout"}, failed
    assert len(failed) < 100  # most go on as if nothing had been
    check_counter(outcomes, stored.get("count", 0), "update")
    check_counter(outcomes, stored.get("locked", 0), "lock")
    for number in range(4):
        own = [json.loads(line) for line in (tmp_path / f"n{number}").read_text().splitlines()]
        check_last(own, {"set", "delete"}, stored.get(f"c{number}:one"))
        check_last(own, {"lock", "pair"}, stored.get(f"c{number}:left"))
        assert stored.get(f"c{number}:left") == stored.get(f"c{number}:right")  # written together


def finished(folder: Path) -> list[list[Any]]:
    """What clients noted after their operations."""
    lines = [line for file in folder.glob("n?") for line in file.read_text().splitlines(keepends=True)]
    return [json.loads(line) for line in lines if line.endswith("\n") and not line.startswith('["intent"')]


def check_counter(outcomes: list[list[Any]], found: int, kind: str) -> None:
    """Every acknowledged increment is there; those that failed may be or not."""
    done = sum(each[0] == "done" and each[2] == kind for each in outcomes)
    failed = sum(each[0] == "failed" and each[2] == kind for each in outcomes)
    assert done <= found <= done + failed


def check_last(notes: list[list[Any]], kinds: set[str], found: str | None) -> None:
    """The last acknowledged value is there, or that of a later operation that failed."""
    possible: set[str | None] = {None}
    for outcome, _, kind, value, *_ in notes:
        if kind in kinds and outcome != "intent":
            result = None if kind == "delete" else value
            possible = {result} if outcome == "done" else {*possible, result}
    assert found in possible


class Wire:
    """A TCP proxy before a server that can lose answers: requests still get through.

    Args:
        url: the server's address.
    """

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._clients: list[socket.socket] = []
        self.losing = b""
        self.lost = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def lose(self, path: bytes, times: int = 1) -> None:
        """Cut the connection instead of passing on the answer to the next requests whose head has `path`."""
        self.losing, self.lost = path, -times

    def cut(self) -> None:
        """Cut every connection there is."""
        for client in self._clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        self._clients.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._clients.append(client)
                threading.Thread(target=self._pass, args=(client,), daemon=True).start()

    def _pass(self, client: socket.socket) -> None:
        with suppress(OSError), client, socket.create_connection(self._target) as server:
            asked = b""
            while True:
                readable, _, _ = select.select([client, server], [], [])
                for source in readable:
                    data = source.recv(65_536)
                    if not data:
                        return
                    if source is client:
                        asked += data
                    elif self.lost < 0 and self.losing in asked:
                        self.lost += 1
                        return
                    else:
                        asked = b""
                    (server if source is client else client).sendall(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()


async def test_a_change_whose_answer_is_lost_is_made_once(servers: list[ServerProcess]) -> None:
    ns = space("lost")
    with Wire(servers[0].url) as wire:
        backend = servers[0].backend(wire.url)
        kv = KeyValue(backend, ns)
        await kv.set_value("k", 0)
        for number in range(1, 11):
            wire.lose(b"/commit", 1 + number % 3)
            assert await kv.update_value("k", lambda n: n + 1) == number
            assert wire.lost == 0
        wire.lose(b"/commit")
        assert (await kv.set_value("other", 1)).revision == 12
        wire.lose(b"/commit")
        assert await kv.delete_value("other")  # the lost answer was the one that said so
        wire.lose(b"/commit")
        async with kv.lock() as tx:
            await tx.set_value("k", "locked")
        wire.lose(b"/clear")
        assert await backend.clear(ns) == 1
        assert wire.lost == 0
        listed = await backend.namespaces(project_id=PROJECT, domain=ns.domain)
        assert ns not in {info.namespace for info in listed}
        assert (await kv.set_value("again", 1)).revision == 16  # one revision each: nothing was made twice
        await backend.close()


async def test_a_project_is_made_known_although_the_first_answer_is_lost(servers: list[ServerProcess]) -> None:
    fresh = Namespace("01936d3f-6a00-7000-8000-0000000000bb", Domain.KV, Scope.PROJECT)
    with Wire(servers[0].url) as wire:
        backend = servers[0].backend(wire.url)
        wire.lose(b"PUT ", 2)
        await backend.commit(fresh, (), [Write("k", "1")])
        assert wire.lost == 0
        assert await backend.text(fresh, "k") == "1"
        await backend.close()


async def test_a_killed_client_frees_its_lock(servers: list[ServerProcess]) -> None:
    backend = servers[1].backend()
    with child("hold", servers[0], "dead") as holder:
        assert holder.stdout is not None
        assert json.loads(holder.stdout.readline()) == "held"
        with pytest.raises(LockTimeout) as caught:
            await backend.lock(space("dead"), timeout=0.1, holder=ME)
        assert "process 1 on child" in caught.value.message
        holder.kill()
    async with asyncio.timeout(20):
        lease = await backend.lock(space("dead"), timeout=20, holder=ME)
        await backend.commit(space("dead"), (), [Write("k", "1")], lease=lease)
        await lease.release()
    await backend.close()


async def test_a_holder_cut_off_from_its_server_is_fenced(servers: list[ServerProcess]) -> None:
    ns = space("fenced")
    with Wire(servers[0].url) as wire:
        cut, other = servers[0].backend(wire.url), servers[1].backend()
        stale = await cut.lock(ns, timeout=5, holder=ME)
        await cut.commit(ns, (), [Write("k", '"mine"')], lease=stale)
        wire.cut()
        async with asyncio.timeout(20):
            lease = await other.lock(ns, timeout=20, holder=ME)
        with pytest.raises(LockTimeout, match="was lost"):
            await cut.commit(ns, (), [Write("k", '"late"')], lease=stale)
        await other.commit(ns, (), [Write("k", '"theirs"')], lease=lease)
        await lease.release()
        with pytest.raises(LockTimeout, match="was lost"):
            await cut.commit(ns, (), [Write("k", '"later"')], lease=stale)
        await stale.release()
        assert await other.text(ns, "k") == '"theirs"'
        async with asyncio.timeout(5):
            await (await cut.lock(ns, timeout=5, holder=ME)).release()
        await cut.close()
        await other.close()


async def test_a_watcher_goes_on_over_a_killed_server(servers: list[ServerProcess]) -> None:
    writer = servers[1].backend()
    watcher = servers[0].backend()
    changes = watcher.watch(space("watched"), Span())
    seen: dict[str, int] = {}

    async def watch() -> None:
        async for change in changes:
            seen[change.key] = change.revision
            if len(seen) == 90:
                return

    watching = asyncio.create_task(watch())
    for number in range(90):
        await writer.commit(space("watched"), (), [Write(f"k{number}", "1")])
        if number == 30:
            servers[0].kill()
        if number == 60:
            await asyncio.to_thread(servers[0].start)
    async with asyncio.timeout(20):
        await watching
    assert seen == {f"k{number}": number + 1 for number in range(90)}
    await changes.aclose()
    await watcher.close()
    await writer.close()
