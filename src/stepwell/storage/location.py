"""Where a project's data lives: `ctx.storage.local`, `ctx.storage.server`, and the host location."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol, Self

from stepwell.errors import ConversationRequired, ScopeUnavailable, StorageForbidden
from stepwell.storage.declaration import DataStorage, ScopeModel
from stepwell.storage.kv import KeyValue
from stepwell.storage.paths import local_path
from stepwell.storage.related import RelatedPlace, RelatedProjects
from stepwell.storage.scopes import OwnKeyValue, WorkflowScopes, own_place
from stepwell.storage.unavailable import UnavailableBackend
from stepwell.store.backend import Backend
from stepwell.store.entries import NO_SOURCE, Domain, Namespace, Scope, Source


class Remote(Protocol):
    """A server that does whole operations on request: one request each, one transaction each."""

    async def ask(self, method: str, path: str, query: Mapping[str, str], body: Any = None) -> Any:
        """A request under `/api/v1` that changes nothing, and its JSON answer; see `HttpBackend.ask`."""
        ...

    async def once(self, path: str, query: Mapping[str, str], body: dict[str, Any], *, method: str = "POST") -> Any:
        """A request that changes something, done exactly once; see `HttpBackend.once`."""
        ...


class Stores(Protocol):
    """The backends of one location."""

    @property
    def remote(self) -> Remote | None:
        """The server behind them, where one does whole operations by itself."""
        ...

    def backend(self, project_id: str | None, domain: Domain) -> Backend:
        """The backend that holds a project's domain; None for namespaces without a project. Does no I/O."""
        ...

    async def close(self) -> None:
        """Close every backend."""
        ...


class LocalStores:
    """Local data: one SQLite file per project and kind of data.

    Args:
        kv_dir: folder of KV and conversation state.
        persistent_value_dir: folder of persistent values and Knowledge. Never the KV files, also when both
            folders are the same.
    """

    remote = None

    def __init__(self, kv_dir: str | os.PathLike[str], persistent_value_dir: str | os.PathLike[str]) -> None:
        self.kv_dir = os.fspath(kv_dir)
        self.persistent_value_dir = os.fspath(persistent_value_dir)
        self._backends: dict[str, Backend] = {}

    def path(self, project_id: str | None, domain: Domain) -> str:
        """The database file of a project's domain."""
        return local_path(self.kv_dir, self.persistent_value_dir, project_id, domain)

    def backend(self, project_id: str | None, domain: Domain) -> Backend:
        from stepwell.store.sqlite_backend import SqliteBackend

        path = self.path(project_id, domain)
        backend = self._backends.get(path)
        if backend is None:
            backend = self._backends.setdefault(path, SqliteBackend(path))
        return backend

    async def close(self) -> None:
        for backend in self._backends.values():
            await backend.close()


class MemoryStores:
    """Data that lives as long as the process: for tests and scratch runs."""

    remote = None

    def __init__(self) -> None:
        self._backends: dict[tuple[str | None, bool], Backend] = {}

    def backend(self, project_id: str | None, domain: Domain) -> Backend:
        from stepwell.store.memory import MemoryBackend

        kind = (project_id, domain is Domain.PERSISTENT_VALUE)
        backend = self._backends.get(kind)
        if backend is None:
            backend = self._backends.setdefault(kind, MemoryBackend())
        return backend

    async def close(self) -> None:
        for backend in self._backends.values():
            await backend.close()


class ProjectKeyValue(KeyValue):
    """The project scope of a domain; `conversation` is the other scope."""

    def __init__(self, backend: Backend, namespace: Namespace, conversation: KeyValue | None, source: Source) -> None:
        super().__init__(backend, namespace, source=source)
        self._conversation = conversation

    @property
    def conversation(self) -> KeyValue:
        """The conversation scope.

        Raises:
            ConversationRequired: this run has no conversation.
        """
        if self._conversation is None:
            raise ConversationRequired(f"{self.namespace.domain}.conversation needs a conversation id")
        return self._conversation


class StorageLocation:
    """One location's data of a project: `kv`, `persistent_value`, each with `.conversation`, and related projects."""

    def __init__(
        self,
        name: str,
        stores: Stores | None,
        project_id: str,
        conversation_id: str | None,
        source: Source,
        related: RelatedPlace | None = None,
        own_kv: str | None = None,
    ) -> None:
        self.name = name
        self.related_projects = RelatedProjects(related, name)
        self.project_id = project_id
        self._stores = stores
        self.kv = self._project(Domain.KV, conversation_id, source, own_kv)
        self.persistent_value = self._project(Domain.PERSISTENT_VALUE, conversation_id, source, None)

    @property
    def remote(self) -> Remote | None:
        """The server behind this location, where one does whole operations by itself."""
        return None if self._stores is None else self._stores.remote

    def backend(self, domain: Domain, project_id: str | None = None) -> Backend:
        """The backend behind a domain of this location."""
        if self._stores is None:
            return UnavailableBackend(self.name)
        return self._stores.backend(project_id or self.project_id, domain)

    def global_backend(self, domain: Domain) -> Backend:
        """The backend of the namespaces that belong to no project (workflow scope model)."""
        return UnavailableBackend(self.name) if self._stores is None else self._stores.backend(None, domain)

    def _project(
        self, domain: Domain, conversation_id: str | None, source: Source, workflow: str | None
    ) -> ProjectKeyValue:
        backend = self.backend(domain)
        conversation = None
        if conversation_id is not None:
            namespace = Namespace(self.project_id, domain, Scope.CONVERSATION, workflow, conversation_id)
            conversation = KeyValue(backend, namespace, source=source)
        return ProjectKeyValue(
            backend, Namespace(self.project_id, domain, Scope.PROJECT, workflow), conversation, source
        )

    def __repr__(self) -> str:
        return f"<StorageLocation {self.name} of project {self.project_id}>"


