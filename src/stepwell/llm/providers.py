"""Providers of models as a project and its environment declare them.

    [tool.stepwell.providers.main]
    type = "anthropic"
    model = "claude-sonnet-4-5"

`STEPWELL_PROVIDERS__MAIN__MODEL` and the like set or replace a field. A key never stands in the manifest: it comes from
the environment (`STEPWELL_PROVIDERS__MAIN__API_KEY`, or the variable of the provider's vendor), or from a keyring.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from stepwell.errors import ProviderInvalid
from stepwell.settings import one_line, suggest

PREFIX = "STEPWELL_PROVIDERS__"
DEFAULT = "default"


class Vendor(NamedTuple):
    """What a provider type needs: the variables a key may be in, and whether it works without a key or a URL."""

    key_variables: tuple[str, ...]
    needs_key: bool = True
    needs_url: bool = False


VENDORS: dict[str, Vendor] = {
    "openai": Vendor(("OPENAI_API_KEY",)),
    "openai-chat": Vendor(("OPENAI_API_KEY",)),
    "anthropic": Vendor(("ANTHROPIC_API_KEY",)),
    "google": Vendor(("GOOGLE_API_KEY", "GEMINI_API_KEY")),
    "openai-compatible": Vendor((), needs_key=False, needs_url=True),
    "test": Vendor((), needs_key=False),
}
"""`openai` speaks the Responses API, `openai-chat` Chat Completions, `test` answers offline."""

_MODEL_SETTINGS = ("temperature", "top-p", "max-tokens", "thinking", "seed", "parallel-tool-calls", "cache")


class ProviderSpec(NamedTuple):
    """A provider that can be called. `timeout` and `max_wait` are seconds; `settings` go to the model as they are.

    `max_wait` is the longest pause before a further attempt: a provider that asks for more is not waited for.
    """

    name: str
    type: str
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    api_key_keyring: str | None = None
    timeout: float = 120.0
    max_retries: int = 3
    max_wait: float = 30.0
    output: str = "tool"
    text: str | None = None
    settings: tuple[tuple[str, Any], ...] = ()


_FIELDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "type": (f"one of {', '.join(VENDORS)}", lambda value: value in VENDORS),
    "model": ("the name of a model", lambda value: _is_text(value)),
    "base-url": ("an http(s) URL", lambda value: _is_text(value) and value.startswith(("http://", "https://"))),
    "api-key-env": ("the name of an environment variable", lambda value: _is_text(value) and value.isidentifier()),
    "api-key-keyring": ('"service/user"', lambda value: _is_text(value) and value.count("/") >= 1),
    "timeout": ("seconds over 0", lambda value: _is_number(value) and value > 0),
    "max-retries": ("a whole number from 0 to 20", lambda value: type(value) is int and 0 <= value <= 20),
    "max-wait": ("seconds from 0", lambda value: _is_number(value) and value >= 0),
    "output": ("tool or native", lambda value: value in ("tool", "native")),
    "text": ("text", lambda value: isinstance(value, str)),
    "settings": ("a table", lambda value: isinstance(value, Mapping)),
}
_SECRET_FIELDS = ("api-key", "key", "token", "secret", "password")


def provider_problems(providers: Mapping[str, Any]) -> list[str]:
    """What is wrong with a manifest's `providers` table, a line each."""
    problems = []
    for name, table in providers.items():
        shown = f"providers.{one_line(name)}"
        if not name.replace("-", "_").isidentifier() or not name.isascii():
            problems.append(f"{shown}: a name is a letter and then letters, digits, - and _")
        if not isinstance(table, Mapping):
            problems.append(f"{shown}: not a table")
            continue
        problems += [f"{shown}.{problem}" for problem in _table_problems(table)]
    return problems


def _table_problems(table: Mapping[str, Any]) -> list[str]:
    problems = []
    for field, value in table.items():
        if field.replace("_", "-") in _SECRET_FIELDS:
            problems.append(f"{field}: a key does not belong in a manifest; name its variable in api-key-env")
        elif field not in _FIELDS:
            problems.append(f"{one_line(field)}: unknown key{suggest(field, list(_FIELDS))}")
        elif not _FIELDS[field][1](value):
            problems.append(f"{field}: {value!r:.80} is not {_FIELDS[field][0]}")
        elif field == "settings":
            problems += [
                f"settings.{one_line(key)}: unknown key{suggest(key, _MODEL_SETTINGS)}"
                for key in value
                if key not in _MODEL_SETTINGS
            ]
    return problems


