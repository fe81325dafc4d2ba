"""SQL of the workbench. Filters are parameters: text that comes from outside is never part of a statement."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from stepwell.jsontext import encode
from stepwell.store.entries import Span
from stepwell.store.workbench_types import Filters

Part = tuple[str, tuple[Any, ...]]  # a condition and the values of its placeholders
Parts = list[Part]

SETTINGS = """
SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = {milliseconds}; SET LOCAL work_mem = '64MB';
SET LOCAL enable_seqscan = on; SET LOCAL enable_sort = on"""

NEWEST = "updated_at DESC, namespace_id DESC, key DESC"
BY_KEY = "namespace_id, key"

_ITEM = """n.project_id, n.domain, n.scope, n.workflow, n.conversation_id, e.namespace_id, e.key, e.value_type,
  e.value_bytes, e.revision, e.created_at, e.updated_at,
  e.last_project, e.last_workflow_name, e.last_run_id, e.last_conversation_id"""
_PREVIEW = "substring(e.value::text FROM 1 FOR %s)"
# An answer has room for so many bytes of values; the first always fits.
_FULL = "CASE WHEN sum(e.value_bytes) OVER (ORDER BY m.place) - e.value_bytes < %s THEN e.value::text END"

SCOPE = """
SELECT n.domain, n.scope, count(*), sum(n.entries)::bigint FROM stepwell.namespace AS n
WHERE {scope} GROUP BY 1, 2 ORDER BY 4 DESC, 1, 2"""

# The newest namespaces together have so many entries: what was written after the first one beyond them is all theirs.
FLOOR = """
SELECT max(updated_at) FROM (
  SELECT n.updated_at, sum(n.entries) OVER (ORDER BY n.updated_at DESC) AS upto
  FROM stepwell.namespace AS n WHERE {scope}) AS walked
WHERE upto > %s"""

CHUNK = """
SELECT n.id, n.entries FROM stepwell.namespace AS n WHERE {scope} AND n.id >= %s ORDER BY n.id LIMIT 1000"""

TABLE_ROWS = "SELECT greatest(reltuples, 0)::bigint FROM pg_catalog.pg_class WHERE oid = 'stepwell.entry'::regclass"

FIGURES = """
WITH grouped AS MATERIALIZED (
  SELECT e.value_type, e.value_bytes, e.last_run_id IS NOT NULL AS run, e.last_conversation_id IS NOT NULL AS talk,
    e.last_workflow_name IS NOT NULL AS workflow, count(*) AS rows
  FROM stepwell.entry AS e{sample} JOIN stepwell.namespace AS n ON n.id = e.namespace_id
  WHERE {scope} GROUP BY 1, 2, 3, 4, 5),
sizes AS (
  SELECT value_bytes, sum(rows) OVER (ORDER BY value_bytes) AS upto, sum(rows) OVER () AS of
  FROM (SELECT value_bytes, sum(rows) AS rows FROM grouped GROUP BY value_bytes) AS each)
SELECT NULL, coalesce(sum(rows), 0)::bigint, coalesce(sum(rows * value_bytes), 0)::bigint,
  coalesce(max(value_bytes), 0), coalesce((SELECT min(value_bytes) FROM sizes WHERE upto >= of * 0.5), 0),
  coalesce((SELECT min(value_bytes) FROM sizes WHERE upto >= of * 0.95), 0),
  coalesce(sum(rows) FILTER (WHERE run), 0)::bigint, coalesce(sum(rows) FILTER (WHERE talk), 0)::bigint,
  coalesce(sum(rows) FILTER (WHERE workflow), 0)::bigint
FROM grouped
UNION ALL
SELECT value_type, sum(rows)::bigint, sum(rows * value_bytes)::bigint, 0, 0, 0, 0, 0, 0 FROM grouped GROUP BY 1"""

SAMPLE_ROWS = """
SELECT count(*) FROM stepwell.entry AS e{sample} JOIN stepwell.namespace AS n ON n.id = e.namespace_id WHERE {scope}"""

ACTIVE = "SELECT count(*) FROM stepwell.namespace AS n WHERE {scope} AND n.updated_at >= %s"
# Values: since, namespaces, commits of each, since, keys, keys to show.
HOT_KEYS = """
WITH active AS MATERIALIZED (
  SELECT n.* FROM stepwell.namespace AS n WHERE {scope} AND n.updated_at >= %s
  ORDER BY n.updated_at DESC LIMIT %s),
