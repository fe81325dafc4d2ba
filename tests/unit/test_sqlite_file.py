"""One database file: opening, migrating, refusing, recovering."""

import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from stepwell.errors import SchemaTooNew, StorageCorrupt, StorageUnavailable
from stepwell.store.entries import Domain, Namespace, Scope, Span, Write
from stepwell.store.file_lock import SETUP, offset_of
from stepwell.store.sqlite import SqliteCore
from stepwell.store.sqlite_file import MAX_IDLE_READERS, PAGE_SIZE, SqliteFile

NS = Namespace("01936d3f-6a00-7000-8000-0000000000aa", Domain.KV, Scope.PROJECT)


def statements(*texts: str):
    """A migration of plain statements."""

    def migration(connection: sqlite3.Connection) -> None:
        for text in texts:
            connection.execute(text)

    return migration


V1 = statements("CREATE TABLE note (id INTEGER PRIMARY KEY, body TEXT)")
V2 = statements("ALTER TABLE note ADD COLUMN length INTEGER", "UPDATE note SET length = length(body)")
V3 = statements("CREATE INDEX note_by_length ON note (length)")


def ask(file: SqliteFile, statement: str):
    return file.read(lambda connection: connection.execute(statement).fetchall())


def tell(file: SqliteFile, statement: str) -> None:
    file.transaction(lambda connection: connection.execute(statement))


def test_a_new_file_is_private_and_durable(tmp_path: Path) -> None:
    path = tmp_path / "data" / "deep" / "x.sqlite"
    file = SqliteFile(path, [V1])
    assert not path.parent.exists()  # nothing happens before it is used
    tell(file, "INSERT INTO note (body) VALUES ('a')")
    assert path.parent.stat().st_mode & 0o777 == 0o700
    for each in path.parent.iterdir():
        assert each.stat().st_mode & 0o777 == 0o600, each
    assert ask(file, "PRAGMA page_size") == [(PAGE_SIZE,)]
    assert ask(file, "PRAGMA journal_mode") == [("wal",)]
    assert file.transaction(lambda c: c.execute("PRAGMA synchronous").fetchone()) == (2,)
    file.close()
    assert {each.name for each in path.parent.iterdir()} == {"x.sqlite", "x.sqlite.lock"}  # the log is folded in


@pytest.mark.parametrize("name", ["a b.sqlite", "100%.sqlite", "what?.sqlite", "#1.sqlite", "ü中.sqlite", "a'b.sqlite"])
def test_any_file_name_will_do(tmp_path: Path, name: str) -> None:
    file = SqliteFile(tmp_path / name, [V1])
    tell(file, "INSERT INTO note (body) VALUES ('a')")
    assert ask(SqliteFile(tmp_path / name, [V1]), "SELECT body FROM note") == [("a",)]
    assert (tmp_path / name).stat().st_size


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_older_version_becomes_the_newest(tmp_path: Path, version: int) -> None:
    path = tmp_path / "x.sqlite"
    migrations = [V1, V2, V3]
    old = SqliteFile(path, migrations[:version])
    if version:
        columns, values = ("body, length", "'hello', 5") if version > 1 else ("body", "'hello'")
        tell(old, f"INSERT INTO note ({columns}) VALUES ({values})")
    else:
        path.touch()
    old.close()
    new = SqliteFile(path, migrations)
    assert ask(new, "SELECT body, length FROM note") == ([("hello", 5)] if version else [])
    assert ask(new, "PRAGMA user_version") == [(3,)]
    assert ask(new, "SELECT name FROM sqlite_schema WHERE type = 'index'") == [("note_by_length",)]
    assert new.facts().schema == 3


