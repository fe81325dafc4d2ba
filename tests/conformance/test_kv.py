"""The public key-value API on every backend."""

import asyncio
import contextvars
import math
from datetime import UTC, datetime

import pytest

from stepwell.errors import (
    CrossNamespaceAccess,
    InvalidArgument,
    InvalidKey,
    LockReentry,
    LockTimeout,
    TransactionClosed,
    UpdateConflict,
    ValueNotSerializable,
    ValueTooLarge,
)
from stepwell.storage.entry import MISSING
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Source
from tests.conformance.conftest import NS, OTHER, PROJECT, Store

VALUES = [
    5,
    "x",
    True,
    None,
    [],
    {},
    0,
    0.0,
    -0.0,
    False,
    "",
    2**100,
    -(2**63),
    "a\x00b",
    "\ud800",
    {"b": 1, "a": [None]},
]


@pytest.mark.parametrize("value", VALUES, ids=repr)
async def test_values_come_back_equal_and_of_the_same_type(kv, value):
    entry = await kv.set_value("k", value)
    back = await kv.get_value("k", MISSING)
    assert back == value
    assert type(back) is type(value)
    assert math.copysign(1, back) == math.copysign(1, value) if isinstance(value, float) else True
    assert entry.value == value
    assert await kv.get_entry("k") == entry


async def test_null_is_not_missing(kv):
    assert await kv.get_value("k", MISSING) is MISSING
    assert await kv.get_value("k", default=7) == 7
    await kv.set_value("k", None)
    assert await kv.get_value("k", MISSING) is None
    assert await kv.get_value("k", default=7) is None
    assert await kv.delete_value("k") is True
    assert await kv.delete_value("k") is False
    assert await kv.get_entry("k") is None


async def test_values_are_copied_at_the_boundary(kv):
    value = {"items": [1]}
    entry = await kv.set_value("k", value)
    value["items"].append(2)
    entry.value["items"].append(3)
    (await kv.get_value("k"))["items"].append(4)
    assert await kv.get_value("k") == {"items": [1]}


@pytest.mark.parametrize("key", ["", "a\x00b", "\ud800", "k" * 1025, "😀" * 257, 5, None, b"k"], ids=repr)
async def test_bad_keys_are_refused_everywhere(kv, key):
    for call in (
        kv.get_value(key), kv.get_entry(key), kv.set_value(key, 1), kv.delete_value(key),
        kv.update_value(key, lambda _: 1),
    ):  # fmt: skip
        with pytest.raises(InvalidKey):
            await call
    assert [entry async for entry in kv.scan()] == []


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, {"b": math.nan}]}, "$.a[1].b"), ([math.inf], "$[0]"), ({1: "a", "1": "b"}, "$"),
        ({"when": datetime(2026, 1, 1, tzinfo=UTC)}, "$.when"), ([b"x"], "$[0]"),
        ({"a b": {1, 2}}, '$["a b"]'), (10**4000, "$"),
    ],
)  # fmt: skip
async def test_what_is_not_json_is_refused_with_its_path(kv, value, path):
    await kv.set_value("k", "old")
    with pytest.raises(ValueNotSerializable) as caught:
        await kv.set_value("k", value)
    assert caught.value.data["path"] == path
    assert await kv.get_value("k") == "old"


async def test_too_large_a_value_writes_nothing(backend):
    kv = KeyValue(backend, NS, max_value_bytes=100)
    await kv.set_value("k", "x" * 98)
    for value in ("x" * 99, "é" * 50):
        with pytest.raises(ValueTooLarge):
            await kv.set_value("k", value)
    assert await kv.get_value("k") == "x" * 98


async def test_the_last_writer_is_recorded(backend):
    source = Source(PROJECT, "main", "run-1", "c1")
    await KeyValue(backend, NS, source=source).set_value("k", 1)
    entry = await KeyValue(backend, NS).get_entry("k")
    assert entry.source == source
    assert entry.to_dict()["source"] == {
        "project_id": PROJECT, "entrypoint": "main", "run_id": "run-1", "conversation_id": "c1"
    }  # fmt: skip
    assert entry.created_at.endswith("Z")
    assert len(entry.created_at) == 27