commits AS MATERIALIZED (
  SELECT a.id, c.at, c.keys || c.removed AS keys FROM active AS a CROSS JOIN LATERAL (
    SELECT l.at, l.keys, l.removed FROM stepwell.commit_log AS l WHERE l.namespace_id = a.id
    ORDER BY l.revision DESC LIMIT %s) AS c
  WHERE c.at >= %s),
written AS MATERIALIZED (
  SELECT c.id, c.at, k.key FROM commits AS c CROSS JOIN LATERAL unnest(c.keys) AS k (key) LIMIT %s),
hot AS (
  SELECT id, key, count(*) AS commits, max(at) AS at FROM written GROUP BY id, key
  ORDER BY 3 DESC, 4 DESC, 1, 2 LIMIT %s)
SELECT (SELECT count(*) FROM active), (SELECT count(*) FROM commits), (SELECT count(*) FROM written),
  (SELECT coalesce(max(number), 0) FROM (SELECT count(*) AS number FROM commits GROUP BY id) AS each),
  n.project_id, n.domain, n.scope, n.workflow, n.conversation_id, h.key, h.commits, h.at
FROM (SELECT 1) AS one LEFT JOIN hot AS h ON true LEFT JOIN stepwell.namespace AS n ON n.id = h.id
ORDER BY h.commits DESC, h.at DESC, h.id, h.key"""

CONVERSATIONS = """
SELECT DISTINCT a.project_id, a.conversation_id FROM unnest(%s::text[], %s::text[]) AS a (project_id, conversation_id)
WHERE EXISTS (
  SELECT 1 FROM stepwell.namespace AS n WHERE n.project_id = a.project_id AND n.domain = 'conversation'
    AND n.scope = 'conversation' AND n.conversation_id = a.conversation_id AND n.entries > 0)"""


class Conditions(NamedTuple):
    """Conditions joined by AND, and the values of their placeholders."""

    sql: str
    values: list[Any]


def joined(conditions: Sequence[Part]) -> Conditions:
    """One condition of several; true without any."""
    values = [value for _, given in conditions for value in given]
    return Conditions(" AND ".join(f"({each})" for each, _ in conditions) or "true", values)


def of_namespace(filters: Filters) -> Parts:
    """Conditions on `n`."""
    parts = {"project_id": filters.project_id, "domain": filters.domain, "scope": filters.scope}
    parts["conversation_id"] = filters.conversation_id
    found: Parts = [("n.entries > 0", ())]
    found += [(f"n.{name} = %s", (str(part),)) for name, part in parts.items() if part is not None]
    if filters.since is not None:
        found.append(("n.updated_at >= %s", (filters.since,)))
    return found


def of_prefix(filters: Filters) -> Parts:
    """The range of keys."""
    if filters.key_prefix is None:
        return []
    span = Span.prefix(filters.key_prefix)
    if span.stop is None:
        return [("e.key >= %s", (span.start,))]
    return [("e.key >= %s AND e.key < %s", (span.start, span.stop))]


def of_row(filters: Filters) -> Parts:
    """Conditions that need no value."""
    conditions = {
        "strpos(e.key, %s) > 0": filters.key_contains,
        "e.value_type = %s": filters.type,
        "e.last_run_id = %s": filters.run_id,
        "e.last_conversation_id = %s": filters.source_conversation_id,
        "e.updated_at >= %s": filters.since,
        "e.updated_at < %s": filters.until,
    }
    found: Parts = of_prefix(filters)
    found += [
        (condition, (str(part) if isinstance(part, str) else part,))
        for condition, part in conditions.items()
        if part is not None
    ]
    if filters.has_run is not None:
        found.append((f"e.last_run_id IS {'NOT ' if filters.has_run else ''}NULL", ()))
    if filters.workflow is not None:
        found.append(("n.workflow = %s OR e.last_workflow_name = %s", (filters.workflow, filters.workflow)))
    return found


def of_value(filters: Filters) -> Parts:
    """The text occurs in the JSON text as it is, or as it is written inside a string."""
    if filters.value_contains is None:
        return []
    texts = sorted({filters.value_contains, encode(filters.value_contains)[1:-1]})
    return [(" OR ".join(["strpos(e.value::text, %s) > 0"] * len(texts)), tuple(texts))]


def page(
    base: Conditions, matching: Conditions, *, order: str, rows: int, scan_bytes: int, limit: int, full: bool,
    show: int, sample: float | None = None,
) -> tuple[str, list[Any]]:  # fmt: skip
    """The statement of one page: takes rows in order, and of those the ones that match.

    Each of its rows starts with how many rows were taken, whether there were more of them, the place of the last
    (time, namespace, key) and the bytes of their values; then comes an item, or NULLs if nothing matched.

    Args:
        base: which rows are taken; of `e` (entries) and `n` (namespaces).
        matching: of those, which match.
        order: `NEWEST` or `BY_KEY`.
        rows, scan_bytes: at most so many rows, and after the first at most so many bytes of values, are taken.
        limit: at most so many items.
        full: with whole values, not beginnings.
        show: how many bytes of values an answer has room for, or the length of a beginning in characters.
        sample: take rows of that percentage of the table's blocks only.
    """
    source = f"stepwell.entry AS e{sampled(sample)} JOIN stepwell.namespace AS n ON n.id = e.namespace_id"
    inner = ", ".join(f"e.{part.strip()}" for part in order.split(","))
    # OFFSET 0 and LATERAL make PostgreSQL look each row up by its key: with poor statistics it would choose worse.
    statement = f"""
