"""The writer thread: batches, savepoints, cancelling, closing."""

import sqlite3
import threading
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from stepwell.errors import Conflict, StorageUnavailable
from stepwell.store.sqlite_file import SqliteFile
from stepwell.store.sqlite_writer import MAX_BATCH, GroupWriter


def create(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE note (body TEXT UNIQUE NOT NULL)")


class Desk:
    """A writer on a file, whose transactions are counted and can be held up."""

    def __init__(self, path: Path) -> None:
        self.file = SqliteFile(path, [create])
        self.file.open()
        self.transactions = 0
        self.passing = threading.Event()
        self.passing.set()
        self.started = threading.Event()
        self.writer = GroupWriter(self._transaction)

    def _transaction(self, operation) -> None:
        self.transactions += 1
        self.started.set()
        self.passing.wait(20)
        self.file.transaction(operation)

    def hold_up(self) -> None:
        """Start a transaction that waits until `passing` is set."""
        self.passing.clear()
        self.started.clear()
        self.writer.submit(insert("first"))
        assert self.started.wait(20)

    def bodies(self) -> list[str]:
        return self.file.read(
            lambda c: [row[0] for row in c.execute("SELECT body FROM note ORDER BY rowid").fetchall()]
        )


@pytest.fixture
def desk(tmp_path: Path):
    made = Desk(tmp_path / "x.sqlite")
    yield made
    made.passing.set()
    made.writer.close()


def insert(body: str | None):
    return lambda connection: connection.execute("INSERT INTO note VALUES (?)", (body,)).rowcount


def test_what_waits_together_shares_one_transaction(desk: Desk) -> None:
    desk.hold_up()
    futures = [desk.writer.submit(insert(f"n{number}")) for number in range(64)]
    desk.passing.set()
    assert [future.result(20) for future in futures] == [1] * 64
    assert desk.transactions == 2
    assert desk.bodies() == ["first", *(f"n{number}" for number in range(64))]


def test_batches_are_bounded(desk: Desk) -> None:
    desk.hold_up()
    futures = [desk.writer.submit(insert(f"n{number}")) for number in range(MAX_BATCH + 10)]
    desk.passing.set()
    for future in futures:
        future.result(20)
    assert desk.transactions == 3


def test_an_operation_that_raises_is_undone_alone(desk: Desk) -> None:
    def fail(error: BaseException):
        def operation(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO note VALUES ('undone')")
            raise error

        return operation

    desk.hold_up()
    good = [desk.writer.submit(insert("a"))]
    bad = {
        Conflict: desk.writer.submit(fail(Conflict("no"))),
        sqlite3.IntegrityError: desk.writer.submit(insert("a")),
        sqlite3.ProgrammingError: desk.writer.submit(lambda c: c.execute("INSERT INTO note VALUES (?)", ())),
        KeyboardInterrupt: desk.writer.submit(fail(KeyboardInterrupt())),
    }
    good.append(desk.writer.submit(insert("b")))
    desk.passing.set()
    assert [future.result(20) for future in good] == [1, 1]
    for error, future in bad.items():
        assert isinstance(future.exception(20), error)
    assert desk.bodies() == ["first", "a", "b"]
    assert desk.transactions == 2


def test_an_operation_alone_that_raises_is_undone_too(desk: Desk) -> None:
    assert desk.writer.submit(insert("a")).result(20) == 1
    assert isinstance(desk.writer.submit(insert("a")).exception(20), sqlite3.IntegrityError)
    assert desk.writer.submit(insert("b")).result(20) == 1
    assert desk.bodies() == ["a", "b"]


def test_a_failing_file_fails_the_whole_batch_and_the_next_one_works(desk: Desk) -> None:
    def broken(connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    desk.hold_up()
    futures = [desk.writer.submit(operation) for operation in (insert("a"), broken, insert("b"))]
    desk.passing.set()
    for future in futures:
        assert isinstance(future.exception(20), StorageUnavailable)
    assert desk.writer.submit(insert("c")).result(20) == 1
    assert desk.bodies() == ["first", "c"]


def test_cancelling_works_until_it_starts(desk: Desk) -> None:
    desk.hold_up()
    taken_back, kept = desk.writer.submit(insert("a")), desk.writer.submit(insert("b"))
    assert taken_back.cancel()
    desk.passing.set()
    assert kept.result(20) == 1
    assert not kept.cancel()
    with pytest.raises(CancelledError):
        taken_back.result(20)
    assert desk.bodies() == ["first", "b"]


class Door:
    """An admission that lets in when opened."""

    def __init__(self) -> None:
        self.open = False
        self.inside = 0
        self.left = 0
        self.wake = lambda: None
        self.error: BaseException | None = None
        self.knocked = threading.Event()

    def enter(self, wake) -> bool:
        self.wake = wake
        self.knocked.set()
        if self.error is not None:
            raise self.error
        self.inside += self.open
        return self.open

    def leave(self) -> None:
        self.left += 1


def test_who_is_not_let_in_waits_while_others_go_on(desk: Desk) -> None:
    door = Door()
    waiting = desk.writer.submit(insert("late"), door)
    for number in range(5):
        assert desk.writer.submit(insert(f"n{number}")).result(20) == 1
    assert not waiting.done()
    door.open = True
    door.wake()
    assert waiting.result(20) == 1
    assert (door.inside, door.left) == (1, 1)
    assert desk.bodies()[-1] == "late"


def test_more_than_a_batch_kept_waiting_keeps_nobody_else_waiting(desk: Desk) -> None:
    door = Door()
    waiting = [desk.writer.submit(insert(f"late{number}"), door) for number in range(MAX_BATCH + 50)]
    desk.hold_up()
    before = desk.transactions
    others = [desk.writer.submit(insert(f"n{number}")) for number in range(100)]
    desk.passing.set()
    for future in others:
        future.result(20)
    assert desk.transactions - before <= 2
    door.open = True
    for future in waiting:
        future.result(20)


def test_who_gives_up_waiting_leaves(desk: Desk) -> None:
    cancelled, refused = Door(), Door()
    first = desk.writer.submit(insert("a"), cancelled)
    second = desk.writer.submit(insert("b"), refused)
    assert cancelled.knocked.wait(20)
    assert refused.knocked.wait(20)
    assert first.cancel()
    refused.error = Conflict("given up")
    assert isinstance(second.exception(20), Conflict)
    assert desk.writer.submit(insert("c")).result(20) == 1
    desk.writer.close()
    assert (cancelled.inside, cancelled.left) == (0, 1)
    assert (refused.inside, refused.left) == (0, 1)
    assert desk.bodies() == ["c"]


def test_closing_finishes_what_was_accepted_and_refuses_the_rest(desk: Desk) -> None:
    door = Door()
    desk.hold_up()
    futures = [desk.writer.submit(insert(f"n{number}")) for number in range(10)]
    futures.append(desk.writer.submit(insert("late"), door))
    closing = threading.Thread(target=desk.writer.close)
    closing.start()
    desk.passing.set()
    assert door.knocked.wait(20)
    with pytest.raises(StorageUnavailable):
        submit_until_refused(desk)
    door.open = True
    closing.join(20)
    assert not closing.is_alive()
    assert [future.result(0) for future in futures] == [1] * 11
    desk.writer.close()  # harmless


def submit_until_refused(desk: Desk) -> None:
    """Until the closing thread has got that far."""
    while True:
        desk.writer.submit(lambda _: None)


def test_submitting_while_closing_never_hangs(tmp_path: Path) -> None:
    for number in range(20):
        desk = Desk(tmp_path / f"{number}.sqlite")
        futures = []

        def submit(desk=desk, futures=futures) -> None:
            try:
                while True:
                    futures.append(desk.writer.submit(lambda _: 1))
            except StorageUnavailable:
                pass

        threads = [threading.Thread(target=submit) for _ in range(2)]
        for thread in threads:
            thread.start()
        desk.writer.close()
        for thread in threads:
            thread.join(20)
        assert all(future.result(5) == 1 for future in futures)
