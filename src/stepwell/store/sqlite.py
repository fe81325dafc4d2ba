"""The SQLite backend's synchronous core: entries of one database file.

Everything here runs on the calling thread. `stepwell.store.sqlite_backend` is its asynchronous face, and the fast
commands of the command line use it directly.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any

from stepwell.errors import Conflict, UpdateConflict
from stepwell.identifiers import now_micros
from stepwell.store.entries import (
    NO_SOURCE,
    Change,
    Check,
    Committed,
    Domain,
    Namespace,
    NamespaceInfo,
    Record,
    Scope,
    Source,
    Span,
    Write,
)
from stepwell.store.file_lock import Pause, offset_of
from stepwell.store.sqlite_file import FileFacts, SqliteFile
from stepwell.store.sqlite_lease import NamespaceAdmission, SqliteLease
from stepwell.store.sqlite_schema import MIGRATIONS

_KEYS_PER_STATEMENT = 200
_TOMBSTONES_KEPT = 10_000

_FIND_NAMESPACE = """
SELECT id FROM namespace
WHERE project_id = ? AND domain = ? AND scope = ? AND workflow = ? AND conversation_id = ?"""
_ADD_NAMESPACE = """
INSERT INTO namespace (project_id, domain, scope, workflow, conversation_id, revision, updated_at)
VALUES (?, ?, ?, ?, ?, 0, 0)"""
_NEXT_REVISION = "UPDATE namespace SET revision = revision + 1, updated_at = ? WHERE id = ? RETURNING revision"
_FIND_SOURCE = "SELECT id FROM source WHERE project_id = ? AND entrypoint = ? AND run_id = ? AND conversation_id = ?"
_ADD_SOURCE = "INSERT INTO source (project_id, entrypoint, run_id, conversation_id) VALUES (?, ?, ?, ?)"
_TEXT = "SELECT value FROM entry WHERE namespace_id = ? AND key = ?"
_REVISION = "SELECT revision FROM entry WHERE namespace_id = ? AND key = ?"
_PUT = """
INSERT INTO entry (namespace_id, key, value, revision, created_at, updated_at, source_id) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace_id, key) DO UPDATE SET
  value = excluded.value, revision = excluded.revision, updated_at = excluded.updated_at, source_id = excluded.source_id
RETURNING created_at"""
_DELETE = "DELETE FROM entry WHERE namespace_id = ? AND key = ?"
_BURY = "INSERT OR REPLACE INTO tombstone (namespace_id, key, revision) VALUES (?, ?, ?)"
_FORGET_BURIED = "DELETE FROM tombstone WHERE namespace_id = ? AND revision < ?"
_RECORD = """
SELECT key, value, revision, created_at, updated_at, s.project_id, s.entrypoint, s.run_id, s.conversation_id
FROM entry LEFT JOIN source AS s ON s.id = source_id
WHERE namespace_id = ? """
_BODIES = """
SELECT key, CAST(value AS BLOB) FROM entry WHERE namespace_id = ? AND key >= ? AND key < coalesce(?, x'ff')"""
_CHANGES = """
SELECT key, revision, 0 FROM entry WHERE namespace_id = ?1 AND revision > ?2
UNION ALL
SELECT key, revision, 1 FROM tombstone WHERE namespace_id = ?1 AND revision > ?2
  AND NOT EXISTS (SELECT 1 FROM entry AS e WHERE e.namespace_id = ?1 AND e.key = tombstone.key)
ORDER BY 2, 1"""
_NAMESPACE_REVISION = "SELECT revision FROM namespace WHERE id = ?"
_NAMESPACES = """
SELECT n.project_id, domain, scope, workflow, n.conversation_id, n.revision, n.updated_at,
  (SELECT count(*) FROM entry WHERE namespace_id = n.id)
