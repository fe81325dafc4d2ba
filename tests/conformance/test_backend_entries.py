"""The backend contract: read, scan, commit, namespaces, clear."""

import asyncio

import pytest

from stepwell.errors import Conflict, StorageUnavailable
from stepwell.jsontext import MAX_VALUE_BYTES
from stepwell.store.entries import Check, Domain, Namespace, Scope, Source, Span, Write
from tests.conformance.conftest import NS, OTHER, PROJECT, Store

HOSTILE_KEYS = [
    " ", "a", "A", "a\n", "%", "_", "a_b", "a%b", "../x", "/etc/passwd", "x') OR 1=1 --", '$.a"]', "\u200b", "\u202e",
    "é", "e\u0301", "中", "😀", "\uffff", "\U0010ffff", "\ud7ff", "\ue000", "CON", "a.", "a/b", "..", "k" * 1024,
]  # fmt: skip
HOSTILE_TEXTS = [
    '"a\\u0000b"', '{"b":1,"a":2}', "-0.0", "1.0", "1", "true", "null", '""', "[]", "{}", str(2**100), "9" * 4000,
    '"\\ud800"', '"日本語 😀 \\n"', '{"":{"":[]}}', "1e-320", "123456789012345678901234567890.5e-10",
]  # fmt: skip


async def test_what_is_committed_is_read_back(backend):
    committed = await backend.commit(NS, (), [Write("k", '{"a":1}')], source=Source(PROJECT, "main", "run", "c"))
    record = (await backend.read(NS, ["k", "absent"]))["k"]
    assert record.text == '{"a":1}'
    assert record.revision == committed.revision == 1
    assert record.created_at == record.updated_at == committed.at == committed.created["k"]
    assert record.source == Source(PROJECT, "main", "run", "c")
    assert await backend.text(NS, "k") == '{"a":1}'
    assert await backend.text(NS, "absent") is None


@pytest.mark.parametrize("text", HOSTILE_TEXTS, ids=range(len(HOSTILE_TEXTS)))
async def test_texts_come_back_to_the_character(backend, text):
    await backend.commit(NS, (), [Write("k", text)])
    assert await backend.text(NS, "k") == text


async def test_hostile_keys_are_ordinary_and_ordered_by_bytes(backend):
    await backend.commit(NS, (), [Write(key, "1") for key in HOSTILE_KEYS])
    expected = sorted(HOSTILE_KEYS, key=lambda key: key.encode())
    assert [record.key for record in await backend.scan(NS, Span())] == expected
    assert [record.key for record in await backend.scan(NS, Span(), reverse=True)] == expected[::-1]
    for key in HOSTILE_KEYS:
        assert await backend.text(NS, key) == "1"
        prefixed = [record.key for record in await backend.scan(NS, Span.prefix(key))]
        assert prefixed == [other for other in expected if other.startswith(key)]


async def test_namespaces_are_apart(backend):
    similar = [
        NS, OTHER, NS._replace(domain=Domain.PERSISTENT_VALUE), NS._replace(domain=Domain.CONVERSATION),
        OTHER._replace(conversation_id="c"), OTHER._replace(conversation_id="c1:x"),
        OTHER._replace(conversation_id="c1 "),
        Namespace(None, Domain.KV, Scope.GLOBAL), Namespace(None, Domain.KV, Scope.WORKFLOW, "a"),
        Namespace(None, Domain.KV, Scope.CONVERSATION, "a", "b:c"),
        Namespace(None, Domain.KV, Scope.CONVERSATION, "a:b", "c"),
    ]  # fmt: skip
    for number, namespace in enumerate(similar):
        await backend.commit(namespace, (), [Write("k", str(number))])
    for number, namespace in enumerate(similar):
        assert await backend.text(namespace, "k") == str(number)
        assert len(await backend.scan(namespace, Span())) == 1


async def test_one_commit_is_one_revision_that_never_comes_back(backend):
    first = await backend.commit(NS, (), [Write("a", "1"), Write("b", "2")])
    assert {record.revision for record in await backend.scan(NS, Span())} == {first.revision}
    removed = await backend.commit(NS, (), [Write("a", None)])
    again = await backend.commit(NS, (), [Write("a", "1")])
    assert first.revision < removed.revision < again.revision
    with pytest.raises(Conflict) as caught:
        await backend.commit(NS, [Check("a", first.revision)], [Write("a", "3")])
    assert caught.value.data["current"] == {"a": again.revision}
    assert await backend.clear(NS) == 2
    assert (await backend.commit(NS, (), [Write("a", "1")])).revision > again.revision + 1


