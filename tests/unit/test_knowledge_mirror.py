"""Mirroring a conversation, and importing folders."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from stepwell.conversation.state import Conversation, NoConversation
from stepwell.errors import ConversationRequired, InvalidArgument
from stepwell.identifiers import check_document_id
from stepwell.knowledge import (
    Knowledge,
    create_document,
    delete_document,
    edit_document,
    get_document,
    import_folder,
    knowledge_of,
    list_document_page,
    list_documents,
    mirror_conversation,
    mirror_document_id,
    read_document_lines,
    search_documents,
)
from stepwell.knowledge import mirror as module
from stepwell.knowledge.checking import check_base
from stepwell.storage.location import MemoryStores, StorageLocation
from stepwell.store.entries import NO_SOURCE, Domain

PROJECT = "01936d3f-6a00-7000-8000-0000000000aa"


@dataclass
class Run:
    """The part of a run's context that mirroring uses."""

    conversation: Conversation | NoConversation
    knowledge: Knowledge


@pytest.fixture
async def location() -> AsyncIterator[StorageLocation]:
    stores = MemoryStores()
    yield StorageLocation("local", stores, PROJECT, None, NO_SOURCE)
    await stores.close()


@pytest.fixture
def run(location: StorageLocation) -> Run:
    return run_of(location, "c1")


def run_of(location: StorageLocation, conversation_id: str) -> Run:
    backend = location.backend(Domain.CONVERSATION)
    return Run(Conversation(backend, PROJECT, "project", conversation_id), knowledge_of(location))


async def say(run: Run, *texts: str) -> None:
    for text in texts:
        await run.conversation.append_message({"role": "user", "content": text})


async def test_one_document_a_conversation_follows_it(run: Run) -> None:
    await run.conversation.set_title("Weather")
    await say(run, "hello")
    first = await mirror_conversation(run)
    assert first.written
    await say(run, "and 天气?")
    second = await mirror_conversation(run)
    assert (second.document_id, second.title) == (first.document_id, "Weather")
    assert [document.id for document in await run.knowledge.list_documents()] == [first.document_id]
    stored = await run.knowledge.get_document(first.document_id)
    assert (stored.title, stored.markdown) == ("Weather", second.markdown)
    assert stored.markdown.startswith("# Weather\n")
    assert stored.markdown.index("hello") < stored.markdown.index("and 天气?")
    assert len((await run.knowledge.search_documents("天气")).hits) == 1


async def test_a_transcript_shows_roles_calls_and_attachments(run: Run) -> None:
    await run.conversation.append_message(
        {"role": "user", "content": "look", "attachments": [{"reference": "sha256:1", "name": "photo.png"}]}
    )
    await run.conversation.append_message(
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "name": "zoom"}]}
    )
    await run.conversation.append_message({"role": "tool", "tool_call_id": "c1", "content": "done"})
    markdown = (await mirror_conversation(run)).markdown
    for part in ("## User", "photo.png", "## Assistant", "zoom", "c1", "## Tool", "done"):
        assert part in markdown


async def test_nothing_changed_writes_nothing(run: Run) -> None:
    await say(run, "hello")
    first = await mirror_conversation(run)
    again = await mirror_conversation(run)
    assert (first.written, again.written) == (True, False)
    assert (await run.knowledge.get_document(first.document_id)).version == 1


async def test_a_dry_run_shows_and_writes_nothing(run: Run) -> None:
    await say(run, "hello")
    shown = await mirror_conversation(run, dry_run=True)
    assert not shown.written
    assert "hello" in shown.markdown
    assert [entry.key async for entry in run.knowledge.entries.scan()] == []
    written = await mirror_conversation(run)
    assert (written.document_id, written.title, written.markdown) == (shown.document_id, shown.title, shown.markdown)


async def test_a_forgotten_mirror_is_made_anew(run: Run) -> None:
    await say(run, "hello")
    document_id = (await mirror_conversation(run)).document_id
    await run.knowledge.delete_document(document_id)
    assert (await mirror_conversation(run)).written
    assert "hello" in (await run.knowledge.get_document(document_id)).markdown
    assert await check_base(run.knowledge) == []


async def test_without_a_conversation_there_is_nothing_to_mirror(location: StorageLocation) -> None:
    with pytest.raises(ConversationRequired):
        await mirror_conversation(Run(NoConversation(), knowledge_of(location)))


