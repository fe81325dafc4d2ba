"""Requests of commands to the server."""

from stepwell.cli.place import PATIENCE_SECONDS
from stepwell.cli.render import Output
from stepwell.errors import StorageUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from stepwell.storage.logins import Login


class Server:
    """The server a command talks to.

    Args:
        url, key: its address and a token; the key is never shown.
    """

    def __init__(self, url: str, key: str) -> None:
        self.url = url
        self._key = key

    def ask(self, method: str, path: str, body: "Any" = None, query: "Mapping[str, str] | None" = None) -> "Any":
        """A request under `/api/v1`, and its JSON answer.

        Raises:
            StepwellError: what the server answered.
            StorageUnavailable: no answer.
        """
        import asyncio

        from stepwell.store.http_client import Client

        async def asked() -> "Any":
            # Without repeats: what is asked for here may not be done twice.
            client = Client(self.url, self._key, {}, PATIENCE_SECONDS if method == "GET" else 0)
            try:
                return await client.ask(method, path, query or {}, body)
            finally:
                await client.close()

        return asyncio.run(asked())


def server_of(output: Output, url: str | None = None) -> Server:
    """The server of the settings or of the login file, as for `storage.server`.

    Args:
        url: another one that the user is logged in to.

    Raises:
        StorageUnavailable: there is none, or no key for it.
    """
    from stepwell.settings import load_settings
    from stepwell.storage.logins import Logins, normal_url

    settings = load_settings()
    key = settings.server_key if url is None or url == settings.server_url else None
    url = url or settings.server_url
    login: Login | None = None
    if url is None or key is None:
        login = Logins().find(url)
        if login is None:
            known = "no server is connected" if url is None else f"there is no key for {url}"
            raise StorageUnavailable(known, hint=f"`stepwell login {url or 'URL'}`", location="server")
    return Server(login.url, key or login.key) if login else Server(normal_url(url or ""), key or "")
