"""The SQLite backend's synchronous core: entries of one database file.

Everything here runs on the calling thread. `stepwell.store.sqlite_backend` is its asynchronous face, and the fast
commands of the command line use it directly.
"""

import os
import sqlite3
from collections.abc import Callable, Sequence
from time import monotonic, sleep
from typing import Any, TypeVar

from stepwell.errors import Conflict, LockTimeout, UpdateConflict
from stepwell.identifiers import now_micros
from stepwell.store import sqlite_statements as sql
from stepwell.store.entries import (
    NO_SOURCE,
    Change,
    Check,
    Committed,
    Domain,
    Holder,
    Namespace,
    NamespaceInfo,
    Record,
    Scope,
    Source,
    Span,
    Write,
)
from stepwell.store.file_lock import Pause
from stepwell.store.sqlite_file import FileFacts, SqliteFile
from stepwell.store.sqlite_ids import RowIds, columns
from stepwell.store.sqlite_lease import NamespaceAdmission, SqliteLease, lock_timeout, offset_of_namespace
from stepwell.store.sqlite_schema import MIGRATIONS

T = TypeVar("T")

_TEXT = sql.TEXT  # the one statement where looking up an attribute shows
_KEYS_PER_STATEMENT = 200
_DELETIONS_KEPT = 10_000  # commits, for watchers that come late


class TooBulky(Exception):
    """A read with a `budget` came upon more characters of values than that."""


class SqliteCore:
    """Entries in one SQLite file; see `stepwell.store.backend.Backend` for what each call promises.

    Args:
        path: the database file, created on first use.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.file = SqliteFile(path, MIGRATIONS)
        self._ids = RowIds(self.file)

    # -- reading -------------------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """True if the file is there; asking creates nothing."""
        return os.path.exists(self.file.path)

    def text(self, ns: Namespace, key: str) -> str | None:
        """The JSON text of one entry, or None."""
        namespace_id = self._ids.namespaces.get(ns)
        if namespace_id is None:
            namespace_id = self._ids.namespace(ns)
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

    def read(self, ns: Namespace, keys: Sequence[str], *, budget: int | None = None) -> dict[str, Record]:
        """The records of the keys that exist, all as of one moment.

        Raises:
            TooBulky: the values have more than `budget` characters.
        """
        return {row[0]: _record(row) for row in self._rows_of(ns, keys, sql.RECORDS, budget)}

    def bodies(self, ns: Namespace, keys: Sequence[str]) -> list[tuple[str, bytes]]:
        """The values of the keys that exist as UTF-8 JSON bytes, all as of one moment: for scanning many bodies."""
        return self._rows_of(ns, keys, sql.BODIES, None)

    def matching(self, ns: Namespace, span: Span, admits: Callable[[bytes], bool]) -> list[str]:
        """The keys of the span, in order, whose values as UTF-8 JSON bytes `admits` lets through, as of one moment."""
        namespace_id = self._ids.namespace(ns)
        if namespace_id is None:
            return []
        condition, values = _page_of(span)

        def operation(connection: sqlite3.Connection) -> list[str]:
            rows = connection.execute(sql.BODIES + condition, (namespace_id, *values))
            return [key for key, body in rows if admits(body)]

        return self.file.read(operation)

    def scan(
        self,
        ns: Namespace,
        span: Span,
        *,
        after: str | None = None,
        limit: int = 200,
        reverse: bool = False,
        budget: int | None = None,
    ) -> list[Record]:
        """Up to `limit` records of the span in key order.

        Raises:
            TooBulky: the values have more than `budget` characters.
        """
        namespace_id = self._ids.namespace(ns)
        if namespace_id is None:
            return []
        condition, values = _page_of(span, after, reverse=reverse)
        statement = f"{sql.RECORDS}{condition} LIMIT ?"
        rows = self.file.read(lambda c: _within(budget, c.execute(statement, (namespace_id, *values, limit))))
        return [_record(row) for row in _bulky_if_none(rows)]

    def _rows_of(self, ns: Namespace, keys: Sequence[str], select: str, budget: int | None) -> list[Any]:
        namespace_id = self._ids.namespace(ns)
        if namespace_id is None or not keys:
            return []
        parts = [keys[i : i + _KEYS_PER_STATEMENT] for i in range(0, len(keys), _KEYS_PER_STATEMENT)]

        def operation(connection: sqlite3.Connection) -> list[Any] | None:
            def select_part(part: Sequence[str]) -> list[Any] | None:
                return _within(budget, connection.execute(select + sql.keys_in(len(part)), (namespace_id, *part)))

            if len(parts) == 1:
                return select_part(parts[0])
            with _snapshot(connection):
                found = [select_part(part) for part in parts]
            return None if None in found else [row for rows in found for row in rows or ()]

        return _bulky_if_none(self.file.read(operation))

    def revision(self, ns: Namespace) -> int:
        """The namespace's revision: how many commits changed it so far."""
        namespace_id = self._ids.namespace(ns)
        if namespace_id is None:
            return 0
        return int(self.file.read(lambda c: c.execute(sql.NAMESPACE_REVISION, (namespace_id,)).fetchone()[0]))

    def changes(self, ns: Namespace, since: int) -> tuple[int, list[Change]]:
        """The namespace's revision, and what changed after revision `since`, in revision order."""
        namespace_id = self._ids.namespace(ns)
        if namespace_id is None:
            return 0, []

        def operation(connection: sqlite3.Connection) -> tuple[int, list[Change]]:
            with _snapshot(connection):
                revision = connection.execute(sql.NAMESPACE_REVISION, (namespace_id,)).fetchone()[0]
                if revision == since:
                    return revision, []
                rows = connection.execute(sql.CHANGES, (namespace_id, since)).fetchall()
                return revision, [Change(key, number, bool(deleted)) for key, number, deleted in rows]

        return self.file.read(operation)

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
        filters = {"project_id": project_id, "domain": domain, "scope": scope}
        filters = {column: value for column, value in filters.items() if value is not None}
        statement = sql.namespaces(list(filters), following=after is not None)
        values = [str(value) for value in filters.values()]
        following = () if after is None else (after[0], after[0], *columns(after[1]))
        rows = self.file.read(lambda c: c.execute(statement, (*values, *following, limit)).fetchall())
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
        return self._change(ns, lease, lambda connection: self.apply(connection, ns, checks, writes, source))

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
        namespace_id = self._ids.namespace_within(connection, ns)
        if checks:
            _verify(connection, namespace_id, checks)
        puts = any(text is not None for _, text in writes)
        if namespace_id is None:
            if not puts:
                return Committed(0, 0, {}, frozenset())
            namespace_id = execute(sql.ADD_NAMESPACE, columns(ns)).lastrowid
            assert namespace_id is not None  # noqa: S101  (SQLite sets it on insert)
        removed = frozenset(
            key
            for key, text in writes
            if text is None and execute(sql.REVISION, (namespace_id, key)).fetchone() is not None
        )
        if not puts and not removed:
            revision, at = execute(sql.NAMESPACE_REVISION, (namespace_id,)).fetchone()
            return Committed(revision, at, {}, removed)
        now = now_micros()
        revision = execute(sql.NEXT_REVISION, (now, namespace_id)).fetchone()[0]
        source_id = self._ids.source_within(connection, source)
        created = {}
        for key, text in writes:
            if text is not None:
                row = (namespace_id, key, text, revision, now, now, source_id)
                created[key] = execute(sql.PUT, row).fetchone()[0]
            elif key in removed:
                execute(sql.DELETE, (namespace_id, key))
                execute(sql.BURY, (namespace_id, revision, key))
        if removed:
            execute(sql.FORGET_BURIED, (namespace_id, revision - _DELETIONS_KEPT))
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
        return self._change(ns, None, lambda connection: self.apply_clear(connection, ns))

    def apply_clear(self, connection: sqlite3.Connection, ns: Namespace) -> int:
        """The body of `clear`, inside a write transaction."""
        execute = connection.execute
        namespace_id = self._ids.namespace_within(connection, ns)
        if namespace_id is None:
            return 0
        (count,) = execute(sql.COUNT, (namespace_id,)).fetchone()
        if count:
            (revision,) = execute(sql.NEXT_REVISION, (now_micros(), namespace_id)).fetchone()
            execute(sql.BURY_ALL, (revision, namespace_id))
            execute(sql.DELETE_ALL, (namespace_id,))
            execute(sql.FORGET_BURIED, (namespace_id, revision - _DELETIONS_KEPT))
        return int(count)

    def lock(self, ns: Namespace, *, timeout: float = 30.0, holder: Holder | None = None) -> SqliteLease:
        """Take the namespace's lock on this thread; give it back with `unlock()`.

        Raises:
            LockTimeout: not free within `timeout` seconds; names the holder.
        """
        locks = self.file.locks()
        try:
            ticket = locks.acquire(offset_of_namespace(ns), timeout)
        except LockTimeout:
            raise lock_timeout(ns, timeout, locks) from None
        lease = SqliteLease(ns, locks, ticket, holder)
        if holder is not None:
            lease.sign()
        return lease

    def _change(self, ns: Namespace, lease: SqliteLease | None, operation: Callable[[sqlite3.Connection], T]) -> T:
        """Run `operation` in a write transaction as soon as nobody else holds the namespace's lock."""
        admission = NamespaceAdmission(self.file.locks(), ns, lease)
        pause = Pause()
        try:
            while not admission.enter(_nobody):
                sleep(pause.next())
            return self.file.transaction(operation)
        finally:
            admission.leave()

    def close(self) -> None:
        """Close the file."""
        self.file.close()


