"""Loading a project: its manifest and its executor."""

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from stepwell.authoring.executor import Entrypoint, Executor
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

    def entrypoint(self, entrypoint_id: str | None = None) -> Entrypoint:
        """An entrypoint of the executor, `workflow:KEY` for a graph workflow, or `conversation:compact`.

        Raises:
            EntrypointNotFound: names those there are. WorkflowNotFound: there is no such workflow.
        """
        if entrypoint_id is None or entrypoint_id in self.executor.entrypoints:
            return self.executor.entrypoint(entrypoint_id)
        if self.executor.is_conversation and entrypoint_id == "conversation:compact":
            from stepwell.authoring.compaction import compaction

            return compaction(self.executor.entrypoint().token_usage)
        from stepwell.graph.entrypoint import entrypoint_of

        return entrypoint_of(entrypoint_id, self.folder) or self.executor.entrypoint(entrypoint_id)

    @property
    def is_workflow_scoped(self) -> bool:
        """True under the workflow scope model."""
        return self.manifest.scope_model is ScopeModel.WORKFLOW


def load_project(folder: str | Path) -> Project:
    """Read the manifest and import the executor.

    The module stays in `sys.modules` under its own name, so that a project's tests see the same one. Loading another
    project that uses the same module names takes their place; projects that run side by side for long belong into
    processes of their own.

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
            where = _named(module, manifest.folder)
            raise ExecutorInvalid(
                f"{manifest.file}: executor = {manifest.executor!r}, but {where} has no {part!r}",
                hint="correct the executor in the manifest; two modules must not have the same name",
            ) from None
    if not isinstance(found, Executor):
        raise ExecutorInvalid(
            f"{manifest.file}: {manifest.executor!r} is {type(found).__name__}, not a stepwell.Executor",
            hint="name the module attribute that holds Executor(...)",
        )
    return Project(manifest, found)


def _import(manifest: Manifest, module_name: str) -> ModuleType:
    folder = manifest.folder
    others = _other_projects(folder)
    put_away = {name: module for name, module in list(sys.modules.items()) if _is_one_of(module, others)}
    for name in put_away:
        del sys.modules[name]
    behind = [path for path in sys.path if path in others]
    sys.path[:] = [folder, *(path for path in sys.path if path != folder and path not in others)]
    importlib.invalidate_caches()
    before = set(sys.modules)
    try:
        return importlib.import_module(module_name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # A module that failed half-way must not be found by the next attempt.
        for name in set(sys.modules) - before:
            if _is_inside(sys.modules[name], folder):
                del sys.modules[name]
        raise _import_error(error, manifest, module_name) from error
    finally:
        for name in set(sys.modules) - before:
            if _is_inside(sys.modules[name], folder):
                sys.modules[name].__dict__[_MARK] = folder
        # What the other projects import later must still be found, behind what this one has.
        taken = {name.partition(".")[0] for name in sys.modules}
        for name, module in put_away.items():
            if name.partition(".")[0] not in taken:
                sys.modules[name] = module
        sys.path.extend(behind)


_MARK = "__stepwell_project__"
"""Set in every module that was imported from a project's folder: the folder."""


def _other_projects(folder: str) -> list[str]:
    """The folders of projects that were loaded before."""
    marks = {getattr(module, "__dict__", {}).get(_MARK) for module in list(sys.modules.values())}
    return [mark for mark in marks if isinstance(mark, str) and mark != folder]


def _is_one_of(module: ModuleType, folders: list[str]) -> bool:
    """True if a module is another project's: marked so, or imported inside a function after its project was loaded."""
    home = getattr(module, "__dict__", {}).get(_MARK)
    return home in folders if home is not None else any(_is_inside(module, folder) for folder in folders)


def _is_inside(module: ModuleType, folder: str) -> bool:
    """True if a module's file is a project's own: not a package installed into an environment in its folder."""
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and Path(file).is_relative_to(folder) and "site-packages" not in Path(file).parts


def _import_error(error: BaseException, manifest: Manifest, module_name: str) -> ExecutorInvalid:
    folder = manifest.folder
    if isinstance(error, ModuleNotFoundError):
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            return ExecutorInvalid(
                f"{manifest.file}: executor = {manifest.executor!r}, but {folder} has no module {module_name!r}",
                hint="correct the executor in the manifest, or create the module",
            )
        return ExecutorInvalid(f"{_place(error, folder)}: {error}", hint=f"install the missing package {error.name!r}")
    if isinstance(error, StepwellError):
        return ExecutorInvalid(
            f"{_place(error, folder)}: {error.message}", hint=error.hint or _DEBUG_HINT, **error.data
        )
    if isinstance(error, SyntaxError):
        # Of a file with NUL bytes Python tells neither its name nor the line.
        place = f"{error.filename}:{error.lineno}" if error.filename else f"{folder} (importing {module_name})"
        return ExecutorInvalid(f"{place}: {error.msg}", hint=_DEBUG_HINT)
    return ExecutorInvalid(f"{_place(error, folder)}: {type(error).__name__}: {error}", hint=_DEBUG_HINT)


_DEBUG_HINT = "correct it; --debug shows the whole traceback"


def _named(module: ModuleType, folder: str) -> str:
    return (
        module.__name__
        if _is_inside(module, folder)
        else f"{module.__name__} ({getattr(module, '__file__', 'built in')})"
    )


def _place(error: BaseException, folder: str) -> str:
    """The innermost line of the user's own code in a traceback."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if Path(frame.filename).is_relative_to(folder):
            return f"{frame.filename}:{frame.lineno}"
    return folder
