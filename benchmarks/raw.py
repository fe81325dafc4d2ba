"""The reference: the sqlite3 module on a file of the same schema, page size, WAL mode and durability.

It does what a commit has to leave behind (the entry, and the namespace's next revision, in one transaction) and
nothing else: no locks, no checks, no errors in other words, no pool.
"""

import json
import sqlite3
from pathlib import Path
from time import time

from stepwell.store.entries import Domain, Namespace, Scope, Write
from stepwell.store.sqlite import SqliteCore

PROJECT = "01936d3f-6a00-7000-8000-0000000000b1"
KV = Namespace(PROJECT, Domain.KV, Scope.PROJECT)
GET = "SELECT value FROM entry WHERE namespace_id = 1 AND key = ?"
PUT = """
INSERT INTO entry (namespace_id, key, value, revision, created_at, updated_at) VALUES (1, ?, ?, ?, ?, ?)
ON CONFLICT (namespace_id, key) DO UPDATE
SET value = excluded.value, revision = excluded.revision, updated_at = excluded.updated_at"""
NEXT = "UPDATE namespace SET revision = revision + 1, updated_at = ? WHERE id = 1 RETURNING revision"


def prepared_file(path: Path, entries: dict[str, str]) -> Path:
    """A database file with one namespace and these entries (JSON texts by key)."""
    core = SqliteCore(path)
    core.commit(KV, (), [Write(key, text) for key, text in entries.items()])
    core.close()
    return path


def connect(path: Path) -> sqlite3.Connection:
    """A connection that commits as durably as ours."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=30)
    connection.execute("PRAGMA synchronous=FULL")
    return connection


def put(connection: sqlite3.Connection, key: str, text: str) -> None:
    """One entry in a transaction of its own."""
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    now = int(time() * 1e6)
    revision = execute(NEXT, (now,)).fetchone()[0]
    execute(PUT, (key, text, revision, now, now))
    execute("COMMIT")


def increment(connection: sqlite3.Connection, key: str) -> None:
    """Read, add one, write: in a transaction of its own."""
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    text = json.dumps(json.loads(execute(GET, (key,)).fetchone()[0]) + 1)
    now = int(time() * 1e6)
    revision = execute(NEXT, (now,)).fetchone()[0]
    execute(PUT, (key, text, revision, now, now))
    execute("COMMIT")
