"""The row ids of namespaces and writers, remembered.

Only ids that a reader saw are remembered: one seen inside a write transaction may yet be rolled back, and be given
to something else afterwards.
"""

import sqlite3
from collections.abc import Iterable
from typing import TypeVar

from stepwell.store import sqlite_statements as sql
from stepwell.store.entries import NO_SOURCE, Namespace, Source
from stepwell.store.sqlite_file import SqliteFile

T = TypeVar("T")

_REMEMBERED = 10_000


class RowIds:
    """Ids of one file's namespaces and writers."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self.namespaces: dict[Namespace, int] = {}
        self._sources: dict[Source, int] = {}

    def namespace(self, ns: Namespace) -> int | None:
        """The id of a committed namespace; None if nothing was ever written to it."""
        return self.namespaces.get(ns) or self._committed(self.namespaces, ns, sql.FIND_NAMESPACE, columns(ns))

    def namespace_within(self, connection: sqlite3.Connection, ns: Namespace) -> int | None:
        """The id of a namespace as a write transaction sees it."""
        known = self.namespace(ns)
        if known is not None:
            return known
        row = connection.execute(sql.FIND_NAMESPACE, columns(ns)).fetchone()
        return None if row is None else row[0]

    def source_within(self, connection: sqlite3.Connection, source: Source) -> int | None:
        """The id of a writer, entered by this write transaction if need be; None for nobody."""
        if source == NO_SOURCE:
            return None
        parts = columns(source)
        known = self._sources.get(source) or self._committed(self._sources, source, sql.FIND_SOURCE, parts)
        if known is not None:
            return known
        row = connection.execute(sql.FIND_SOURCE, parts).fetchone()
        return connection.execute(sql.ADD_SOURCE, parts).lastrowid if row is None else row[0]

    def _committed(self, ids: dict[T, int], what: T, statement: str, parts: tuple[str, ...]) -> int | None:
        row = self._file.read(lambda reader: reader.execute(statement, parts).fetchone())
        if row is None:
            return None
        if len(ids) >= _REMEMBERED:
            ids.clear()
        ids[what] = row[0]
        return int(row[0])


def columns(parts: Iterable[str | None]) -> tuple[str, ...]:
    """The parts of a namespace or a writer as stored: a missing one is the empty string."""
    return tuple("" if part is None else str(part) for part in parts)
