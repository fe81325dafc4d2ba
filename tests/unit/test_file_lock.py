"""The lock file: turns within a process, bytes between processes."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from stepwell.errors import LockTimeout, StorageUnavailable
from stepwell.store.file_lock import LockFile, Pause, offset_of

NAME = offset_of("name")
OTHER = offset_of("other")

# Another process: does what its lines say, answering each with the result.
ANOTHER = """
import sys
from stepwell.store.file_lock import LockFile, offset_of
locks, tickets = LockFile.at(sys.argv[1]), {}
for line in sys.stdin:
    verb, name, *which = line.split()
    if verb == "shared" or verb == "exclusive":
        ticket = tickets.get(name) or locks.enqueue(offset_of(name), lambda: None, shared=verb == "shared")
        tickets[name] = ticket
        print(locks.try_take(ticket), flush=True)
    else:
        locks.release(tickets.pop(name))
        print("released", flush=True)
"""


class Another:
    """Another process at the same lock file."""

    def __init__(self, path: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", ANOTHER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture
def locks(tmp_path: Path) -> LockFile:
    return LockFile.at(str(tmp_path / "x.lock"))


@pytest.fixture
def another(locks: LockFile):
    made = Another(locks.path)
    yield made
    made.process.kill()
    made.process.wait()


def take(locks: LockFile, offset: int = NAME, *, shared: bool = False):
    ticket = locks.enqueue(offset, lambda: None, shared=shared)
    locks.try_take(ticket)
    return ticket


def test_offsets_are_pairs_within_a_file(locks: LockFile) -> None:
    offsets = {offset_of(str(number)) for number in range(10_000)}
    assert len(offsets) == 10_000
    assert all(offset % 2 == 0 and 0 <= offset < 2**62 for offset in offsets)
    assert offset_of("\ud800") != offset_of("?")


def test_there_is_one_lock_file_per_path_and_it_is_private(tmp_path: Path, locks: LockFile) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert LockFile.at(str(tmp_path / "link" / "x.lock")) is locks
    assert (tmp_path / "x.lock").stat().st_mode & 0o777 == 0o600
    (tmp_path / "x.lock").unlink()
    assert not locks.is_current()
    assert LockFile.at(str(tmp_path / "x.lock")) is not locks


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="No such file"):
        LockFile.at(str(tmp_path / "absent" / "x.lock"))


def test_sharers_run_together_and_a_holder_alone(locks: LockFile) -> None:
    sharers = [take(locks, shared=True) for _ in range(3)]
    assert all(sharer.held for sharer in sharers)
    woken: list[str] = []
    holder = locks.enqueue(NAME, lambda: woken.append("holder"))
    assert not locks.try_take(holder)
    for sharer in sharers:
        assert not woken
        locks.release(sharer)
        locks.release(sharer)  # harmless
    assert woken == ["holder"]
    assert locks.try_take(holder)
    assert not take(locks, shared=True).held
    assert take(locks, OTHER).held


def test_nobody_overtakes(locks: LockFile) -> None:
    first = take(locks)
    order: list[str] = []
    waiting = {}
    for name in ("writer1", "holder1", "writer2", "writer3", "holder2"):
        waiting[name] = locks.enqueue(NAME, lambda name=name: order.append(name), shared=name.startswith("writer"))
    locks.release(first)
    assert order == ["writer1"]
    locks.release(waiting["writer1"])
    assert order == ["writer1", "holder1"]
    locks.release(waiting["holder1"])
    assert order == ["writer1", "holder1", "writer2", "writer3"]
    locks.release(waiting["writer3"])
    locks.release(waiting["writer2"])
    assert order[-1] == "holder2"


def test_who_gives_up_waiting_lets_the_next_pass(locks: LockFile) -> None:
    sharer = take(locks, shared=True)
    woken: list[int] = []
    holder = locks.enqueue(NAME, lambda: None)
    following = locks.enqueue(NAME, lambda: woken.append(1), shared=True)
    locks.release(holder)
    assert woken == [1]
    assert locks.try_take(following)
    locks.release(following)
    locks.release(sharer)
    assert locks.is_free(NAME)
    assert not locks._lines


def test_a_pinned_lock_stays_until_the_last_commit_is_through(locks: LockFile, another: Another) -> None:
    ticket = take(locks)
    assert locks.pin(ticket)
    assert locks.pin(ticket)
    locks.release(ticket)
    assert not locks.is_holder(ticket)
    assert not locks.pin(ticket)
    locks.unpin(ticket)
    assert another.ask("exclusive name") == "False"
    assert not locks.is_free(NAME)
    locks.unpin(ticket)
    assert another.ask("exclusive name") == "True"


def test_processes_exclude_each_other_by_name(locks: LockFile, another: Another) -> None:
    assert another.ask("exclusive name") == "True"
    mine = take(locks)
    assert not mine.held
    assert not locks.is_free(NAME)
    assert take(locks, OTHER).held
    another.ask("release name")
    assert locks.try_take(mine)
    assert another.ask("shared name") == "False"
    locks.release(mine)
    assert another.ask("shared name") == "True"
    shared = take(locks, shared=True)
    assert shared.held
    assert not locks.try_take(take(locks))


def test_asking_whether_a_name_is_free_turns_nobody_away(locks: LockFile, another: Another) -> None:
    assert locks.is_free(NAME)
    asking = threading.Event()

    def ask() -> None:
        while not asking.is_set():
            locks.is_free(NAME)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for _ in range(300):
            assert another.ask("exclusive name") == "True"
            assert not locks.is_free(NAME)
            another.ask("release name")
            assert locks.is_free(NAME)
    finally:
        asking.set()
        thread.join()


def test_a_waiting_holder_keeps_new_writers_of_other_processes_out(locks: LockFile, another: Another) -> None:
    take(locks, shared=True)
    assert another.ask("exclusive name") == "False"  # it has the gate now
    assert take(locks, shared=True).held  # this process's writers hold the byte already
    third = Another(locks.path)
    try:
        assert third.ask("shared name") == "False"
    finally:
        third.process.kill()
        third.process.wait()


def test_a_killed_process_leaves_no_lock_and_no_gate(locks: LockFile, another: Another) -> None:
    mine = take(locks)
    assert another.ask("exclusive other") == "True"
    assert another.ask("exclusive name") == "False"  # waits, keeping the gate
    another.process.kill()
    another.process.wait()
    locks.release(mine)
    assert take(locks, OTHER).held
    assert take(locks).held


def test_waiting_ends_in_time_and_says_in_whose_favour(locks: LockFile, another: Another) -> None:
    mine = locks.acquire(NAME, 0)
    with pytest.raises(LockTimeout, match=r"the thing was not free within 0\.02 s: held by this process"):
        locks.acquire(NAME, 0.02, "the thing")
    locks.release(mine)
    another.ask("exclusive name")
    with pytest.raises(LockTimeout, match="held by another process"):
        locks.acquire(NAME, 0)
    another.ask("release name")
    locks.release(locks.acquire(NAME, 0))


def test_threads_take_turns(locks: LockFile) -> None:
    inside, most, turns = [0], [0], [0]

    def work() -> None:
        for _ in range(50):
            ticket = locks.acquire(NAME, 20)
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            turns[0] += 1
            time.sleep(0)
            inside[0] -= 1
            locks.release(ticket)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]
    assert turns == [400]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_holds_nothing_and_disturbs_nothing(locks: LockFile, another: Another) -> None:
    mine = take(locks)
    pid = os.fork()
    if not pid:
        try:
            held = locks.is_holder(mine) or locks.pin(mine) or take(locks).held
            locks.release(mine)
            os._exit(1 if held else 0)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert locks.is_holder(mine)
    assert another.ask("shared name") == "False"


def test_pauses_grow_to_a_bound() -> None:
    pause = Pause()
    waits = [pause.next() for _ in range(50)]
    assert 0.000_25 <= waits[0] <= 0.000_5
    assert all(0.005 <= wait <= 0.010 for wait in waits[-10:])
