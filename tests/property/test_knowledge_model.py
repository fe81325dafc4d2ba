"""A Knowledge base against a plain model: any sequence of changes, any paging in between, any hostile text."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.errors import DocumentExists, DocumentNotFound
from stepwell.knowledge import Knowledge, index
from stepwell.knowledge.checking import check_base, rebuild_index
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Domain, Namespace, Scope
from stepwell.store.memory import MemoryBackend
from tests.property.test_knowledge_folding import HOSTILE, storable

NS = Namespace("01936d3f-6a00-7000-8000-0000000000aa", Domain.PERSISTENT_VALUE, Scope.PROJECT)
IDS = st.sampled_from([f"d{n}" for n in range(12)])
MARKDOWN = st.text(alphabet="\r\n\n" + HOSTILE, max_size=25).filter(storable)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("create"), IDS, MARKDOWN),
        st.tuples(st.just("edit"), IDS, MARKDOWN),
        st.tuples(st.just("retitle"), IDS, st.sampled_from(["one", "two"])),
        st.tuples(st.just("delete"), IDS, st.just("")),
        st.tuples(st.just("rebuild"), IDS, st.just("")),
    ),
    max_size=60,
)


@pytest.fixture(autouse=True, scope="module")
def _small_pages() -> object:
    patch = pytest.MonkeyPatch()
    patch.setattr(index, "PAGE_SIZE", 3)
    yield
    patch.undo()


def new_base() -> Knowledge:
    return Knowledge(KeyValue(MemoryBackend(), NS))


async def change(base: Knowledge, model: dict[str, str], kind: str, document_id: str, text: str) -> None:
    """Make a change in both; the model keeps documents oldest first."""
    known = document_id in model
    try:
        if kind == "create":
            await base.create_document("t", text, document_id)
            assert not known
            model[document_id] = text
        elif kind == "edit":
            await base.edit_document(document_id, markdown=text)
            assert known
            model[document_id] = text
        elif kind == "retitle":
            assert (await base.edit_document(document_id, title=text)).title == text
            assert known
        elif kind == "delete":
            assert await base.delete_document(document_id) is known
            model.pop(document_id, None)
        else:
            assert await rebuild_index(base) == len(model)
    except DocumentExists:
        assert kind == "create"
        assert known
    except DocumentNotFound:
        assert kind in ("edit", "retitle")
        assert not known


@settings(deadline=None)
@given(CHANGES)
def test_any_sequence_of_changes(changes: list[tuple[str, str, str]]) -> None:
    async def scenario() -> None:
        base, model = new_base(), dict[str, str]()
        for kind, document_id, text in changes:
            await change(base, model, kind, document_id, text)
        assert [document.id for document in await base.list_documents()] == list(reversed(model))
        for document_id, text in model.items():
            assert (await base.get_document(document_id)).markdown == text
        assert (await base.list_document_page()).total == len(model)
        assert await check_base(base) == []

    asyncio.run(scenario())


async def paged(
    read: Callable[[str | None], Awaitable[tuple[list[str], str | None]]],
    base: Knowledge,
    changes: list[tuple[str, str, str]],
) -> tuple[list[str], set[str]]:
    """What paging shows while one change is made after every page, and what was there all the time."""
    model = {document.id: "" for document in reversed(await base.list_documents())}
    throughout, seen = set(model), list[str]()
    waiting, cursor = list(changes), None
    while True:
        found, cursor = await read(cursor)
        seen += found
        if cursor is None:
            return seen, throughout
        if waiting:
            kind, document_id, text = waiting.pop(0)
            await change(base, model, kind, document_id, text + "\nneedle")
            if kind == "delete":
                throughout.discard(document_id)


WHILE_PAGING = st.lists(
    st.tuples(st.sampled_from(["create", "edit", "delete"]), IDS, st.sampled_from(["", "x"])), max_size=25
)


@settings(deadline=None)
@given(st.integers(0, 12), st.integers(1, 4), WHILE_PAGING)
def test_paging_while_documents_change(count: int, limit: int, changes: list[tuple[str, str, str]]) -> None:
    async def scenario() -> None:
        for kind in ("list", "search"):
            base = new_base()
            for n in range(count):
                await base.create_document("t", "needle", f"d{n}")

            async def read(
                cursor: str | None, kind: str = kind, base: Knowledge = base
            ) -> tuple[list[str], str | None]:
                if kind == "list":
                    page = await base.list_document_page(cursor, limit=limit)
                    return [document.id for document in page.documents], page.next_cursor
                hits = await base.search_documents("NEEDLE", page_size=limit, cursor=cursor)
                return [hit.document_id for hit in hits.hits], hits.next_cursor

            seen, throughout = await paged(read, base, changes)
            edited = {document_id for change_kind, document_id, _ in changes if change_kind == "edit"}
            once = [name for name in seen if kind == "list" or name not in edited]  # an edit may move its lines
            assert len(once) == len(set(once))
            assert throughout - edited <= set(seen)
            assert kind == "search" or throughout <= set(seen)

    asyncio.run(scenario())


@settings(deadline=None)
@given(
    st.lists(MARKDOWN, max_size=6),
    st.text(alphabet=HOSTILE, min_size=1, max_size=3).filter(storable),
    st.integers(1, 3),
    st.integers(0, 2),
)
def test_search_finds_what_folding_every_line_finds(texts: list[str], query: str, size: int, around: int) -> None:
    async def scenario() -> None:
        base = new_base()
        for n, text in enumerate(texts):
            await base.create_document("t", text, f"d{n}")
        expected = [
            (f"d{n}", number, line)
            for n, text in reversed(list(enumerate(texts)))
            for number, line in enumerate(re.split(r"\r\n|\r|\n", text), start=1)
            if query.casefold() in line.casefold()
        ]
        found = []
        cursor = None
        while True:
            page = await base.search_documents(query, None, around, around, size, cursor)
            found += [(hit.document_id, hit.line, hit.text) for hit in page.hits]
            for hit in page.hits:
                lines = await base.read_document_lines(hit.document_id, hit.line, hit.line)
                assert lines.lines == [hit.text]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert found == expected

    asyncio.run(scenario())
