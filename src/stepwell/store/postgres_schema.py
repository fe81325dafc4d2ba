"""The PostgreSQL schema: brought up to date by whoever comes first, refused when it is newer than this program.

Alembic is imported only when something is to do.
"""

import asyncio
from pathlib import Path
from typing import Any

import psycopg

from stepwell.errors import SchemaTooNew, StorageUnavailable
from stepwell.store.postgres_connections import translated

LATEST = "r0003"
_MIGRATING = 7357_0001  # the advisory lock of whoever migrates
_MINIMUM = 140_000


async def ensure_schema(dsn: str) -> None:
    """Bring the database's schema up to this program's version.

    Raises:
        SchemaTooNew: a newer stepwell wrote it; nothing was changed.
        StorageUnavailable: PostgreSQL is too old, its encoding is not UTF-8, or it cannot be reached or refuses: then
            nothing was changed.
    """
    try:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await _check_server(connection)
            if await _version(connection) == LATEST:
                return
        await asyncio.to_thread(_migrate, dsn)
    except psycopg.Error as error:
        raise translated(error) from None


async def schema_of(dsn: str) -> str | None:
    """The version of the database's schema; None if it has none yet.

    Raises:
        SchemaTooNew: a newer stepwell wrote it.
        StorageUnavailable: PostgreSQL is too old, has the wrong encoding, or cannot be reached.
    """
    try:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as connection:
            await _check_server(connection)
            return await _version(connection)
    except psycopg.Error as error:
        raise translated(error) from None


async def _check_server(connection: psycopg.AsyncConnection[Any]) -> None:
    version = connection.info.server_version
    if version < _MINIMUM:
        raise StorageUnavailable(
            f"PostgreSQL {version // 10_000} is too old: stepwell needs 14 or newer", hint="upgrade the server"
        )
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise StorageUnavailable(
            f"the database's encoding is {encoding}, so it cannot hold every text",
            hint="create the database with ENCODING 'UTF8'",
        )


async def _version(connection: psycopg.AsyncConnection[Any]) -> str | None:
    cursor = await connection.execute("SELECT to_regclass('stepwell.alembic_version')::text")
    row = await cursor.fetchone()
    if row is None or row[0] is None:
        return None
    row = await (await connection.execute("SELECT version_num FROM stepwell.alembic_version")).fetchone()
    found = None if row is None else str(row[0])
    if found is not None and found > LATEST:
        raise SchemaTooNew(
            f"the database has schema {found}; this stepwell knows up to {LATEST}", found=found, known=LATEST
        )
    return found


def _migrate(dsn: str) -> None:
    from alembic import command
    from alembic.config import Config
    from sqlalchemy import create_engine, pool
    from sqlalchemy.exc import DBAPIError

    with psycopg.connect(dsn, autocommit=True) as guard:
        guard.execute("SELECT pg_advisory_lock(%s)", (_MIGRATING,))
        guard.execute("CREATE SCHEMA IF NOT EXISTS stepwell")
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=pool.NullPool)
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).with_name("migrations")))
        try:
            with engine.begin() as connection:
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except DBAPIError as error:  # its text is the whole script
            if isinstance(error.orig, psycopg.Error):
                raise error.orig from None
            raise
