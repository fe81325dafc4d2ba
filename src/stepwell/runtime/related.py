"""Related projects on this machine: folders that were named when the run was started, and nothing else."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context as Variables
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from stepwell.authoring.executor import Executor
from stepwell.errors import (
    EntrypointNotFound,
    RelationDenied,
    RelationUnknown,
    RunClosed,
    StorageForbidden,
    StorageUnavailable,
)
from stepwell.knowledge.documents import Knowledge
from stepwell.knowledge.related import RelatedKnowledge
from stepwell.project.loader import Project, load_project
from stepwell.project.manifest import Manifest, load_manifest
from stepwell.project.relations import relations_of
from stepwell.runtime.guarding import RunStores
from stepwell.storage.declaration import DataStorage
from stepwell.storage.kv import KeyValue
from stepwell.storage.relations import Asked, Need, allowed_entrypoints, counterpart, decide, find_relation
from stepwell.store.entries import Domain, Namespace, Scope, Source

if TYPE_CHECKING:
    from stepwell.runtime.host import Host

Folders = Mapping[str, str] | None
"""Folders of related projects by alias; None for a run that a related project started: it has none."""

NO_FOLDERS: Final[Mapping[str, str]] = MappingProxyType({})


class LocalRelated:
    """Implements `RelatedPlace` for one run on this machine.

    Args:
        host: what runs the calling project.
        caller: the calling project's manifest, as it was when the run started; it is read again for every access.
        folders: see `Folders`.
        source: recorded as the last writer.
        is_closed: true once the run has ended.
    """

    def __init__(
        self, host: "Host", caller: Manifest, folders: Folders, source: Source, is_closed: Callable[[], bool]
    ) -> None:
        self._host = host
        self._caller = caller
        self._folders = folders
        self._source = source
        self._is_closed = is_closed
        self._stores: dict[Host, RunStores] = {}
        self._executors: dict[tuple[str, str], Executor] = {}

    def check(self, alias: str) -> None:
        """See `RelatedPlace.check`."""
        self._open()
        find_relation(relations_of(load_manifest(self._caller.folder)), alias)

    async def kv(self, alias: str, asked: Sequence[Asked]) -> KeyValue:
        """See `RelatedPlace.kv`."""
        return self._entries(self._decide(alias, asked), Domain.KV)

    def knowledge(self, alias: str) -> RelatedKnowledge:
        """See `RelatedPlace.knowledge`."""

        async def opened(asked: Sequence[Asked]) -> Knowledge:
            return Knowledge(self._entries(self._decide(alias, asked), Domain.PERSISTENT_VALUE))

        return RelatedKnowledge(alias, opened)

    async def entrypoints(self, alias: str) -> list[dict[str, Any]]:
        """See `RelatedPlace.entrypoints`."""
        target = self._decide(alias, ())
        points = self._project(target).executor.entrypoints
        return [points[name].describe() for name in self._granted(alias, target, points)]

    async def run(self, alias: str, entrypoint_id: str, args: Sequence[str]) -> Any:
        """See `RelatedPlace.run`."""
        target = self._decide(alias, [Asked(Need.ENTRYPOINTS, entrypoint_id)])
        project = self._project(target)
        points = project.executor.entrypoints
        if entrypoint_id not in points:
            there = ", ".join(self._granted(alias, target, points))
            raise EntrypointNotFound(
                f"the related project {alias!r} has no entrypoint {entrypoint_id!r:.80}",
                hint=f"there are, as far as granted: {there}" if there else "none of its entrypoints is granted",
                alias=alias,
            )
        host = self._host.beside(target)
        # With context variables of its own: the run is no part of the node that asks for it.
        starting = asyncio.create_task(
            host.start(project, entrypoint_id, args=list(args), related=None), context=Variables()
        )
        handle = await starting
        try:
            return await handle.payload()
        except asyncio.CancelledError:
            handle.cancel("the run that called it was cancelled")
            raise

    # -- deciding ------------------------------------------------------------------------------------------------

    def _decide(self, alias: str, asked: Sequence[Asked]) -> Manifest:
        """Read both declarations and decide; gives the related project's manifest.

        Raises:
            RelationUnknown, RelationPending, RelationDenied: no access.
            StorageUnavailable: no folder was given for the alias.
            StorageForbidden: the related project keeps no data here.
            ProjectNotFound, ManifestInvalid: one of the declarations cannot be read.
        """
        folders = self._open()
        own = relations_of(load_manifest(self._caller.folder))
        relation = find_relation(own, alias)
        folder = folders.get(alias)
        if folder is None:
            raise StorageUnavailable(
                f"the related project {alias!r} has no folder: it needs --related-project {alias}=/absolute/path",
                hint="give it with `stepwell run`; folders are never looked for",
                alias=alias,
            )
        target = load_manifest(folder)
        if target.project_id != relation.project_id:
            raise RelationUnknown(
                f"the folder given for {alias!r} holds another project than the one declared: {folder}",
                hint=f"--related-project {alias}= needs the folder of the project {relation.project_id}",
                alias=alias,
            )
        decide(alias, self._caller.project_id, own, relations_of(target), asked)
        if target.data_storage is DataStorage.SERVER:
            raise StorageForbidden(
                f'the related project {alias!r} declares data-storage = "server": there is nothing of it here',
                hint="use ctx.storage.server.related_projects",
                location="local",
            )
        return target

    def _open(self) -> Mapping[str, str]:
        if self._is_closed():
            raise RunClosed("the run has ended; its related projects can no longer be used")
        if self._folders is None:
            raise RelationDenied(
                "this run was called by a related project: it has no related projects of its own",
                hint="run the project by itself to use them",
            )
        return self._folders

    def _granted(self, alias: str, target: Manifest, ids: Mapping[str, Any]) -> list[str]:
        back = counterpart(alias, self._caller.project_id, relations_of(target))
        return allowed_entrypoints(back.grant, ids)

    # -- reaching ------------------------------------------------------------------------------------------------

    def _entries(self, target: Manifest, domain: Domain) -> KeyValue:
        host = self._host.beside(target)
        stores = self._stores.setdefault(host, RunStores(host.local_stores, self._is_closed))
        namespace = Namespace(target.project_id, domain, Scope.PROJECT)
        return KeyValue(stores.backend(target.project_id, domain), namespace, source=self._source)

    def _project(self, target: Manifest) -> Project:
        """The related project's code; imported once a run, because another import may take its modules' names."""
        key = (target.folder, target.executor)
        if key not in self._executors:
            self._executors[key] = load_project(target.folder).executor
        return Project(target, self._executors[key])