async def test_updates_are_never_lost(store: Store):
    handles = [KeyValue(store.open(), NS) for _ in range(3)]

    async def increment(kv: KeyValue) -> None:
        for _ in range(10):
            await kv.update_value("c", lambda n: n + 1, default=0)

    await asyncio.gather(*(increment(kv) for kv in handles for _ in range(4)))
    assert await handles[0].get_value("c") == 120


async def test_updaters_may_be_async_and_return_null(kv):
    async def double(value: int) -> int:
        await asyncio.sleep(0)
        return value * 2

    await kv.set_value("k", 4)
    assert await kv.update_value("k", double) == 8
    assert await kv.update_value("k", lambda _: None) is None
    assert await kv.get_value("k", MISSING) is None


async def test_an_updater_that_raises_changes_nothing_and_frees_the_lock(kv):
    await kv.set_value("k", 1)
    with pytest.raises(ZeroDivisionError):
        await kv.update_value("k", lambda n: n / 0)
    with pytest.raises(InvalidArgument):
        await kv.update_value("k", lambda _: MISSING)
    with pytest.raises(ValueNotSerializable):
        await kv.update_value("k", lambda _: math.nan)
    async with asyncio.timeout(5):
        assert await kv.update_value("k", lambda n: n + 1) == 2


async def test_an_updater_must_be_pure(backend, kv):
    other = KeyValue(backend, OTHER)
    for touched in (kv, other):

        async def impure(_, touched=touched):
            return await touched.get_value("x")

        with pytest.raises(CrossNamespaceAccess):
            await kv.update_value("k", impure)
    assert await kv.get_value("k", MISSING) is MISSING


async def test_update_gives_up_in_time_and_says_so(kv):
    outside = contextvars.copy_context()

    async def overtaken_and_slow(_):
        await asyncio.create_task(kv.set_value("k", "another's"), context=outside)
        await asyncio.sleep(0.1)

    with pytest.raises(UpdateConflict):
        await kv.update_value("k", overtaken_and_slow, timeout=0.05)
    assert await kv.get_value("k") == "another's"


async def test_update_waits_for_a_foreign_lock_only_as_long_as_it_may(store: Store):
    one, two = KeyValue(store.open(), NS), KeyValue(store.open(), NS)

    async def hold(entered: asyncio.Event, leave: asyncio.Event) -> None:
        async with one.lock():
            entered.set()
            await leave.wait()

    entered, leave = asyncio.Event(), asyncio.Event()
    holder = asyncio.create_task(hold(entered, leave))
    await entered.wait()
    async with asyncio.timeout(5):
        with pytest.raises((UpdateConflict, LockTimeout)):
            await two.update_value("k", lambda _: 1, timeout=0.1)
    leave.set()
    await holder
    assert await two.update_value("k", lambda value: value, default="untouched") == "untouched"


async def test_a_locked_block_commits_as_a_whole(kv):
    await kv.set_value("gone", 1)
    async with kv.lock() as tx:
        await tx.set_value("a", 1)
        assert await tx.get_value("a") == 1
        assert await tx.delete_value("gone") is True
        assert await tx.get_value("gone", MISSING) is MISSING
        assert await tx.update_value("a", lambda n: n + 1) == 2
    assert [(entry.key, entry.value) async for entry in kv.scan()] == [("a", 2)]


async def test_program_order_holds_inside_a_lock(kv):
    async with kv.lock() as tx:
        await tx.set_value("k", 1)
        assert await tx.delete_value("k") is True
    assert await kv.get_value("k", MISSING) is MISSING
    async with kv.lock() as tx:
        assert await tx.delete_value("k") is False
        await tx.set_value("k", 2)
    assert await kv.get_value("k") == 2


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, KeyboardInterrupt])
async def test_any_exception_rolls_everything_back(kv, error):
    await kv.set_value("a", 1)

    async def fail() -> None:
        async with kv.lock() as tx:
            await tx.delete_value("a")
            await tx.set_value("b", 1)
            raise error

    with pytest.raises(error):
        await fail()
    assert [entry.key async for entry in kv.scan()] == ["a"]
    async with asyncio.timeout(5), kv.lock():
        pass


