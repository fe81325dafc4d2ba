"""Projects made on the fly, and a host to run them."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from stepwell import Entrypoint, Executor, Host, load_settings
from stepwell.project.loader import Project
from stepwell.project.manifest import Manifest
from stepwell.runtime.events import Event
from stepwell.runtime.report import Report
from stepwell.storage.declaration import DataStorage, ScopeModel

PROJECT_ID = "01936d3f-6a00-7000-8000-0000000000bb"


def project_of(executor: Any, folder: Path, **manifest: Any) -> Project:
    """A project around a workflow (or an executor), as a manifest would declare it."""
    if not isinstance(executor, Executor):
        executor = Executor(entrypoints=[Entrypoint("main", executor)])
    declared = {"data_storage": DataStorage.LOCAL, "scope_model": ScopeModel.PROJECT} | manifest
    made = Manifest(
        str(folder), str(folder / "pyproject.toml"), PROJECT_ID, "made", "x:y", declared["data_storage"],
        declared["scope_model"], {}, {}, (),
    )  # fmt: skip
    return Project(made, executor)


class Bench:
    """A host that runs workflows and keeps their events."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host = host
        self.folder = folder
        self.events: list[Event] = []

    @property
    def runs(self):
        return self.host.runs(PROJECT_ID)

    def types(self) -> list[str]:
        """The event types so far."""
        return [event.type for event in self.events]

    def of(self, *types: str) -> list[dict[str, Any]]:
        """The data of the events of these types."""
        return [event.data for event in self.events if event.type in types]

    async def start(self, executor: Any, manifest: dict[str, Any] | None = None, **options: Any):
        self.events.clear()
        options = {"input": {}} | options if "args" not in options else options
        project = project_of(executor, self.folder, **(manifest or {}))
        return await self.host.start(project, on_event=self.events.append, **options)

    async def run(self, executor: Any, **options: Any) -> Report:
        """Run to the end."""
        return await (await self.start(executor, **options)).report()


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """A host with its data in a folder of the test."""
    async with Host(load_settings()) as host:
        yield Bench(host, tmp_path)


@pytest.fixture
def make_project(tmp_path: Path) -> Callable[..., Project]:
    """Make a project around a workflow."""
    return lambda executor, **manifest: project_of(executor, tmp_path, **manifest)
