"""What composition needs of storage, on every backend."""

import asyncio

from stepwell.conversation.snapshot import snapshot_of
from stepwell.conversation.state import Conversation
from stepwell.storage.declaration import ScopeModel
from stepwell.storage.location import Storage
from stepwell.storage.scopes import own_place
from stepwell.store.entries import Span
from tests.conformance.conftest import PROJECT
from tests.conformance.conftest import store as store
from tests.servers import ThreadServer


class OneBackend:
    """A location where everything is at one backend."""

    remote = None

    def __init__(self, backend) -> None:
        self._backend = backend

    def backend(self, project_id, domain):
        return self._backend

    async def close(self) -> None: ...


def storage_at(store, **more) -> Storage:
    stores = OneBackend(store.open())
    return Storage(local=stores, server=stores, project_id=PROJECT, conversation_id="c1", workflow_name="main", **more)


async def test_own_kv_collides_with_nothing(store):
    shared = storage_at(store)
    a, b = shared.with_own_kv("a"), shared.with_own_kv("b")
    spaces = {
        "shared": shared, "a": a, "b": b, "a in a": a.with_own_kv("a"), "b:c in a": a.with_own_kv("b:c"),
        "a/b": shared.with_own_kv("a/b"), "b in a": a.with_own_kv("b"), "a:b": shared.with_own_kv("a:b"),
        "long": shared.with_own_kv("长" * 400), "longer": shared.with_own_kv("长" * 401),
    }  # fmt: skip
    for name, space in spaces.items():
        for key in ("key", "a:key", "a/key"):
            assert await space.local.kv.get_value(key) is None
            assert await space.local.kv.conversation.get_value(key) is None
            await space.local.kv.set_value(key, name)
            await space.local.kv.conversation.set_value(key, f"{name} c1")
    for name, space in spaces.items():
        assert [entry.value async for entry in space.local.kv.scan()] == [name] * 3
        assert [entry.value async for entry in space.local.kv.conversation.scan()] == [f"{name} c1"] * 3
    await shared.local.persistent_value.set_value("key", 1)
    assert await a.local.persistent_value.get_value("key") == 1
    await a.local.kv.backend.clear(a.local.kv.namespace)
    assert await a.local.kv.get_value("key") is None
    assert await shared.local.kv.get_value("key") == "shared"


async def test_own_kv_can_all_that_kv_can(store):
    kv = storage_at(store).with_own_kv("worker").local.kv
    await asyncio.gather(*(kv.update_value("n", lambda n: n + 1, default=0) for _ in range(8)))
    async with kv.lock() as tx:
        await tx.set_value("n", await tx.get_value("n") * 10)
    assert await kv.get_value("n") == 80
    watching = kv.backend.watch(kv.namespace, Span())
    change = asyncio.ensure_future(anext(watching))
    while not change.done():
        await kv.set_value("seen", 1)
        await asyncio.wait({change}, timeout=0.05)
    assert change.result().key == "seen"
    await watching.aclose()
    found = await kv.backend.namespaces(project_id=PROJECT)
    assert kv.namespace in [info.namespace for info in found]


async def test_own_kv_of_the_workflow_scope_model(store):
    shared = storage_at(store, scope_model=ScopeModel.WORKFLOW)
    own = shared.with_own_kv("child")
    for space, value in ((shared, "shared"), (own, "own"), (own.with_own_kv("child"), "deeper")):
        assert await space.scopes.kv.workflow.get_value("key") is None
        await space.scopes.kv.workflow.set_value("key", value)
        await space.scopes.kv.conversation.set_value("key", value)
        await space.scopes.kv.set_value("key", value)
    assert await shared.scopes.kv.workflow.get_value("key") == "shared"
    assert await own.scopes.kv.conversation.get_value("key") == "own"
    assert await own.scopes.kv.get_value("key") == "deeper"


def test_places_are_told_apart_whatever_the_names_are():
    names = ["a", "b", "a/b", "a%002Fb", "#", "a\x00", "\ud800", "%", "x" * 600, "x" * 601, own_place(None, "x" * 600)]
    places = [own_place(None, name) for name in names]
    places += [own_place(own_place(None, first), second) for first in names for second in names]
    assert len(set(places)) == len(names) * (len(names) + 1)
    assert all(len(place.encode()) <= 512 for place in places)


def test_only_kv_can_be_a_workflows_own():
    with ThreadServer() as server, server.client() as client:
        assert client.put(f"/projects/{PROJECT}", json={"name": "made"}).is_success
        for domain, status in (("kv", 200), ("persistent_value", 400), ("conversation", 400)):
            answer = client.get(f"/projects/{PROJECT}/{domain}/project/entries", params={"workflow": "child"})
            assert answer.status_code == status, answer.text
        assert client.get(f"/projects/{PROJECT}/kv/project/entries", params={"workflow": ""}).status_code == 400


async def test_a_snapshot_stays_as_it_was_and_keeps_to_itself(store):
    conversation = Conversation(store.open(), PROJECT, "made", "c1")
    for number in range(250):
        await conversation.append_message({"role": "user", "content": f"{number}", "id": f"m{number}"})
    await conversation.set_value("topic", "dogs")
    await conversation.set_title("Ours")
    before = await conversation.get_value()
    written = []
    copy = await snapshot_of(conversation, lambda following, writes: written.append((following, writes)))
    assert await copy.get_value() == before
    assert await copy.summary() == await conversation.summary()
    assert await copy.messages(250) == await conversation.messages(250)

    await conversation.append_message({"role": "user", "content": "later", "id": "new"})
    await conversation.set_value("topic", "later")
    assert await copy.get_value() == before
    await copy.append_message({"role": "user", "content": "7", "id": "m7"})
    await copy.append_message({"role": "user", "content": "mine", "id": "new"})
    await copy.set_value("topic", "cats")
    await copy.set_value("mood", "good")
    await copy.delete_value("mood")
    await copy.set_title("Mine")
    state = await copy.get_value()
    assert [message["content"] for message in state.messages[-2:]] == ["249", "mine"]
    assert (len(state.messages), state.values, state.title) == (251, {"topic": "cats"}, "Mine")
    assert [message["seq"] for message in await copy.messages(202)] == list(range(50, 252))
    assert [message["seq"] for message in await copy.messages(2, before=251)] == [249, 250]
    ours = await conversation.get_value()
    assert (ours.messages[-1]["content"], ours.title, ours.values) == ("later", "Ours", {"topic": "later"})

    again = await snapshot_of(
        conversation, written.append, [{"following": following, "writes": writes} for following, writes in written]
    )
    known = await again.get_value()
    assert [m["content"] for m in known.messages] == [m["content"] for m in state.messages]
    assert (known.values, known.title) == (state.values, state.title)


async def test_a_snapshot_of_nothing_is_empty_and_can_be_written(store):
    conversation = Conversation(store.open(), PROJECT, "made", "c1")
    copy = await snapshot_of(conversation, lambda following, writes: None)
    assert (await copy.get_value()).messages == []
    await copy.append_message({"role": "user", "content": "mine"})
    assert (await copy.summary()).message_count == 1
    assert (await conversation.summary()).message_count == 0