async def test_a_bad_value_inside_a_lock_rolls_back_too(kv):
    await kv.set_value("a", 1)

    async def fail() -> None:
        async with kv.lock() as tx:
            await tx.delete_value("a")
            await tx.set_value("b", {1, 2})

    with pytest.raises(ValueNotSerializable):
        await fail()
    assert await kv.get_value("a") == 1


async def test_the_handle_joins_the_transaction_of_its_own_lock(kv):
    async with kv.lock():
        await kv.set_value("a", 1)
        assert await kv.get_value("a") == 1
        assert await kv.delete_value("nothing") is False
        assert await kv.update_value("a", lambda n: n + 1) == 2
        assert [entry.key async for entry in kv.scan()] == ["a"]
    assert await kv.get_value("a") == 2


async def test_scanning_inside_a_lock_sees_own_writes(kv):
    for number in range(450):
        await kv.set_value(f"k{number:03d}", 0)
    async with kv.lock() as tx:
        await tx.delete_value("k001")
        await tx.set_value("k000x", 1)
        await tx.set_value("k449x", 1)
        await tx.set_value("k005", 1)
        for reverse in (False, True):
            found = {entry.key: entry.value async for entry in tx.scan("k", reverse=reverse)}
            keys = list(found)
            assert keys == sorted(keys, reverse=reverse)
            assert len(found) == 451
            assert found["k005"] == found["k000x"] == found["k449x"] == 1
            assert "k001" not in found


async def test_a_lock_covers_one_namespace_only(backend, kv):
    other = KeyValue(backend, OTHER)
    async with kv.lock():
        for call in (other.get_value("k"), other.set_value("k", 1), other.delete_value("k"), _enter(other.lock())):
            with pytest.raises(CrossNamespaceAccess):
                await call
        with pytest.raises(CrossNamespaceAccess):
            async for _ in other.scan():
                pass

        async def child() -> None:
            await other.get_value("k")

        with pytest.raises(CrossNamespaceAccess):
            await asyncio.create_task(child())
    await other.set_value("k", 1)


async def test_other_tasks_are_not_affected_by_my_lock(backend, kv):
    other, entered, leave = KeyValue(backend, OTHER), asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        async with kv.lock():
            entered.set()
            await leave.wait()

    holder = asyncio.create_task(hold())
    await entered.wait()
    await other.set_value("k", 1)
    assert await kv.get_value("x") is None
    leave.set()
    await holder


async def _enter(lock) -> None:
    async with lock:
        pass


async def test_locking_again_is_refused_at_once(kv):
    async with kv.lock():
        with pytest.raises(LockReentry):
            await _enter(kv.lock())
        with pytest.raises(LockReentry):
            await asyncio.create_task(_enter(kv.lock()))
    await _enter(kv.lock())


async def test_a_transaction_is_closed_after_its_block(kv):
    async with kv.lock() as tx:
        await tx.set_value("a", 1)
    with pytest.raises(TransactionClosed):
        await tx.get_value("a")
    with pytest.raises(TransactionClosed):
        await tx.set_value("a", 2)


async def test_a_task_that_outlives_the_lock_works_on_its_own(kv):
    async with kv.lock() as tx:
        await tx.set_value("a", 1)

        async def later() -> int:
            await asyncio.sleep(0.05)
            return await kv.update_value("a", lambda n: n + 1)

        task = asyncio.create_task(later())
    assert await task == 2


