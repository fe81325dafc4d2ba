"""Documents of many megabytes: stored, listed without being read, searched and read by line."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from stepwell.knowledge import Knowledge
from stepwell.knowledge.checking import check_base
from stepwell.knowledge.index import BODY
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Domain, Namespace, Record, Scope
from stepwell.store.sqlite_backend import SqliteBackend

NS = Namespace("01936d3f-6a00-7000-8000-0000000000aa", Domain.PERSISTENT_VALUE, Scope.PROJECT)


@pytest.fixture
async def base(tmp_path: Path) -> AsyncIterator[Knowledge]:
    backend = SqliteBackend(tmp_path / "x.sqlite")
    yield Knowledge(KeyValue(backend, NS))
    await backend.close()


async def test_a_line_of_fifteen_million_characters(base: Knowledge) -> None:
    text = "É" * 3_000_000 + "NeedlE" + "x" * 9_000_000
    made = await base.create_document("t", text, "d")
    assert (made.size, made.markdown_preview) == (len(text), "É" * 159 + "…")
    [hit] = (await base.search_documents("éneedle", before_lines=100, after_lines=100)).hits
    assert (hit.line, hit.column, hit.truncated) == (1, 3_000_000, True)
    assert len(hit.text) <= 1_002
    assert "ÉNeedlEx" in hit.text
    found = await base.read_document_lines("d", 1, 1)
    assert (found.total, found.lines) == (1, [text])
    assert (await base.get_document("d")).markdown == text
    assert await check_base(base) == []


async def test_a_million_lines(base: Knowledge) -> None:
    lines = [f"l {n} 中" for n in range(1, 1_000_001)]
    await base.create_document("t", "\r".join(lines), "d")
    found = await base.read_document_lines("d", 700_000, 700_002)
    assert (found.total, found.lines) == (1_000_000, lines[699_999:700_002])
    [hit] = (await base.search_documents("L 999999 ", before_lines=2, after_lines=2)).hits
    assert (hit.line, hit.before, hit.after) == (999_999, lines[999_996:999_998], lines[999_999:])
    page = await base.search_documents("l ", page_size=200)
    page = await base.search_documents("l ", page_size=200, cursor=page.next_cursor)
    assert [hit.line for hit in page.hits] == list(range(201, 401))
    edited = await base.edit_document("d", title="new")
    assert (edited.version, edited.title) == (2, "new")
    assert (await base.get_document("d")).markdown == "\r".join(lines)


async def test_lists_and_writes_never_read_the_texts(base: Knowledge, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(3):
        await base.create_document("t", "x" * 2_000_000, f"d{n}")
    backend = base.entries.backend
    text, read = backend.text, backend.read

    async def watched_text(ns: Namespace, key: str) -> str | None:
        assert not key.startswith(BODY)
        return await text(ns, key)

    async def watched_read(ns: Namespace, keys: list[str]) -> dict[str, Record]:
        assert not any(key.startswith(BODY) for key in keys)
        return await read(ns, keys)

    monkeypatch.setattr(backend, "text", watched_text)
    monkeypatch.setattr(backend, "read", watched_read)
    assert len((await base.list_document_page()).documents) == 3
    assert len(await base.list_documents()) == 3
    await base.create_document("t", "y" * 2_000_000, "e")
    await base.edit_document("d0", markdown="z" * 2_000_000)
    assert await base.delete_document("d1") is True
