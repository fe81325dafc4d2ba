"""Closing a run's storage with the run: code that was given up must not go on writing."""

from collections.abc import Callable, Mapping
from typing import Any

from stepwell.errors import RunClosed
from stepwell.storage.location import Remote, Stores
from stepwell.store.backend import Backend
from stepwell.store.entries import Domain
from stepwell.store.forwarding import ForwardingBackend


class RunStores:
    """The stores of one location as one run sees them.

    Args:
        stores: whose backends are used.
        is_closed: true once the run has ended; from then on every call raises RunClosed.
    """

    def __init__(self, stores: Stores, is_closed: Callable[[], bool]) -> None:
        self._stores = stores
        self._is_closed = is_closed
        self._backends: dict[tuple[str | None, Domain], RunBackend] = {}

    def backend(self, project_id: str | None, domain: Domain) -> Backend:
        """The guarded backend; the same one every time, because transactions recognise it by identity."""
        key = (project_id, domain)
        if key not in self._backends:
            self._backends[key] = RunBackend(self._stores.backend(project_id, domain), self._is_closed)
        return self._backends[key]

    @property
    def remote(self) -> Remote | None:
        """The server behind the stores, guarded."""
        remote = self._stores.remote
        return None if remote is None else RunRemote(remote, self._is_closed)

    async def close(self) -> None:
        """Nothing: the host closes the stores."""


class RunRemote:
    """A server that works as long as its run; see `Remote`."""

    def __init__(self, remote: Remote, is_closed: Callable[[], bool]) -> None:
        self._remote = remote
        self._is_closed = is_closed

    def _open(self) -> Remote:
        if self._is_closed():
            raise RunClosed("the run has ended; its storage can no longer be used")
        return self._remote

    async def ask(self, method: str, path: str, query: Mapping[str, str], body: Any = None) -> Any:
        return await self._open().ask(method, path, query, body)

    async def once(self, path: str, query: Mapping[str, str], body: dict[str, Any], *, method: str = "POST") -> Any:
        return await self._open().once(path, query, body, method=method)


class RunBackend(ForwardingBackend):
    """A backend that works as long as its run; see `Backend`."""

    def __init__(self, backend: Backend, is_closed: Callable[[], bool]) -> None:
        self._backend = backend
        self._is_closed = is_closed

    def _target(self) -> Backend:
        if self._is_closed():
            raise RunClosed("the run has ended; its storage can no longer be used")
        return self._backend
