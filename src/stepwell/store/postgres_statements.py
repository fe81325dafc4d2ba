"""Every SQL statement on entries in PostgreSQL; tables and functions are in `stepwell.store.migrations`."""

# -- namespaces ------------------------------------------------------------------------------------------------------

IDENTITY = "project_id, domain, scope, workflow, conversation_id"
FIND_NAMESPACE = """
SELECT id FROM stepwell.namespace
WHERE project_id = %s AND domain = %s AND scope = %s AND workflow = %s AND conversation_id = %s"""
ADD_NAMESPACE = f"""
INSERT INTO stepwell.namespace ({IDENTITY}) VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING"""
NAMESPACE_REVISION = "SELECT revision FROM stepwell.namespace WHERE id = %s"

# -- entries ---------------------------------------------------------------------------------------------------------

TEXT = "SELECT value::text FROM stepwell.entry WHERE namespace_id = %s AND key = %s"
RECORDS = """
SELECT key, value::text, revision, created_at, updated_at,
  last_project, last_workflow_name, last_run_id, last_conversation_id
FROM stepwell.entry WHERE namespace_id = %s AND """
IS_KEY = "key = %s"
IN_KEYS = "key = ANY(%s)"

COMMIT = """
SELECT outcome, revision, at, keys, numbers, removed, holder
FROM stepwell.commit_entries(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)"""
COMMIT_VALUE = """
SELECT outcome, revision, at, created FROM stepwell.commit_value(%s, %s, %s, %s, %s, %s, %s, %s, %s)"""
IS_COMMITTED = "SELECT 1 FROM stepwell.commit_log WHERE namespace_id = %s AND commit_id = %s"
CLEAR = """
SELECT outcome, revision, at, keys, numbers, removed, holder
FROM stepwell.clear_entries(%s, %s, %s, %s, %s, %s, %s)"""


def page(start: tuple[str, str] | None, stop: tuple[str, str] | None, *, reverse: bool) -> tuple[str, list[str]]:
    """Condition and values of a range of keys in order; a bound is an operator and a key."""
    bounds = [bound for bound in (start, stop) if bound is not None]
    condition = " AND ".join(f"key {operator} %s" for operator, _ in bounds) or "true"
    return f"{condition} ORDER BY key {'DESC' if reverse else 'ASC'} LIMIT %s", [key for _, key in bounds]


# -- locks -----------------------------------------------------------------------------------------------------------

ACQUIRE = "SELECT stepwell.acquire_lease(%s, %s, %s, %s, %s)"
RENEW = """
UPDATE stepwell.namespace SET lease_expires = clock_timestamp() + make_interval(secs => %s)
WHERE id = %s AND lease = %s"""
RELEASE = """
UPDATE stepwell.namespace SET lease = NULL, lease_presence = NULL, lease_expires = NULL, lease_holder = NULL
WHERE id = %s AND lease = %s"""
LEASE_LIVES = "SELECT 1 FROM stepwell.namespace WHERE id = %s AND lease = %s AND lease_expires > clock_timestamp()"
BE_PRESENT = "SELECT pg_advisory_lock(7357, %s)"

# -- watching --------------------------------------------------------------------------------------------------------

LISTEN = "LISTEN stepwell"
BE_WATCHED = """
UPDATE stepwell.namespace SET watched_until = clock_timestamp() + interval '90 s'
WHERE id = %s AND (watched_until IS NULL OR watched_until < clock_timestamp() + interval '60 s')"""
LOGGED_FROM = """
SELECT n.revision, (SELECT min(c.revision) FROM stepwell.commit_log AS c WHERE c.namespace_id = n.id)
FROM stepwell.namespace AS n WHERE n.id = %s"""
CHANGES = """
SELECT k.key, max(CASE WHEN e.key IS NULL THEN c.revision ELSE e.revision END) AS revision, e.key IS NULL
FROM stepwell.commit_log AS c CROSS JOIN LATERAL unnest(c.keys || c.removed) AS k (key)
LEFT JOIN stepwell.entry AS e ON e.namespace_id = c.namespace_id AND e.key = k.key
WHERE c.namespace_id = %s AND c.revision > %s AND c.revision <= %s
GROUP BY k.key, e.key ORDER BY 2, 1"""
CHANGES_WITHOUT_LOG = """
SELECT key, revision, false FROM stepwell.entry WHERE namespace_id = %s AND revision > %s AND revision <= %s
ORDER BY 2, 1"""
TRIM_LOG = """
DELETE FROM stepwell.commit_log WHERE commit_id IN (
  SELECT commit_id FROM stepwell.commit_log
  WHERE commit_id < %s AND at < stepwell.micros() - %s ORDER BY commit_id LIMIT 5000)"""

# -- listing namespaces ----------------------------------------------------------------------------------------------


def namespaces(columns: list[str], *, following: bool) -> str:
    """Namespaces that have entries, last written first: filtered by columns, perhaps those that follow one, limited.

    Values: one a column; with `following` the time three times and the identity; the limit.
    """
    conditions = ["entries > 0", *(f"{name} = %s" for name in columns)]
    if following:
        conditions.append("minute <= %s / 60000000")
        conditions.append(f"(updated_at < %s OR (updated_at = %s AND ({IDENTITY}) > (%s, %s, %s, %s, %s)))")
    return f"""
SELECT {IDENTITY}, revision, updated_at, entries FROM stepwell.namespace
WHERE {" AND ".join(conditions)} ORDER BY minute DESC, updated_at DESC, {IDENTITY} LIMIT %s"""