FROM namespace AS n
WHERE EXISTS (SELECT 1 FROM entry WHERE namespace_id = n.id)"""
_NAMESPACE_ORDER = " ORDER BY n.updated_at DESC, n.project_id, domain, scope, workflow, n.conversation_id LIMIT ?"
_NAMESPACE_AFTER = """ AND (n.updated_at < ? OR (n.updated_at = ?
  AND (n.project_id, domain, scope, workflow, n.conversation_id) > (?, ?, ?, ?, ?)))"""


class SqliteCore:
    """Entries in one SQLite file; see `stepwell.store.backend.Backend` for what each call promises.

    Args:
        path: the database file, created on first use.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.file = SqliteFile(path, MIGRATIONS)
        self._namespace_ids: dict[Namespace, int] = {}
        self._source_ids: dict[Source, int] = {}

    # -- reading -------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """True if the file is there; asking creates nothing."""
        return os.path.exists(self.file.path)

    def text(self, ns: Namespace, key: str) -> str | None:
        """The JSON text of one entry, or None."""
        namespace_id = self._namespace_ids.get(ns)
        if namespace_id is None:
            namespace_id = self._find_namespace(ns)
            if namespace_id is None:
                return None
        file = self.file
        connection = file.borrow()
        try:
            row = connection.execute(_TEXT, (namespace_id, key)).fetchone()
        except sqlite3.Error as error:
            connection.close()
            raise file.translate(error) from error
        file.give_back(connection)
        return None if row is None else row[0]

    def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        """The records of the keys that exist, all as of one moment."""
        rows = self._rows_of(ns, keys, _RECORD)
        return {row[0]: _record(row) for row in rows}

    def bodies(self, ns: Namespace, keys: Sequence[str]) -> list[tuple[str, bytes]]:
        """The values of the keys that exist as UTF-8 JSON bytes, all as of one moment: for scanning many bodies."""
        return self._rows_of(ns, keys, "SELECT key, CAST(value AS BLOB) FROM entry WHERE namespace_id = ? ")

    def matching(self, ns: Namespace, span: Span, admits: Callable[[bytes], bool]) -> list[str]:
        """The keys of the span whose values, as UTF-8 JSON bytes, `admits` lets through; all as of one moment."""
        namespace_id = self._namespace_ids.get(ns) or self._find_namespace(ns)
        if namespace_id is None:
            return []

        def operation(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute(_BODIES, (namespace_id, span.start, span.stop))
            return [key for key, body in rows if admits(body)]

        return self.file.read(operation)  # type: ignore[no-any-return]

    def _rows_of(self, ns: Namespace, keys: Sequence[str], select: str) -> list[Any]:
        namespace_id = self._namespace_ids.get(ns) or self._find_namespace(ns)
        if namespace_id is None or not keys:
            return []
        parts = [keys[i : i + _KEYS_PER_STATEMENT] for i in range(0, len(keys), _KEYS_PER_STATEMENT)]

        def operation(connection: sqlite3.Connection) -> list[Any]:
            def select_part(part: Sequence[str]) -> list[Any]:
                marks = ",".join("?" * len(part))
                return connection.execute(f"{select}AND key IN ({marks})", (namespace_id, *part)).fetchall()

            if len(parts) == 1:
                return select_part(parts[0])
            with _snapshot(connection):
                return [row for part in parts for row in select_part(part)]

        return self.file.read(operation)  # type: ignore[no-any-return]

    def scan(
        self, ns: Namespace, span: Span, *, after: str | None = None, limit: int = 200, reverse: bool = False
    ) -> list[Record]:
        """Up to `limit` records of the span in key order."""
        namespace_id = self._namespace_ids.get(ns) or self._find_namespace(ns)
        if namespace_id is None:
            return []
        conditions, values = ["key >= ?"], [namespace_id, span.start]
        if span.stop is not None:
            conditions.append("key < ?")
            values.append(span.stop)
        if after is not None:
            conditions.append("key < ?" if reverse else "key > ?")
            values.append(after)
        statement = f"{_RECORD}AND {' AND '.join(conditions)} ORDER BY key {'DESC' if reverse else 'ASC'} LIMIT ?"
        rows = self.file.read(lambda connection: connection.execute(statement, (*values, limit)).fetchall())
        return [_record(row) for row in rows]

    def revision(self, ns: Namespace) -> int:
        """The namespace's revision: how many commits changed it so far."""
        namespace_id = self._namespace_ids.get(ns) or self._find_namespace(ns)
        if namespace_id is None:
            return 0
        return int(self.file.read(lambda c: c.execute(_NAMESPACE_REVISION, (namespace_id,)).fetchone()[0]))

    def changes(self, ns: Namespace, since: int) -> tuple[int, list[Change]]:
        """The namespace's revision, and what changed after revision `since`, in revision order."""
        namespace_id = self._namespace_ids.get(ns) or self._find_namespace(ns)
        if namespace_id is None:
            return 0, []

        def operation(connection: sqlite3.Connection) -> tuple[int, list[Change]]:
            with _snapshot(connection):
                revision = connection.execute(_NAMESPACE_REVISION, (namespace_id,)).fetchone()[0]
                if revision == since:
                    return revision, []
                rows = connection.execute(_CHANGES, (namespace_id, since)).fetchall()
                return revision, [Change(key, number, bool(deleted)) for key, number, deleted in rows]

        return self.file.read(operation)  # type: ignore[no-any-return]

    def namespaces(
        self,
        *,
        project_id: str | None = None,
        domain: Domain | None = None,
        scope: Scope | None = None,
        after: tuple[int, Namespace] | None = None,
        limit: int = 200,
    ) -> list[NamespaceInfo]:
        """Namespaces that have entries, last written first."""
        statement, values = _NAMESPACES, []
        for column, value in (("n.project_id", project_id), ("domain", domain), ("scope", scope)):
            if value is not None:
                statement += f" AND {column} = ?"
                values.append(str(value))
        if after is not None:
            statement += _NAMESPACE_AFTER
            values += [after[0], after[0], *_columns(after[1])]  # type: ignore[list-item]
        rows = self.file.read(lambda c: c.execute(statement + _NAMESPACE_ORDER, (*values, limit)).fetchall())
        return [
            NamespaceInfo(
                Namespace(row[0] or None, Domain(row[1]), Scope(row[2]), row[3] or None, row[4] or None), *row[5:]
            )
            for row in rows
        ]

    def facts(self) -> FileFacts:
        """Size, schema and soundness of the file, for `doctor`."""
        return self.file.facts()

    # -- writing -------------------------------------------------------------------------------------------------

    def commit(
        self,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        *,
        source: Source = NO_SOURCE,
        lease: SqliteLease | None = None,
    ) -> Committed:
        """All checks hold and all writes land, durably; or `Conflict` and nothing is changed."""
        admission = NamespaceAdmission(self.file.locks(), ns, lease)
        pause = Pause()
        while not admission.enter():
            sleep(pause.next())
        try:
            return self.file.transaction(  # type: ignore[no-any-return]
                lambda connection: self.apply(connection, ns, checks, writes, source)
            )
        finally:
            admission.leave()

    def apply(
        self,
        connection: sqlite3.Connection,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        source: Source,
    ) -> Committed:
        """The body of a commit, inside a write transaction. Checks come before the first write."""
        execute = connection.execute
        namespace_id = self._namespace_ids.get(ns) or self._find_namespace(ns, connection)
        if checks:
            _verify(connection, namespace_id, checks)
        puts = any(text is not None for _, text in writes)
        if namespace_id is None:
            if not puts:
                return Committed(0, 0, {}, frozenset())
            namespace_id = execute(_ADD_NAMESPACE, _columns(ns)).lastrowid
            assert namespace_id is not None  # noqa: S101  (SQLite sets it on insert)
        removed = frozenset(
            key
            for key, text in writes
            if text is None and execute(_REVISION, (namespace_id, key)).fetchone() is not None
        )
        if not puts and not removed:
            revision = execute(_NAMESPACE_REVISION, (namespace_id,)).fetchone()[0]
            return Committed(revision, 0, {}, removed)
        now = now_micros()
        revision = execute(_NEXT_REVISION, (now, namespace_id)).fetchone()[0]
        source_id = self._source_id(connection, source)
        created = {}
        for key, text in writes:
            if text is not None:
                row = (namespace_id, key, text, revision, now, now, source_id)
                created[key] = execute(_PUT, row).fetchone()[0]
            elif key in removed:
                execute(_DELETE, (namespace_id, key))
                execute(_BURY, (namespace_id, key, revision))
        if removed and revision % 1_000 < len(removed):
            execute(_FORGET_BURIED, (namespace_id, revision - _TOMBSTONES_KEPT))
        return Committed(revision, now, created, removed)

    def update(
        self,
        ns: Namespace,
        key: str,
        function: Callable[[str | None], str],
        *,
        source: Source = NO_SOURCE,
        timeout: float = 30.0,
    ) -> str:
        """Replace the JSON text of `key` by `function(text or None)`, never losing another writer's update.

        No transaction is open while `function` runs; it may run more than once.

        Raises:
            UpdateConflict: not landed within `timeout` seconds.
        """
        deadline = monotonic() + timeout
        lease: SqliteLease | None = None
        try:
            while True:
                record = self.read(ns, (key,)).get(key)
                text = function(None if record is None else record.text)
                check = Check(key, 0 if record is None else record.revision)
                try:
                    self.commit(ns, (check,), (Write(key, text),), source=source, lease=lease)
                except Conflict:
                    remaining = deadline - monotonic()
                    if remaining <= 0:
                        raise UpdateConflict(f"{key!r} kept changing for {timeout:g} s") from None
                    lease = lease or self.lock(ns, timeout=remaining)
                else:
                    return text
        finally:
            if lease is not None:
                lease.unlock()

    def clear(self, ns: Namespace, *, source: Source = NO_SOURCE) -> int:
        """Delete every entry of a namespace in one commit; returns how many there were."""
        admission = NamespaceAdmission(self.file.locks(), ns, None)
        pause = Pause()
        while not admission.enter():
            sleep(pause.next())
        try:
            return self.file.transaction(lambda connection: self.apply_clear(connection, ns))  # type: ignore[no-any-return]
        finally:
            admission.leave()

    def apply_clear(self, connection: sqlite3.Connection, ns: Namespace) -> int:
        """The body of `clear`, inside a write transaction."""
        namespace_id = self._find_namespace(ns, connection)
        if namespace_id is None:
            return 0
        (count,) = connection.execute("SELECT count(*) FROM entry WHERE namespace_id = ?", (namespace_id,)).fetchone()
        if count:
            (revision,) = connection.execute(_NEXT_REVISION, (now_micros(), namespace_id)).fetchone()
            connection.execute(
                "INSERT OR REPLACE INTO tombstone (namespace_id, key, revision)"
                " SELECT namespace_id, key, ? FROM entry WHERE namespace_id = ? LIMIT ?",
                (revision, namespace_id, _TOMBSTONES_KEPT),
            )
            connection.execute("DELETE FROM entry WHERE namespace_id = ?", (namespace_id,))
        return int(count)

    def lock(self, ns: Namespace, *, timeout: float = 30.0) -> SqliteLease:
        """Take the namespace's lock on this thread; give it back with `unlock()`."""
        locks = self.file.locks()
        return SqliteLease(ns, locks, locks.acquire(offset_of(str(ns)), timeout, f"the lock of {ns}"))

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    # -- ids -----------------------------------------------------------------------------------------------------

    def _find_namespace(self, ns: Namespace, connection: sqlite3.Connection | None = None) -> int | None:
        if connection is None:
            row = self.file.read(lambda reader: reader.execute(_FIND_NAMESPACE, _columns(ns)).fetchone())
            if row is not None:
                # Only what a reader saw is committed; an id seen inside a write transaction may be rolled back.
                self._namespace_ids[ns] = row[0]
        else:
            row = connection.execute(_FIND_NAMESPACE, _columns(ns)).fetchone()
        return None if row is None else row[0]

    def _source_id(self, connection: sqlite3.Connection, source: Source) -> int | None:
        if source == NO_SOURCE:
            return None
        columns = tuple(part or "" for part in source)
        known = self._source_ids.get(source)
        if known is not None:
            return known
        row = connection.execute(_FIND_SOURCE, columns).fetchone()
        if row is None:
            return connection.execute(_ADD_SOURCE, columns).lastrowid
        if len(self._source_ids) > 1_000:
            self._source_ids.clear()
        # Seen here a second time: committed by an earlier transaction, or undone with this one and its entry.
        self._source_ids[source] = row[0]
        return int(row[0])


class _snapshot:  # noqa: N801  (reads as a statement: with _snapshot(connection))
    """One read transaction around several statements."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        self._connection.execute("COMMIT")


def _columns(ns: Namespace) -> tuple[str, ...]:
    return tuple("" if part is None else str(part) for part in ns)


def _record(row: Any) -> Record:
    source = NO_SOURCE if row[5] is None else Source(*(part or None for part in row[5:9]))
    return Record(row[0], row[1], row[2], row[3], row[4], source)


def _verify(connection: sqlite3.Connection, namespace_id: int | None, checks: Sequence[Check]) -> None:
    current = {}
    for key, expected in checks:
        row = connection.execute(_REVISION, (namespace_id, key)).fetchone()
        found = 0 if row is None else row[0]
        if found != expected:
            current[key] = found
    if current:
        first = next(iter(current))
        raise Conflict(f"changed since it was read: {first!r}", keys=list(current), current=current)
