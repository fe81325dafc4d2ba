"""Settings, each with its origin: flag > environment > project > user > default.

The environment names are `STEPWELL_` and the setting in capitals; a dot in a setting is two underscores
(`STEPWELL_SERVER__URL` and the short `STEPWELL_SERVER_URL` mean the same). The user's file is `config.toml` in the
user configuration folder.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from stepwell.errors import InvalidArgument

NAMES = (
    "home", "kv_store_dir", "persistent_value_store_dir", "server_url", "server_key", "database_url",
    "database_direct_url",
)  # fmt: skip
_SECRET = frozenset({"server_key", "database_url", "database_direct_url"})
_NOT_IN_MANIFEST = _SECRET
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

    @property
    def database_url(self) -> str | None:
        """The PostgreSQL database of a server, where this process is part of one. It may hold a password."""
        return self._values["database_url"].value

    @property
    def database_direct_url(self) -> str | None:
        """The same database past a connection pooler, for the connection that listens."""
        return self._values["database_direct_url"].value

    def origin(self, name: str) -> str:
        """Where a setting comes from; see `Setting`."""
        return self._values[name].origin

    def all(self) -> list[Setting]:
        """Every setting with its origin, in a fixed order."""
        return [self._values[name] for name in NAMES]


def load_settings(
    flags: Mapping[str, str | None] | None = None,
    *,
    project: Mapping[str, Any] | None = None,
    project_folder: str | None = None,
    environ: Mapping[str, str] | None = None,
    user_file: str | None = None,
) -> Settings:
    """Collect the settings.

    Args:
        flags: from the command line, by setting name; None values do not count.
        project: the manifest's `[tool.stepwell.settings]` table.
        project_folder: what relative folders in that table are relative to. From the command line they are relative
            to the current folder; from anywhere else they are refused, because they would mean another data set
            wherever the program is started.
        environ: the environment; the process's own by default.
        user_file: the user's config.toml; found in the user configuration folder by default.

    Raises:
        InvalidArgument: a value is empty, of the wrong type, a relative folder, a file where a folder is needed, or
            no http(s) address; or the user's file cannot be read.
    """
    environ = os.environ if environ is None else environ
    user_file = user_file or _user_file(environ)
    user = _read_user_file(user_file)
    values: dict[str, Setting] = {}
    for name in NAMES:
        setting = (
            _given(name, (flags or {}).get(name), "flag", os.curdir)
            or _from_environment(name, environ)
            or _given(name, _lookup(project or {}, name), "project manifest", project_folder)
            or _given(name, _lookup(user, name), f"user {user_file}")
        )
        values[name] = setting or Setting(name, _default(name, values, environ), "default")
    return Settings(values)


def unknown_settings(table: Mapping[str, Any], *, manifest: bool = False) -> list[str]:
    """What is wrong with the names of a table of settings, a line each.

    Args:
        table: from the user's file or a manifest.
        manifest: a manifest is shared and versioned, so it must not hold secrets.
    """
    problems = []
    for key, value in table.items():
        parts = [f"{key}.{inner}" for inner in value] if isinstance(value, Mapping) else [key]
        for part in parts:
            name = part.replace(".", "_").replace("-", "_")
            if name not in NAMES:
                problems.append(
                    f"{one_line(part)}: unknown setting{suggest(part, [known.replace('_', '-') for known in NAMES])}"
                )
            elif manifest and name in _NOT_IN_MANIFEST:
                problems.append(f"{part}: a secret does not belong in a manifest; use STEPWELL_{name.upper()}")
    return problems


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Environment variables that look like settings and are none, a line each."""
    known = [variable for name in NAMES for variable in _variables(name)]
    return [
        f"{name}: unknown variable{suggest(name, known)}"
        for name in sorted(environ)
        if name.startswith("STEPWELL_") and name not in known and not name.startswith("STEPWELL_PROVIDERS__")
    ]


def one_line(name: str) -> str:
    """A name from a file as it may stand in a line."""
    return name if name.isprintable() and len(name) <= 80 else f"{name!r:.80}"


def suggest(name: str, known: Sequence[str]) -> str:
    """`; did you mean …?` where a known name is close, else the known names."""
    from difflib import get_close_matches

    close = get_close_matches(name, known, 1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(known)}"


def _given(name: str, value: Any, origin: str, base: str | None = None) -> Setting | None:
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip() or "\x00" in value:
        problem, hint = "it must be non-empty text", "unset it to use the default"
    elif name in _FOLDERS:
        value = os.path.expanduser(value)
        if base is not None:
            value = os.path.abspath(os.path.join(base, value))
        problem, hint = "", "give an absolute path, or unset it to use the default"
        if not os.path.isabs(value):
            problem = "a relative folder would be another one wherever the program is started"
        elif os.path.lexists(value) and not os.path.isdir(value):
            problem = "there is something that is no folder"
    elif name == "server_url" and not value.startswith(("http://", "https://")):
        problem, hint = "it must begin with http:// or https://", "give the server's address"
    elif name.startswith("database") and not value.startswith(("postgresql://", "postgres://")):
        problem, hint = "it must begin with postgresql://", "give the database's address"
    else:
        return Setting(name, value, origin)
    if problem:
        shown = "[set]" if name in _SECRET else f"{value!r:.200}"
        raise InvalidArgument(f"the setting {name} ({origin}) is {shown}: {problem}", hint=hint, setting=name)
    return Setting(name, value, origin)


def _from_environment(name: str, environ: Mapping[str, str]) -> Setting | None:
    for variable in _variables(name):
        if variable in environ:
            return _given(name, environ[variable], f"env {variable}")
    return None


def _variables(name: str) -> tuple[str, ...]:
    section, _, rest = name.upper().partition("_")
    return (f"STEPWELL_{name.upper()}", f"STEPWELL_{section}__{rest}") if rest else (f"STEPWELL_{section}",)


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
            table = tomllib.load(file)
    except (OSError, ValueError, RecursionError) as error:
        reason = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
        raise InvalidArgument(f"the settings file {path} cannot be read: {reason}", path=path) from None
    problems = unknown_settings(table)
    if problems:
        raise InvalidArgument(f"the settings file {path} is wrong: {'; '.join(problems)}", path=path, problems=problems)
    return table
