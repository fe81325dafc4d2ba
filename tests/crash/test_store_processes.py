"""Storage in many processes that die at any instant: nothing lost, nothing half-written, no lock left."""

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from stepwell.errors import LockTimeout
from stepwell.store.entries import Holder, Span, Write
from stepwell.store.sqlite import SqliteCore
from stepwell.store.sqlite_backend import SqliteBackend
from stepwell.store.sqlite_file import WAL_LIMIT_BYTES
from tests.crash.store_children import NS

pytestmark = [pytest.mark.crash, pytest.mark.skipif(sys.platform == "win32", reason="needs fork and kill -9")]

ROOT = Path(__file__).parents[2]


def start(command: str, *arguments: object) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "tests.crash.store_children", command, *map(str, arguments)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def output_of(child: "subprocess.Popen[str]") -> str:
    output, _ = child.communicate(timeout=100)
    assert child.returncode == 0
    return output


@pytest.mark.parametrize("how", ["core", "update", "lock"])
def test_eight_processes_never_lose_an_increment(tmp_path: Path, how: str) -> None:
    path = tmp_path / "x.sqlite"
    for child in [start("increment", path, 50, how) for _ in range(8)]:
        output_of(child)
    assert SqliteCore(path).text(NS, "count") == "400"


def test_many_processes_open_a_new_store_at_once(tmp_path: Path) -> None:
    assert output_of(start("open_at_once", tmp_path, 20, 8)) == "160\n"


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_writers_leave_whole_acknowledged_commits_and_no_lock(tmp_path: Path, seed: int) -> None:
    found = json.loads(output_of(start("kill_rounds", tmp_path / "x.sqlite", 75, seed)))
    assert found["kills"] == 150
    assert found["commits"] > 20  # they did get to write, also on a busy machine


async def test_a_killed_holder_frees_its_lock_within_a_second(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    backend = SqliteBackend(path)
    with start("hold", path, "alone") as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockTimeout) as caught:
            await backend.lock(NS, timeout=0.05, holder=Holder(1, "me"))
        assert caught.value.data["holder"] == {"pid": holder.pid, "host": "host-x", "run_id": "run-x"}
        waiting = asyncio.create_task(backend.commit(NS, (), [Write("k", "1")]))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        holder.kill()
        holder.wait()
        async with asyncio.timeout(1):
            await waiting
            await (await backend.lock(NS, timeout=1, holder=Holder(1, "me"))).release()
    await backend.close()


def test_a_killed_holder_s_children_do_not_keep_its_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with start("hold", path, "parent") as holder:
        assert holder.stdout is not None
        orphan = int(holder.stdout.readline())
        try:
            holder.kill()
            holder.wait()
            SqliteCore(path).lock(NS, timeout=1).unlock()
            os.kill(orphan, 0)  # it is still there
        finally:
            os.kill(orphan, signal.SIGKILL)


def test_forked_processes_get_connections_locks_and_writers_of_their_own(tmp_path: Path) -> None:
    assert output_of(start("fork_in_use", tmp_path / "x.sqlite")) == "ok\n"


@pytest.mark.parametrize("how", ["core", "backend"])
def test_a_full_disk_refuses_whole_commits_and_is_forgiven(tmp_path: Path, how: str) -> None:
    error = json.loads(output_of(start("fill_disk", tmp_path / "x.sqlite", how)))
    assert error["code"] == "storage_unavailable"
    assert error["hint"]


@pytest.mark.parametrize("left", ["file alone", "with its log"])
def test_a_folder_that_may_not_be_written_can_be_read(left: str) -> None:
    if os.geteuid():
        pytest.skip("needs root to become somebody else")
    with tempfile.TemporaryDirectory() as public:  # somebody else may not even enter tmp_path
        folder = Path(public) / "data"
        core = SqliteCore(folder / "x.sqlite")
        core.commit(NS, (), [Write("k", "1")])
        if left == "file alone":
            core.close()
        (folder / "x.sqlite.lock").unlink()
        for file in folder.iterdir():
            file.chmod(0o644)
        folder.chmod(0o555)
        folder.parent.chmod(0o755)
        found = json.loads(output_of(start("read_as_nobody", folder / "x.sqlite")))
    assert found == ["1", "1", "storage_unavailable"]


def test_files_copied_at_any_instant_open_to_whole_commits(tmp_path: Path) -> None:
    """A stopped process's files are what a power cut leaves; a log cut short anywhere is what a disk may lose."""
    chance = random.Random(7)
    path = tmp_path / "x.sqlite"
    seen = []
    with start("write_on", path) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        for number in range(30):
            time.sleep(chance.random() * 0.05)
            writer.send_signal(signal.SIGSTOP)
            copies = []
            for which in ("whole", "cut"):
                copy = tmp_path / f"{which}{number}"
                copy.mkdir()
                for name in ("x.sqlite", "x.sqlite-wal"):
                    if (tmp_path / name).exists():
                        shutil.copy(tmp_path / name, copy / name)
                copies.append(copy)
            writer.send_signal(signal.SIGCONT)
            log = copies[1] / "x.sqlite-wal"
            if log.exists() and log.stat().st_size:
                os.truncate(log, chance.randrange(log.stat().st_size))
            seen += [_pair_in(copy / "x.sqlite") for copy in copies]
        writer.kill()
    whole = [number for number in seen[::2] if number is not None]
    assert whole == sorted(whole)  # acknowledged work never goes back
    assert whole[-1] > whole[0]


def _pair_in(path: Path) -> int | None:
    if not path.exists():
        return None
    core = SqliteCore(path)
    found = core.read(NS, ["pair0:a", "pair0:b", "pair0:odd"])
    if not found:
        return None
    assert found["pair0:a"].text == found["pair0:b"].text
    number = int(found["pair0:a"].text)
    assert ("pair0:odd" in found) == bool(number % 2)
    assert core.facts().problems == []
    core.commit(NS, (), [Write("later", "1")])
    core.close()
    return number


def test_the_log_stays_bounded_while_many_write_and_read(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    children = [start("write_much", path, 250, 50_000) for _ in range(4)]
    largest = 0
    log = Path(f"{path}-wal")
    while any(child.poll() is None for child in children):
        if log.exists():
            largest = max(largest, log.stat().st_size)
        time.sleep(0.02)
    for child in children:
        output_of(child)
    core = SqliteCore(path)
    core.commit(NS, (), [Write("k", "1")])
    assert len(core.scan(NS, Span(), limit=1_000)) == 201
    assert 0 < largest < 4 * WAL_LIMIT_BYTES  # 50 MB were written
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