def test_a_migration_that_fails_leaves_the_version_before(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    broken = statements("ALTER TABLE note ADD COLUMN length INTEGER", "SELECT * FROM absent")
    with pytest.raises(StorageCorrupt):
        ask(SqliteFile(path, [V1, broken]), "SELECT 1")
    assert ask(SqliteFile(path, [V1]), "SELECT * FROM note") == []
    assert ask(SqliteFile(path, [V1, V2]), "SELECT length FROM note") == []


def test_a_newer_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    newer = SqliteFile(path, [V1, V2])
    tell(newer, "INSERT INTO note (body, length) VALUES ('a', 1)")
    newer.close()
    before = path.read_bytes()
    older = SqliteFile(path, [V1])
    for use in (lambda: ask(older, "SELECT 1"), lambda: tell(older, "DELETE FROM note")):
        with pytest.raises(SchemaTooNew) as caught:
            use()
        assert (caught.value.data["found"], caught.value.data["known"]) == (2, 1)
    assert path.read_bytes() == before


def test_many_first_users_set_it_up_once(tmp_path: Path) -> None:
    runs = []

    def counted(connection: sqlite3.Connection) -> None:
        runs.append(1)
        V1(connection)

    for number in range(10):
        barrier = threading.Barrier(8)

        def use(writer: int, path: Path = tmp_path / str(number) / "x.sqlite", barrier=barrier) -> None:
            file = SqliteFile(path, [counted])
            barrier.wait()
            if writer % 2:
                ask(file, "SELECT * FROM note")
            tell(file, f"INSERT INTO note (body) VALUES ('{writer}')")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(use, range(8)))
        assert len(ask(SqliteFile(tmp_path / str(number) / "x.sqlite", [V1]), "SELECT * FROM note")) == 8
    assert len(runs) == 10


def test_a_current_file_is_opened_without_a_lock(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    tell(SqliteFile(path, [V1]), "INSERT INTO note (body) VALUES ('a')")
    other = SqliteFile(path, [V1])
    ticket = other.locks().acquire(offset_of(SETUP), 0)
    assert ask(other, "SELECT body FROM note") == [("a",)]
    other.locks().release(ticket)


@pytest.mark.parametrize("content", [b"not a database at all", b"SQLite format 3\x00" + b"\xff" * 5_000, b"{}" * 5_000])
def test_what_is_no_database_is_refused_and_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.sqlite"
    path.write_bytes(content)
    file = SqliteFile(path, [V1])
    for use in (lambda: ask(file, "SELECT 1 FROM note"), lambda: tell(file, "DELETE FROM note")):
        with pytest.raises(StorageCorrupt) as caught:
            use()
        assert str(path) in caught.value.message
        assert caught.value.hint
    assert path.read_bytes() == content


def test_another_program_s_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageCorrupt, match="not one of stepwell's"):
        ask(SqliteFile(path, [V1]), "SELECT 1")
    assert path.read_bytes() == before


def test_damage_inside_is_reported_and_the_rest_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite"
    core = SqliteCore(path)
    core.commit(NS, (), [Write(f"k{number:04d}", '"' + "x" * 500 + '"') for number in range(500)])
    assert core.facts().problems == []
    core.close()
    with path.open("r+b") as file:
        file.seek(PAGE_SIZE * 20)
        file.write(b"\xa5" * PAGE_SIZE * 3)
    damaged = SqliteCore(path)
    assert damaged.facts().problems
    outcomes = []
    for number in range(500):
        try:
            outcomes.append(damaged.text(NS, f"k{number:04d}") is not None)
        except StorageCorrupt:
            outcomes.append(False)
    assert 0 < outcomes.count(True) < 500


def test_facts_tell_sizes(tmp_path: Path) -> None:
    core = SqliteCore(tmp_path / "x.sqlite")
    core.commit(NS, (), [Write("k", '"' + "x" * 100_000 + '"')])
    facts = core.facts()
    assert facts.path == str(tmp_path / "x.sqlite")
    assert facts.size == (tmp_path / "x.sqlite").stat().st_size
    assert facts.wal_size > 100_000