async def test_all_or_nothing(backend):
    await backend.commit(NS, (), [Write("a", "1"), Write("b", "1"), Write("c", "1")])
    checks = [Check("a", 1), Check("b", 99), Check("c", 1)]
    with pytest.raises(Conflict) as caught:
        await backend.commit(NS, checks, [Write("a", "2"), Write("b", None), Write("new", "2")])
    assert caught.value.data["keys"] == ["b"]
    assert {record.key: record.text for record in await backend.scan(NS, Span())} == {"a": "1", "b": "1", "c": "1"}


async def test_absence_can_be_checked(backend):
    await backend.commit(NS, [Check("a", 0)], [Write("a", "1")])
    with pytest.raises(Conflict):
        await backend.commit(NS, [Check("a", 0)], [Write("a", "2")])
    with pytest.raises(Conflict):
        await backend.commit(NS, [Check("b", 1)], [Write("b", "2")])
    await backend.commit(NS, (), [Write("a", None)])
    await backend.commit(NS, [Check("a", 0)], [Write("a", "3")])
    assert await backend.text(NS, "a") == "3"


async def test_deleting_what_is_not_there_changes_nothing(backend):
    before = await backend.commit(NS, (), [Write("a", "1")])
    nothing = await backend.commit(NS, (), [Write("b", None)])
    assert nothing.revision == before.revision
    assert nothing.removed == frozenset()
    both = await backend.commit(NS, (), [Write("a", None), Write("b", None)])
    assert both.removed == {"a"}


async def test_a_commit_that_changes_nothing_tells_the_state_there_is(backend):
    assert await backend.commit(NS, (), [Write("a", None)]) == (0, 0, {}, frozenset())
    assert await backend.commit(NS, (), ()) == (0, 0, {}, frozenset())
    assert await backend.namespaces() == []
    written = await backend.commit(NS, (), [Write("a", "1")])
    for writes in ((), [Write("b", None)]):
        assert await backend.commit(NS, (), writes) == (written.revision, written.at, {}, frozenset())
    with pytest.raises(Conflict):
        await backend.commit(NS, [Check("a", 7)], ())
    assert await backend.clear(OTHER) == 0


async def test_the_last_writer_is_kept_with_each_entry(backend):
    sources = [
        Source(),
        Source(PROJECT),
        Source(run_id="r"),
        Source(PROJECT, "e", "r", "c"),
        Source(conversation_id="r"),
    ]
    for turn in range(2):
        for number, source in enumerate(sources):
            await backend.commit(NS, (), [Write(f"k{number}", str(turn))], source=source)
    assert [record.source for record in await backend.scan(NS, Span())] == sources


async def test_creation_time_outlives_updates_but_not_deletion(backend):
    first = await backend.commit(NS, (), [Write("a", "1")])
    second = await backend.commit(NS, (), [Write("a", "2")])
    assert second.created["a"] == first.created["a"]
    assert second.at >= first.at
    await backend.commit(NS, (), [Write("a", None)])
    third = await backend.commit(NS, (), [Write("a", "3")])
    assert third.created["a"] == third.at


async def test_scanning_goes_page_by_page_in_both_directions(backend):
    keys = [f"k{number:03d}" for number in range(25)]
    await backend.commit(NS, (), [Write(key, "1") for key in keys])
    for reverse in (False, True):
        found, after = [], None
        while page := await backend.scan(NS, Span(), after=after, limit=7, reverse=reverse):
            found += [record.key for record in page]
            after = page[-1].key
        assert found == (keys[::-1] if reverse else keys)
    assert [r.key for r in await backend.scan(NS, Span("k003", "k006"))] == ["k003", "k004", "k005"]


async def test_many_keys_are_read_at_once(backend):
    keys = [f"k{number}" for number in range(1_000)]
    await backend.commit(NS, (), [Write(key, f'"{key}"') for key in keys])
    assert len(await backend.read(NS, [*keys, "absent"])) == 1_000


