"""One suite for every backend: to add one, add its factory to `FACTORIES`; the tests stay as they are."""

import atexit
from collections.abc import AsyncIterator, Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from stepwell.knowledge.documents import Knowledge
from stepwell.knowledge.remote import RemoteKnowledge
from stepwell.storage.kv import KeyValue
from stepwell.store.backend import Backend
from stepwell.store.entries import Domain, Namespace, Scope, Span, Write
from stepwell.store.http import HttpBackend
from stepwell.store.memory import MemoryBackend
from stepwell.store.postgres import PostgresBackend
from stepwell.store.sqlite_backend import SqliteBackend
from tests.databases import Database
from tests.servers import ThreadServer

PROJECT = "01936d3f-6a00-7000-8000-0000000000aa"
NS = Namespace(PROJECT, Domain.KV, Scope.PROJECT)
OTHER = Namespace(PROJECT, Domain.KV, Scope.CONVERSATION, conversation_id="c1")


class AnyName(dict[str, str]):
    """A name for every project."""

    def get(self, key: str, default: object = None) -> str:  # type: ignore[override]
        return "conformance"


class Store:
    """A data set of one backend: `open()` gives a handle on it, as often as wanted."""

    def __init__(
        self, name: str, make: Callable[[], Backend], *, shared: bool, after: Callable[[], object] = lambda: None
    ) -> None:
        self.name = name
        self._after = after
        self.durable = shared
        self._make = make
        self._shared = shared
        self._opened: list[Backend] = []

    def open(self) -> Backend:
        """A handle; of a backend that lives in this process only, always the same one."""
        if not self._shared and self._opened:
            return self._opened[0]
        self._opened.append(self._make())
        return self._opened[-1]

    async def close(self) -> None:
        """Close every handle."""
        for backend in self._opened:
            await backend.close()
        self._after()


_database = cache(Database)


@cache
def _server() -> ThreadServer:
    server = ThreadServer()
    atexit.register(server.stop)
    return server


def _postgres(_: Path) -> Store:
    database = _database()
    return Store("postgres", lambda: PostgresBackend(database.dsn), shared=True, after=database.clear)


def _http(_: Path) -> Store:
    server = _server()
    assert server.key
    return Store(
        "http", lambda: HttpBackend(server.url, server.key, names=AnyName()), shared=True, after=server.database.clear
    )


FACTORIES: dict[str, Callable[[Path], Store]] = {
    "memory": lambda _: Store("memory", MemoryBackend, shared=False),
    "sqlite": lambda path: Store("sqlite", lambda: SqliteBackend(path / "data" / "x.kv.sqlite"), shared=True),
    "postgres": _postgres,
    "http": _http,
}


@pytest.fixture(params=list(FACTORIES))
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """An empty data set of each backend."""
    made = FACTORIES[request.param](tmp_path)
    yield made
    await made.close()


@pytest.fixture
def backend(store: Store) -> Backend:
    """A handle on an empty data set."""
    return store.open()


@pytest.fixture
def kv(backend: Backend) -> KeyValue:
    """The project scope of it."""
    return KeyValue(backend, NS)


def knowledge_on(backend: Backend, project_id: str = PROJECT) -> Knowledge:
    """A project's Knowledge as a run has it: of a server, operation by operation."""
    namespace = Namespace(project_id, Domain.PERSISTENT_VALUE, Scope.PROJECT)
    entries = KeyValue(backend, namespace)
    if isinstance(backend, HttpBackend):
        return RemoteKnowledge(entries, backend, f"/projects/{project_id}/knowledge")
    return Knowledge(entries)


async def fill(base: Knowledge, documents: Iterable[tuple[str, str, str]]) -> None:
    """Documents (title, Markdown, id) into an empty base, in one commit: one by one is for tests of creating."""
    backend, namespace = MemoryBackend(), base.entries.namespace
    made = Knowledge(KeyValue(backend, namespace))
    for document in documents:
        await made.create_document(*document)
    entries = await backend.scan(namespace, Span(), limit=10_000)
    await base.entries.backend.commit(namespace, (), [Write(entry.key, entry.text) for entry in entries])
