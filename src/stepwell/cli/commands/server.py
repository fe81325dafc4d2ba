"""`stepwell server`: serve storage, Knowledge and accounts to other machines."""

import sys

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.render import Output
from stepwell.errors import InvalidArgument, StorageUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=8765, show_default=True, help="0 takes a free one.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name under which requests may come.")
@click.option("--allow-origin", multiple=True, metavar="ORIGIN", help="A web origin that may call the API.")
@click.option("--data-dir", metavar="DIR", help="Of the embedded PostgreSQL; default: `server` in STEPWELL_HOME.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@common
@pass_output
def server(
    output: Output, host: str, port: int, allow_host: tuple[str, ...], allow_origin: tuple[str, ...],
    data_dir: str | None, log_level: str,
) -> None:  # fmt: skip
    """Serve the API until SIGTERM or Ctrl-C; the log goes to stderr, a JSON object a line.

    Without STEPWELL_DATABASE_URL it runs a PostgreSQL of its own. The first start prints the administrator's key,
    once.
    """
    import asyncio
    from importlib.util import find_spec

    if any(find_spec(module) is None for module in ("fastapi", "uvicorn", "psycopg", "argon2", "alembic")):
        raise StorageUnavailable("the server's parts are not installed", hint="pip install 'stepwell[server]'")
    from stepwell.server import logs
    from stepwell.server.serve import Options, serve
    from stepwell.settings import load_settings

    settings = load_settings()
    if data_dir is not None and settings.database_url is not None:
        raise InvalidArgument(
            "--data-dir is of the embedded PostgreSQL, and STEPWELL_DATABASE_URL names another one",
            hint="give one of the two",
            argument="--data-dir",
        )
    logs.configure(log_level.upper())
    options = Options(host, port, allow_host, allow_origin)

    def ready(url: str, key: str | None) -> None:
        told = {"url": url} if key is None else {"url": url, "admin_key": key}
        text = f"stepwell serves {url}"
        if key is not None:
            text += f"\nadmin key, shown this once: {key}\nuse it: stepwell login {url}"
        output.data(told, text)
        sys.stdout.flush()

    with _database(settings.database_url, data_dir or f"{settings.home}/server") as dsn:
        direct = settings.database_direct_url if settings.database_url is not None else None
        asyncio.run(serve(dsn, options, direct_dsn=direct, on_ready=ready))


def _database(url: str | None, folder: str) -> "AbstractContextManager[str]":
    from contextlib import contextmanager, nullcontext
    from pathlib import Path

    if url is not None:
        return nullcontext(url)
    from stepwell.server.embedded_postgres import EmbeddedPostgres

    @contextmanager
    def embedded():  # type: ignore[no-untyped-def]
        postgres = EmbeddedPostgres(Path(folder))
        postgres.start()
        try:
            yield postgres.dsn
        finally:
            postgres.stop()

    return embedded()
