"""Locations, domains, scopes: what a project may touch, and that nothing stands in for anything else."""

from pathlib import Path

import pytest

from stepwell.errors import ConversationRequired, ScopeUnavailable, StorageForbidden, StorageUnavailable
from stepwell.storage.declaration import DataStorage, ScopeModel
from stepwell.storage.location import LocalStores, MemoryStores, Storage
from stepwell.store.entries import Domain
from tests.unit.conftest import PROJECT_ID

OTHER_ID = "01936d3f-6a00-7000-8000-0000000000dd"


def storage(local=None, server=None, **options) -> Storage:
    return Storage(local=local, server=server, project_id=options.pop("project_id", PROJECT_ID), **options)


async def test_locations_domains_scopes_and_projects_are_different_datasets():
    local, server = MemoryStores(), MemoryStores()
    spaces = []
    for project_id in (PROJECT_ID, OTHER_ID):
        made = storage(
            local, server, project_id=project_id, conversation_id="c", data_storage=DataStorage.BOTH,
        )  # fmt: skip
        for location in (made.local, made.server):
            spaces += [location.kv, location.kv.conversation, location.persistent_value]
            spaces.append(location.persistent_value.conversation)
    for number, space in enumerate(spaces):
        await space.set_value("k", number)
    assert [await space.get_value("k") for space in spaces] == list(range(16))


@pytest.mark.parametrize(
    ("declared", "local", "server", "host"),
    [
        (DataStorage.LOCAL, "ok", StorageForbidden, "local"), (DataStorage.SERVER, StorageForbidden, "ok", "server"),
        (DataStorage.BOTH, "ok", "ok", "local"),
    ],
)  # fmt: skip
async def test_the_declaration_gates_locations(declared, local, server, host):
    made = storage(MemoryStores(), MemoryStores(), data_storage=declared)
    for name, expected in (("local", local), ("server", server)):
        if expected == "ok":
            await getattr(made, name).kv.set_value("k", name)
        else:
            with pytest.raises(expected) as caught:
                getattr(made, name)
            assert declared.value in caught.value.message
            assert "data-storage" in caught.value.hint
    assert made.host.name == host


async def test_a_location_that_is_not_connected_never_falls_back():
    local = MemoryStores()
    made = storage(local, None, data_storage=DataStorage.BOTH, conversation_id="c")
    server = made.server.kv
    for call in (
        server.get_value("k"), server.get_entry("k"), server.set_value("k", 1), server.delete_value("k"),
        server.update_value("k", lambda _: 1), server.conversation.set_value("k", 1), anext(aiter(server.scan())),
        anext(server.watch()), made.server.persistent_value.get_value("k"),
    ):  # fmt: skip
        with pytest.raises(StorageUnavailable) as caught:
            await call
        assert "server" in caught.value.message
        assert "STEPWELL_SERVER_URL" in caught.value.hint
    with pytest.raises(StorageUnavailable):
        async with server.lock():
            pass
    assert await made.local.kv.get_value("k") is None


async def test_conversation_scope_needs_a_conversation():
    made = storage(MemoryStores(), None)
    for handle in (made.local.kv, made.local.persistent_value):
        with pytest.raises(ConversationRequired):
            _ = handle.conversation


async def test_the_older_scope_model():
    local, server = MemoryStores(), MemoryStores()

    def scopes(workflow: str, conversation: str | None, **options):
        return storage(
            local,
            server,
            workflow_name=workflow,
            conversation_id=conversation,
            scope_model=ScopeModel.WORKFLOW,
            **options,
        ).scopes

    one, same, other = scopes("w", "c"), scopes("w", "d", project_id=OTHER_ID), scopes("w:c", "c")
    for handles in (one.kv, one.persistent_value):
        await handles.set_value("k", "global")
        await handles.workflow.set_value("k", "workflow")
        await handles.conversation.set_value("k", "conversation")
    for seen, expected in ((same, ["global", "workflow", None]), (other, ["global", None, None])):
        for handles in (seen.kv, seen.persistent_value):
            found = [await scope.get_value("k") for scope in (handles, handles.workflow, handles.conversation)]
            assert found == expected
    with pytest.raises(ConversationRequired):
        _ = scopes("w", None).kv.conversation
    with pytest.raises(ScopeUnavailable):
        _ = storage(local, server).scopes


async def test_older_persistent_values_live_at_the_server_and_nowhere_else(tmp_path: Path):
    stores = LocalStores(tmp_path / "kv", tmp_path / "pv")
    scopes = storage(stores, None, workflow_name="w", conversation_id="c", scope_model=ScopeModel.WORKFLOW).scopes
    await scopes.kv.set_value("k", 1)
    for handle in (scopes.persistent_value, scopes.persistent_value.workflow, scopes.persistent_value.conversation):
        for call in (handle.get_value("k"), handle.set_value("k", 1), handle.update_value("k", lambda _: 1)):
            with pytest.raises(StorageUnavailable):
                await call
    await stores.close()
    assert not (tmp_path / "pv").exists()


async def test_kv_and_persistent_values_are_in_different_files_even_in_one_folder(tmp_path: Path):
    stores = LocalStores(tmp_path, tmp_path)
    made = storage(stores, None)
    await made.local.kv.set_value("k", 1)
    await made.local.persistent_value.set_value("k", 2)
    assert await made.local.kv.get_value("k") == 1
    paths = {stores.path(PROJECT_ID, domain) for domain in Domain}
    assert len(paths) == 2
    assert all(Path(path).exists() for path in paths)
    assert stores.backend(PROJECT_ID, Domain.KV) is stores.backend(PROJECT_ID, Domain.CONVERSATION)
    await stores.close()


async def test_naming_a_location_touches_no_file(tmp_path: Path):
    stores = LocalStores(tmp_path / "kv", tmp_path / "pv")
    made = storage(stores, None, conversation_id="c")
    _ = made.local.kv.conversation, made.local.persistent_value
    assert list(tmp_path.iterdir()) == []
    await stores.close()
