"""The schema of an entry file, as numbered migrations: number n brings version n-1 to n.

A missing part of a namespace is the empty string (ids are never empty), so that one unique index covers them all.
Times are integers (microseconds), and writers are interned, which keeps a stored message near its own size.
"""

import sqlite3

_V1 = (
    """
    CREATE TABLE namespace (
      id INTEGER PRIMARY KEY,
      project_id TEXT NOT NULL,
      domain TEXT NOT NULL,
      scope TEXT NOT NULL,
      workflow TEXT NOT NULL,
      conversation_id TEXT NOT NULL,
      revision INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      UNIQUE (project_id, domain, scope, workflow, conversation_id)
    )""",
    "CREATE INDEX namespace_by_time ON namespace (project_id, domain, scope, updated_at)",
    """
    CREATE TABLE source (
      id INTEGER PRIMARY KEY,
      project_id TEXT NOT NULL,
      entrypoint TEXT NOT NULL,
      run_id TEXT NOT NULL,
      conversation_id TEXT NOT NULL,
      UNIQUE (project_id, entrypoint, run_id, conversation_id)
    )""",
    """
    CREATE TABLE entry (
      id INTEGER PRIMARY KEY,
      namespace_id INTEGER NOT NULL REFERENCES namespace (id),
      key TEXT NOT NULL,
      value TEXT NOT NULL,
      revision INTEGER NOT NULL,
      created_at INTEGER NOT NULL,
      updated_at INTEGER NOT NULL,
      source_id INTEGER REFERENCES source (id),
      UNIQUE (namespace_id, key)
    )""",
    "CREATE INDEX entry_by_revision ON entry (namespace_id, revision)",
    """
    CREATE TABLE tombstone (
      namespace_id INTEGER NOT NULL,
      revision INTEGER NOT NULL,
      key TEXT NOT NULL,
      PRIMARY KEY (namespace_id, revision, key)
    ) WITHOUT ROWID""",
)


def _create(connection: sqlite3.Connection) -> None:
    for statement in _V1:
        connection.execute(statement)


MIGRATIONS = (_create,)
