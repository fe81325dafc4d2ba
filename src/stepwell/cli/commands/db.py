"""`stepwell db`: the server's PostgreSQL database."""

import os

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.render import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_URL = "STEPWELL_DATABASE_URL"


@click.group()
def db() -> None:
    """Look after the server's PostgreSQL database."""


def _database(command: "Callable[..., Any]") -> "Callable[..., Any]":
    option = click.option("--database-url", metavar="URL", help=f"The database; default: {_URL}.")
    return option(common(command))


@db.command("grant-reader")
@click.argument("role")
@_database
@pass_output
def grant(output: Output, role: str, database_url: str | None) -> None:
    """Let the existing login ROLE read the views for dashboards, and nothing else."""
    dsn = _dsn(database_url)
    from stepwell.store.postgres_reader import VIEWS, grant_reader

    grant_reader(dsn, role)
    views = [f"stepwell.{name}" for name in VIEWS]
    output.data({"role": role, "views": views}, "\n".join(views))
    output.talk("the role reads these views and nothing else of stepwell")


@db.command()
@_database
@pass_output
def migrate(output: Output, database_url: str | None) -> None:
    """Bring the database's schema up to this version; `stepwell server` does it by itself."""
    import asyncio

    dsn = _dsn(database_url)
    from stepwell.store.postgres_schema import LATEST, ensure_schema, schema_of

    before = asyncio.run(schema_of(dsn))
    asyncio.run(ensure_schema(dsn))
    was = " already" if before == LATEST else f", was {before or 'empty'}"
    output.data({"before": before, "schema": LATEST}, f"schema {LATEST}{was}")


@db.command()
@_database
@pass_output
def status(output: Output, database_url: str | None) -> None:
    """Show the database's schema and what this version needs; changes nothing."""
    import asyncio

    dsn = _dsn(database_url)
    from stepwell.store.postgres_schema import LATEST, schema_of

    found = asyncio.run(schema_of(dsn))
    shown = {"schema": found, "latest": LATEST, "current": found == LATEST}
    output.data(shown, f"schema {found or 'empty'}, this version needs {LATEST}")


def _dsn(given: str | None) -> str:
    from importlib.util import find_spec

    from stepwell.errors import InvalidArgument, StorageUnavailable

    dsn = given or os.environ.get(_URL)
    if not dsn:
        raise InvalidArgument("no database is named", hint=f"give --database-url, or set {_URL}")
    if find_spec("psycopg") is None:
        raise StorageUnavailable("PostgreSQL needs further packages", hint="pip install 'stepwell[server]'")
    return dsn
