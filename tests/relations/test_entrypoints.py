"""Running entrypoints of a related project: granted ones, in its own name, and nothing behind it."""

import asyncio
from typing import Any

import pytest

from stepwell import Context, Host, load_project, load_settings, node
from stepwell.errors import EntrypointNotFound, InputInvalid, InvalidArgument, RelationDenied, RunFailed
from stepwell.runtime.runs import RunFilter
from tests.relations.conftest import ALL, IDS, World, declared, rule


async def test_the_payload_of_a_run_in_the_other_projects_name(world: World):
    world.grant(entrypoints=ALL)
    payload = await world.do(lambda other: other.run_entrypoint("hello", ["you", "there"]))
    assert (payload["project"], payload["greeted"]) == (IDS["b"], {"words": ["you", "there"]})
    assert "a1B2c3D4" in payload["secret"]  # as it is, though the run's record is redacted
    assert await world.value("b", "greeted") == {"words": ["you", "there"]}
    assert await world.value("a", "greeted") is None
    ((run, _),), _ = world.host.runs(IDS["b"]).list(RunFilter(None, "hello", None, None), limit=10, cursor=None)
    assert run.project_id == IDS["b"]
    assert "a1B2c3D4" not in str(run.output)


async def test_only_granted_entrypoints_are_listed_and_run(world: World):
    world.grant(entrypoints=rule("h"))
    listed = await world.do(lambda other: other.list_entrypoints())
    assert [point["id"] for point in listed] == ["hello", "hidden"]
    assert set(listed[0]) >= {"title", "input_schema", "output_schema"}
    world.grant(entrypoints=rule("hello", "nowhere"))
    assert [point["id"] for point in await world.do(lambda other: other.list_entrypoints())] == ["hello"]
    for name in ("hidden", "Hello", "unknown"):
        with pytest.raises(RelationDenied) as denied:
            await world.do(lambda other, name=name: other.run_entrypoint(name, ["x"]))
        assert denied.value.data == {"alias": "stock", "key": name, "grant": "entrypoints"}
    with pytest.raises(EntrypointNotFound) as missing:
        await world.do(lambda other: other.run_entrypoint("nowhere"))
    assert "hidden" not in str(missing.value.to_dict())
    world.grant(read=ALL, write=ALL)
    assert await world.do(lambda other: other.list_entrypoints()) == []


async def test_arguments_go_through_create_input(world: World):
    world.grant(entrypoints=ALL)
    with pytest.raises(InputInvalid, match="say something"):
        await world.do(lambda other: other.run_entrypoint("hello"))
    wrong: list[tuple[Any, Any]] = [("hello", "text"), ("hello", [1]), ("", []), (None, [])]
    for entrypoint, args in wrong:
        with pytest.raises(InvalidArgument):
            await world.do(lambda other, e=entrypoint, a=args: other.run_entrypoint(e, a))


async def test_a_failure_is_told(world: World):
    world.grant(entrypoints=ALL)
    with pytest.raises(RunFailed, match="on purpose") as failed:
        await world.do(lambda other: other.run_entrypoint("fail"))
    assert failed.value.data["status"] == "failed"


async def test_nothing_reaches_a_third_project(world: World):
    """`b` may do everything in `c`, and its folder is at hand; called by `a` it still cannot."""
    world.declare("b", declared("shop", "a", entrypoints=ALL), declared("next", "c"))
    world.declare("c", declared("before", "b", read=ALL))
    world.folders |= {"next": str(world.folder("c"))}
    await world.put("c", "k", "far")
    with pytest.raises(RunFailed, match="no related projects of its own") as failed:
        await world.do(lambda other: other.run_entrypoint("onward", ["--alias", "next"]))
    alone = load_project(world.folder("b"))
    handle = await world.host.start(alone, "onward", args=["--alias", "next"], related=world.folders)
    assert (await handle.report()).output == "far"
    assert failed.value.data["status"] == "failed"


async def test_a_called_run_that_is_resumed_has_no_more_than_before(world: World, monkeypatch: pytest.MonkeyPatch):
    world.declare("b", declared("shop", "a", entrypoints=ALL), declared("next", "c"))
    world.declare("c", declared("before", "b", read=ALL))
    world.folders |= {"next": str(world.folder("c"))}
    project = load_project(world.folder("b"))
    handle = await world.host.start(project, "onward", args=["--alias", "next"], related=None)
    handle._session.break_off(RunFailed("as if the process had died"))
    with pytest.raises(RunFailed):
        await handle.report()
    async with Host(load_settings()) as host:
        again = await host.resume(project, handle.run_id, related=world.folders)
        report = await again.report()
    assert report.status == "failed"
    assert report.error is not None
    assert "no related projects of its own" in report.error["message"]


async def test_cancelling_the_caller_cancels_what_it_called(world: World):
    world.grant(entrypoints=ALL)
    code = world.folder("b") / "code_b.py"
    code.write_text(
        "import asyncio\nfrom stepwell import Context, Entrypoint, Executor, workflow\n\n"
        "@workflow\nasync def slow(data: dict, ctx: Context) -> None:\n"
        "    await ctx.storage.local.kv.set_value('began', True)\n    await asyncio.sleep(60)\n\n"
        "executor = Executor(entrypoints=[Entrypoint('slow', slow)])\n"
    )
    running = asyncio.create_task(
        world.run(lambda ctx: ctx.storage.local.related_projects.get("stock").run_entrypoint("slow"))
    )
    while not [
        run for run, _ in world.host.runs(IDS["b"]).list(_ANY, limit=10, cursor=None)[0] if run.status == "running"
    ]:
        assert not running.done(), running.result()
        await asyncio.sleep(0.01)
    ((caller, _),), _ = world.host.runs(IDS["a"]).list(_ANY, limit=10, cursor=None)
    await world.host.runs(IDS["a"]).cancel(caller.run_id)
    assert (await running).status == "cancelled"
    while (called := world.host.runs(IDS["b"]).list(_ANY, limit=10, cursor=None)[0][0][0]).status == "running":
        await asyncio.sleep(0.01)
    assert called.status == "cancelled"


_ANY = RunFilter(None, None, None, None)


async def test_a_related_project_keeps_its_own_data_folders(world: World, monkeypatch: pytest.MonkeyPatch):
    """What its manifest says of data folders holds for it, also when another project calls it."""
    world.declare("b", declared("shop", "a", read=ALL, entrypoints=ALL), extra='settings.kv-store-dir = "own-data"')
    await world.do(lambda other: other.run_entrypoint("hello", ["x"]))
    assert list((world.folder("b") / "own-data").iterdir())
    assert await world.do(lambda other: other.kv.get_value("greeted")) == {"words": ["x"]}


async def test_from_a_synchronous_node(world: World):
    world.grant(read=ALL, write=ALL, entrypoints=ALL)

    @node
    def sync(ctx: Context) -> list[Any]:
        other = ctx.storage.local.related_projects.get("stock")
        ctx.wait(other.kv.set_value("k", 1))
        payload = ctx.wait(other.run_entrypoint("hello", ["x"]))
        return [ctx.wait(other.kv.get_value("k")), payload["greeted"]]

    async def main(ctx: Context) -> Any:
        return await sync(ctx)

    report = await world.run(main)
    assert report.output == [1, {"words": ["x"]}], report.error
    assert report.nodes["completed"] == 1  # the called run's nodes are its own