class StorageParts(NamedTuple):
    """What a `Storage` is made of; see there."""

    local: Stores | None
    server: Stores | None
    project_id: str
    workflow_name: str
    conversation_id: str | None
    data_storage: DataStorage
    scope_model: ScopeModel
    source: Source
    related: RelatedPlace | None
    server_related: RelatedPlace | None
    own_kv: str | None = None


class Storage:
    """`ctx.storage`: the locations a project's declaration allows.

    Args:
        local, server: the connected stores; None where there is no connection.
        project_id: the project's UUID.
        workflow_name: names the workflow scope (workflow scope model).
        conversation_id: the run's conversation, if it has one.
        data_storage: the manifest's declaration.
        scope_model: the manifest's declaration.
        source: recorded as the last writer.
        related, server_related: what reaches related projects at each location, where something does.
    """

    def __init__(
        self,
        *,
        local: Stores | None,
        server: Stores | None,
        project_id: str,
        workflow_name: str = "",
        conversation_id: str | None = None,
        data_storage: DataStorage = DataStorage.LOCAL,
        scope_model: ScopeModel = ScopeModel.PROJECT,
        source: Source = NO_SOURCE,
        related: RelatedPlace | None = None,
        server_related: RelatedPlace | None = None,
    ) -> None:
        self._set(
            StorageParts(
                local, server, project_id, workflow_name, conversation_id, data_storage, scope_model, source, related,
                server_related,
            )
        )  # fmt: skip

    def _set(self, parts: StorageParts) -> None:
        self._parts = parts
        self.data_storage = parts.data_storage
        self.scope_model = parts.scope_model
        project_id, talk, source = parts.project_id, parts.conversation_id, parts.source
        self._local = StorageLocation("local", parts.local, project_id, talk, source, parts.related, parts.own_kv)
        self._server = StorageLocation(
            "server", parts.server, project_id, talk, source, parts.server_related, parts.own_kv
        )
        own = None
        if parts.own_kv is not None:
            place = own_place(None, parts.workflow_name, parts.own_kv)
            own = OwnKeyValue(self.host.backend(Domain.KV), project_id, place)
        self._scopes = WorkflowScopes(
            self.host.global_backend(Domain.KV),
            self._server.global_backend(Domain.PERSISTENT_VALUE),
            parts.workflow_name,
            talk,
            source,
            own,
        )

    def with_own_kv(self, name: str) -> Self:
        """The same storage for a workflow whose KV is its own: the project's and the conversation's are others there.

        What is global, and persistent values, stay shared. Within such a storage the name stands below the one it has.

        Args:
            name: of the workflow; storages of different names, or at different places, share nothing.
        """
        made = object.__new__(type(self))
        made._set(self._parts._replace(own_kv=own_place(self._parts.own_kv, name)))
        return made

    @property
    def local(self) -> StorageLocation:
        """Data on this machine.

        Raises:
            StorageForbidden: the project declares `data-storage = "server"`.
        """
        return self._allowed(self._local, DataStorage.LOCAL)

    @property
    def server(self) -> StorageLocation:
        """Data on the connected server; its calls raise `StorageUnavailable` when none is connected.

        Raises:
            StorageForbidden: the project declares `data-storage = "local"`.
        """
        return self._allowed(self._server, DataStorage.SERVER)

    @property
    def host(self) -> StorageLocation:
        """The location of conversation state and token totals: server for `server`, local otherwise."""
        return self._server if self.data_storage is DataStorage.SERVER else self._local

    @property
    def scopes(self) -> WorkflowScopes:
        """`ctx.kv` and `ctx.persistent_value` of the workflow scope model.

        Raises:
            ScopeUnavailable: the project uses the project scope model.
        """
        if self.scope_model is not ScopeModel.WORKFLOW:
            raise ScopeUnavailable(
                'ctx.kv and ctx.persistent_value exist only under scope-model = "workflow"',
                hint="use ctx.storage.local.kv or ctx.storage.server.persistent_value",
            )
        return self._scopes

    def any_location(self, name: str) -> StorageLocation:
        """A location by name, with the same rules."""
        return self.local if name == "local" else self.server

    def _allowed(self, location: StorageLocation, needed: DataStorage) -> StorageLocation:
        if self.data_storage not in (needed, DataStorage.BOTH):
            raise StorageForbidden(
                f'this project declares data-storage = "{self.data_storage}", so ctx.storage.{needed} is closed to it',
                hint=f'declare data-storage = "both" (or "{needed}") in [tool.stepwell]',
                location=needed.value,
            )
        return location
