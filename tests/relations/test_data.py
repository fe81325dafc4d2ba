"""KV and Knowledge of a related project, in runs: what is granted works, and everything else is refused."""

import asyncio
from typing import Any

import pytest

from stepwell import Context
from stepwell.errors import (
    CrossNamespaceAccess,
    DocumentNotFound,
    InvalidKey,
    RelationDenied,
    RelationPending,
    RelationUnknown,
    RunClosed,
    StorageForbidden,
    StorageUnavailable,
)
from stepwell.knowledge import create_document, get_document
from tests.relations.conftest import ALL, World, declared, rule

SECRET = "what-is-stored"


async def test_kv_of_the_other_project_and_not_ones_own(world: World):
    world.grant(read=ALL, write=ALL)
    await world.put("a", "k", "own")
    assert await world.do(lambda other: other.kv.get_value("k", "nothing")) == "nothing"
    entry = await world.do(lambda other: other.kv.set_value("k", {"n": 1}))
    assert (entry.value, entry.source.project_id) == ({"n": 1}, world_id(world))
    assert await world.do(lambda other: other.kv.get_value("k")) == {"n": 1}
    assert await world.do(lambda other: other.kv.update_value("k", lambda value: value | {"m": 2})) == {"n": 1, "m": 2}
    assert (await world.value("a", "k"), await world.value("b", "k")) == ("own", {"n": 1, "m": 2})
    assert await world.do(lambda other: other.kv.delete_value("k")) is True
    assert await world.do(lambda other: other.kv.delete_value("k")) is False
    assert (await world.value("a", "k"), await world.value("b", "k")) == ("own", None)


def world_id(world: World) -> str:
    return declared("x", "a")["project-id"]


CALLS: dict[str, Any] = {
    "get": lambda kv: kv.get_value("stock:1"),
    "set": lambda kv: kv.set_value("stock:1", "new"),
    "delete": lambda kv: kv.delete_value("stock:1"),
    "update": lambda kv: kv.update_value("stock:1", lambda _: "new"),
}


@pytest.mark.parametrize(
    ("grant", "allowed"),
    [
        ({}, set()), ({"read": ALL}, {"get"}), ({"write": ALL}, {"set", "delete"}), ({"read": ALL, "write": ALL}, set(CALLS)),
        ({"read": rule("stock:"), "write": rule("stock:")}, set(CALLS)), ({"read": rule("Stock:")}, set()),
        ({"read": rule("stock:1"), "write": rule("stock:2")}, {"get"}), ({"knowledge": {"read": ALL, "write": ALL}}, set()),
    ],
)  # fmt: skip
async def test_which_call_needs_which_grant(world: World, grant: dict[str, Any], allowed: set[str]):
    world.grant(**grant)
    for name, call in CALLS.items():
        await world.put("b", "stock:1", SECRET)
        if name in allowed:
            await world.do(lambda other, call=call: call(other.kv))
        else:
            with pytest.raises(RelationDenied) as denied:
                await world.do(lambda other, call=call: call(other.kv))
            assert await world.value("b", "stock:1") == SECRET
            told = str(denied.value.to_dict())
            assert "'stock'" in told
            assert "stock:1" in told
            assert SECRET not in told


async def test_a_denied_key_is_told_the_same_way_whether_it_is_there_or_not(world: World):
    await world.put("b", "there", SECRET)
    told = []
    for key in ("there", "gone."):
        with pytest.raises(RelationDenied) as denied:
            await world.do(lambda other, key=key: other.kv.get_value(key))
        told.append(denied.value.message.replace(key, "KEY"))
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "name", ["scan", "lock", "watch", "conversation", "get_entry", "transact", "records", "backend"]
)
async def test_what_kv_does_not_have(world: World, name: str):
    world.grant(read=ALL, write=ALL)

    async def look(other: Any) -> None:
        assert not hasattr(other.kv, name)
        assert not hasattr(other, "persistent_value")
        getattr(other.kv, name)

    with pytest.raises(AttributeError, match=f"'stock' has no '{name}'; it has get_value, set_value"):
        await world.do(look)


