"""Loading a project: its manifest and its executor."""

import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from stepwell.authoring.executor import Executor
from stepwell.errors import ExecutorInvalid, StepwellError
from stepwell.project.manifest import Manifest, load_manifest
from stepwell.storage.declaration import ScopeModel


class Project(NamedTuple):
    """A project that can be run."""

    manifest: Manifest
    executor: Executor

    @property
    def folder(self) -> Path:
        """The project's folder."""
        return Path(self.manifest.folder)

    @property
    def is_workflow_scoped(self) -> bool:
        """True under the workflow scope model."""
        return self.manifest.scope_model is ScopeModel.WORKFLOW


def load_project(folder: str | Path) -> Project:
    """Read the manifest and import the executor.

    Raises:
        ProjectNotFound, ManifestInvalid: see `load_manifest`.
        ExecutorInvalid: the code cannot be imported; the message names the user's file and line.
    """
    manifest = load_manifest(str(folder))
    module_name, _, attribute = manifest.executor.partition(":")
    module = _import(manifest, module_name)
    found: object = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ExecutorInvalid(
                f"{manifest.file}: executor = {manifest.executor!r}, but {module_name} has no {part!r}"
            ) from None
    if not isinstance(found, Executor):
        raise ExecutorInvalid(
            f"{manifest.file}: {manifest.executor!r} is {type(found).__name__}, not a stepwell.Executor",
            hint="name the module attribute that holds Executor(...)",
        )
    return Project(manifest, found)


def _import(manifest: Manifest, module_name: str) -> ModuleType:
    """Import with the project folder first on the path, and forget modules of another project of the same name."""
    folder = manifest.folder
    for name, module in list(sys.modules.items()):
        if _belongs_to_other_project(module, folder, name):
            del sys.modules[name]
    while folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except StepwellError:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise ExecutorInvalid(
                f"{manifest.file}: executor = {manifest.executor!r}, but {folder} has no module {module_name!r}",
                hint="correct the executor in the manifest, or create the module",
            ) from None
        raise ExecutorInvalid(
            f"{_place(error, folder)}: {error}", hint=f"install the missing package {error.name!r}"
        ) from error
    except SyntaxError as error:
        raise ExecutorInvalid(f"{error.filename}:{error.lineno}: {error.msg}") from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ExecutorInvalid(f"{_place(error, folder)}: {type(error).__name__}: {error}") from error


_loaded_from: dict[str, str] = {}


def _belongs_to_other_project(module: ModuleType, folder: str, name: str) -> bool:
    """True for a module of a project loaded earlier from another folder, whose name this project may use too."""
    file = getattr(module, "__file__", None)
    if not isinstance(file, str):
        return False
    for known in _loaded_from:
        if known != folder and Path(file).is_relative_to(known) and "site-packages" not in file:
            return (Path(folder) / f"{name.partition('.')[0]}.py").exists() or (
                Path(folder) / name.partition(".")[0]
            ).is_dir()
    _loaded_from[folder] = folder
    return False


def _place(error: BaseException, folder: str) -> str:
    """The innermost line of the user's own code in a traceback."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(folder):
            return f"{frame.filename}:{frame.lineno}"
    return folder
