"""Documents on every backend: creating, editing, deleting, listing, and an index that always agrees with them."""

import asyncio
import itertools
import random

import pytest

from stepwell.errors import (
    DocumentChanged,
    DocumentExists,
    DocumentNotFound,
    InvalidArgument,
    InvalidCursor,
    InvalidId,
    SchemaTooNew,
    StorageCorrupt,
    ValueNotSerializable,
    ValueTooLarge,
)
from stepwell.knowledge import Knowledge
from stepwell.knowledge.checking import check_base, rebuild_index
from stepwell.knowledge.index import BODY, HEAD, LOCATOR, PAGE
from stepwell.storage.kv import KeyValue
from stepwell.store.backend import Backend
from stepwell.store.entries import Domain, Namespace, Scope
from tests.conformance.conftest import PROJECT, fill, knowledge_on

PERSISTENT = Namespace(PROJECT, Domain.PERSISTENT_VALUE, Scope.PROJECT)


@pytest.fixture
def base(backend: Backend) -> Knowledge:
    return knowledge_on(backend)


async def listed(base: Knowledge, limit: int = 50) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = await base.list_document_page(cursor, limit=limit)
        found += [document.id for document in page.documents]
        cursor = page.next_cursor
        if cursor is None:
            return found
        assert page.documents


async def test_a_document_comes_back_as_it_was_stored(base: Knowledge) -> None:
    text = '# Héading\r\n\x00 \\ " tab\t\r\ud800 中文 😀\u2028\n\n'
    made = await base.create_document("  A\n title ", text, "first")
    assert (made.id, made.title, made.size, made.version, made.sequence) == ("first", "A title", len(text), 1, 1)
    found = await base.get_document("first")
    assert (found.id, found.title, found.markdown, found.version) == ("first", "A title", text, 1)
    assert found.created_at == found.updated_at == made.created_at
    assert await base.list_documents() == [made]
    assert await check_base(base) == []


async def test_keys_are_those_of_the_format(base: Knowledge) -> None:
    await base.create_document("a", "text", "a")
    await base.create_document("b", "text", "b")
    await base.delete_document("b")
    stored = {entry.key: entry.value async for entry in base.entries.scan()}
    page = next(key for key in stored if key.startswith(PAGE))
    assert set(stored) == {HEAD, page, f"{LOCATOR}a", f"{LOCATOR}b", f"{BODY}a", f"{BODY}b"}
    assert stored[HEAD]["format"] == 2
    assert (stored[HEAD]["count"], stored[HEAD]["sequence"]) == (1, 2)
    assert stored[f"{LOCATOR}b"] == stored[f"{BODY}b"] == {"deleted": True, "sequence": 2}


async def test_an_edit_changes_what_is_given_and_keeps_the_place(base: Knowledge) -> None:
    for name in "abc":
        await base.create_document(name, f"text {name}", name)
    edited = await base.edit_document("a", title="new")
    assert (edited.title, edited.version, edited.sequence, edited.markdown_preview) == ("new", 2, 1, "text a")
    edited = await base.edit_document("a", markdown="other ſ")
    assert (edited.title, edited.version, edited.markdown_preview, edited.size) == ("new", 3, "other ſ", 7)
    found = await base.get_document("a")
    assert (found.title, found.markdown, found.version) == ("new", "other ſ", 3)
    assert await listed(base) == ["c", "b", "a"]
    assert [hit.document_id for hit in (await base.search_documents("other s")).hits] == ["a"]
    assert await check_base(base) == []


async def test_an_edit_of_something_that_changed_is_refused(base: Knowledge) -> None:
    await base.create_document("a", "one", "a")
    await base.edit_document("a", markdown="two", expected_version=1)
    with pytest.raises(DocumentChanged) as caught:
        await base.edit_document("a", markdown="three", expected_version=1)
    assert caught.value.data["version"] == 2
    assert (await base.get_document("a")).markdown == "two"


async def test_unknown_and_deleted_documents_are_not_found(base: Knowledge) -> None:
    await base.create_document("a", "text", "gone")
    assert await base.delete_document("gone") is True
    assert await base.delete_document("gone") is False
    assert await base.delete_document("never") is False
    for document_id in ("gone", "never"):
        for call in (
            lambda: base.get_document(document_id),
            lambda: base.edit_document(document_id, markdown="x"),
            lambda: base.edit_document(document_id, title="x"),
            lambda: base.read_document_lines(document_id, 1, 1),
            lambda: base.search_documents("text", document_id),
        ):
            with pytest.raises(DocumentNotFound, match=document_id):
                await call()
    assert (await base.search_documents("text")).hits == []
    assert await listed(base) == []
    assert await check_base(base) == []


