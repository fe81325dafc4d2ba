"""A login that reads the views and nothing else."""

import psycopg
from psycopg import sql

from stepwell.errors import ReaderRefused
from stepwell.store.postgres_connections import translated

VIEWS = ("workflow_project_kv_view", "workflow_global_kv_view", "token_usage_view", "run_view")

_ROLE = "SELECT rolcanlogin, rolsuper, rolcreaterole, rolreplication FROM pg_catalog.pg_roles WHERE rolname = %s"
# Whoever is a member may become one of these, whatever the member itself may do.
_STRONGER = """
SELECT r.rolname FROM pg_catalog.pg_roles AS r
WHERE pg_catalog.pg_has_role(%s, r.oid, 'MEMBER') AND (
  r.rolsuper OR r.rolcreaterole OR r.rolreplication
  OR r.rolname IN ('pg_read_all_data', 'pg_write_all_data', 'pg_read_server_files', 'pg_write_server_files',
    'pg_execute_server_program')
  OR r.oid IN (SELECT nspowner FROM pg_catalog.pg_namespace WHERE nspname = 'stepwell')
  OR r.oid IN (SELECT relowner FROM pg_catalog.pg_class WHERE relnamespace IN (
    SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'stepwell'))
  OR r.oid IN (SELECT datdba FROM pg_catalog.pg_database WHERE datname = current_database()))
ORDER BY 1"""
_FOUND = """
SELECT relname FROM pg_catalog.pg_class
WHERE relnamespace = (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'stepwell') AND relname = ANY(%s)
  AND relkind = 'v'"""
_READABLE = """
SELECT v.name FROM unnest(%(views)s::text[]) AS v (name)
WHERE NOT pg_catalog.has_table_privilege(%(role)s, format('stepwell.%%I', v.name), 'SELECT')"""
_BEYOND = """
SELECT c.relname::text FROM pg_catalog.pg_class AS c
WHERE c.relnamespace = 'stepwell'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND (
  pg_catalog.has_table_privilege(%(role)s, c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
  OR pg_catalog.has_any_column_privilege(%(role)s, c.oid, 'INSERT, UPDATE, REFERENCES')
  OR (c.relname <> ALL(%(views)s) AND pg_catalog.has_any_column_privilege(%(role)s, c.oid, 'SELECT')))
UNION ALL
SELECT c.relname::text FROM pg_catalog.pg_class AS c
WHERE c.relnamespace = 'stepwell'::regnamespace
  AND CASE c.relkind WHEN 'S' THEN pg_catalog.has_sequence_privilege(%(role)s, c.oid, 'USAGE, SELECT, UPDATE') END
UNION ALL
SELECT p.proname || '()' FROM pg_catalog.pg_proc AS p
WHERE p.pronamespace = 'stepwell'::regnamespace AND pg_catalog.has_function_privilege(%(role)s, p.oid, 'EXECUTE')
UNION ALL
SELECT 'the schema itself' WHERE pg_catalog.has_schema_privilege(%(role)s, 'stepwell', 'CREATE')"""
_CONNECTS = "SELECT pg_catalog.has_database_privilege(%s, current_database(), 'CONNECT'), current_database()"


def grant_reader(dsn: str, role: str) -> None:
    """Let an existing login read the views; take whatever else it has in the schema away. Repeating it is harmless.

    Args:
        dsn: the database, as the owner of its tables.
        role: the login's name.

    Raises:
        ReaderRefused: there is no such login, it is or may become a stronger one, the views are not there yet, or it
            would not be left with exactly this; then nothing was changed.
        StorageUnavailable: PostgreSQL cannot be reached, or refuses.
    """
    try:
        with psycopg.connect(dsn) as connection:
            _check(connection, role)
            _grant(connection, role)
            _verify(connection, role)
    except psycopg.errors.InsufficientPrivilege:
        raise ReaderRefused(
            "the login of the database's address may not grant this", hint="connect as the owner of stepwell's tables"
        ) from None
    except psycopg.Error as error:
        raise translated(error) from None


def _check(connection: psycopg.Connection, role: str) -> None:
    found = None if "\x00" in role else connection.execute(_ROLE, (role,)).fetchone()
    if found is None:
        raise ReaderRefused(
            f"there is no role {role!r:.80}",
            hint="make one first: CREATE ROLE name LOGIN PASSWORD '…'; this command changes what it may read only",
        )
    if not found[0]:
        raise ReaderRefused(f"the role {role!r:.80} cannot log in", hint="ALTER ROLE name LOGIN")
    stronger = [role] if any(found[1:]) else [row[0] for row in connection.execute(_STRONGER, (role,))]
    if stronger:
        raise ReaderRefused(
            f"the role {role!r:.80} is, or may become, one that can do more than read: {', '.join(stronger)}"[:500],
            hint="take a role of its own for readers",
        )
    present = {row[0] for row in connection.execute(_FOUND, (list(VIEWS),))}
    if missing := [name for name in VIEWS if name not in present]:
        raise ReaderRefused(
            f"the database has no view {', '.join(missing)}", hint="`stepwell db migrate` brings it up to date"
        )


def _grant(connection: psycopg.Connection, role: str) -> None:
    name = sql.Identifier(role)
    for kind in ("TABLES", "SEQUENCES", "FUNCTIONS"):
        connection.execute(sql.SQL("REVOKE ALL ON ALL {} IN SCHEMA stepwell FROM {}").format(sql.SQL(kind), name))
    connection.execute(sql.SQL("REVOKE ALL ON SCHEMA stepwell FROM {}").format(name))
    connection.execute(sql.SQL("GRANT USAGE ON SCHEMA stepwell TO {}").format(name))
    views = sql.SQL(", ").join(sql.Identifier("stepwell", view) for view in VIEWS)
    connection.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(views, name))


def _verify(connection: psycopg.Connection, role: str) -> None:
    """What counts is what the role can do now, also through its groups and through PUBLIC."""
    values = {"role": role, "views": list(VIEWS)}
    if unreadable := [row[0] for row in connection.execute(_READABLE, values)]:
        raise ReaderRefused(
            f"the grant of {', '.join(unreadable)} had no effect", hint="connect as the owner of stepwell's tables"
        )
    if beyond := [row[0] for row in connection.execute(_BEYOND, values)]:
        raise ReaderRefused(
            f"the role {role!r:.80} can still use {', '.join(beyond)}"[:500],
            hint="a group of it or PUBLIC was granted that: revoke it there, then try again",
        )
    connects, database = connection.execute(_CONNECTS, (role,)).fetchone() or (False, "")
    if not connects:
        raise ReaderRefused(
            f"the role {role!r:.80} may not connect to the database {database}",
            hint="GRANT CONNECT ON DATABASE … TO …, as the database's owner",
        )