async def test_every_access_reads_both_declarations_again(world: World):
    world.grant(read=ALL)
    await world.put("b", "k", 1)

    async def narrowing(ctx: Context) -> list[Any]:
        kv = ctx.storage.local.related_projects.get("stock").kv
        found: list[Any] = []

        async def attempt() -> None:
            try:
                found.append(await kv.get_value("k"))
            except (RelationDenied, RelationPending, RelationUnknown) as error:
                found.append(error.code)

        await attempt()
        world.grant(read=rule("other"))
        await attempt()
        world.grant(read=rule("k"))
        await attempt()
        world.declare("b")
        await attempt()
        world.grant(read=ALL)
        await attempt()
        world.declare("a")
        await attempt()
        return found

    report = await world.run(narrowing)
    assert report.output == [1, "relation_denied", 1, "relation_pending", 1, "relation_unknown"]


async def test_pending_relations_grant_nothing_in_either_direction(world: World):
    world.declare("b")
    calls = (
        lambda other: other.kv.get_value("k"),
        lambda other: other.knowledge.get_document("d"),
        lambda other: other.list_entrypoints(),
        lambda other: other.run_entrypoint("hello", ["x"]),
    )
    for call in calls:
        with pytest.raises(RelationPending, match="'stock'"):
            await world.do(call)
    world.folders = {"shop": str(world.folder("a"))}
    with pytest.raises(RelationUnknown):
        await world.do(calls[0], alias="shop", name="b")


async def test_a_folder_has_to_be_given_and_to_be_the_right_one(world: World):
    world.grant(read=ALL)
    world.folders = {}
    with pytest.raises(StorageUnavailable, match="--related-project stock=/absolute/path"):
        await world.do(lambda other: other.kv.get_value("k"))
    world.folders = {"stock": str(world.folder("c"))}
    with pytest.raises(RelationUnknown, match="another project"):
        await world.do(lambda other: other.kv.get_value("k"))
    world.folders = {"shop": str(world.folder("b"))}
    with pytest.raises(RelationUnknown):
        await world.do(lambda other: other.kv.get_value("k"), alias="shop")


async def test_local_and_server_never_stand_in_for_each_other(world: World):
    world.declare("b", declared("shop", "a", read=ALL), extra='data-storage = "server"')
    with pytest.raises(StorageForbidden):
        await world.do(lambda other: other.kv.get_value("k"))
    world.grant(read=ALL)
    world.declare("a", declared("stock", "b"), extra='data-storage = "both"')

    async def at_the_server(ctx: Context) -> str:
        with pytest.raises(StorageUnavailable) as unavailable:
            ctx.storage.server.related_projects.get("stock")
        return unavailable.value.message

    assert "server" in (await world.run(at_the_server)).output


async def test_a_lock_keeps_related_projects_out(world: World):
    world.grant(read=ALL, write=ALL, knowledge={"read": ALL}, entrypoints=ALL)

    async def locked(ctx: Context) -> int:
        other = ctx.storage.local.related_projects.get("stock")
        calls = (
            lambda: other.kv.get_value("k"),
            lambda: other.kv.set_value("k", 1),
            lambda: other.kv.delete_value("k"),
            lambda: other.kv.update_value("k", lambda value: value),
            lambda: other.knowledge.get_document("d"),
            lambda: other.list_entrypoints(),
            lambda: other.run_entrypoint("hello", ["x"]),
        )
        async with ctx.storage.local.kv.lock():
            for call in calls:
                with pytest.raises(CrossNamespaceAccess):
                    await call()
                with pytest.raises(CrossNamespaceAccess):
                    await asyncio.create_task(call())
        await other.kv.set_value("k", 1)
        with pytest.raises(CrossNamespaceAccess):
            await ctx.storage.local.kv.update_value("own", lambda _: other.kv.get_value("k"))
        return await other.kv.get_value("k")

    report = await world.run(locked)
    assert (report.status, report.output) == ("completed", 1), report.error


async def test_updates_from_both_sides_are_all_counted(world: World):
    world.grant(read=ALL, write=ALL)

    async def from_outside(ctx: Context) -> None:
        kv = ctx.storage.local.related_projects.get("stock").kv
        await asyncio.gather(*(kv.update_value("n", lambda n: n + 1, default=0) for _ in range(20)))

    async def from_inside(ctx: Context) -> None:
        kv = ctx.storage.local.kv
        await asyncio.gather(*(kv.update_value("n", lambda n: n + 1, default=0) for _ in range(20)))

    await asyncio.gather(world.run(from_outside), world.run(from_inside, "b"))
    assert await world.value("b", "n") == 40


async def test_handles_end_with_their_run_and_keys_are_checked(world: World):
    world.grant(read=ALL)
    kept: list[Any] = []

    async def keep(other: Any) -> None:
        kept.append(other)
        with pytest.raises(InvalidKey):
            await other.kv.get_value("")

    await world.do(keep)
    for call in (
        lambda: kept[0].kv.get_value("k"),
        lambda: kept[0].knowledge.get_document("d"),
        kept[0].list_entrypoints,
    ):
        with pytest.raises(RunClosed):
            await call()


