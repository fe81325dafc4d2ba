"""Every SQL statement on entries; the schema they are about is in `stepwell.store.sqlite_schema`."""

# -- namespaces and writers ------------------------------------------------------------------------------------------

FIND_NAMESPACE = """
SELECT id FROM namespace
WHERE project_id = ? AND domain = ? AND scope = ? AND workflow = ? AND conversation_id = ?"""
ADD_NAMESPACE = """
INSERT INTO namespace (project_id, domain, scope, workflow, conversation_id, revision, updated_at)
VALUES (?, ?, ?, ?, ?, 0, 0)"""
NAMESPACE_REVISION = "SELECT revision, updated_at FROM namespace WHERE id = ?"
NEXT_REVISION = "UPDATE namespace SET revision = revision + 1, updated_at = ? WHERE id = ? RETURNING revision"
FIND_SOURCE = "SELECT id FROM source WHERE project_id = ? AND entrypoint = ? AND run_id = ? AND conversation_id = ?"
ADD_SOURCE = "INSERT INTO source (project_id, entrypoint, run_id, conversation_id) VALUES (?, ?, ?, ?)"

# -- entries ---------------------------------------------------------------------------------------------------------

TEXT = "SELECT value FROM entry WHERE namespace_id = ? AND key = ?"
REVISION = "SELECT revision FROM entry WHERE namespace_id = ? AND key = ?"
RECORDS = """
SELECT key, value, revision, created_at, updated_at, s.project_id, s.entrypoint, s.run_id, s.conversation_id
FROM entry LEFT JOIN source AS s ON s.id = source_id
WHERE namespace_id = ? AND """
BODIES = "SELECT key, CAST(value AS BLOB) FROM entry WHERE namespace_id = ? AND "
PUT = """
INSERT INTO entry (namespace_id, key, value, revision, created_at, updated_at, source_id) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (namespace_id, key) DO UPDATE SET
  value = excluded.value, revision = excluded.revision, updated_at = excluded.updated_at, source_id = excluded.source_id
RETURNING created_at"""
DELETE = "DELETE FROM entry WHERE namespace_id = ? AND key = ?"
COUNT = "SELECT count(*) FROM entry WHERE namespace_id = ?"
DELETE_ALL = "DELETE FROM entry WHERE namespace_id = ?"

# -- deletions, kept a while for watchers ----------------------------------------------------------------------------

BURY = "INSERT INTO tombstone (namespace_id, revision, key) VALUES (?, ?, ?)"
BURY_ALL = (
    "INSERT INTO tombstone (namespace_id, revision, key) SELECT namespace_id, ?, key FROM entry WHERE namespace_id = ?"
)
FORGET_BURIED = "DELETE FROM tombstone WHERE namespace_id = ? AND revision <= ?"
CHANGES = """
SELECT key, revision, 0 FROM entry WHERE namespace_id = ?1 AND revision > ?2
UNION ALL
SELECT key, max(revision), 1 FROM tombstone WHERE namespace_id = ?1 AND revision > ?2
  AND NOT EXISTS (SELECT 1 FROM entry AS e WHERE e.namespace_id = ?1 AND e.key = tombstone.key)
GROUP BY key
ORDER BY 2, 1"""


def keys_in(count: int) -> str:
    """Condition: the key is one of `count`."""
    return f"key IN ({','.join('?' * count)})"


def page(start: tuple[str, str] | None, stop: tuple[str, str] | None, *, reverse: bool) -> tuple[str, list[str]]:
    """Condition and values of a range of keys in order; a bound is an operator and a key. One bound a side: SQLite
    seeks to one and would step through all that another one leaves out."""
    bounds = [bound for bound in (start, stop) if bound is not None]
    condition = " AND ".join(f"key {operator} ?" for operator, _ in bounds) or "1"
    return f"{condition} ORDER BY key {'DESC' if reverse else 'ASC'}", [key for _, key in bounds]


# -- listing namespaces ----------------------------------------------------------------------------------------------

_IDENTITY = "project_id, domain, scope, workflow, conversation_id"
_ORDER = f"ORDER BY updated_at DESC, {_IDENTITY}"


def namespaces(columns: list[str], *, following: bool) -> str:
    """Namespaces that have entries, last written first: filtered by columns, perhaps those that follow one, limited.

    Values: one a column; with `following` the time twice and the identity; the limit. Entries are counted for the
    page only.
    """
    conditions = [
        "EXISTS (SELECT 1 FROM entry WHERE namespace_id = namespace.id)",
        *(f"{name} = ?" for name in columns),
    ]
    if following:
        conditions.append(f"(updated_at < ? OR (updated_at = ? AND ({_IDENTITY}) > (?, ?, ?, ?, ?)))")
    return f"""
SELECT {_IDENTITY}, revision, updated_at, (SELECT count(*) FROM entry WHERE namespace_id = page.id)
FROM (SELECT * FROM namespace WHERE {" AND ".join(conditions)} {_ORDER} LIMIT ?) AS page
{_ORDER}"""
