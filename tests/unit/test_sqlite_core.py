"""The synchronous core: updates, locks, ids and deletions over time."""

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from stepwell.errors import Conflict, LockTimeout, StorageUnavailable, UpdateConflict
from stepwell.store.entries import Check, Domain, Holder, Namespace, Scope, Source, Span, Write
from stepwell.store.sqlite import SqliteCore, TooBulky

NS = Namespace("01936d3f-6a00-7000-8000-0000000000aa", Domain.KV, Scope.PROJECT)
OTHER = NS._replace(scope=Scope.CONVERSATION, conversation_id="c")


@pytest.fixture
def core(tmp_path: Path):
    made = SqliteCore(tmp_path / "x.sqlite")
    yield made
    made.close()


def test_asking_whether_it_exists_creates_nothing(tmp_path: Path) -> None:
    core = SqliteCore(tmp_path / "data" / "x.sqlite")
    assert not core.exists()
    assert not (tmp_path / "data").exists()
    core.commit(NS, (), [Write("k", "1")])
    assert core.exists()


def test_update_retries_until_it_lands(core: SqliteCore) -> None:
    seen: list[str | None] = []

    def overtaken(text: str | None) -> str:
        seen.append(text)
        if len(seen) == 1:
            core.commit(NS, (), [Write("k", "10")])
        return str(int(text or 0) + 1)

    assert core.update(NS, "k", overtaken) == "11"
    assert seen == [None, "10"]
    core.lock(NS, timeout=0).unlock()


def test_update_gives_up_in_time(core: SqliteCore) -> None:
    def overtaken(text: str | None) -> str:
        core.commit(NS, (), [Write("k", "1")])
        return "mine"

    with pytest.raises(UpdateConflict):
        core.update(NS, "k", overtaken, timeout=0)
    assert core.text(NS, "k") == "1"


def test_an_update_that_raises_changes_nothing(core: SqliteCore) -> None:
    def overtaken_then_failing(text: str | None) -> str:
        if text is None:
            core.commit(NS, (), [Write("k", "1")])
            return "lost"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        core.update(NS, "k", overtaken_then_failing)
    assert core.text(NS, "k") == "1"
    core.lock(NS, timeout=0).unlock()


def test_no_transaction_is_open_while_an_updater_runs(core: SqliteCore) -> None:
    def touching(text: str | None) -> str:
        core.commit(OTHER, (), [Write("other", "1")])
        return "1"

    assert core.update(NS, "k", touching) == "1"
    assert core.text(OTHER, "other") == "1"


