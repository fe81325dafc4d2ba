"""What the asynchronous face adds: what runs on the event loop, and what does not."""

import asyncio
import threading
from pathlib import Path

import pytest

from stepwell.store.entries import Domain, Holder, Namespace, Scope, Span, Write
from stepwell.store.sqlite_backend import SqliteBackend

NS = Namespace("01936d3f-6a00-7000-8000-0000000000aa", Domain.KV, Scope.PROJECT)


@pytest.fixture
async def backend(tmp_path: Path):
    made = SqliteBackend(tmp_path / "x.sqlite")
    yield made
    await made.close()


def threads_of(owner: object, name: str, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each call of a method ran on the event loop's thread."""
    here, original, seen = threading.get_ident(), getattr(owner, name), []

    def spy(*arguments, **options):
        seen.append(threading.get_ident() == here)
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, spy)
    return seen


@pytest.mark.parametrize("call", ["text", "read", "scan", "commit", "clear", "lock", "bodies", "namespaces"])
async def test_the_file_is_set_up_off_the_event_loop(tmp_path: Path, monkeypatch, call: str) -> None:
    backend = SqliteBackend(tmp_path / "x.sqlite")
    seen = threads_of(backend.core.file, "_migrate", monkeypatch)
    if call == "lock":
        await (await backend.lock(NS, timeout=1, holder=Holder(1, "me"))).release()
    elif call == "namespaces":
        await backend.namespaces()
    else:
        arguments = {
            "text": ["k"],
            "read": [["k"]],
            "scan": [Span()],
            "commit": [(), [Write("k", "1")]],
            "bodies": [["k"]],
        }
        await getattr(backend, call)(NS, *arguments.get(call, []))
    assert seen == [False]
    await backend.close()


async def test_small_pages_are_read_at_once_and_big_ones_in_a_thread(backend: SqliteBackend, monkeypatch) -> None:
    await backend.commit(NS, (), [Write(f"a{number:03d}", "1") for number in range(300)])
    await backend.commit(NS, (), [Write(f"b{number}", '"' + "x" * 300_000 + '"') for number in range(5)])
    scans, reads = (threads_of(backend.core, name, monkeypatch) for name in ("scan", "read"))
    assert len(await backend.scan(NS, Span.prefix("a"))) == 200
    assert scans == [True]
    assert len(await backend.scan(NS, Span.prefix("a"), limit=300)) == 300
    assert scans == [True, False]
    assert len(await backend.scan(NS, Span.prefix("b"))) == 5
    assert scans == [True, False, True, False]  # begun here, found too heavy, done there
    assert len(await backend.read(NS, ["a001", "b1"])) == 2
    assert len(await backend.read(NS, [f"b{number}" for number in range(5)])) == 5
    assert reads == [True, True, False]
    assert len(await backend.bodies(NS, ["b1", "b2"])) == 2


async def test_commits_of_many_tasks_share_transactions(backend: SqliteBackend) -> None:
    await backend.commit(NS, (), [Write("k", "1")])
    held, transactions = threading.Event(), []
    original = backend._writer._transaction

    def counted(operation) -> None:
        transactions.append(1)
        if len(transactions) == 1:
            held.wait(20)
        original(operation)

    backend._writer._transaction = counted
    tasks = [asyncio.create_task(backend.commit(NS, (), [Write(f"k{number}", "1")])) for number in range(64)]
    await asyncio.sleep(0.05)
    held.set()
    committed = await asyncio.gather(*tasks)
    assert sorted(each.revision for each in committed) == list(range(2, 66))
    assert len(transactions) <= 3


async def test_a_commit_cancelled_before_it_starts_is_taken_back(backend: SqliteBackend) -> None:
    lease = await backend.lock(NS, timeout=1, holder=Holder(1, "me"))
    waiting = [asyncio.create_task(backend.commit(NS, (), [Write(f"k{n}", "1")])) for n in range(4)]
    await asyncio.sleep(0.05)
    for task in waiting[:3]:
        task.cancel()
    await asyncio.gather(*waiting[:3], return_exceptions=True)
    await lease.release()
    await waiting[3]
    assert [record.key for record in await backend.scan(NS, Span())] == ["k3"]


async def test_closing_finishes_commits_under_way(tmp_path: Path) -> None:
    backend = SqliteBackend(tmp_path / "x.sqlite")
    await backend.commit(NS, (), [Write("k", "1")])
    tasks = [asyncio.create_task(backend.commit(NS, (), [Write(f"k{n}", "1")])) for n in range(50)]
    await asyncio.sleep(0)
    await backend.close()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    landed = sum(not isinstance(outcome, BaseException) for outcome in outcomes)
    again = SqliteBackend(tmp_path / "x.sqlite")
    assert len(await again.scan(NS, Span())) == landed + 1
    await again.close()
