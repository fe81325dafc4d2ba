"""Requests for approval and tool modes, in the file of the journal."""

import sqlite3
from concurrent.futures import Future

from stepwell.store.approvals import ApprovalRow
from stepwell.store.sqlite_file import SqliteFile
from stepwell.store.sqlite_writer import GroupWriter

_TABLES = (
    """
    CREATE TABLE approval (
      id TEXT PRIMARY KEY,
      run_id TEXT NOT NULL,
      item TEXT NOT NULL,
      tool TEXT NOT NULL,
      arguments TEXT NOT NULL,
      status TEXT NOT NULL,
      created_at INTEGER NOT NULL,
      expires_at INTEGER,
      answer TEXT,
      answered_at INTEGER,
      taken_at INTEGER,
      used_at INTEGER
    )""",
    "CREATE INDEX approval_by_run ON approval (run_id, item)",
    "CREATE TABLE tool_mode (tool TEXT PRIMARY KEY, mode TEXT NOT NULL)",
)
_INSERT = "INSERT INTO approval VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UNUSED = "SELECT * FROM approval WHERE run_id = ? AND item = ? AND used_at IS NULL AND status <> 'withdrawn'"
_ANSWER = """
    UPDATE approval SET status = ?, answer = ?, answered_at = ?
    WHERE id = ? AND status = 'pending' AND (? = 'expired' OR expires_at IS NULL OR expires_at > ?)"""
_WITHDRAW_RUN = "UPDATE approval SET status = 'withdrawn' WHERE run_id = ? AND status = 'pending'"
_WITHDRAW = "UPDATE approval SET status = 'withdrawn' WHERE id = ?"


def create_tables(connection: sqlite3.Connection) -> None:
    """The migration that adds them to a journal."""
    for statement in _TABLES:
        connection.execute(statement)


class SqliteApprovals:
    """See `stepwell.store.approvals.ApprovalStore`."""

    def __init__(self, file: SqliteFile, writer: GroupWriter) -> None:
        self._file = file
        self._writer = writer

    def request(self, row: ApprovalRow) -> "Future[ApprovalRow]":
        def operation(connection: sqlite3.Connection) -> ApprovalRow:
            for found in connection.execute(_UNUSED, (row.run_id, row.item)).fetchall():
                known = ApprovalRow(*found)
                if (known.tool, known.arguments) == (row.tool, row.arguments):
                    return known
                connection.execute(_WITHDRAW, (known.id,))
            connection.execute(_INSERT, row)
            return row

        return self._writer.submit(operation)

    def answer(self, request_id: str, status: str, answer: str, at: int) -> "Future[bool]":
        return self._writer.submit(
            lambda connection: connection.execute(_ANSWER, (status, answer, at, request_id, status, at)).rowcount > 0
        )

    def mark(self, request_id: str, column: str, at: int) -> "Future[None]":
        if column not in ("taken_at", "used_at"):
            raise ValueError(f"not a time of a request: {column}")
        return self._change(f"UPDATE approval SET {column} = ? WHERE id = ?", (at, request_id))

    def withdraw(self, run_id: str) -> "Future[None]":
        return self._change(_WITHDRAW_RUN, (run_id,))

    def get(self, request_id: str) -> ApprovalRow | None:
        row = self._file.read(lambda c: c.execute("SELECT * FROM approval WHERE id = ?", (request_id,)).fetchone())
        return None if row is None else ApprovalRow(*row)

    def list(self, *, run_id: str | None, status: str | None, before: str | None, limit: int) -> "list[ApprovalRow]":
        conditions, values = ["1"], []
        for condition, value in (("run_id = ?", run_id), ("status = ?", status), ("id < ?", before)):
            if value is not None:
                conditions.append(condition)
                values.append(value)
        statement = f"SELECT * FROM approval WHERE {' AND '.join(conditions)} ORDER BY id DESC LIMIT ?"
        return [
            ApprovalRow(*row) for row in self._file.read(lambda c: c.execute(statement, (*values, limit)).fetchall())
        ]

    def modes(self) -> dict[str, str]:
        return dict(self._file.read(lambda c: c.execute("SELECT tool, mode FROM tool_mode").fetchall()))

    def set_mode(self, tool: str, mode: str | None) -> "Future[None]":
        if mode is None:
            return self._change("DELETE FROM tool_mode WHERE tool = ?", (tool,))
        return self._change("INSERT OR REPLACE INTO tool_mode VALUES (?, ?)", (tool, mode))

    def _change(self, statement: str, values: tuple[object, ...]) -> "Future[None]":
        def operation(connection: sqlite3.Connection) -> None:
            connection.execute(statement, values)

        return self._writer.submit(operation)