async def test_a_deleted_id_may_be_made_again_and_is_a_new_document(base: Knowledge) -> None:
    await base.create_document("a", "first life", "x")
    await base.create_document("b", "other", "y")
    await base.delete_document("x")
    again = await base.create_document("c", "second life", "x")
    assert (again.sequence, again.version) == (3, 1)
    assert await listed(base) == ["x", "y"]
    assert [hit.text for hit in (await base.search_documents("life")).hits] == ["second life"]
    with pytest.raises(DocumentExists):
        await base.create_document("d", "third", "x")
    assert await check_base(base) == []


async def test_eight_creators_of_one_id(base: Knowledge) -> None:
    outcomes = await asyncio.gather(
        *(base.create_document(f"t{n}", f"text {n}", "x") for n in range(8)), return_exceptions=True
    )
    made = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    assert len(made) == 1
    assert sum(isinstance(outcome, DocumentExists) for outcome in outcomes) == 7
    assert (await base.get_document("x")).title == made[0].title
    assert (await base.list_document_page()).total == 1
    assert await check_base(base) == []


async def test_editing_and_deleting_at_the_same_time(base: Knowledge) -> None:
    for round_ in range(10):
        await base.create_document("t", "old", f"x{round_}")
        edited, deleted = await asyncio.gather(
            base.edit_document(f"x{round_}", markdown="new"),
            base.delete_document(f"x{round_}"),
            return_exceptions=True,
        )
        assert deleted is True
        assert isinstance(edited, DocumentNotFound) or edited.version == 2  # type: ignore[union-attr]
        with pytest.raises(DocumentNotFound):
            await base.get_document(f"x{round_}")
    assert (await base.list_document_page()).total == 0
    assert await check_base(base) == []


async def test_many_writers_at_once_leave_an_index_that_agrees(base: Knowledge) -> None:
    async def writer(name: str) -> None:
        for number in range(12):
            await base.create_document(name, f"{name} {number}", f"{name}{number}")
            if number % 3 == 0:
                await base.edit_document(f"{name}{number}", markdown="changed")
            if number % 4 == 0:
                await base.delete_document(f"{name}{number}")

    await asyncio.gather(*map(writer, "abcdef"))
    assert await check_base(base) == []
    page = await base.list_document_page(limit=128)
    assert page.total == 6 * 9 == len(page.documents)
    sequences = [document.sequence for document in page.documents]
    assert sequences == sorted(set(sequences), reverse=True)


@pytest.mark.parametrize("number", [1, 127, 128, 129, 256, 257])
async def test_page_boundaries(base: Knowledge, number: int) -> None:
    await fill(base, [("t", "x", f"d{n}") for n in range(number - 1)])
    await base.create_document("t", "x", f"d{number - 1}")
    newest_first = [f"d{n}" for n in reversed(range(number))]
    assert await listed(base) == newest_first
    assert await listed(base, limit=1 if number < 10 else 128) == newest_first
    assert [document.id for document in await base.list_documents()] == newest_first
    assert await check_base(base) == []
    pages = [record async for record in base.entries.scan(PAGE)]
    assert len(pages) == (number + 127) // 128


async def test_emptied_pages_leave_the_chain(base: Knowledge) -> None:
    await fill(base, [("t", "x", f"d{n}") for n in range(300)])
    for emptied in (range(128, 256), range(256, 300), range(128)):  # the middle, then the newest, then the last one
        for n in emptied:
            await base.delete_document(f"d{n}")
        assert await check_base(base) == []
    assert (await base.list_document_page()).documents == []
    assert [entry.key async for entry in base.entries.scan(PAGE)] == []
    made = await base.create_document("t", "x", "d0")
    assert made.sequence == 301
    assert await listed(base) == ["d0"]
    assert await check_base(base) == []