async def test_a_timed_out_lock_names_the_holder(store: Store):
    one, two = KeyValue(store.open(), NS, source=Source(run_id="run-7")), KeyValue(store.open(), NS)
    async with one.lock():
        with pytest.raises(LockTimeout) as caught:
            await asyncio.create_task(_enter(two.lock(timeout=0.05)), context=_fresh_context())
        assert "run-7" in caught.value.message


def _fresh_context():
    return contextvars.Context()


async def test_a_slow_locked_block_keeps_writers_waiting_not_losing(store: Store):
    one, two = KeyValue(store.open(), NS), KeyValue(store.open(), NS)
    await one.set_value("notes", ["a"])

    async def slow() -> None:
        async with one.lock() as tx:
            notes = await tx.get_value("notes")
            await asyncio.sleep(0.2)
            await tx.set_value("notes", [*notes, "b"])

    holder = asyncio.create_task(slow())
    await asyncio.sleep(0.05)
    await two.update_value("notes", lambda notes: [*notes, "c"])
    await holder
    assert sorted(await one.get_value("notes")) == ["a", "b", "c"]


async def test_scanning_finds_what_exists_throughout_while_others_write(kv):
    for number in range(500):
        await kv.set_value(f"k{number:04d}", number)
    seen = []
    async for entry in kv.scan("k"):
        seen.append(entry.key)
        if len(seen) == 150:
            for number in range(0, 500, 7):
                await kv.delete_value(f"k{number:04d}")
            await kv.set_value("k0000a", 1)
            await kv.set_value("k9", 1)
    stayed = [f"k{number:04d}" for number in range(500) if number % 7]
    assert [key for key in seen if key in set(stayed)] == stayed
    assert len(seen) == len(set(seen))


async def test_a_reader_that_stops_early_blocks_nobody(kv):
    for number in range(300):
        await kv.set_value(f"k{number}", 1)
    scan = kv.scan()
    await anext(scan)
    async with asyncio.timeout(2):
        await kv.set_value("new", 1)
        await kv.backend.clear(NS)


async def test_scan_continues_behind_a_key(kv):
    for key in "abcd":
        await kv.set_value(key, 1)
    assert [entry.key async for entry in kv.scan(after="b")] == ["c", "d"]
    assert [entry.key async for entry in kv.scan(after="c", reverse=True)] == ["b", "a"]


async def test_setting_the_same_value_makes_a_new_revision(kv):
    first = await kv.set_value("k", 1)
    second = await kv.set_value("k", 1)
    assert second.revision == first.revision + 1


async def test_several_keys_change_atomically_without_a_long_lock(store: Store):
    handles = [KeyValue(store.open(), NS) for _ in range(2)]
    await handles[0].set_value("from", 100)
    await handles[0].set_value("to", 0)

    async def move(kv: KeyValue) -> None:
        async def body(tx) -> None:
            await tx.set_value("from", await tx.get_value("from") - 1)
            await asyncio.sleep(0)
            await tx.set_value("to", await tx.get_value("to") + 1)

        for _ in range(10):
            await kv.transact(body)

    await asyncio.gather(*(move(kv) for kv in handles for _ in range(2)))
    assert (await handles[0].get_value("from"), await handles[1].get_value("to")) == (60, 40)


async def test_a_failure_over_what_never_was_there_together_is_no_failure(kv):
    await kv.set_value("a", 1)
    await kv.set_value("b", 1)
    tries = 0

    async def body(tx):
        nonlocal tries
        tries += 1
        one = await tx.get_value("a")
        if tries == 1:
            other = KeyValue(kv.backend, kv.namespace)
            await asyncio.create_task(_both(other), context=contextvars.Context())
        if one != await tx.get_value("b"):
            raise ValueError("torn")
        return one

    assert await kv.transact(body) == 2
    assert tries == 2
    with pytest.raises(ValueError, match="own"):

        async def failing(tx):
            await tx.get_value("a")
            await tx.get_value("b")
            raise ValueError("own")

        await kv.transact(failing)


async def _both(kv: KeyValue) -> None:
    await kv.set_value("a", 2)
    await kv.set_value("b", 2)
