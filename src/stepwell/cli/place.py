"""Where a command works: the project's manifest, the settings, a storage location."""

from stepwell.cli.render import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stepwell.project.manifest import Manifest
    from stepwell.settings import Settings
    from stepwell.storage.location import Storage, StorageLocation, Stores

PATIENCE_SECONDS = 3.0  # somebody waits at the terminal


class Place:
    """A project and its data, on this machine and at the connected server. Close it when done."""

    def __init__(self, output: Output, folder: str | None = None) -> None:
        from stepwell.project.manifest import load_manifest
        from stepwell.settings import load_settings

        self.output = output
        self.manifest: Manifest = load_manifest(folder or output.project)
        self.settings: Settings = load_settings(project=self.manifest.settings, project_folder=self.manifest.folder)
        self._opened: list[Stores] = []

    def storage(self, conversation_id: str | None = None, workflow: str | None = None) -> "Storage":
        """The project's storage, with its declaration's rules; `workflow` matters under the workflow scope model."""
        from stepwell.storage.location import LocalStores, Storage
        from stepwell.storage.server import server_stores_for
        from stepwell.store.entries import Source

        manifest = self.manifest
        local = LocalStores(self.settings.kv_dir, self.settings.persistent_value_dir)
        server = server_stores_for(
            self.settings, manifest.project_id, manifest.name, manifest.data_storage, manifest.scope_model,
            patience=PATIENCE_SECONDS,
        )  # fmt: skip
        self._opened += [local] if server is None else [local, server]
        return Storage(
            local=local,
            server=server,
            project_id=manifest.project_id,
            workflow_name=workflow or "",
            conversation_id=conversation_id,
            data_storage=manifest.data_storage,
            scope_model=manifest.scope_model,
            source=Source(manifest.project_id, None, None, conversation_id),
        )

    def location(self, name: str | None, conversation_id: str | None = None) -> "StorageLocation":
        """A location by name; the project's host location without one."""
        storage = self.storage(conversation_id)
        return storage.host if name is None else storage.any_location(name)

    async def close(self) -> None:
        """Close what was opened."""
        for stores in self._opened:
            await stores.close()
        self._opened.clear()
