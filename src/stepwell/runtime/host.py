"""The host: everything a process needs to run projects hangs from it."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stepwell.authoring.threads import WorkerThreads
from stepwell.errors import InputInvalid, RunStateConflict
from stepwell.files.store import FileStore
from stepwell.identifiers import new_id
from stepwell.jsontext import decode
from stepwell.llm.pool import ModelPool
from stepwell.project.loader import Project
from stepwell.project.manifest import Manifest
from stepwell.redaction import Redactor
from stepwell.runtime.approvals import Approvals
from stepwell.runtime.related import NO_FOLDERS, Folders
from stepwell.runtime.replay import history_of
from stepwell.runtime.report import Report
from stepwell.runtime.runner import RunHandle, RunRequest, choose_conversation_id, start
from stepwell.runtime.runs import ENDED, Runs, take_run
from stepwell.runtime.session import OnEvent, RunSession
from stepwell.settings import Settings, load_settings
from stepwell.storage.declaration import DataStorage, ScopeModel
from stepwell.storage.location import LocalStores, Stores
from stepwell.storage.server import ServerStores, server_stores
from stepwell.store.sqlite_journal import SqliteJournal

MAX_THREADS = 64
_UNSET = object()


class Host:
    """Runs projects on this machine: `async with Host(settings) as host`.

    Args:
        settings: where data lives.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._server: Stores | None = None
        self.local_stores: Stores = LocalStores(settings.kv_dir, settings.persistent_value_dir)
        self.files = FileStore(Path(settings.home) / "files")
        self.redactor = Redactor.from_environment(os.environ)
        self.threads = WorkerThreads(MAX_THREADS, "stepwell-node")
        self.models = ModelPool(self.redactor)
        self._journals: dict[str, SqliteJournal] = {}
        self._running: dict[asyncio.Task[Report], RunSession] = {}
        self._beside: dict[tuple[str, ...], Host] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def journal(self, project_id: str) -> SqliteJournal:
        """The journal of a project's runs."""
        journal = self._journals.get(project_id)
        if journal is None:
            path = Path(self.settings.home) / "journal" / f"{project_id}.sqlite"
            journal = self._journals.setdefault(project_id, SqliteJournal(path))
        return journal

    def server_stores(self, manifest: Manifest) -> Stores | None:
        """The connected server's stores, where a project's declaration lets it use them.

        Raises:
            InvalidArgument: the login file is damaged, or others may read it.
        """
        if manifest.data_storage is DataStorage.LOCAL and manifest.scope_model is not ScopeModel.WORKFLOW:
            return None
        self._server = self._server or server_stores(self.settings)
        if isinstance(self._server, ServerStores):
            self._server.introduce(manifest.project_id, manifest.name)
        return self._server

    def approvals(self, project_id: str) -> Approvals:
        """What a project's runs ask people for: list, show, approve, deny; and the modes of its tools."""
        return Approvals(self, project_id)

    def runs(self, project_id: str) -> Runs:
        """The runs of a project: list, show, cancel, delete."""
        return Runs(self, project_id)

    async def start(
        self,
        project: Project,
        entrypoint: str | None = None,
        *,
        args: Sequence[str] = (),
        input: Any = _UNSET,  # noqa: A002
        conversation_id: str | None = None,
        on_event: OnEvent | None = None,
        run_id: str | None = None,
        related: Folders = NO_FOLDERS,
    ) -> RunHandle:
        """Start a run.

        Args:
            project: a loaded project.
            entrypoint: its id; the executor's default one without.
            args: command line arguments for `create_input`; or
            input: the input itself, validated against the workflow's annotation.
            conversation_id: wins over the input's own and over a generated one.
            on_event: called with every event as it happens, on the event loop; it must return quickly.
            run_id: the id to use, where it was made beforehand.
            related: folders of related projects by alias; None closes related projects to the run.

        Raises:
            EntrypointNotFound, InputInvalid, InvalidId: nothing was started.
            RunStateConflict: there is a run of that id.
        """
        point = project.entrypoint(entrypoint)
        value = point.checked_input(input) if input is not _UNSET else point.input_from(args, conversation_id)
        chosen = choose_conversation_id(project, conversation_id, value)
        request = RunRequest(run_id or new_id(), point, value, chosen, None, on_event, related)
        return await start(self, project, request, take_run(self.journal(project.manifest.project_id), request.run_id))

    async def resume(
        self, project: Project, run_id: str, *, on_event: OnEvent | None = None, related: Folders = NO_FOLDERS
    ) -> RunHandle:
        """Continue a run whose process was killed: recorded nodes return their results, the rest runs.

        Raises:
            RunNotFound, RunStateConflict: it has ended, or a process is executing it.
            InputInvalid: its input cannot be restored, because it was not JSON or held a secret.
        """
        self.runs(project.manifest.project_id).row(run_id)
        # The lock comes first: what is read after taking it is the whole history, whoever resumed the run before.
        ticket = take_run(self.journal(project.manifest.project_id), run_id)
        try:
            request = await self._recorded_request(project, run_id, on_event, related)
        except BaseException:
            self.journal(project.manifest.project_id).locks().release(ticket)
            raise
        return await start(self, project, request, ticket)

    async def _recorded_request(
        self, project: Project, run_id: str, on_event: OnEvent | None, related: Folders
    ) -> RunRequest:
        """What a run was started with, and its past."""
        runs = self.runs(project.manifest.project_id)
        row = runs.row(run_id)
        if row.status in ENDED:
            raise RunStateConflict(
                f"the run {run_id} has ended: {row.status}", hint="start a new run instead", status=row.status
            )
        stored = decode(row.input)
        if not stored["exact"]:
            raise InputInvalid(
                f"the input of {run_id} cannot be restored: it is not JSON, or holds a secret", hint="start a new run"
            )
        value = stored["value"]
        if stored.get("spilled"):
            value = decode((await asyncio.to_thread(self.files.read, value["$artifact"])).decode())
        point = project.entrypoint(row.entrypoint)
        history = await asyncio.to_thread(lambda: history_of(runs.all_events(run_id)))
        folders = None if stored.get("called") else related
        return RunRequest(run_id, point, point.checked_input(value), row.conversation_id, history, on_event, folders)

    def beside(self, manifest: Manifest) -> "Host":
        """The host for another project of this process: this one, or one of its own where its settings say so.

        What a flag or the environment says holds for every project; a manifest's settings hold for its own only.
        """
        fixed = {s.name: s.value for s in self.settings.all() if s.origin == "flag" or s.origin.startswith("env ")}
        settings = load_settings(fixed, project=manifest.settings, project_folder=manifest.folder)
        folders = (settings.home, settings.kv_dir, settings.persistent_value_dir)
        if folders == (self.settings.home, self.settings.kv_dir, self.settings.persistent_value_dir):
            return self
        if folders not in self._beside:
            self._beside[folders] = Host(settings)
        return self._beside[folders]

    def keep(self, session: RunSession, task: "asyncio.Task[Report]") -> None:
        """Remember a run until it has ended, to cancel it when the host is closed before."""
        self._running[task] = session
        task.add_done_callback(lambda done: self._running.pop(done, None))

    async def close(self) -> None:
        """Cancel the runs that are still going on, finish what was accepted, and release everything."""
        for host in self._beside.values():
            await host.close()
        running = dict(self._running)
        for session in running.values():
            if not session.cancelled:
                session.cancel("the host was closed")
        if running:
            await asyncio.wait(running)
        self.threads.close()
        await self.models.close()
        for journal in self._journals.values():
            journal.close()
        await self.local_stores.close()
        if self._server is not None:
            await self._server.close()
