"""The manifest: the `[tool.stepwell]` table of a project's pyproject.toml, or a stepwell.toml of its own."""

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from stepwell.errors import InvalidId, ManifestInvalid, ProjectNotFound
from stepwell.identifiers import check_project_id
from stepwell.settings import one_line, suggest, unknown_settings
from stepwell.storage.declaration import DataStorage, ScopeModel
from stepwell.storage.relations import relation_problems

MAX_NAME = 200

_KEYS = ("project-id", "executor", "name", "data-storage", "scope-model", "settings", "providers", "related-projects")
_EXECUTOR = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*\Z")


class Manifest(NamedTuple):
    """What a project declares."""

    folder: str
    file: str
    project_id: str
    name: str
    executor: str
    data_storage: DataStorage
    scope_model: ScopeModel
    settings: Mapping[str, Any]
    providers: Mapping[str, Any]
    related_projects: tuple[Mapping[str, Any], ...]


def find_manifest(folder: str) -> tuple[str, dict[str, Any]]:
    """The manifest file of a project folder and its table.

    Raises:
        ProjectNotFound: the folder is missing or has no manifest.
        ManifestInvalid: both files declare a project, or the file is no TOML.
    """
    try:
        folder = os.path.abspath(folder)
    except FileNotFoundError:
        raise ProjectNotFound("the current folder does not exist any more", hint="change to another one") from None
    if not os.path.isdir(folder):
        raise ProjectNotFound(f"there is no folder {folder}", path=folder)
    pyproject = os.path.join(folder, "pyproject.toml")
    own = os.path.join(folder, "stepwell.toml")
    table = _read_toml(pyproject).get("tool", {})
    table = table.get("stepwell") if isinstance(table, dict) else None
    if os.path.exists(own):
        if table is not None:
            raise ManifestInvalid(
                f"{folder} declares the project twice: in pyproject.toml [tool.stepwell] and in stepwell.toml",
                hint="keep one of the two",
                problems=["pyproject.toml and stepwell.toml both declare the project"],
            )
        return own, _read_toml(own)
    if table is None:
        raise ProjectNotFound(f"{folder} is not a stepwell project: no [tool.stepwell] in pyproject.toml", path=folder)
    if not isinstance(table, dict):
        raise ManifestInvalid(
            f"{pyproject}: tool.stepwell: not a table",
            hint="write [tool.stepwell]",
            problems=["tool.stepwell: not a table"],
        )
    return pyproject, table


def load_manifest(folder: str) -> Manifest:
    """Read and check a project's manifest.

    Raises:
        ProjectNotFound, ManifestInvalid: `problems` in its data lists every problem, a line each.
    """
    file, table = find_manifest(folder)
    problems: list[str] = []
    for key in table:
        if key not in _KEYS:
            problems.append(f"{one_line(key)}: unknown key{suggest(key, _KEYS)}")
    project_id = _project_id(table, problems)
    executor = table.get("executor")
    if not isinstance(executor, str) or not _EXECUTOR.match(executor):
        problems.append(f'executor: {executor!r:.80} is not "module:attribute"')
        executor = ""
    name = table.get("name", _name_of(os.path.dirname(file)))
    if not isinstance(name, str) or not name.strip() or len(name) > MAX_NAME or not name.isprintable():
        problems.append(f"name: {name!r:.80} is not one line of 1 to {MAX_NAME} printable characters")
        name = ""
    data_storage = _choice(table, "data-storage", DataStorage, DataStorage.LOCAL, problems)
    scope_model = _choice(table, "scope-model", ScopeModel, ScopeModel.PROJECT, problems)
    for key in ("settings", "providers"):
        if not isinstance(table.get(key, {}), dict):
            problems.append(f"{key}: not a table")
        elif key == "settings":
            problems += [f"settings.{problem}" for problem in unknown_settings(table.get(key, {}), manifest=True)]
        elif table.get(key):
            from stepwell.llm.providers import provider_problems

            problems += provider_problems(table[key])
    relations = table.get("related-projects", [])
    problems += relation_problems(relations, project_id)
    if problems:
        raise ManifestInvalid(
            f"{file} has {len(problems)} problem{'s' if len(problems) > 1 else ''}:\n"
            + "\n".join(f"  {problem}" for problem in problems),
            hint="correct them in the file; `stepwell schema manifest` shows the allowed form",
            file=file,
            problems=problems,
        )
    return Manifest(
        os.path.dirname(file),
        file,
        project_id,
        name,
        executor,
        data_storage,
        scope_model,
        table.get("settings", {}),
        table.get("providers", {}),
        tuple(relations),
    )


def _name_of(folder: str) -> str:
    return "".join(c for c in os.path.basename(folder) if c.isprintable()).strip()[:MAX_NAME] or "project"


def _read_toml(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        reason = (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
        raise ManifestInvalid(
            f"{path} cannot be read: {reason}", hint="it has to be TOML in UTF-8", problems=[reason], file=path
        ) from None


def _project_id(table: Mapping[str, Any], problems: list[str]) -> str:
    try:
        return check_project_id(table.get("project-id"))
    except InvalidId as error:
        problems.append(f"project-id: {error.message}" if "project-id" in table else "project-id: missing (a UUID)")
        return ""


def _choice(table: Mapping[str, Any], key: str, choices: type[StrEnum], default: StrEnum, problems: list[str]) -> Any:
    value = table.get(key, default)
    try:
        return choices(value)
    except ValueError:
        problems.append(f"{key}: {value!r:.80} is not one of {', '.join(choices)}")
        return default