def provider_names(providers: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> list[str]:
    """The names that the manifest and the environment declare, in that order."""
    named = dict.fromkeys(providers)
    for variable in sorted(environ):
        name, separator, _ = variable.removeprefix(PREFIX).partition("__")
        if variable.startswith(PREFIX) and separator:
            known = [other for other in named if _variable_part(other) == name]
            named.setdefault(known[0] if known else name.lower())
    return list(named)


def provider_spec(
    name: str | None, providers: Mapping[str, Any], environ: Mapping[str, str] = os.environ
) -> ProviderSpec:
    """One provider: by name, or as `type:model`; without a name the one called `default`, or the only one.

    Raises:
        ProviderInvalid: there is none of that name, or a field is missing or wrong; the message names the setting.
    """
    names = provider_names(providers, environ)
    if name is None:
        name = DEFAULT if DEFAULT in names or not names else names[0]
        if name not in names:
            raise ProviderInvalid(
                "no model provider is configured",
                hint=f"add [tool.stepwell.providers.{DEFAULT}] with type and model to the manifest, or set "
                f"{PREFIX}{DEFAULT.upper()}__TYPE and …__MODEL",
            )
        if name != DEFAULT and len(names) > 1:
            raise ProviderInvalid(
                f"there are {len(names)} model providers and none is called {DEFAULT!r}: {', '.join(names)}",
                hint=f"name one: ctx.llm({names[0]!r}), or call one of them {DEFAULT!r}",
            )
    if name in names:
        fields = {**providers.get(name, {}), **_from_environment(name, environ)}
    elif ":" in name:
        before, _, model = name.partition(":")
        known_fields = {**providers.get(before, {}), **_from_environment(before, environ)}
        fields = (known_fields if before in names else {"type": before}) | {"model": model}
        name = before
    else:
        from difflib import get_close_matches

        close = get_close_matches(name, names, 1)
        known = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(names) or 'none'}"
        raise ProviderInvalid(f"there is no model provider {name!r:.80}", hint=known)
    return _spec(name, fields)


def _spec(name: str, fields: Mapping[str, Any]) -> ProviderSpec:
    problems = _table_problems(fields)
    where = f"[tool.stepwell.providers.{name}]"
    if problems:
        raise ProviderInvalid(f"the model provider {name!r:.80}: {'; '.join(problems)}", problems=problems)
    kind = fields.get("type")
    if kind is None:
        raise _missing(name, "type", f"set type in {where}: {_FIELDS['type'][0]}")
    if "model" not in fields and kind != "test":
        raise _missing(name, "model", f"set model in {where} or {PREFIX}{_variable_part(name)}__MODEL")
    if VENDORS[kind].needs_url and "base-url" not in fields:
        raise _missing(name, "base-url", f"set base-url in {where} or {PREFIX}{_variable_part(name)}__BASE_URL")
    return ProviderSpec(
        name=name,
        model=fields.get("model", "test"),
        settings=tuple(sorted((key.replace("-", "_"), value) for key, value in fields.get("settings", {}).items())),
        **{key.replace("-", "_"): value for key, value in fields.items() if key not in ("model", "settings")},
    )


def api_key(spec: ProviderSpec, environ: Mapping[str, str] = os.environ) -> str | None:
    """The key of a provider; None where it needs none. Never show it.

    Raises:
        ProviderInvalid: it is missing; the hint names every place where it may be.
    """
    own = f"{PREFIX}{_variable_part(spec.name)}__API_KEY"
    variables = (spec.api_key_env,) if spec.api_key_env is not None else VENDORS[spec.type].key_variables
    for variable in (own, *variables):
        if environ.get(variable, "").strip():
            return environ[variable].strip()
    if spec.api_key_keyring is not None:
        return _from_keyring(spec)
    if not VENDORS[spec.type].needs_key and spec.api_key_env is None:
        return None
    raise _missing(spec.name, "API key", f"set {' or '.join(variables or (own,))} in the environment")


def _from_keyring(spec: ProviderSpec) -> str:
    service, _, user = (spec.api_key_keyring or "").partition("/")
    try:
        import keyring  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise _missing(spec.name, "API key", "api-key-keyring needs the package `keyring`: install it") from None
    found = keyring.get_password(service, user)
    if not found:
        raise _missing(spec.name, "API key", f"store it with `keyring set {service} {user}`")
    return str(found)


def _missing(name: str, what: str, hint: str) -> ProviderInvalid:
    return ProviderInvalid(f"the model provider {name!r:.80} has no {what}", hint=hint, provider=name, missing=what)


def _from_environment(name: str, environ: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in _FIELDS:
        text = environ.get(f"{PREFIX}{_variable_part(name)}__{field.replace('-', '_').upper()}", "").strip()
        if text and field != "settings":
            found[field] = _number(text) if field in ("timeout", "max-retries", "max-wait") else text
    return found


def is_provider_variable(variable: str) -> bool:
    """True for an environment variable that sets a field of a provider, or its key."""
    name, separator, field = variable.removeprefix(PREFIX).partition("__")
    known = {key.replace("-", "_").upper() for key in _FIELDS if key != "settings"} | {"API_KEY"}
    return variable.startswith(PREFIX) and bool(name and separator) and field in known


def _variable_part(name: str) -> str:
    return name.replace("-", "_").upper()


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        try:
            return float(text)
        except ValueError:
            return text


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value == value and abs(value) < 1e9