def test_threads_never_lose_an_update(tmp_path: Path) -> None:
    cores = [SqliteCore(tmp_path / "x.sqlite") for _ in range(2)]

    def work(core: SqliteCore) -> None:
        for _ in range(25):
            core.update(NS, "k", lambda text: str(int(text or 0) + 1))

    threads = [threading.Thread(target=work, args=(core,)) for core in cores * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cores[0].text(NS, "k") == "200"


def test_a_lock_names_its_holder_while_it_is_held(core: SqliteCore, tmp_path: Path) -> None:
    lease = core.lock(NS, holder=Holder(os.getpid(), "here", "run-1"))
    with pytest.raises(LockTimeout, match=r"held by process .* on here, run run-1") as caught:
        core.lock(NS, timeout=0)
    assert caught.value.data["holder"] == {"pid": os.getpid(), "host": "here", "run_id": "run-1"}
    lease.unlock()
    lease.unlock()
    anonymous = core.lock(NS)
    with pytest.raises(LockTimeout, match=f"held by process {os.getpid()} on"):
        core.lock(NS, timeout=0)
    anonymous.unlock()
    assert not list(tmp_path.glob("*.lock.*"))


HOLD = """
import os, sys
from tests.unit.test_sqlite_core import NS, Holder, SqliteCore
core = SqliteCore(sys.argv[1])
lease = core.lock(NS, holder=Holder(os.getpid(), "somewhere", "run-2") if sys.argv[2] == "signing" else None)
print("held", flush=True)
input()
"""


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="elsewhere the system cannot tell who holds a lock")
def test_the_holder_in_another_process_is_named_and_no_dead_one(core: SqliteCore, tmp_path: Path) -> None:
    for how, named in (("signing", "on somewhere, run run-2"), ("silently", f"on {os.uname().nodename}")):
        with subprocess.Popen(
            [sys.executable, "-c", HOLD, core.file.path, how],
            cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            with pytest.raises(LockTimeout) as caught:
                core.lock(NS, timeout=0)
            assert caught.value.message.endswith(f"held by process {process.pid} {named}")
            process.kill()
    assert list(tmp_path.glob("*.lock.*"))  # the sign of the killed one is still there


def test_a_lease_lets_its_owner_write(core: SqliteCore) -> None:
    lease = core.lock(NS)
    core.commit(NS, [Check("k", 0)], [Write("k", "1")], lease=lease)
    lease.unlock()
    with pytest.raises(LockTimeout, match="lost"):
        core.commit(NS, (), [Write("k", "2")], lease=lease)
    assert core.text(NS, "k") == "1"


def test_ids_of_undone_transactions_are_not_remembered(core: SqliteCore) -> None:
    """A namespace or writer first seen in a transaction that fails is another row the next time."""
    mine, theirs = Source(run_id="mine"), Source(run_id="theirs")

    def fail(connection: sqlite3.Connection) -> None:
        core.apply(connection, NS, (), [Write("a", "1")], mine)
        core.apply(connection, NS, (), [Write("b", "1")], mine)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        core.file.transaction(fail)
    core.commit(OTHER, (), [Write("k", "1")], source=theirs)
    core.commit(NS, (), [Write("k", "2")], source=mine)
    assert core.read(OTHER, ["k"])["k"].source == theirs
    assert core.read(NS, ["k"])["k"].source == mine
    assert core.scan(NS, Span())[0].text == "2"
    assert len(core.scan(OTHER, Span())) == 1


def test_more_namespaces_and_writers_than_are_remembered(core: SqliteCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepwell.store.sqlite_ids._REMEMBERED", 3)
    spaces = [OTHER._replace(conversation_id=f"c{number}") for number in range(10)]
    for turn in range(2):
        for number, ns in enumerate(spaces):
            core.commit(ns, (), [Write("k", str(number + turn))], source=Source(run_id=str(number)))
    for number, ns in enumerate(spaces):
        record = core.read(ns, ["k"])["k"]
        assert (record.text, record.source, record.revision) == (str(number + 1), Source(run_id=str(number)), 2)


def test_deletions_are_remembered_for_a_while_only(core: SqliteCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepwell.store.sqlite._DELETIONS_KEPT", 20)
    for number in range(100):  # deletions at every second revision only
        core.commit(NS, (), [Write(f"k{number}", "1")])
        core.commit(NS, (), [Write(f"k{number}", None)])
    kept = core.file.read(lambda c: c.execute("SELECT count(*) FROM tombstone").fetchone()[0])
    assert kept == 10
    revision, changes = core.changes(NS, 190)
    assert revision == 200
    assert [(change.key, change.revision) for change in changes] == [(f"k{n}", 2 * n + 2) for n in range(95, 100)]


def test_revisions_grow_whatever_the_clock_does(core: SqliteCore, monkeypatch: pytest.MonkeyPatch) -> None:
    revisions, times = [], iter([5_000_000, 4_000_000, 4_000_000, 1])
    monkeypatch.setattr("stepwell.store.sqlite.now_micros", lambda: next(times))
    for _ in range(4):
        revisions.append(core.commit(NS, (), [Write("k", "1")]).revision)
    assert revisions == [1, 2, 3, 4]
    record = core.read(NS, ["k"])["k"]
    assert (record.created_at, record.updated_at) == (5_000_000, 1)
    with pytest.raises(Conflict):
        core.commit(NS, [Check("k", 3)], [Write("k", "2")])


def test_bodies_and_matching_give_utf8_json(core: SqliteCore) -> None:
    core.commit(NS, (), [Write("a", '"é"'), Write("b", '"中"'), Write("c", "1"), Write("zz", '"é"')])
    assert sorted(core.bodies(NS, ["a", "b", "absent"])) == [("a", '"é"'.encode()), ("b", '"中"'.encode())]
    assert core.matching(NS, Span("a", "d"), lambda body: "é".encode() in body) == ["a"]
    assert core.matching(NS, Span(), lambda body: body.startswith(b'"')) == ["a", "b", "zz"]
    assert core.matching(OTHER, Span(), lambda _: True) == []


def test_a_budget_stops_a_read_that_would_be_long(core: SqliteCore) -> None:
    core.commit(NS, (), [Write(f"k{number}", '"' + "x" * 98 + '"') for number in range(10)])
    assert len(core.scan(NS, Span(), budget=1_000)) == 10
    with pytest.raises(TooBulky):
        core.scan(NS, Span(), budget=999)
    with pytest.raises(TooBulky):
        core.read(NS, [f"k{number}" for number in range(10)], budget=999)
    assert len(core.read(NS, ["k1"], budget=100)) == 1


def test_a_disk_error_reaches_the_caller_in_our_words(core: SqliteCore) -> None:
    core.commit(NS, (), [Write("k", "1")])
    core.file.transaction(
        lambda c: c.execute("CREATE TRIGGER full BEFORE INSERT ON entry BEGIN SELECT abort_it(); END")
    )
    with pytest.raises(StorageUnavailable) as caught:
        core.commit(NS, (), [Write("k", "2")])
    assert caught.value.hint
    assert core.text(NS, "k") == "1"
    core.file.transaction(lambda c: c.execute("DROP TRIGGER full"))
    core.commit(NS, (), [Write("k", "2")])
