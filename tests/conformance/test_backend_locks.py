"""The backend contract: locks and watching."""

import asyncio
import threading
from time import monotonic

import pytest

from stepwell.errors import LockTimeout, StorageUnavailable
from stepwell.store.entries import Change, Holder, Span, Write
from tests.conformance.conftest import NS, OTHER, Store

ME = Holder(4711, "somewhere", "run-1")


async def test_a_second_holder_waits_and_is_told_who_holds(store: Store):
    one, two = store.open(), store.open()
    lease = await one.lock(NS, timeout=1, holder=ME)
    with pytest.raises(LockTimeout) as caught:
        await two.lock(NS, timeout=0.05, holder=ME)
    assert "4711" in caught.value.message
    assert "run-1" in caught.value.message
    waiting = asyncio.create_task(two.lock(NS, timeout=5, holder=ME))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    await lease.release()
    second = await waiting
    await second.release()
    await second.release()  # harmless


async def test_a_lock_with_no_patience_tries_once(store: Store):
    one, two = store.open(), store.open()
    lease = await one.lock(NS, timeout=0, holder=ME)
    with pytest.raises(LockTimeout):
        await two.lock(NS, timeout=0, holder=ME)
    await lease.release()
    await (await two.lock(NS, timeout=0, holder=ME)).release()


async def test_writers_of_the_namespace_wait_and_others_go_on(store: Store):
    one, two = store.open(), store.open()
    lease = await one.lock(NS, timeout=1, holder=ME)
    waiting = asyncio.create_task(two.commit(NS, (), [Write("k", "2")]))
    own = asyncio.create_task(one.commit(NS, (), [Write("j", "2")]))
    async with asyncio.timeout(2):
        await two.commit(OTHER, (), [Write("k", "1")])
        await one.commit(NS, (), [Write("mine", "1")], lease=lease)
    await asyncio.sleep(0.05)
    assert not waiting.done()
    assert not own.done()
    assert await two.text(NS, "k") is None
    await lease.release()
    async with asyncio.timeout(5):
        await waiting
        await own


async def test_a_commit_with_a_lost_lease_is_refused(backend):
    lease = await backend.lock(NS, timeout=1, holder=ME)
    await lease.release()
    with pytest.raises(LockTimeout):
        await backend.commit(NS, (), [Write("k", "1")], lease=lease)
    assert await backend.text(NS, "k") is None


async def test_cancelling_a_waiting_holder_leaves_the_line(backend):
    lease = await backend.lock(NS, timeout=1, holder=ME)
    waiting = [asyncio.create_task(backend.lock(NS, timeout=30, holder=ME)) for _ in range(5)]
    await asyncio.sleep(0.02)
    for task in waiting[:4]:
        task.cancel()
    await lease.release()
    async with asyncio.timeout(5):
        await (await waiting[4]).release()
        await (await backend.lock(NS, timeout=1, holder=ME)).release()


async def test_a_lock_is_not_starved_by_a_stream_of_writers(store: Store):
    backends = [store.open() for _ in range(3)]
    stop = False

    async def write(number: int) -> None:
        while not stop:
            await backends[number].commit(NS, (), [Write(f"k{number}", "1")])

    writers = [asyncio.create_task(write(number)) for number in range(3)]
    await asyncio.sleep(0.05)
    async with asyncio.timeout(10):
        for _ in range(5):
            await (await backends[0].lock(NS, timeout=5, holder=ME)).release()
    stop = True
    await asyncio.gather(*writers)


async def test_a_writer_is_not_starved_by_a_stream_of_holders(store: Store):
    backends = [store.open() for _ in range(3)]
    stop = False

    async def hold(backend) -> None:
        while not stop:
            lease = await backend.lock(NS, timeout=20, holder=ME)
            await backend.commit(NS, (), [Write("held", "1")], lease=lease)
            await lease.release()

    holders = [asyncio.create_task(hold(backend)) for backend in backends * 4]
    await asyncio.sleep(0.02)
    async with asyncio.timeout(10):
        for number in range(10):
            await backends[0].commit(NS, (), [Write("free", str(number))])
    stop = True
    await asyncio.gather(*holders)


async def test_holders_come_first_come_first_served(store: Store):
    backends = [store.open() for _ in range(2)]
    first = await backends[0].lock(NS, timeout=1, holder=ME)
    await backends[1].text(NS, "k")  # opened now, not on the way to the line
    order = []

    async def queue(number: int) -> None:
        lease = await backends[number % 2].lock(NS, timeout=20, holder=ME)
        order.append(number)
        await lease.release()

    tasks = []
    for number in range(10):
        tasks.append(asyncio.create_task(queue(number)))
        await asyncio.sleep(0)
    await asyncio.sleep(0.02)
    await first.release()
    await asyncio.gather(*tasks)
    assert order == list(range(10))