def _nobody() -> None:
    """Nobody to wake: this thread asks again by itself."""


class _snapshot:  # noqa: N801  (reads as a statement: with _snapshot(connection))
    """One read transaction around several statements."""

    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection.execute("BEGIN")

    def __exit__(self, *_: object) -> None:
        self._connection.execute("COMMIT")


def _page_of(span: Span, after: str | None = None, *, reverse: bool = False) -> tuple[str, list[str]]:
    start, stop = (">=", span.start), None if span.stop is None else ("<", span.stop)
    if after is not None:
        if reverse and after in Span("", span.stop):
            stop = ("<", after)
        elif not reverse and after >= span.start:
            start = (">", after)
    return sql.page(start, stop, reverse=reverse)


def _within(budget: int | None, rows: sqlite3.Cursor) -> list[Any] | None:
    """All rows; None if their second column has more characters than the budget."""
    if budget is None:
        return rows.fetchall()
    found = []
    for row in rows:
        found.append(row)
        budget -= len(row[1])
        if budget < 0:
            rows.close()
            return None
    return found


def _bulky_if_none(rows: list[Any] | None) -> list[Any]:
    if rows is None:
        raise TooBulky
    return rows


def _record(row: Any) -> Record:
    source = NO_SOURCE if row[5] is None else Source(*(part or None for part in row[5:9]))
    return Record(row[0], row[1], row[2], row[3], row[4], source)


def _verify(connection: sqlite3.Connection, namespace_id: int | None, checks: Sequence[Check]) -> None:
    current = {}
    for key, expected in checks:
        row = connection.execute(sql.REVISION, (namespace_id, key)).fetchone()
        found = 0 if row is None else row[0]
        if found != expected:
            current[key] = found
    if current:
        first = next(iter(current))
        raise Conflict(f"changed since it was read: {first!r}", keys=list(current), current=current)