async def test_runs_that_mirror_at_once_end_with_the_newest_transcript(location: StorageLocation) -> None:
    async def one(number: int) -> None:
        run = run_of(location, "c1")
        await say(run, f"message {number:02d}")
        await mirror_conversation(run)

    await asyncio.gather(*map(one, range(12)))
    [summary] = await list_documents(location)
    markdown = (await get_document(location, summary.id)).markdown
    assert all(f"message {number:02d}" in markdown for number in range(12))


async def test_an_older_transcript_does_not_replace_a_newer_one(
    location: StorageLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = run_of(location, "c1"), run_of(location, "c1")
    await say(slow, "one")
    await mirror_conversation(slow)
    transcript = module._transcript
    passed = False

    async def overtaken(conversation: Conversation) -> tuple[str, str]:
        """The transcript as it is now; before it is written, another run adds a message and mirrors it."""
        nonlocal passed
        read = await transcript(conversation)
        if not passed:
            passed = True
            await say(fast, "three")
            await mirror_conversation(fast)
        return read

    await say(slow, "two")
    monkeypatch.setattr(module, "_transcript", overtaken)
    await mirror_conversation(slow)
    assert passed
    [summary] = await list_documents(location)
    markdown = (await get_document(location, summary.id)).markdown
    assert "two" in markdown
    assert "three" in markdown


async def test_a_transcript_too_long_for_a_document_keeps_its_end(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TRANSCRIPT_CHARS", 300)
    await say(run, *(f"message {number:02d} {'x' * 50}" for number in range(20)))
    markdown = (await mirror_conversation(run)).markdown
    assert "message 19" in markdown
    assert "message 02" not in markdown
    assert "messages are left out" in markdown
    assert len(markdown) < 500


IDS = [
    "c1", "C1", "c1 ", " ", "a/b", "a|b", "../x", "é", "e\u0301", "中文", "x" * 256, "a\nb", "%", "-", "conversation-c1", "😀",
]  # fmt: skip


async def test_any_conversation_id_has_a_document_of_its_own(location: StorageLocation) -> None:
    ids = set()
    for conversation_id in IDS:
        run = run_of(location, conversation_id)
        await say(run, f"in {conversation_id!r}")
        ids.add(check_document_id((await mirror_conversation(run)).document_id))
        assert mirror_document_id(conversation_id) in ids
    assert len(ids) == len(IDS) == (await list_document_page(location)).total


async def test_the_functions_that_take_a_location(location: StorageLocation) -> None:
    made = await create_document(location, "t", "a\nneedle", "d")
    assert await list_documents(location) == [made]
    edited = await edit_document(location, "d", "u", "b\nneedle", expected_version=1)
    assert (edited.title, edited.version) == ("u", 2)
    assert (await get_document(location, "d")).markdown == "b\nneedle"
    assert (await read_document_lines(location, "d", 2, 2)).lines == ["needle"]
    assert [hit.line for hit in (await search_documents(location, "NEEDLE", page_size=5)).hits] == [2]
    assert await delete_document(location, "d") is True
    assert (await list_document_page(location)).total == 0


async def test_importing_a_folder(location: StorageLocation, tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    (folder / "sub").mkdir(parents=True)
    (folder / "one.md").write_bytes("\ufeff# First  title\r\ntext".encode())
    (folder / "sub" / "two.md").write_text("no heading\x00", encoding="utf-8")
    (folder / "bad.md").write_bytes(b"\xff\xfe")
    (folder / "zero.md").write_text("# a\x00b", encoding="utf-8")
    (folder / "other.txt").write_text("not markdown")
    base = knowledge_of(location)
    seen: list[tuple[int, int, str]] = []
    result = await import_folder(base, str(folder), lambda *step: seen.append(step))
    assert (result.created, result.updated, result.unchanged, result.skipped) == (3, 0, 0, ["bad.md"])
    assert seen[-1] == (4, 4, "zero.md")
    titles = {document.id: document.title for document in await base.list_documents()}
    assert titles == {"docs.one": "First title", "docs.sub.two": "two", "docs.zero": "a b"}
    assert (await base.get_document("docs.one")).markdown == "# First  title\r\ntext"
    (folder / "one.md").write_text("# Other", encoding="utf-8")
    result = await import_folder(base, str(folder))
    assert (result.created, result.updated, result.unchanged) == (0, 1, 2)
    with pytest.raises(InvalidArgument, match="not a folder"):
        await import_folder(base, str(tmp_path / "none"))