WITH base AS MATERIALIZED (
  SELECT e.namespace_id, e.key, e.updated_at, e.value_bytes FROM {source}
  WHERE {base.sql} ORDER BY {inner} LIMIT %s),
placed AS MATERIALIZED (
  SELECT b.*, row_number() OVER in_order AS place, sum(b.value_bytes) OVER in_order - b.value_bytes AS before
  FROM base AS b WINDOW in_order AS (ORDER BY {order} ROWS UNBOUNDED PRECEDING)),
kept AS MATERIALIZED (SELECT * FROM placed WHERE before < %s),
matched AS (
  SELECT k.namespace_id, k.key, k.place FROM kept AS k CROSS JOIN LATERAL (
    SELECT 1 FROM stepwell.entry AS e JOIN stepwell.namespace AS n ON n.id = e.namespace_id
    WHERE e.namespace_id = k.namespace_id AND e.key = k.key AND ({matching.sql}) OFFSET 0) AS found
  ORDER BY k.place LIMIT %s),
items AS (
  SELECT m.place, {_ITEM}, {_FULL if full else _PREVIEW} AS shown
  FROM matched AS m CROSS JOIN LATERAL (
    SELECT * FROM stepwell.entry AS l WHERE l.namespace_id = m.namespace_id AND l.key = m.key OFFSET 0) AS e
  JOIN stepwell.namespace AS n ON n.id = e.namespace_id)
SELECT ending.place, (SELECT count(*) FROM base) = %s OR (SELECT count(*) FROM base) > ending.place,
  ending.updated_at, ending.namespace_id, ending.key, ending.bytes::bigint, items.*
FROM (
  SELECT place, updated_at, namespace_id, key, before + value_bytes AS bytes FROM kept ORDER BY place DESC LIMIT 1
) AS ending
LEFT JOIN items ON true ORDER BY items.place"""
    return statement, [*base.values, rows, scan_bytes, *matching.values, limit, show, rows]


def sampled(percent: float | None) -> str:
    """The clause that samples a table; always the same blocks, so that pages of a sample fit together."""
    return "" if percent is None else f" TABLESAMPLE SYSTEM ({max(percent, 0.0001):.4f}) REPEATABLE (1)"
