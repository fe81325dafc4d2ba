"""The PostgreSQL schema: made, brought up to date, refused when newer; whoever comes, and whatever cuts it off."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import psycopg
import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, pool

from stepwell.errors import SchemaTooNew, StorageUnavailable
from stepwell.store import migrations
from stepwell.store.entries import Span, Write
from stepwell.store.postgres import PostgresBackend
from stepwell.store.postgres_schema import LATEST, ensure_schema, schema_of
from tests.databases import Database
from tests.faults.postgres_children import NS

pytestmark = pytest.mark.crash

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(migrations.__file__).parent
REVISIONS = sorted(file.stem[:5] for file in (SCRIPTS / "versions").glob("r*.py"))


@pytest.fixture
def database() -> Iterator[Database]:
    """A database without a schema."""
    made = Database(empty=True)
    yield made
    made.drop()


def migrate_to(database: Database, revision: str) -> None:
    """Bring it to an older version, as the program of that time did."""
    database.run("CREATE SCHEMA IF NOT EXISTS stepwell")
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(database.dsn), poolclass=pool.NullPool
    )
    with engine.begin() as connection:
        config = Config()
        config.set_main_option("script_location", str(SCRIPTS))
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def shape(database: Database) -> list[tuple]:
    """Every column, index and function of the schema."""
    return (
        database.run(
            "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
            "WHERE table_schema = 'stepwell' ORDER BY 1, 2"
        )
        + database.run("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'stepwell' ORDER BY 1")
        + database.run(
            "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = 'stepwell'::regnamespace ORDER BY 1, 2"
        )
    )


def test_the_program_knows_the_last_migration() -> None:
    assert REVISIONS[-1] == LATEST
    assert [f"r{number:04d}" for number in range(1, len(REVISIONS) + 1)] == REVISIONS


async def test_an_empty_database_gets_the_latest_schema(database: Database) -> None:
    assert await schema_of(database.dsn) is None
    await ensure_schema(database.dsn)
    assert await schema_of(database.dsn) == LATEST
    before = shape(database)
    await ensure_schema(database.dsn)
    assert shape(database) == before


@pytest.mark.parametrize("revision", REVISIONS)
async def test_data_of_an_older_version_stay(revision: str, database: Database) -> None:
    migrate_to(database, revision)
    assert await schema_of(database.dsn) == revision
    text = '{"b":1, "a":"\\u0000", "long":"' + "x" * 10_000 + '"}'
    [(ns_id,)] = database.run(
        "INSERT INTO stepwell.namespace (project_id, domain, scope, workflow, conversation_id) "
        "VALUES (%s, 'kv', 'project', '', '') RETURNING id",
        (NS.project_id,),
    )
    call = "SELECT revision FROM stepwell.commit_entries(%s, %s, false, NULL, '{}', '{}', %s, %s, 'p', 'w', 'r', 'c')"
    for number in range(3):
        name = f"01936d3f-6a00-7000-8000-00000000000{number}"
        values = (ns_id, name, [f"k{number}", "same"], [text, str(number)])
        assert database.run(call, values) == [(number + 1,)]
    columns = "key, value::text, value_type, value_bytes, revision, created_at, updated_at, last_project, last_run_id"
    kept = database.run(f"SELECT {columns} FROM stepwell.entry ORDER BY key")
    log = database.run("SELECT revision, commit_id, keys FROM stepwell.commit_log ORDER BY 1")
    backend = PostgresBackend(database.dsn)
    records = await backend.scan(NS, Span())
    assert await schema_of(database.dsn) == LATEST
    assert [(record.key, record.text) for record in records] == [*((f"k{n}", text) for n in range(3)), ("same", "2")]
    assert records[0].source == ("p", "w", "r", "c")
    assert database.run(f"SELECT {columns} FROM stepwell.entry ORDER BY key") == kept
    assert database.run("SELECT revision, commit_id, keys FROM stepwell.commit_log ORDER BY 1") == log
    assert (await backend.commit(NS, (), [Write("k0", "1")])).revision == 4
    [listed] = await backend.namespaces()
    assert (listed.namespace, listed.revision, listed.entries) == (NS, 4, 4)
    await backend.close()
    fresh = Database(empty=True)
    try:
        await ensure_schema(fresh.dsn)
        assert shape(fresh) == shape(database)  # the way there makes no difference
    finally:
        fresh.drop()


def test_four_processes_migrate_at_once(database: Database) -> None:
    words = [sys.executable, "-m", "tests.faults.postgres_children", "migrate", database.dsn]
    pipe = subprocess.PIPE
    children = [subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) for _ in range(4)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    for child in children:
        _, complaint = child.communicate(timeout=50)
        assert (child.returncode, complaint) == (0, "")
    assert database.run("SELECT version_num FROM stepwell.alembic_version") == [(LATEST,)]
    assert not database.admin("SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = 0 AND objid = 73570001")


async def test_a_newer_schema_is_refused_and_left_alone(database: Database) -> None:
    await ensure_schema(database.dsn)
    database.run("UPDATE stepwell.alembic_version SET version_num = 'r9999'")
    before = shape(database)
    backend = PostgresBackend(database.dsn)
    for attempt in (
        lambda: ensure_schema(database.dsn),
        lambda: schema_of(database.dsn),
        lambda: backend.text(NS, "k"),
        lambda: backend.commit(NS, (), [Write("k", "1")]),
        backend.prepare,
    ):
        with pytest.raises(SchemaTooNew) as caught:
            await attempt()
        assert caught.value.data == {"found": "r9999", "known": LATEST}
        assert caught.value.hint
    await backend.close()
    assert shape(database) == before
    assert database.run("SELECT count(*) FROM stepwell.namespace") == [(0,)]


@pytest.mark.parametrize("how", ["error", "killed connection"])
async def test_a_migration_that_is_cut_off_leaves_the_old_version(how: str, database: Database) -> None:
    migrate_to(database, REVISIONS[0])
    before = shape(database)
    last = (SCRIPTS / "versions" / f"{_name(LATEST)}.sql").read_text(encoding="utf-8")
    broken = "SELECT 1/0" if how == "error" else "SELECT pg_terminate_backend(pg_backend_pid())"
    real = Path.read_text

    def read(path: Path, *arguments: object, **options: object) -> str:
        text = real(path, *arguments, **options)  # type: ignore[arg-type]
        return f"{text};\n{broken}" if text == last else text

    with patch.object(Path, "read_text", read), pytest.raises(StorageUnavailable):
        await PostgresBackend(database.dsn).prepare()
    assert await schema_of(database.dsn) == REVISIONS[0]
    assert shape(database) == before
    async with asyncio.timeout(20):  # nobody holds the lock of whoever migrates
        await ensure_schema(database.dsn)
    assert await schema_of(database.dsn) == LATEST


def _name(revision: str) -> str:
    [file] = (SCRIPTS / "versions").glob(f"{revision}_*.py")
    return file.stem
