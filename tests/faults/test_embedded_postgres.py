"""The embedded PostgreSQL: started, shared, stopped, killed, taken over, refused."""

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from stepwell.errors import SchemaTooNew, StorageUnavailable
from stepwell.server.embedded_postgres import EmbeddedPostgres
from stepwell.store.entries import Domain, Namespace, Scope, Write
from tests.server_process import ServerProcess, eventually

pytestmark = pytest.mark.crash

NS = Namespace("01936d3f-6a00-7000-8000-0000000000aa", Domain.KV, Scope.PROJECT)
Make = Callable[[Path], EmbeddedPostgres]


@pytest.fixture
def make() -> Iterator[Make]:
    """Handles on data folders; whatever still runs there is ended, and the folders are removed."""
    made: list[EmbeddedPostgres] = []

    def new(folder: Path) -> EmbeddedPostgres:
        made.append(EmbeddedPostgres(folder))
        return made[-1]

    yield new
    for server in made:
        server.stop()
    for server in made:
        server.halt("immediate")
        shutil.rmtree(server.folder, ignore_errors=True)


def postmaster(server: EmbeddedPostgres) -> int:
    return int((server.data / "postmaster.pid").read_text().splitlines()[0])


def rows(server: EmbeddedPostgres, statement: str) -> list[tuple]:
    with psycopg.connect(server.dsn, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def test_it_starts_keeps_its_data_and_stops_and_is_on_no_network(tmp_path: Path, make: Make) -> None:
    server = make(tmp_path / "data")
    assert not server.running()
    with server:
        rows(server, "CREATE TABLE t AS SELECT 1 AS n")
        assert rows(server, "SHOW listen_addresses") == [("",)]
        assert rows(server, "SHOW fsync") == [("on",)]
        assert rows(server, "SELECT usesuper FROM pg_user WHERE usename = current_user") == [(False,)]
        sockets = listening(postmaster(server))
        assert len(sockets) == 1
        assert sockets[0].startswith("unix")
        folder = Path(server.dsn.partition("host=")[2].partition("&")[0])
        assert folder.stat().st_mode & 0o777 == 0o700
        assert server.data.stat().st_mode & 0o777 == 0o700
    assert not server.running()
    server.stop()  # harmless
    with make(tmp_path / "data") as again:
        assert rows(again, "SELECT n FROM t") == [(1,)]
        log = again.log.read_text()
    assert "was not properly shut down" not in log


def listening(pid: int) -> list[str]:
    """The sockets on which a process listens: kind and address."""
    inodes = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    found = []
    for line in Path(f"/proc/{pid}/net/unix").read_text().splitlines()[1:]:
        words = line.split()
        if words[6] in inodes and words[3] == "00010000":  # accepts connections
            found.append(f"unix {words[-1]}")
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[9] in inodes and words[3] == "0A":
                found.append(f"{name} {words[1]}")
    return found


def test_two_who_start_at_once_share_one_server_and_the_last_one_stops_it(tmp_path: Path, make: Make) -> None:
    servers = [make(tmp_path / "data") for _ in range(2)]
    failures: list[BaseException] = []

    def start(server: EmbeddedPostgres) -> None:
        try:
            server.start()
        except BaseException as error:  # noqa: BLE001  (shown by the test)
            failures.append(error)

    threads = [threading.Thread(target=start, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert rows(servers[0], "SELECT pg_postmaster_start_time()") == rows(
        servers[1], "SELECT pg_postmaster_start_time()"
    )
    pid = postmaster(servers[0])
    servers[0].stop()
    assert servers[1].running()
    assert rows(servers[1], "SELECT 1") == [(1,)]
    assert postmaster(servers[1]) == pid
    servers[1].stop()
    assert not servers[1].running()


def test_it_recovers_when_the_postmaster_is_killed(tmp_path: Path, make: Make) -> None:
    server = make(tmp_path / "data")
    server.start()
    rows(server, "CREATE TABLE t (n integer)")
    for number in range(3):
        rows(server, f"INSERT INTO t VALUES ({number})")
        os.kill(postmaster(server), signal.SIGKILL)
        server.start()  # at once: what is left of the old one still goes away
    assert rows(server, "SELECT n FROM t ORDER BY 1") == [(number,) for number in range(3)]
    assert "was not properly shut down" in server.log.read_text() or "interrupted" in server.log.read_text()
    server.stop()
    assert not server.running()


def test_a_start_that_was_cut_off_half_way_leaves_nothing_half_made(tmp_path: Path, make: Make) -> None:
    server = make(tmp_path / "data")
    program = (
        "import sys; from pathlib import Path; from stepwell.server.embedded_postgres import EmbeddedPostgres; "
        "EmbeddedPostgres(Path(sys.argv[1])).start()"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "data")]) as starter:
        eventually(lambda: any(server.folder.glob("data.*")))
        starter.kill()
    assert not (server.data / "PG_VERSION").exists()
    with server:
        assert rows(server, "SELECT 1") == [(1,)]


def test_data_of_another_major_version_are_refused_and_left_alone(tmp_path: Path, make: Make) -> None:
    server = make(tmp_path / "data")
    with server:
        rows(server, "CREATE TABLE t AS SELECT 1 AS n")
    version = (server.data / "PG_VERSION").read_text()
    (server.data / "PG_VERSION").write_text("13\n")
    before = files(server.data)
    other = make(tmp_path / "data")
    with pytest.raises(SchemaTooNew) as caught:
        other.start()
    assert caught.value.data == {"found": "13", "known": version.strip()}
    assert "embedded-postgres==13.*" in str(caught.value.hint)
    assert "STEPWELL_DATABASE_URL" in str(caught.value.hint)
    assert files(server.data) == before
    assert not server.running()
    with pytest.raises(AssertionError, match="belong to PostgreSQL 13"):
        ServerProcess(tmp_path / "server", options=("--data-dir", str(tmp_path / "data")))
    (server.data / "PG_VERSION").write_text(version)
    with other:
        assert rows(other, "SELECT n FROM t") == [(1,)]


def files(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_a_server_that_does_not_start_says_why(tmp_path: Path, make: Make) -> None:
    server = make(tmp_path / "data")
    with server:
        pass
    with (server.data / "postgresql.conf").open("a") as settings:
        settings.write("no_such_setting = 1\n")
    with pytest.raises(StorageUnavailable) as caught:
        server.start()
    assert "no_such_setting" in caught.value.data["log"]
    assert str(server.log) in str(caught.value.hint)


async def test_a_killed_server_process_leaves_a_postgresql_that_the_next_one_takes_over(
    tmp_path: Path, make: Make
) -> None:
    postgres = make(tmp_path / "server" / "home" / "server")
    server = ServerProcess(tmp_path / "server")
    backend = server.backend()
    await backend.commit(NS, (), [Write("k", "1")])
    pid = postmaster(postgres)
    server.kill()
    assert postgres.running()
    server.start()
    assert postmaster(postgres) == pid
    assert await backend.text(NS, "k") == "1"
    await backend.commit(NS, (), [Write("k", "2")])
    server.kill()
    os.kill(pid, signal.SIGKILL)
    server.start()
    assert postmaster(postgres) != pid
    assert await backend.text(NS, "k") == "2"
    await backend.close()
    server.stop()
    assert not postgres.running()  # a clean end ends both