async def test_a_cancelled_holder_s_commit_is_over_before_the_next_one_reads(store: Store):
    backends = [store.open() for _ in range(2)]

    async def increment(number: int) -> None:
        backend = backends[number % 2]
        lease = await backend.lock(NS, timeout=20, holder=ME)
        try:
            value = int(await backend.text(NS, "k") or 0)
            await backend.commit(NS, (), [Write("k", str(value + 1))], lease=lease)
        finally:
            await lease.release()

    tasks = [asyncio.create_task(increment(number)) for number in range(150)]
    while not all(task.done() for task in tasks):
        await asyncio.sleep(0.000_7)
        pending = [task for task in tasks if not task.done()]
        for task in pending[:2]:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await increment(0)
    record = (await backends[0].read(NS, ["k"]))["k"]
    assert int(record.text) == record.revision  # a commit that landed late would have overwritten another's


async def test_locking_a_closed_backend_is_refused(store: Store):
    backend = store.open()
    await backend.commit(NS, (), [Write("k", "1")])
    await backend.close()
    with pytest.raises(StorageUnavailable):
        await backend.lock(NS, timeout=1, holder=ME)
    with pytest.raises(StorageUnavailable):
        backend.watch(NS, Span())
    with pytest.raises(StorageUnavailable):
        await backend.clear(NS)
    with pytest.raises(StorageUnavailable):
        await backend.namespaces()


async def test_two_event_loops_in_two_threads_exclude_each_other(store: Store):
    inside, overlaps = [0], [0]

    async def work() -> None:
        backend = store.open()
        for _ in range(20):
            lease = await backend.lock(NS, timeout=20, holder=ME)
            inside[0] += 1
            overlaps[0] += inside[0] > 1
            await asyncio.sleep(0.001)
            inside[0] -= 1
            await lease.release()

    threads = [threading.Thread(target=lambda: asyncio.run(work())) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        await asyncio.sleep(0.01)
    assert overlaps == [0]


async def _next(changes, count: int) -> list[Change]:
    found = []
    async with asyncio.timeout(10):
        async for change in changes:
            found.append(change)
            if len(found) == count:
                break
    return found


async def test_watching_tells_of_writes_and_deletions_by_any_handle(store: Store):
    one, two = store.open(), store.open()
    await one.commit(NS, (), [Write("before", "1"), Write("gone", "1")])
    changes = one.watch(NS, Span())
    await two.commit(NS, (), [Write("a", "1")])
    await two.commit(NS, (), [Write("gone", None)])
    await two.commit(OTHER, (), [Write("elsewhere", "1")])
    assert await _next(changes, 2) == [Change("a", 2, False), Change("gone", 3, True)]
    await changes.aclose()


async def test_watching_a_prefix(backend):
    changes = backend.watch(NS, Span.prefix("stock:"))
    await backend.commit(NS, (), [Write("stocks", "1"), Write("stock", "1"), Write("stock:1", "1")])
    assert await _next(changes, 1) == [Change("stock:1", 1, False)]
    await changes.aclose()


async def test_every_key_written_while_watching_is_told(store: Store):
    one, two = store.open(), store.open()
    changes = one.watch(NS, Span())
    started = monotonic()

    async def write() -> None:
        for number in range(100):
            await two.commit(NS, (), [Write(f"k{number}", "1")])

    writer = asyncio.create_task(write())
    seen: dict[str, int] = {}
    async with asyncio.timeout(20):
        async for change in changes:
            assert change.revision >= max(seen.values(), default=0)
            seen[change.key] = change.revision
            if len(seen) == 100:
                break
    await writer
    await changes.aclose()
    assert monotonic() > started


async def test_a_watcher_that_was_busy_learns_the_newest_state_of_each_key(store: Store):
    one, two = store.open(), store.open()
    await one.commit(NS, (), [Write(f"old{number}", "1") for number in range(12_000)])
    changes = one.watch(NS, Span())
    await two.commit(NS, (), [Write("a", "1"), Write("b", "1")])
    await two.commit(NS, (), [Write("a", None)])
    await two.commit(NS, (), [Write("a", "2")])
    await two.commit(NS, (), [Write("b", None)])
    assert await two.clear(NS) == 12_001
    await two.commit(NS, (), [Write("last", "1")])
    newest: dict[str, Change] = {}
    revision = 1
    async with asyncio.timeout(20):
        async for change in changes:
            assert change.revision >= revision
            revision = change.revision
            newest[change.key] = change
            if change.key == "last":
                break
    await changes.aclose()
    assert newest.pop("last") == Change("last", 7, False)
    assert newest.pop("a") == Change("a", 6, True)
    assert newest.pop("b") == Change("b", 5, True)
    assert newest == {f"old{number}": Change(f"old{number}", 6, True) for number in range(12_000)}


async def test_many_watchers_and_an_abandoned_one(store: Store):
    one, two = store.open(), store.open()
    watchers = [backend.watch(NS, Span()) for backend in (one, two) for _ in range(5)]
    pending = [asyncio.create_task(_next(watcher, 3)) for watcher in watchers]
    await asyncio.sleep(0.02)
    pending[0].cancel()
    for number in range(3):
        await one.commit(NS, (), [Write(f"k{number}", "1")])
    found = await asyncio.gather(*pending, return_exceptions=True)
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == [[Change(f"k{number}", number + 1, False) for number in range(3)]] * 9
    for watcher in watchers:
        await watcher.aclose()
