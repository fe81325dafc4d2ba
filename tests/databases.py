"""PostgreSQL databases for tests: one embedded server for all processes of a test run, a fresh database a test."""

import asyncio
import atexit
import os
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from uuid import uuid4

import psycopg

from stepwell.server.embedded_postgres import EmbeddedPostgres
from stepwell.store.postgres_schema import ensure_schema

_TEMPLATE = "stepwell_template"
_STATE = "revision, updated_at, minute, entries, watched_until, lease, lease_presence, lease_expires, lease_holder"


class Database:
    """An empty database with the current schema.

    Args:
        empty: without the schema.
    """

    def __init__(self, *, empty: bool = False) -> None:
        self.server = _server()
        self.name = f"t_{uuid4().hex}"
        template = "template1" if empty else _TEMPLATE
        self.admin(f"CREATE DATABASE {self.name} TEMPLATE {template} OWNER stepwell STRATEGY file_copy")

    @property
    def dsn(self) -> str:
        """The application's connection string."""
        return self.server.dsn.replace("/stepwell?", f"/{self.name}?")

    def admin(self, statement: str) -> list[tuple]:
        """Run a statement as the superuser, outside this database."""
        with psycopg.connect(self.server.admin_dsn, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def run(self, statement: str, values: tuple = ()) -> list[tuple]:
        """Run a statement in this database as the application."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []

    def clear(self) -> None:
        """Take out what projects wrote. A server may go on using it: namespaces are new again, and not removed."""
        self.run("TRUNCATE stepwell.entry, stepwell.commit_log")
        self.run(f"UPDATE stepwell.namespace SET ({_STATE}) = ROW({', '.join(['DEFAULT'] * (_STATE.count(',') + 1))})")

    def drop(self) -> None:
        """Remove it, also when somebody is still connected."""
        self.admin(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")


@cache
def _server() -> EmbeddedPostgres:
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"pid{os.getpid()}"
    folder = Path(tempfile.gettempdir()) / f"stepwell-test-{run}"
    folder.mkdir(mode=0o711, exist_ok=True)
    server = EmbeddedPostgres(folder / "postgres", ("fsync=off", "full_page_writes=off", "max_connections=300"))
    server.start()
    atexit.register(_stop, server, folder)
    with psycopg.connect(server.admin_dsn, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(1)")
        if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (_TEMPLATE,)).fetchone():
            connection.execute("CREATE DATABASE stepwell_building OWNER stepwell")
            building = ensure_schema(server.dsn.replace("/stepwell?", "/stepwell_building?"))
            with ThreadPoolExecutor() as pool:  # this may be called where an event loop runs
                pool.submit(asyncio.run, building).result()
            connection.execute(f"ALTER DATABASE stepwell_building RENAME TO {_TEMPLATE}")
    return server


def _stop(server: EmbeddedPostgres, folder: Path) -> None:
    server.stop()
    if not server.running():
        shutil.rmtree(folder, ignore_errors=True)
