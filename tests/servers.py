"""Real HTTP servers for tests: in a thread of this process, or in a process of their own that can be killed."""

import asyncio
import threading
from concurrent.futures import Future
from typing import Self

import httpx

from stepwell.server.limits import Limits
from stepwell.server.serve import Options, serve
from tests.databases import Database


class ThreadServer:
    """A server on its own event loop in a thread, on a database of its own.

    Args:
        database: shared with other servers, if given.
        limits: what it allows.
    """

    def __init__(self, database: Database | None = None, limits: Limits | None = None) -> None:
        self._own = database is None
        self.database = database or Database()
        self._limits = limits or Limits(requests_per_second=1e6, burst=10**6)
        self._ready: Future[tuple[str, str | None]] = Future()
        self._thread = threading.Thread(target=self._run, name="test-server", daemon=True)
        self._thread.start()
        self.url, self.key = self._ready.result(timeout=30)

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            await serve(
                self.database.dsn,
                Options(port=0, limits=self._limits),
                on_ready=lambda url, key: self._ready.set_result((url, key)),
                stop=self._stop,
            )
        except BaseException as error:
            if not self._ready.done():
                self._ready.set_exception(error)
            raise

    def stop(self) -> None:
        """Stop it cleanly, and drop its database."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(timeout=20)
        if self._own:
            self.database.drop()

    def client(self, key: str | None = None) -> httpx.Client:
        """A plain HTTP client with a key; the administrator's by default."""
        return httpx.Client(
            base_url=f"{self.url}/api/v1", headers={"Authorization": f"Bearer {key or self.key}"}, timeout=30
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