def test_a_file_that_was_deleted_in_use_takes_no_more_writes(tmp_path: Path) -> None:
    core = SqliteCore(tmp_path / "x.sqlite")
    core.commit(NS, (), [Write("k", "1")])
    (tmp_path / "x.sqlite").unlink()
    with pytest.raises(StorageUnavailable, match="deleted or replaced"):
        core.commit(NS, (), [Write("k", "2")])
    assert not (tmp_path / "x.sqlite").exists()
    for name in ("x.sqlite-wal", "x.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    fresh = SqliteCore(tmp_path / "x.sqlite")
    fresh.commit(NS, (), [Write("k", "3")])
    assert fresh.text(NS, "k") == "3"


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    core = SqliteCore(tmp_path / "file" / "x.sqlite")
    for use in (lambda: core.text(NS, "k"), lambda: core.commit(NS, (), [Write("k", "1")])):
        with pytest.raises(StorageUnavailable) as caught:
            use()
        assert "STEPWELL" in (caught.value.hint or "") or "file" in caught.value.message
    folder = SqliteCore(tmp_path)
    with pytest.raises(StorageUnavailable):
        folder.text(NS, "k")


def test_a_transaction_that_raises_is_undone_and_the_next_one_works(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "x.sqlite", [V1])

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO note (body) VALUES ('a')")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        file.transaction(fail)
    with pytest.raises(StorageUnavailable):
        tell(file, "INSERT INTO note (wrong) VALUES (1)")
    tell(file, "INSERT INTO note (body) VALUES ('b')")
    assert ask(file, "SELECT body FROM note") == [("b",)]


def test_readers_cannot_write_and_are_few(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "x.sqlite", [V1])
    with pytest.raises(StorageUnavailable):
        ask(file, "INSERT INTO note (body) VALUES ('a') RETURNING id")
    borrowed = [file.borrow() for _ in range(MAX_IDLE_READERS + 5)]
    for connection in borrowed:
        file.give_back(connection)
    assert len(file._readers) == MAX_IDLE_READERS
    assert file.borrow() is borrowed[MAX_IDLE_READERS - 1]  # the last one used: its page cache is warm


def test_a_closed_file_refuses_and_keeps_nothing_open(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "x.sqlite", [V1])
    tell(file, "INSERT INTO note (body) VALUES ('a')")
    lent = file.borrow()
    file.close()
    file.give_back(lent)
    for use in (lambda: ask(file, "SELECT 1"), lambda: tell(file, "DELETE FROM note"), file.facts):
        with pytest.raises(StorageUnavailable, match="closed"):
            use()
    opened = Path("/proc/self/fd")
    if opened.is_dir():
        targets = [os.readlink(link) for link in opened.iterdir() if link.is_symlink()]  # noqa: PTH115
        assert str(tmp_path / "x.sqlite") not in targets


def test_paging_deep_into_a_namespace_seeks(tmp_path: Path) -> None:
    """The plan of the statement, not a time: one bound a side, all of it answered by the index."""
    core = SqliteCore(tmp_path / "x.sqlite")
    core.commit(NS, (), [Write(f"k{number:03d}", "1") for number in range(100)])
    plans = []
    core.file.read(lambda c: c.set_trace_callback(plans.append))
    for after, reverse in (("k050", False), ("k050", True), ("a", False), ("z", True), (None, False)):
        page = core.scan(NS, Span.prefix("k"), after=after, limit=3, reverse=reverse)
        assert len(page) == 3
    scans = [text for text in plans if "ORDER BY key" in text]
    assert len(scans) == 5
    for text in scans:
        assert text.count("key >") <= 1, text
        assert text.count("key <") <= 1, text
        plan = core.file.read(lambda c, text=text: c.execute("EXPLAIN QUERY PLAN " + text).fetchall())
        assert "SEARCH entry USING INDEX" in plan[0][3], plan
        assert "namespace_id=? AND key>" in plan[0][3], plan
        assert not any("TEMP B-TREE" in row[3] for row in plan), plan
