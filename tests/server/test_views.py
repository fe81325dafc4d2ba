"""The views for dashboards, and the login that reads them and nothing else."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from uuid import uuid4

import psycopg
import pytest

from stepwell.cli.app import run
from stepwell.errors import ReaderRefused
from stepwell.store.entries import Domain, Namespace, Scope, Source, Write
from stepwell.store.postgres import PostgresBackend
from stepwell.store.postgres_reader import VIEWS, grant_reader
from stepwell.usage.report import EMPTY_TOTAL
from tests.databases import Database

PROJECT = "7d3f3c1e-0000-4000-8000-000000000001"
PROJECT_KV = Namespace(PROJECT, Domain.KV, Scope.PROJECT)
TALK_KV = Namespace(PROJECT, Domain.KV, Scope.CONVERSATION, None, "c1")
TALK = Namespace(PROJECT, Domain.CONVERSATION, Scope.CONVERSATION, None, "c1")
GLOBAL = Namespace(None, Domain.PERSISTENT_VALUE, Scope.GLOBAL)
OF_WORKFLOW = Namespace(None, Domain.KV, Scope.CONVERSATION, "flow", "c2")
SOURCE = Source(PROJECT, "main", "run-1", "c1")
HOSTILE = ['"\\u0000"', '{"input":"\\u0000"}', '{"input":"x"}', '{"input":-1}', "[1]", "5", '{"input":{"input":1}}',
           '{"total":99999999999999999999999999999999999999999}', '{"input":1.5}', '{"input":"\\ud800"}']  # fmt: skip


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    made = Database()
    asyncio.run(_fill(made.dsn))
    yield made
    made.drop()


async def _fill(dsn: str) -> None:
    backend = PostgresBackend(dsn)
    try:
        await backend.commit(PROJECT_KV, [], [Write("a", '{"n": 1.0}')], source=SOURCE)
        await backend.commit(PROJECT_KV, [], [Write("b", "9007199254740993")], source=SOURCE)
        await backend.commit(PROJECT_KV, [], [Write("nul", '"\\u0000"')])
        await backend.commit(TALK_KV, [], [Write("mine", "null")], source=Source(PROJECT, "other", "run-2", "c1"))
        await backend.commit(TALK, [], [Write("message", '"private"')], source=SOURCE)
        await backend.commit(GLOBAL, [], [Write("everywhere", "true")])
        await backend.commit(OF_WORKFLOW, [], [Write("theirs", "[]")])
        total = '{"input":7,"output":5,"reasoning":2,"cache_read":3,"cache_write":1,"total":12,"calls":4}'
        await backend.commit(PROJECT_KV, [], [Write("tokenUsage.total", total)], source=SOURCE)
        await backend.commit(TALK_KV, [], [Write("tokenUsage.total", total.replace(",", " , ").replace(":", " : "))])
        for number, text in enumerate(HOSTILE):
            namespace = Namespace(PROJECT, Domain.KV, Scope.CONVERSATION, None, f"hostile {number}")
            await backend.commit(namespace, [], [Write("tokenUsage.total", text)])
    finally:
        await backend.close()


@pytest.fixture
def role(database: Database) -> Iterator[str]:
    name = f'r "{uuid4().hex[:8]}" %s; é'
    quoted = psycopg.sql.Identifier(name).as_string(None)
    database.admin(f"CREATE ROLE {quoted} LOGIN")
    yield name
    with psycopg.connect(database.server.admin_dsn.replace("/postgres?", f"/{database.name}?"), autocommit=True) as c:
        c.execute(f"DROP OWNED BY {quoted}")
    database.admin(f"DROP ROLE {quoted}")


@pytest.fixture
def as_role(database: Database, role: str) -> Callable[[str], list[tuple]]:
    def ask(statement: str) -> list[tuple]:
        with psycopg.connect(database.dsn, user=role, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    return ask


def test_project_view_has_kv_and_persistent_values_to_the_character(database: Database) -> None:
    found = database.run(
        "SELECT project_id, domain, scope, conversation_id, key, value, value_type, value_bytes, revision, last_run_id "
        "FROM stepwell.workflow_project_kv_view WHERE NOT starts_with(key, 'tokenUsage') ORDER BY scope, key"
    )
    assert found == [
        (PROJECT, "kv", "conversation", "c1", "mine", "null", "null", 4, 1, "run-2"),
        (PROJECT, "kv", "project", None, "a", '{"n": 1.0}', "object", 10, 1, "run-1"),
        (PROJECT, "kv", "project", None, "b", "9007199254740993", "number", 16, 2, "run-1"),
        (PROJECT, "kv", "project", None, "nul", '"\\u0000"', "string", 8, 3, None),
    ]


def test_times_are_exact(database: Database) -> None:
    shown, micros = database.run(
        "SELECT v.updated_at, e.updated_at FROM stepwell.workflow_project_kv_view AS v "
        "JOIN stepwell.entry AS e USING (key) WHERE key = 'a'"
    )[0]
    since = shown - datetime(1970, 1, 1, tzinfo=UTC)
    assert (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds == micros


def test_global_view_has_what_belongs_to_no_project(database: Database) -> None:
    found = database.run(
        "SELECT domain, scope, workflow_name, conversation_id, key, value FROM stepwell.workflow_global_kv_view ORDER BY key"
    )
    assert found == [
        ("persistent_value", "global", None, None, "everywhere", "true"),
        ("kv", "conversation", "flow", "c2", "theirs", "[]"),
    ]


def test_token_usage_view_shows_totals_and_survives_what_is_none(database: Database) -> None:
    columns = "scope, conversation_id, input_tokens, output_tokens, reasoning_tokens, cache_read_tokens, "
    columns += "cache_write_tokens, total_tokens, calls"
    found = database.run(f"SELECT {columns} FROM stepwell.token_usage_view ORDER BY scope DESC, conversation_id")
    assert found[0] == ("project", None, 7, 5, 2, 3, 1, 12, 4)
    assert found[1] == ("conversation", "c1", 7, 5, 2, 3, 1, 12, 4)
    hostile = found[2:]
    assert len(hostile) == len(HOSTILE)
    assert [row[2:] for row in hostile if row[1] != "hostile 6"] == [(None,) * 7] * (len(HOSTILE) - 1)


def test_token_usage_view_knows_every_count_of_a_total(database: Database) -> None:
    columns = {row[0] for row in database.run(
        "SELECT column_name FROM information_schema.columns WHERE table_name = 'token_usage_view'")}  # fmt: skip
    assert {"calls" if name == "calls" else f"{name}_tokens" for name in EMPTY_TOTAL} <= columns


def test_run_view_shows_who_wrote_last(database: Database) -> None:
    found = database.run(
        "SELECT project_id, run_id, workflow_name, conversation_id, entries, first_write_at < last_write_at "
        "FROM stepwell.run_view ORDER BY run_id"
    )
    # run-1 wrote a, b, the project's total and a message.
    assert found == [(PROJECT, "run-1", "main", "c1", 4, True), (PROJECT, "run-2", "other", "c1", 1, False)]


def test_the_reader_reads_the_views_and_nothing_else(
    database: Database, role: str, as_role: Callable[[str], list[tuple]]
) -> None:
    grant_reader(database.dsn, role)
    grant_reader(database.dsn, role)
    for view in VIEWS:
        assert as_role(f"SELECT * FROM stepwell.{view}")
    tables = [row[0] for row in database.run(
        "SELECT relname FROM pg_class WHERE relnamespace = 'stepwell'::regnamespace AND relkind = 'r'")]  # fmt: skip
    assert {"entry", "account", "token", "alembic_version"} <= set(tables)
    functions = database.run(
        "SELECT format('stepwell.%I', proname), proargtypes::regtype[]::text[] FROM pg_proc "
        "WHERE pronamespace = 'stepwell'::regnamespace"
    )
    assert len(functions) >= 6
    calls = []
    for name, types in functions:
        nulls = ", ".join(f"NULL::{each}" for each in types)
        calls.append(f"SELECT {name}({nulls})")
    refused = [
        *(f"SELECT * FROM stepwell.{table}" for table in tables),
        *(f"DELETE FROM stepwell.{table}" for table in tables),
        *(f"DELETE FROM stepwell.{view}" for view in VIEWS),
        *calls,
        "UPDATE stepwell.workflow_project_kv_view SET key = 'x'",
        "CREATE TABLE stepwell.mine (id int)",
        "SELECT nextval(pg_get_serial_sequence('stepwell.namespace', 'id'))",
        "ALTER VIEW stepwell.run_view RENAME TO mine",
    ]
    for statement in refused:
        with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.ObjectNotInPrerequisiteState)):
            as_role(statement)


def test_a_function_of_the_reader_sees_no_row_that_a_view_leaves_out(
    database: Database, role: str, as_role: Callable[[str], list[tuple]]
) -> None:
    grant_reader(database.dsn, role)
    with psycopg.connect(database.dsn, user=role, autocommit=True) as connection:
        connection.execute(
            "CREATE FUNCTION pg_temp.peek(text, text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS "
            "$$ BEGIN RAISE NOTICE '%', $2; RETURN true; END $$"
        )
        heard: list[str] = []
        connection.add_notice_handler(lambda notice: heard.append(notice.message_primary or ""))
        connection.execute("SELECT count(*) FROM stepwell.workflow_project_kv_view WHERE pg_temp.peek(key, value)")
    assert "9007199254740993" in heard
    assert '"private"' not in heard


def test_more_rights_than_that_are_taken_away(
    database: Database, role: str, as_role: Callable[[str], list[tuple]]
) -> None:
    quoted = psycopg.sql.Identifier(role).as_string(None)
    database.run(f"GRANT USAGE, CREATE ON SCHEMA stepwell TO {quoted}")
    database.run(f"GRANT SELECT, DELETE ON stepwell.entry, stepwell.token TO {quoted}")
    database.run(f"GRANT UPDATE (name) ON stepwell.account TO {quoted}")
    database.run(f"GRANT INSERT ON stepwell.run_view TO {quoted}")
    assert as_role("SELECT count(*) FROM stepwell.token") == [(0,)]
    grant_reader(database.dsn, role)
    for statement in (
        "SELECT 1 FROM stepwell.token",
        "SELECT 1 FROM stepwell.entry",
        "CREATE VIEW stepwell.v AS SELECT 1",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            as_role(statement)
    rights = "SELECT has_any_column_privilege(%s, 'stepwell.account', 'UPDATE'), has_table_privilege(%s, 'stepwell.run_view', 'INSERT')"
    assert database.run(rights, (role, role)) == [(False, False)]


def test_strong_unknown_and_half_open_roles_are_refused(database: Database, role: str) -> None:
    quoted = psycopg.sql.Identifier(role).as_string(None)
    for name, word in (("nobody's", "no role"), ("public", "no role"), ("a\0b", "no role"), ("", "no role"),
                       ("postgres", "more than read"), ("stepwell", "more than read"),
                       ("pg_monitor", "cannot log in")):  # fmt: skip
        with pytest.raises(ReaderRefused, match=word):
            grant_reader(database.dsn, name)
    database.admin(f"GRANT pg_read_all_data TO {quoted} WITH INHERIT FALSE")
    with pytest.raises(ReaderRefused, match="pg_read_all_data"):
        grant_reader(database.dsn, role)
    database.admin(f"REVOKE pg_read_all_data FROM {quoted}")
    database.run("GRANT SELECT (name) ON stepwell.account TO PUBLIC")
    try:
        with pytest.raises(ReaderRefused, match="can still use account"):
            grant_reader(database.dsn, role)
    finally:
        database.run("REVOKE SELECT (name) ON stepwell.account FROM PUBLIC")
    assert database.run("SELECT has_schema_privilege(%s, 'stepwell', 'USAGE')", (role,)) == [(False,)]
    with pytest.raises(ReaderRefused, match="may not grant"):
        _as_stranger(database, role)


def _as_stranger(database: Database, role: str) -> None:
    """Another login, which owns nothing, grants."""
    name = f"s_{uuid4().hex[:8]}"
    database.admin(f"CREATE ROLE {name} LOGIN")
    database.run(f"GRANT USAGE ON SCHEMA stepwell TO {name}")
    try:
        grant_reader(database.dsn.replace("user=stepwell", f"user={name}"), role)
    finally:
        database.run(f"REVOKE ALL ON SCHEMA stepwell FROM {name}")
        database.admin(f"DROP ROLE {name}")


def test_the_command(
    database: Database, role: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("STEPWELL_DATABASE_URL", raising=False)
    assert run(["db", "grant-reader", role]) == 2
    assert "STEPWELL_DATABASE_URL" in capfd.readouterr().err
    monkeypatch.setenv("STEPWELL_DATABASE_URL", database.dsn)
    assert run(["db", "grant-reader", role, "--json"]) == 0
    assert '"stepwell.run_view"' in capfd.readouterr().out
    assert run(["db", "grant-reader", "nobody", "--json"]) == 2
    assert '"reader_refused"' in capfd.readouterr().err


def test_an_empty_database_is_migrated_by_the_command(
    role: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = Database(empty=True)
    try:
        arguments = ("--database-url", empty.dsn)
        with pytest.raises(ReaderRefused, match="no view"):
            grant_reader(empty.dsn, role)
        assert run(["db", "status", *arguments]) == 0
        assert "schema empty" in capfd.readouterr().out
        assert run(["db", "migrate", *arguments]) == 0
        assert "was empty" in capfd.readouterr().out
        assert run(["db", "migrate", *arguments]) == 0
        assert "already" in capfd.readouterr().out
        assert empty.run("SELECT count(*) FROM stepwell.run_view") == [(0,)]
        assert run(["db", "status", "--json", "--database-url", "postgresql://127.0.0.1:1/x"]) == 6
        assert "127.0.0.1" not in capfd.readouterr().err
    finally:
        empty.drop()
