"""Running the server: the database, the first administrator, the HTTP server, and a clean stop."""

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import uvicorn
from starlette.types import ASGIApp

from stepwell.errors import AccountConflict, StorageUnavailable
from stepwell.server.access import hashed, new_secret
from stepwell.server.app import create_app
from stepwell.server.limits import Limits
from stepwell.server.services import Services
from stepwell.store.accounts import AccountStore
from stepwell.store.postgres import PostgresBackend

DRAIN_SECONDS = 10


class Options(NamedTuple):
    """How to serve.

    Args:
        host, port: where to listen; port 0 takes a free one.
        allow_hosts, allow_origins: names and web origins beyond this machine's own. Without names, a server that
            listens beyond this machine answers to every name.
        limits: sizes, rates, streams.
    """

    host: str = "127.0.0.1"
    port: int = 8765
    allow_hosts: Sequence[str] = ()
    allow_origins: Sequence[str] = ()
    limits: Limits = Limits()


async def serve(
    dsn: str,
    options: Options,
    *,
    direct_dsn: str | None = None,
    on_ready: Callable[[str, str | None], None] = lambda _url, _key: None,
    stop: asyncio.Event | None = None,
) -> None:
    """Serve until a signal or `stop` says so; then let running requests finish.

    Args:
        dsn, direct_dsn: the database.
        options: where and how.
        on_ready: gets the address, and at the first start ever the administrator's key.
        stop: ends the server, besides SIGTERM and SIGINT.

    Raises:
        StorageUnavailable: the port is taken, or the database cannot be reached.
        SchemaTooNew: the database is of a newer stepwell.
    """
    backend = PostgresBackend(dsn, direct_dsn=direct_dsn)
    try:
        await backend.prepare()
        key = await first_administrator(AccountStore(backend))
        held = Services(backend, options.limits)
        is_local = options.host in ("127.0.0.1", "::1", "localhost")
        hosts = (options.host, *options.allow_hosts) if is_local or options.allow_hosts else None
        app = create_app(held, hosts=hosts, origins=options.allow_origins)
        with _listen(options.host, options.port) as listener:
            port = listener.getsockname()[1]
            server = _Server(uvicorn_config(app))
            ending = stop or asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                with suppress(NotImplementedError, RuntimeError, ValueError):
                    loop.add_signal_handler(number, ending.set)
            serving = asyncio.create_task(server.serve([listener]))
            while not server.started and not serving.done():  # noqa: ASYNC110  (uvicorn has no event for it)
                await asyncio.sleep(0.005)
            if not serving.done():
                on_ready(f"http://{options.host}:{port}", key)
            waiting = asyncio.create_task(ending.wait())
            await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            held.streams.closing.set()
            server.should_exit = True
            await serving
    finally:
        await backend.close()


async def first_administrator(accounts: AccountStore) -> str | None:
    """The key of a new administrator if there is no user yet. It is stored as a hash only."""
    if await accounts.accounts():
        return None
    secret = new_secret()
    try:
        admin = await accounts.add_account("admin", admin=True)
    except AccountConflict:  # another server, started at the same time, was first
        return None
    await accounts.add_token(admin.id, "first key", hashed(secret))
    return secret


class _Server(uvicorn.Server):
    """Signals are ours."""

    def install_signal_handlers(self) -> None:
        """Nothing to install."""


def uvicorn_config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", server_header=False, date_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS, timeout_keep_alive=30, ws="none",
    )  # fmt: skip


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sends at once (TCP_NODELAY): without it each answer waits 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise StorageUnavailable(
            f"the server cannot listen on {host}:{port}: {error.strerror}", hint="give another one with --port"
        ) from None
    listener.listen(1_024)
    return listener
