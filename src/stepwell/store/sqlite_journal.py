"""Run journals in SQLite: one file per project, written in groups by a thread of its own."""

import os
import sqlite3
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from stepwell.errors import RunStateConflict
from stepwell.store.file_lock import LockFile
from stepwell.store.journal import EventRow, RunFilter, RunRow
from stepwell.store.sqlite_approvals import SqliteApprovals, create_tables
from stepwell.store.sqlite_file import FileFacts, SqliteFile
from stepwell.store.sqlite_writer import GroupWriter

_V1 = (
    """
    CREATE TABLE run (
      id TEXT PRIMARY KEY,
      project_id TEXT NOT NULL,
      entrypoint TEXT NOT NULL,
      conversation_id TEXT,
      status TEXT NOT NULL,
      created_at INTEGER NOT NULL,
      started_at INTEGER,
      ended_at INTEGER,
      input TEXT NOT NULL,
      label TEXT NOT NULL,
      report TEXT,
      cancel_requested INTEGER NOT NULL
    )""",
    "CREATE INDEX run_by_time ON run (created_at DESC, id DESC)",
    """
    CREATE TABLE event (
      run_id TEXT NOT NULL REFERENCES run (id),
      seq INTEGER NOT NULL,
      at INTEGER NOT NULL,
      type TEXT NOT NULL,
      data TEXT NOT NULL,
      UNIQUE (run_id, seq)
    )""",
)
_RUN = "SELECT * FROM run WHERE id = ?"
_CANCEL_REQUESTED = "SELECT cancel_requested FROM run WHERE id = ?"
_INSERT_RUN = "INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_INSERT_EVENT = "INSERT INTO event (run_id, seq, at, type, data) VALUES (?, ?, ?, ?, ?)"
_EVENTS = "SELECT seq, at, type, data FROM event WHERE run_id = ? AND seq > ? ORDER BY seq LIMIT ?"
_REMEMBER = "INSERT OR IGNORE INTO deleted_run SELECT id, conversation_id, created_at FROM run WHERE id = ?"
_WAS_DELETED = "SELECT 1 FROM deleted_run WHERE id = ?"
_TURN = """
    SELECT id FROM (
      SELECT id, created_at FROM run WHERE conversation_id = ?
      UNION SELECT id, created_at FROM deleted_run WHERE conversation_id = ?
    ) ORDER BY created_at, id LIMIT 1 OFFSET ?"""
_COLUMNS = frozenset(RunRow._fields) - {"id"}


def _create(connection: sqlite3.Connection) -> None:
    for statement in _V1:
        connection.execute(statement)


def _remember_deleted(connection: sqlite3.Connection) -> None:
    connection.execute(
        "CREATE TABLE deleted_run (id TEXT PRIMARY KEY, conversation_id TEXT, created_at INTEGER NOT NULL)"
    )


MIGRATIONS = (_create, create_tables, _remember_deleted)


class SqliteJournal:
    """See `stepwell.store.journal.Journal`.

    Args:
        path: the database file, created on first use.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.file = SqliteFile(path, MIGRATIONS)
        self._writer = GroupWriter(self.file.transaction, "stepwell-journal")
        self.approvals = SqliteApprovals(self.file, self._writer)

    def locks(self) -> LockFile:
        """Locks that say which runs have a living process."""
        return self.file.locks()

    def create(self, row: RunRow, events: Sequence[EventRow]) -> "Future[None]":
        def operation(connection: sqlite3.Connection) -> None:
            if connection.execute(_RUN, (row.id,)).fetchone() is not None:
                raise RunStateConflict(f"there is a run {row.id} already", run_id=row.id)
            connection.execute(_INSERT_RUN, row)
            connection.executemany(_INSERT_EVENT, [(row.id, *event) for event in events])

        return self._writer.submit(operation)

    def append(self, run_id: str, events: Sequence[EventRow], changes: dict[str, Any] | None = None) -> "Future[None]":
        rows = [(run_id, *event) for event in events]
        if changes and not _COLUMNS.issuperset(changes):
            raise ValueError(f"not columns of a run: {changes}")
        assignments = ", ".join(f"{column} = ?" for column in changes or ())

        def operation(connection: sqlite3.Connection) -> None:
            connection.executemany(_INSERT_EVENT, rows)
            if changes:
                connection.execute(f"UPDATE run SET {assignments} WHERE id = ?", (*changes.values(), run_id))

        return self._writer.submit(operation)

    def get(self, run_id: str) -> RunRow | None:
        row = self.file.read(lambda c: c.execute(_RUN, (run_id,)).fetchone())
        return None if row is None else RunRow(*row)

    def is_cancel_requested(self, run_id: str) -> bool:
        row: tuple[int] | None = self.file.read(lambda c: c.execute(_CANCEL_REQUESTED, (run_id,)).fetchone())
        return row is not None and row[0] == 1

    def events(self, run_id: str, *, after: int = 0, limit: int = 500) -> list[EventRow]:
        rows = self.file.read(lambda c: c.execute(_EVENTS, (run_id, after, limit)).fetchall())
        return [EventRow(*row) for row in rows]

    def list(self, which: RunFilter, *, before: tuple[int, str] | None, limit: int) -> "list[RunRow]":
        where, values = _where(which)
        if before is not None:
            where += " AND (created_at, id) < (?, ?)"
            values += before
        statement = f"SELECT * FROM run WHERE {where} ORDER BY created_at DESC, id DESC LIMIT ?"
        rows = self.file.read(lambda c: c.execute(statement, (*values, limit)).fetchall())
        return [RunRow(*row) for row in rows]

    def count(self, which: RunFilter) -> int:
        where, values = _where(which)
        statement = f"SELECT count(*) FROM run WHERE {where}"
        found: tuple[int] = self.file.read(lambda c: c.execute(statement, values).fetchone())
        return found[0]

    def turn(self, conversation_id: str, number: int) -> str | None:
        values = (conversation_id, conversation_id, number - 1)
        row = self.file.read(lambda c: c.execute(_TURN, values).fetchone()) if 1 <= number < 1 << 62 else None
        return None if row is None else str(row[0])

    def was_deleted(self, run_id: str) -> bool:
        return self.file.read(lambda c: c.execute(_WAS_DELETED, (run_id,)).fetchone()) is not None

    def delete(self, run_id: str) -> "Future[bool]":
        def operation(connection: sqlite3.Connection) -> bool:
            connection.execute(_REMEMBER, (run_id,))
            connection.execute("DELETE FROM event WHERE run_id = ?", (run_id,))
            connection.execute("DELETE FROM approval WHERE run_id = ?", (run_id,))
            return connection.execute("DELETE FROM run WHERE id = ?", (run_id,)).rowcount > 0

        return self._writer.submit(operation)

    def facts(self) -> FileFacts:
        """Size, schema and soundness of the file, for `doctor`."""
        return self.file.facts()

    def close(self) -> None:
        self._writer.close()
        self.file.close()


def _where(which: RunFilter) -> tuple[str, list[Any]]:
    """The condition that a filter makes, and its values."""
    conditions, values = ["1"], []
    for column, value in (
        ("status", which.status), ("entrypoint", which.entrypoint), ("conversation_id", which.conversation_id)
    ):  # fmt: skip
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    if which.text is not None:
        conditions.append("(instr(label, ?) OR instr(id, ?) OR instr(coalesce(conversation_id, ''), ?))")
        values += [which.text] * 3
    return " AND ".join(conditions), values
