"""The login file: which servers this user is logged in to, and with which keys. It is readable by its owner only."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from stepwell.errors import InvalidArgument
from stepwell.settings import load_settings

FILE_NAME = "workflow-auth.json"


class Login(NamedTuple):
    """A key for a server. Never show `key`. `made` says that logging in made it, so logging out revokes it."""

    url: str
    key: str
    user: str
    made: bool = False

    def __repr__(self) -> str:
        return f"Login(url={self.url!r}, user={self.user!r})"


class Logins:
    """The logins in a file; the last one made is used where no server is named.

    Args:
        path: the file; by default `workflow-auth.json` in the user's own `STEPWELL_HOME`. A project's settings cannot
            move it: a folder somebody else wrote must not say where keys are sent.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or Path(load_settings().home) / FILE_NAME

    def all(self) -> list[Login]:
        """Every login, the current one first.

        Raises:
            InvalidArgument: the file is damaged, or others may read it.
        """
        try:
            with self.path.open(encoding="utf-8") as file:
                mode = os.fstat(file.fileno()).st_mode
                table = json.load(file)
            found = [Login(each["url"], each["key"], each["user"], each["made"]) for each in table["logins"]]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InvalidArgument(
                f"the login file {self.path} cannot be read: {type(error).__name__}",
                hint="remove it, then `stepwell login URL`",
                path=str(self.path),
            ) from None
        if os.name == "posix" and mode & 0o077:
            raise InvalidArgument(
                f"the login file {self.path} can be read by others",
                hint=f"chmod 600 {self.path}, and make new tokens if somebody may have read it",
                path=str(self.path),
            )
        return found

    def find(self, url: str | None) -> Login | None:
        """The login for a server; the current one without an address."""
        return next((login for login in self.all() if url is None or login.url == normal_url(url)), None)

    def add(self, login: Login) -> None:
        """Keep a login, in place of an earlier one for the same server, and make it the current one."""
        self._write([login, *(other for other in self.all() if other.url != login.url)])

    def remove(self, url: str) -> bool:
        """Forget a login; False if there was none."""
        every = self.all()
        rest = [login for login in every if login.url != normal_url(url)]
        if len(rest) < len(every):
            self._write(rest)
        return len(rest) < len(every)

    def _write(self, logins: list[Login]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        table: dict[str, Any] = {"format": 1, "logins": [login._asdict() for login in logins]}
        beside = self.path.with_suffix(f".{os.getpid()}")
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(table, file, indent=2)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.path)


def normal_url(url: str) -> str:
    """A server's address as it is compared.

    Raises:
        InvalidArgument: it is no http or https address, or holds a name and a password.
    """
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise InvalidArgument(f"{url!r:.200} is not a server's address", hint="for example http://127.0.0.1:8765")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    default = {"http": 80, "https": 443}[parts.scheme]
    return f"{parts.scheme}://{host}" + ("" if port in (None, default) else f":{port}") + parts.path.rstrip("/")
