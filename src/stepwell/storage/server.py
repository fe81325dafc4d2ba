"""The stores of `ctx.storage.server`: a server over HTTP, or the server's own database."""

from stepwell.settings import Settings
from stepwell.storage.declaration import DataStorage, ScopeModel
from stepwell.storage.logins import Logins, normal_url
from stepwell.storage.unavailable import UnavailableBackend
from stepwell.store.backend import Backend
from stepwell.store.entries import Domain


class ServerStores:
    """Data of a server, over HTTP.

    Args:
        url, key: the server and the token for it.
        patience: seconds for which requests are repeated while the server cannot be reached.
    """

    def __init__(self, url: str, key: str, *, patience: float = 20.0) -> None:
        from stepwell.store.http import HttpBackend

        self.names: dict[str, str] = {}
        self.remote = HttpBackend(url, key, names=self.names, patience=patience)

    def backend(self, project_id: str | None, domain: Domain) -> Backend:
        return self.remote

    def introduce(self, project_id: str, name: str) -> None:
        """Give a project's name: it is made known to the server at its first use there."""
        self.names[project_id] = name

    async def close(self) -> None:
        await self.remote.close()


class DatabaseStores:
    """Data of a server, in its database itself: for processes that are part of the server.

    Args:
        dsn: the database.
        direct_dsn: the same past a pooler.
    """

    remote = None

    def __init__(self, dsn: str, direct_dsn: str | None = None) -> None:
        from stepwell.store.postgres import PostgresBackend

        self._backend = PostgresBackend(dsn, direct_dsn=direct_dsn)

    def backend(self, project_id: str | None, domain: Domain) -> Backend:
        return self._backend

    async def close(self) -> None:
        await self._backend.close()


class UnconnectedStores:
    """A server that cannot be used as it is configured: every call says why.

    Args:
        problem, hint: what is missing.
    """

    remote = None

    def __init__(self, problem: str | None = None, hint: str | None = None) -> None:
        self._backend = UnavailableBackend("server", problem, hint)

    def backend(self, project_id: str | None, domain: Domain) -> Backend:
        return self._backend

    async def close(self) -> None:
        """Nothing is open."""


def server_stores(settings: Settings, *, patience: float = 20.0) -> ServerStores | DatabaseStores | UnconnectedStores:
    """The server the settings name. Does no I/O with it.

    `STEPWELL_SERVER_URL` with `STEPWELL_SERVER_KEY` come first, then the login file, then `STEPWELL_DATABASE_URL`. An
    address that a project's manifest names gets only a key that was made for it by `stepwell login`: a project from
    elsewhere must not be able to have the user's key sent to its own server.

    Raises:
        InvalidArgument: the login file is damaged, or others may read it.
    """
    url, key = settings.server_url, settings.server_key
    if url is None and settings.database_url is not None:
        return DatabaseStores(settings.database_url, settings.database_direct_url)
    if url is None or key is None or settings.origin("server_url") == "project manifest":
        login = Logins().find(url)
        if login is None and url is None:
            return UnconnectedStores()
        if login is None:
            hint = f"`stepwell login {url}`"
            if key is not None:
                hint += "; STEPWELL_SERVER_KEY is used only for an address that STEPWELL_SERVER_URL or you name"
            return UnconnectedStores(f"there is no key for the server {url}", hint)
        url, key = login.url, login.key
    return ServerStores(normal_url(url or ""), key, patience=patience)


def server_stores_for(
    settings: Settings,
    project_id: str,
    name: str,
    data_storage: DataStorage,
    scope_model: ScopeModel,
    *,
    patience: float = 20.0,
) -> ServerStores | DatabaseStores | UnconnectedStores | None:
    """The server's stores, where a project's declaration lets it use them; None where it does not."""
    if data_storage is DataStorage.LOCAL and scope_model is not ScopeModel.WORKFLOW:
        return None
    stores = server_stores(settings, patience=patience)
    if isinstance(stores, ServerStores):
        stores.introduce(project_id, name)
    return stores