# -- Knowledge -------------------------------------------------------------------------------------------------------


async def test_all_of_knowledge(world: World):
    world.grant(knowledge={"read": ALL, "write": ALL})

    async def work(other: Any) -> list[Any]:
        base = other.knowledge
        made = await base.create_document("Title", "one\ntwo", "d")
        edited = await base.edit_document("d", markdown="one\nthree", expected_version=made.version)
        generated = await create_document(other, "Second", "text")
        lines = await base.read_document_lines("d", 2, 2)
        found = await base.search_documents("THREE", before_lines=1)
        page = await base.list_document_page(limit=1)
        listed = [document.id for document in await base.list_documents()]
        whole = (await get_document(other, "d")).markdown
        gone = await base.delete_document("d")
        with pytest.raises(DocumentNotFound):
            await base.get_document("d")
        return [edited.version, lines.lines, found.hits[0].before, page.documents[0].id == generated.id,
                listed == [generated.id, "d"], whole, gone]  # fmt: skip

    assert await world.do(work) == [2, ["three"], ["one"], True, True, "one\nthree", True]
    assert await world.do(lambda other: other.knowledge.list_documents()) != []

    async def own(ctx: Context) -> int:
        return len(await ctx.knowledge.list_documents())

    assert [(await world.run(own, name)).output for name in "ab"] == [0, 1]


KNOWLEDGE: dict[str, tuple[Any, str]] = {
    "get": (lambda base: base.get_document("a.1"), "knowledge.document.a.1"),
    "lines": (lambda base: base.read_document_lines("a.1", 1, 1), "knowledge.document.a.1"),
    "edit": (lambda base: base.edit_document("a.1", title="T"), "knowledge.document.a.1"),
    "create": (lambda base: base.create_document("T", "x", "a.2"), "knowledge.document.a.2"),
    "delete": (lambda base: base.delete_document("a.1"), "knowledge.document.a.1"),
    "list": (lambda base: base.list_documents(), "knowledge.documents"),
    "page": (lambda base: base.list_document_page(), "knowledge.documents"),
    "search": (lambda base: base.search_documents("x"), "knowledge.documents"),
    "search one": (lambda base: base.search_documents("x", "a.1"), "knowledge.documents"),
}
READS = {"get", "lines"}
INDEX = {"list", "page", "search", "search one"}
DOCUMENTS = rule("knowledge.document.a.")


@pytest.mark.parametrize(
    ("grant", "allowed"),
    [
        (None, set()), ({}, set()), ({"read": ALL}, READS | INDEX), ({"write": ALL}, {"create", "delete"}),
        ({"read": DOCUMENTS}, READS), ({"read": DOCUMENTS, "write": DOCUMENTS}, READS | {"edit", "create", "delete"}),
        ({"read": rule("knowledge.document.b")}, set()), ({"read": rule("knowledge.documents")}, {"list", "page"}),
        ({"read": rule("knowledge.document.a.", "knowledge.documents")}, READS | {"list", "page", "search one"}),
        ({"read": rule("knowledge.document")}, READS | INDEX), ({"read": rule("a.")}, set()),
    ],
)  # fmt: skip
async def test_which_document_needs_which_grant(world: World, grant: dict[str, Any] | None, allowed: set[str]):
    world.grant(knowledge={"read": ALL, "write": ALL})
    await world.do(lambda other: other.knowledge.create_document(SECRET, f"x {SECRET}", "a.1"))
    world.grant(read=ALL, write=ALL, **({} if grant is None else {"knowledge": grant}))
    for name in ("list", "page", "search", "search one", "get", "lines", "edit", "create", "delete"):
        call, key = KNOWLEDGE[name]
        if name in allowed:
            await world.do(lambda other, call=call: call(other.knowledge))
            continue
        with pytest.raises(RelationDenied) as denied:
            await world.do(lambda other, call=call: call(other.knowledge))
        assert denied.value.data["alias"] == "stock"
        has_index = grant is not None and "knowledge.documents" in grant.get("read", {}).get("prefixes", ())
        wanted = {"search": "knowledge.document.", "search one": "knowledge.document.a.1"}
        assert denied.value.data["key"] == (wanted.get(name, key) if has_index else key)
        assert SECRET not in str(denied.value.to_dict())