async def test_namespaces_are_listed_last_written_first(backend):
    conversations = [OTHER._replace(conversation_id=f"c{number}") for number in range(5)]
    for namespace in conversations:
        await backend.commit(namespace, (), [Write("k", "1")])
        await asyncio.sleep(0.002)
    await backend.commit(conversations[1], (), [Write("k", "2")])
    await backend.commit(NS, (), [Write("k", "1")])
    found = await backend.namespaces(project_id=PROJECT, domain=Domain.KV, scope=Scope.CONVERSATION)
    assert [info.namespace.conversation_id for info in found] == ["c1", "c4", "c3", "c2", "c0"]
    assert found[0].revision == 2
    assert found[0].entries == 1
    paged, after = [], None
    while page := await backend.namespaces(domain=Domain.KV, scope=Scope.CONVERSATION, after=after, limit=2):
        paged += [info.namespace.conversation_id for info in page]
        after = (page[-1].updated_at, page[-1].namespace)
    assert paged == ["c1", "c4", "c3", "c2", "c0"]
    await backend.clear(conversations[4])
    left = await backend.namespaces(project_id=PROJECT, scope=Scope.CONVERSATION)
    assert "c4" not in [info.namespace.conversation_id for info in left]


async def test_clearing_a_large_namespace_is_one_commit(backend):
    for start in range(0, 25_000, 5_000):
        await backend.commit(NS, (), [Write(f"m{start + number}", "1") for number in range(5_000)])
    before = (await backend.namespaces(project_id=PROJECT))[0].revision
    assert await backend.clear(NS) == 25_000
    assert await backend.scan(NS, Span()) == []
    assert (await backend.commit(NS, (), [Write("x", "1")])).revision == before + 2


async def test_a_large_value_fits(backend):
    text = '"' + "é" * ((MAX_VALUE_BYTES - 2) // 2) + '"'
    await backend.commit(NS, (), [Write("big", text)])
    assert await backend.text(NS, "big") == text


async def test_pages_of_any_weight_come_whole(backend):
    heavy = '"' + "x" * 400_000 + '"'
    keys = [f"k{number:03d}" for number in range(300)]
    for key in keys[:6]:
        await backend.commit(NS, (), [Write(key, heavy)])
    await backend.commit(NS, (), [Write(key, "1") for key in keys[6:]])
    assert [len(record.text) for record in await backend.scan(NS, Span(), limit=10)] == [len(heavy)] * 6 + [1] * 4
    assert [record.key for record in await backend.scan(NS, Span(), limit=1_000)] == keys
    found = await backend.read(NS, keys)
    assert len(found) == 300
    assert [key for key, record in found.items() if record.text == heavy] == keys[:6]


async def test_reads_of_several_keys_are_of_one_moment(store: Store):
    one, two = store.open(), store.open()
    keys = [f"k{number}" for number in range(450)]
    stop = False

    async def write() -> None:
        number = 0
        while not stop:
            number += 1
            await one.commit(NS, (), [Write(key, str(number)) for key in keys])

    writer = asyncio.create_task(write())
    moments = set()
    async with asyncio.timeout(20):
        while len(moments) < 10:
            found = await two.read(NS, keys)
            assert len({record.revision for record in found.values()}) <= 1
            moments.update(record.revision for record in found.values())
            await asyncio.sleep(0)
    stop = True
    await writer


async def test_another_handle_sees_every_commit(store: Store):
    one, two = store.open(), store.open()
    for number in range(20):
        await one.commit(NS, (), [Write("k", str(number))])
        assert await two.text(NS, "k") == str(number)
        await two.commit(NS, (), [Write("j", str(number))])
        assert await one.text(NS, "j") == str(number)


async def test_concurrent_first_writes_all_land(store: Store):
    backends = [store.open() for _ in range(10)]
    await asyncio.gather(*(b.commit(NS, (), [Write(f"k{n}", "1")]) for n, b in enumerate(backends)))
    assert len(await backends[0].scan(NS, Span())) == 10


async def test_cancelled_commits_are_whole_or_absent_and_block_nobody(backend):
    async def commit(number: int) -> None:
        await backend.commit(NS, (), [Write(f"a{number}", "1"), Write(f"b{number}", "1")])

    tasks = [asyncio.create_task(commit(number)) for number in range(200)]
    for number, task in enumerate(tasks):
        if number % 3 == 0:
            await asyncio.sleep(0)
        if number % 2 == 0:
            task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(10):
        await backend.commit(NS, (), [Write("after", "1")])
        keys = {record.key for record in await backend.scan(NS, Span(), limit=1_000)}
    for number in range(200):
        assert (f"a{number}" in keys) == (f"b{number}" in keys)
        if number % 2:
            assert f"a{number}" in keys


async def test_a_closed_backend_refuses(store: Store):
    backend = store.open()
    await backend.commit(NS, (), [Write("k", "1")])
    await backend.close()
    with pytest.raises(StorageUnavailable):
        await backend.commit(NS, (), [Write("k", "2")])
    with pytest.raises(StorageUnavailable):
        await backend.text(NS, "k")