async def test_the_first_listing_reads_head_and_one_page(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    base = Knowledge(KeyValue(backend, PERSISTENT))
    await fill(base, [("t", "x", f"d{n}") for n in range(260)])
    seen: list[str] = []
    text, read = backend.text, backend.read

    async def noted_text(ns: Namespace, key: str) -> str | None:
        seen.append(key)
        return await text(ns, key)

    async def noted_read(ns: Namespace, keys: list[str]) -> object:
        seen.extend(keys)
        return await read(ns, keys)

    monkeypatch.setattr(backend, "text", noted_text)
    monkeypatch.setattr(backend, "read", noted_read)
    page = await base.list_document_page()
    assert page.total == 260
    assert seen[0] == HEAD
    assert len(seen) == 2
    assert seen[1].startswith(PAGE)


async def test_a_listing_stays_right_while_documents_come_and_go(base: Knowledge) -> None:
    choose = random.Random(7)
    throughout = {f"keep{n}" for n in range(300)}
    names = [*throughout, *(f"go{n}" for n in range(300))]
    choose.shuffle(names)
    await fill(base, [("t", "x", name) for name in names])
    going = [name for name in names if name.startswith("go")]
    choose.shuffle(going)
    fresh = itertools.count()
    seen: list[str] = []
    cursor = None
    while True:
        page = await base.list_document_page(cursor, limit=7)
        seen += [document.id for document in page.documents]
        cursor = page.next_cursor
        if cursor is None:
            break
        for _ in range(4):
            if going:
                name = going.pop()
                await base.delete_document(name)
                if choose.random() < 0.3:
                    await base.create_document("again", "x", name)
        await base.create_document("new", "x", f"new{next(fresh)}")
        await base.edit_document(choose.choice(sorted(throughout)), title="edited")
    assert len(seen) == len(set(seen))
    assert throughout <= set(seen)
    assert await check_base(base) == []


async def test_a_listing_goes_on_when_its_page_is_emptied(base: Knowledge) -> None:
    await fill(base, [("t", "x", f"d{n}") for n in range(400)])
    page = await base.list_document_page(limit=128)
    assert page.documents[-1].id == "d384"
    for n in range(128, 384):
        await base.delete_document(f"d{n}")
    rest = await base.list_document_page(page.next_cursor, limit=128)
    assert [document.id for document in rest.documents] == [f"d{n}" for n in reversed(range(128))]
    assert rest.next_cursor is None


async def test_cursors_of_other_lists_are_refused(backend: Backend, base: Knowledge) -> None:
    for n in range(5):
        await base.create_document("t", "needle\nneedle", f"d{n}")
    other = knowledge_on(backend, "01936d3f-6a00-7000-8000-0000000000bb")
    for n in range(5):
        await other.create_document("t", "needle\nneedle", f"d{n}")
    listing = (await base.list_document_page(limit=2)).next_cursor
    search = (await base.search_documents("needle", page_size=2)).next_cursor
    assert listing is not None
    assert search is not None
    assert (await base.list_document_page(listing, limit=2)).documents[0].id == "d2"
    damaged = listing[:5] + ("A" if listing[5] != "A" else "B") + listing[6:]
    for cursor in (search, damaged, listing + "=", listing + "\n", f" {listing}", "", "é", "x" * 5_000, 5, b"x", []):
        with pytest.raises(InvalidCursor):
            await base.list_document_page(cursor, limit=2)  # type: ignore[arg-type]
    for refused in (
        lambda: base.list_document_page(listing, limit=3),
        lambda: other.list_document_page(listing, limit=2),
        lambda: base.search_documents("needle", page_size=2, cursor=listing),
        lambda: base.search_documents("Needle", page_size=2, cursor=search),
        lambda: base.search_documents("needle", page_size=3, cursor=search),
        lambda: base.search_documents("needle", page_size=2, before_lines=1, cursor=search),
        lambda: base.search_documents("needle", page_size=2, after_lines=1, cursor=search),
        lambda: base.search_documents("needle", "d1", page_size=2, cursor=search),
        lambda: other.search_documents("needle", page_size=2, cursor=search),
    ):
        with pytest.raises(InvalidCursor) as caught:
            await refused()
        assert caught.value.hint


async def test_a_base_without_documents(base: Knowledge) -> None:
    page = await base.list_document_page()
    assert (page.documents, page.next_cursor, page.total) == ([], None, 0)
    assert await base.list_documents() == []
    assert (await base.search_documents("x")).hits == []
    assert await base.delete_document("x") is False
    with pytest.raises(InvalidCursor):
        await base.list_document_page("AAAA")
    assert await check_base(base) == []
    assert await rebuild_index(base) == 0


@pytest.mark.parametrize("document_id", ["", "a/b", "é", "a b", "x" * 129, "a\x00", "a\n", 5, None.__class__, ["x"]])
async def test_ids_that_break_the_rule(base: Knowledge, document_id: object) -> None:
    for call in (
        lambda: base.create_document("t", "x", document_id),  # type: ignore[arg-type]
        lambda: base.edit_document(document_id, title="t"),  # type: ignore[arg-type]
        lambda: base.delete_document(document_id),  # type: ignore[arg-type]
        lambda: base.get_document(document_id),  # type: ignore[arg-type]
        lambda: base.read_document_lines(document_id, 1, 1),  # type: ignore[arg-type]
        lambda: base.search_documents("x", document_id),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidId):
            await call()


@pytest.mark.parametrize("document_id", ["x" * 128, ".", "..", "-", "_", "CON", "a.", "Key", "key"])
async def test_ids_at_the_edge_of_the_rule(base: Knowledge, document_id: str) -> None:
    await base.create_document("t", "x", document_id)
    assert await listed(base) == [document_id]
    assert (await base.get_document(document_id)).id == document_id


async def test_wrong_titles_and_texts_write_nothing(base: Knowledge) -> None:
    for title in ("", " \n\t", "x" * 501, None, 5, b"t", "a\x00b", "a\ud800"):
        with pytest.raises(InvalidArgument, match="title"):
            await base.create_document(title, "x", "d")  # type: ignore[arg-type]
    for markdown in (None, 5, b"x", ["x"]):
        with pytest.raises(InvalidArgument, match="markdown"):
            await base.create_document("t", markdown, "d")  # type: ignore[arg-type]
    for pair in ("\ud83d\ude00", "x" * 262_143 + "\ud83d\ude00" + "x" * 300_000):
        with pytest.raises(ValueNotSerializable):
            await base.create_document("t", pair, "d")
    for too_large in ("x" * (16 * 1024 * 1024), "中" * 6_000_000, "\x01" * 3_000_000):
        with pytest.raises(ValueTooLarge):
            await base.create_document("t", too_large, "d")
    with pytest.raises(InvalidArgument, match="nothing to change"):
        await base.edit_document("d")
    assert [entry.key async for entry in base.entries.scan()] == []


@pytest.mark.parametrize("limit", [0, -1, 129, 1.0, "5", True, None])
async def test_wrong_limits(base: Knowledge, limit: object) -> None:
    with pytest.raises(InvalidArgument, match="limit"):
        await base.list_document_page(limit=limit)  # type: ignore[arg-type]


async def test_two_bases_do_not_see_each_other(backend: Backend) -> None:
    one = knowledge_on(backend)
    two = knowledge_on(backend, "01936d3f-6a00-7000-8000-0000000000bb")
    await one.create_document("t", "needle", "d")
    assert await two.list_documents() == []
    assert (await two.search_documents("needle")).hits == []
    with pytest.raises(DocumentNotFound):
        await two.get_document("d")


async def test_other_keys_of_the_namespace_are_left_alone(base: Knowledge) -> None:
    await base.entries.set_value("knowledge.documentsx", {"mine": 1})
    await base.entries.set_value("knowledge.documen", "needle")
    await base.create_document("t", "needle", "d")
    assert await check_base(base) == []
    assert await rebuild_index(base) == 1
    assert await base.entries.get_value("knowledge.documentsx") == {"mine": 1}
    assert len((await base.search_documents("needle")).hits) == 1


async def test_documents_take_part_in_a_transaction_of_their_namespace(base: Knowledge) -> None:
    with pytest.raises(ZeroDivisionError):
        async with base.entries.lock():
            await base.create_document("t", "x", "d")
            assert (await base.get_document("d")).title == "t"
            raise ZeroDivisionError
    assert await base.list_documents() == []
    async with base.entries.lock() as tx:
        await base.create_document("t", "x", "d")
        await tx.set_value("mine", 1)
    assert await listed(base) == ["d"]
    assert await check_base(base) == []


# -- damage ---------------------------------------------------------------------------------------------------------


async def _filled(base: Knowledge) -> None:
    await fill(base, [(f"Title {n}", f"text {n} ſ", f"d{n}") for n in range(200)])
    await base.delete_document("d3")
    await base.edit_document("d4", title="changed")


async def _lose(base: Knowledge, key: str) -> None:
    assert await base.entries.delete_value(key)


async def _put(base: Knowledge, key: str, value: object) -> None:
    await base.entries.set_value(key, value)


LOST = {
    "alphabet": 0,
    "id": "lost",
    "title": "t",
    "sequence": 77_000,
    "version": 1,
    "created_at": "2026-01-01T00:00:00.000000Z",
    "updated_at": "2026-01-01T00:00:00.000000Z",
    "markdown": "text lost",
}
DAMAGE = {
    "no head": lambda base: _lose(base, HEAD),
    "a strange head": lambda base: _put(base, HEAD, ["?"]),
    "a head that counts wrongly": lambda base: base.entries.update_value(HEAD, lambda head: head | {"count": 5}),
    "no first page": lambda base: _lose(base, f"{PAGE}000000000002"),
    "no last page": lambda base: _lose(base, f"{PAGE}000000000001"),
    "a strange page": lambda base: _put(base, f"{PAGE}000000000001", {"order": 5}),
    "a page that is linked to itself": lambda base: base.entries.update_value(
        f"{PAGE}000000000002", lambda page: page | {"older": "000000000002"}
    ),
    "a page nobody links to": lambda base: _put(base, f"{PAGE}000000000009", {"order": []}),
    "no locator": lambda base: _lose(base, f"{LOCATOR}d7"),
    "a locator to the wrong page": lambda base: _put(
        base, f"{LOCATOR}d7", {"page": "000000000002", "sequence": 8}
    ),
    "a locator without a document": lambda base: _put(
        base, f"{LOCATOR}ghost", {"page": "000000000001", "sequence": 1}
    ),
    "a document that is not listed": lambda base: _put(base, f"{BODY}lost", LOST),
    "no document": lambda base: _lose(base, f"{BODY}d7"),
    "a document with another title": lambda base: base.entries.update_value(
        f"{BODY}d7", lambda body: body | {"title": "other"}
    ),
    "a document with a wrong alphabet": lambda base: base.entries.update_value(
        f"{BODY}d8", lambda body: body | {"alphabet": 0}
    ),
    "two documents of one sequence": lambda base: base.entries.update_value(
        f"{BODY}d7", lambda body: body | {"sequence": 12}
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_found_and_repaired(base: Knowledge, damage: str) -> None:
    await _filled(base)
    assert await check_base(base) == []
    order = await listed(base)
    await DAMAGE[damage](base)
    assert await check_base(base), "the damage was not found"
    count = await rebuild_index(base)
    found = await check_base(base)
    if damage == "a document with a wrong alphabet":  # this is in the document, and the rebuild does not touch those
        assert found == ["d8 is not what is listed"]
        return
    assert found == []
    after = await listed(base)
    assert len(after) == count
    unmoved = [name for name in order if name not in ("d7", "d11")]
    assert [name for name in after if name in unmoved] == unmoved
    sequence = (await base.create_document("t", "x", "brand-new")).sequence
    assert sequence > max(document.sequence for document in (await base.list_documents())[1:])


async def test_a_rebuilt_index_refuses_the_cursors_of_the_old_one(base: Knowledge) -> None:
    await _filled(base)
    cursor = (await base.list_document_page(limit=10)).next_cursor
    await rebuild_index(base)
    with pytest.raises(InvalidCursor):
        await base.list_document_page(cursor, limit=10)


async def test_an_entry_that_is_no_document_is_reported_and_left_alone(base: Knowledge) -> None:
    await _filled(base)
    for value in ("text", None, 5, {"markdown": 5}, {}):
        await base.entries.set_value(f"{BODY}odd", value)
        assert await check_base(base) == ["odd is not a document"]
        assert await rebuild_index(base) == 199
        assert await base.entries.get_value(f"{BODY}odd") == value
        assert len((await base.search_documents("text", page_size=200)).hits) == 199


async def test_damage_met_on_the_way_is_an_error_that_says_what_to_do(base: Knowledge) -> None:
    await _filled(base)
    await _lose(base, f"{PAGE}000000000002")
    for call in (
        lambda: base.create_document("t", "x"),
        lambda: base.edit_document("d199", title="t"),
        lambda: base.delete_document("d199"),
    ):
        with pytest.raises(StorageCorrupt, match="damaged") as caught:
            await call()
        assert "--repair" in str(caught.value.hint)


async def test_a_text_of_another_version_than_listed_is_not_taken_for_the_document_s(base: Knowledge) -> None:
    await _filled(base)
    await base.entries.update_value(f"{BODY}d7", lambda body: body | {"version": 9})
    with pytest.raises(StorageCorrupt, match="d7"):
        await base.edit_document("d7", title="t")
    assert (await base.edit_document("d7", title="t", markdown="all new")).version == 2
    assert await check_base(base) == []


async def test_a_newer_format_is_refused(base: Knowledge) -> None:
    await base.create_document("t", "x", "d")
    await base.entries.update_value(HEAD, lambda head: head | {"format": 3})
    for call in (
        lambda: base.create_document("t", "x"),
        base.list_document_page,
        lambda: base.search_documents("x"),
    ):
        with pytest.raises(SchemaTooNew):
            await call()
