"""Settings, each with its origin: flag > environment > project > user > default.

The environment names are `STEPWELL_` and the setting in capitals; a dot in a setting is two underscores
(`STEPWELL_SERVER__URL` and the short `STEPWELL_SERVER_URL` mean the same). The user's file is `config.toml` in the
user configuration folder.
"""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from stepwell.errors import InvalidArgument

_NAMES = ("home", "kv_store_dir", "persistent_value_store_dir", "server_url", "server_key")
_SECRET = frozenset({"server_key"})
_FOLDERS = frozenset({"home", "kv_store_dir", "persistent_value_store_dir"})


class Setting(NamedTuple):
    """One value and where it came from: `flag`, `env NAME`, `project FILE`, `user FILE` or `default`."""

    name: str
    value: str | None
    origin: str

    @property
    def shown(self) -> str | None:
        """The value as it may be shown: secrets are masked."""
        return "[set]" if self.name in _SECRET and self.value else self.value


class Settings:
    """All settings of a process. Paths are absolute."""

    def __init__(self, values: Mapping[str, Setting]) -> None:
        self._values = values

    @property
    def home(self) -> str:
        """Folder of run journals, files and everything else that is not set apart."""
        return self._values["home"].value or ""

    @property
    def kv_dir(self) -> str:
        """Folder of local KV and conversation state."""
        return self._values["kv_store_dir"].value or ""

    @property
    def persistent_value_dir(self) -> str:
        """Folder of local persistent values and Knowledge."""
        return self._values["persistent_value_store_dir"].value or ""

    @property
    def server_url(self) -> str | None:
        """The server to connect `storage.server` to, if any."""
        return self._values["server_url"].value

    @property
    def server_key(self) -> str | None:
        """The key sent to that server. Never show it."""
        return self._values["server_key"].value

    def all(self) -> list[Setting]:
        """Every setting with its origin, in a fixed order."""
        return [self._values[name] for name in _NAMES]


def load_settings(
    flags: Mapping[str, str | None] | None = None,
    *,
    project: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    user_file: str | None = None,
) -> Settings:
    """Collect the settings.

    Args:
        flags: from the command line, by setting name; None values do not count.
        project: the manifest's `[tool.stepwell.settings]` table.
        environ: the environment; the process's own by default.
        user_file: the user's config.toml; found in the user configuration folder by default.

    Raises:
        InvalidArgument: a value is empty, has the wrong type, or the user's file cannot be read.
    """
    environ = os.environ if environ is None else environ
    user_file = user_file or _user_file(environ)
    user = _read_user_file(user_file)
    values: dict[str, Setting] = {}
    for name in _NAMES:
        setting = (
            _given(name, (flags or {}).get(name), "flag")
            or _from_environment(name, environ)
            or _given(name, _lookup(project or {}, name), "project manifest")
            or _given(name, _lookup(user, name), f"user {user_file}")
        )
        if setting is None:
            setting = Setting(name, _default(name, values, environ), "default")
        elif name in _FOLDERS:
            setting = setting._replace(value=os.path.abspath(os.path.expanduser(setting.value or "")))
        values[name] = setting
    return Settings(values)


def _given(name: str, value: Any, origin: str) -> Setting | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        raise InvalidArgument(
            f"the setting {name} ({origin}) is {value!r:.80}: it must be non-empty text",
            hint="unset it to use the default",
            setting=name,
        )
    return Setting(name, value, origin)


def _from_environment(name: str, environ: Mapping[str, str]) -> Setting | None:
    section, _, rest = name.partition("_")
    for variable in (f"STEPWELL_{name.upper()}", f"STEPWELL_{section.upper()}__{rest.upper()}"):
        if variable in environ:
            return _given(name, environ[variable], f"env {variable}")
    return None


def _lookup(table: Mapping[str, Any], name: str) -> Any:
    """A setting in a TOML table: `server-url`, `server_url` or `[server] url`."""
    section, _, rest = name.partition("_")
    for key in (name, name.replace("_", "-")):
        if key in table:
            return table[key]
    nested = table.get(section)
    return nested.get(rest.replace("_", "-"), nested.get(rest)) if isinstance(nested, Mapping) and rest else None


def _default(name: str, known: Mapping[str, Setting], environ: Mapping[str, str]) -> str | None:
    if name == "home":
        return _user_data_dir(environ)
    if name == "kv_store_dir":
        return os.path.join(known["home"].value or "", "kv")
    if name == "persistent_value_store_dir":
        return os.path.join(known["home"].value or "", "persistent")
    return None


def _user_data_dir(environ: Mapping[str, str]) -> str:
    # On Linux this is one variable or one path; asking platformdirs there would cost 10 ms of start-up.
    if os.sep == "/" and os.uname().sysname == "Linux":
        base = environ.get("XDG_DATA_HOME", "")
        return os.path.join(base if base.startswith("/") else os.path.expanduser("~/.local/share"), "stepwell")
    import platformdirs

    return platformdirs.user_data_dir("stepwell", appauthor=False)


def _user_file(environ: Mapping[str, str]) -> str:
    if os.sep == "/" and os.uname().sysname == "Linux":
        base = environ.get("XDG_CONFIG_HOME", "")
        folder = base if base.startswith("/") else os.path.expanduser("~/.config")
        return os.path.join(folder, "stepwell", "config.toml")
    import platformdirs

    return os.path.join(platformdirs.user_config_dir("stepwell", appauthor=False), "config.toml")


def _read_user_file(path: str) -> dict[str, Any]:
    if not os.path.exists(path):
        return {}
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"the settings file {path} cannot be read: {error}", path=path) from None
