"""Conversations: messages, ids, titles, the paired view, listing, the standard input."""

import asyncio
import json
from pathlib import Path

import pytest

from stepwell.conversation.inputs import (
    Attachments,
    ConversationInput,
    format_conversation_input,
    parse_conversation_input,
)
from stepwell.conversation.listing import Conversations
from stepwell.conversation.messages import INTERRUPTED, normalise_title, paired_messages, render_markdown
from stepwell.conversation.state import Conversation, message_key
from stepwell.errors import (
    ConversationNotFound,
    InputInvalid,
    InvalidArgument,
    InvalidCursor,
    InvalidId,
    MessageConflict,
    MessageInvalid,
)
from stepwell.store.entries import Write
from stepwell.store.memory import MemoryBackend
from stepwell.store.sqlite_backend import SqliteBackend
from tests.unit.conftest import PROJECT_ID


@pytest.fixture(params=["memory", "sqlite"])
async def backend(request, tmp_path: Path):
    made = MemoryBackend() if request.param == "memory" else SqliteBackend(tmp_path / "x.sqlite")
    yield made
    await made.close()


@pytest.fixture
def conversation(backend) -> Conversation:
    return Conversation(backend, PROJECT_ID, "made", "c1")


def said(content: str, role: str = "user", **more) -> dict:
    return {"role": role, "content": content} | more


async def test_messages_come_back_with_their_place(conversation):
    summary = await conversation.append_message(said("a\x00 😀", extra={"n": 2**70}))
    assert (summary.message_count, summary.last_seq) == (1, 1)
    await conversation.append_message(said("b", "assistant"))
    first, second = await conversation.messages()
    assert (first["seq"], second["seq"]) == (1, 2)
    assert first["content"] == "a\x00 😀"
    assert first["extra"] == {"n": 2**70}
    state = await conversation.get_value()
    assert state.messages == [first, second]
    assert state.updated_at >= state.created_at


async def test_pages_go_from_the_newest_back(conversation):
    for number in range(450):
        await conversation.append_message(said(str(number)))
    assert [m["content"] for m in await conversation.messages(3)] == ["447", "448", "449"]
    seen, before = [], None
    while page := await conversation.messages(100, before):
        seen = [message["content"] for message in page] + seen
        before = page[0]["seq"]
    assert seen == [str(number) for number in range(450)]
    assert len(await conversation.messages(1_000)) == 450
    assert [m["content"] async for m in conversation.all_messages()] == seen
    for wrong in (0, -1, 1.5, True, "5"):
        with pytest.raises(InvalidArgument):
            await conversation.messages(wrong)


async def test_parallel_appends_get_distinct_gap_free_numbers(backend):
    writers = [Conversation(backend, PROJECT_ID, "made", "c1") for _ in range(4)]

    async def write(number: int) -> None:
        for turn in range(8):
            await writers[number % 4].append_message(said(f"{number}/{turn}"))

    await asyncio.gather(*(write(number) for number in range(8)))
    messages = await writers[0].messages(100)
    assert [message["seq"] for message in messages] == list(range(1, 65))
    for number in range(8):
        own = [m["content"] for m in messages if m["content"].startswith(f"{number}/")]
        assert own == [f"{number}/{turn}" for turn in range(8)]


async def test_a_message_sent_again_is_taken_once(backend, conversation):
    await conversation.append_message(said("a", id="m1"))
    summary = await conversation.append_message(said("a", id="m1"))
    assert summary.message_count == 1
    with pytest.raises(MessageConflict):
        await conversation.append_message(said("b", id="m1"))
    elsewhere = Conversation(backend, PROJECT_ID, "made", "c2")
    await elsewhere.append_message(said("b", id="m1"))
    assert [m["content"] for m in await conversation.messages()] == ["a"]


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ({}, "role"), ({"role": "robot", "content": "x"}, "role"), ({"role": "user"}, "content"),
        ({"role": "user", "content": 5}, "content"), (said("x", id=""), "id"), (said("x", seq=1), "seq"),
        (said("x", "tool"), "tool_call_id"), (said("x", "assistant", tool_calls=[{"name": "f"}]), "tool_calls"),
        (said("x", "assistant", tool_calls=[{"id": "a"}, {"id": "a"}]), "tool_calls"),
        (said("x", attachments=["data:image/png;base64,AAAA"]), "attachments[0]"),
        (said("x", attachments=["ok", {"name": "n"}]), "attachments[1]"), (said("x", attachments="a"), "attachments"),
    ],
)  # fmt: skip
async def test_bad_messages_are_refused_by_field(conversation, message, field):
    with pytest.raises(MessageInvalid) as caught:
        await conversation.append_message(message)
    assert caught.value.data["field"] == field
    assert (await conversation.summary()).message_count == 0


async def test_a_damaged_message_is_shown_not_skipped(backend, conversation):
    for text in "abc":
        await conversation.append_message(said(text))
    await backend.commit(conversation.entries.namespace, (), [Write(message_key(2), '"not a message"')])
    messages = await conversation.messages()
    assert [message.get("damaged", False) for message in messages] == [False, True, False]


def test_the_view_for_a_model_is_always_paired():
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c1"}, {"id": "c2"}]}
    result = {"role": "tool", "tool_call_id": "c1", "content": "1"}
    stray = {"role": "tool", "tool_call_id": "c9", "content": "?"}
    stored = [said("q"), call, result, stray, said("again"), result]
    view = paired_messages(stored)
    assert [(m["role"], m.get("tool_call_id"), m["content"]) for m in view] == [
        ("user", None, "q"), ("assistant", None, ""), ("tool", "c1", "1"), ("tool", "c2", INTERRUPTED),
        ("user", None, "again"),
    ]  # fmt: skip
    assert stored[2] is result
    assert paired_messages(view) == view


@pytest.mark.parametrize(
    ("title", "kept"),
    [
        ("  Weather\n assistant ", "Weather assistant"), ("", None), (" \n\t ", None), (None, None),
        ("a\x00b\x1bc", "a b c"), ("\u202eabc", "abc"), ("<b>x</b>", "<b>x</b>"), ("x" * 10_000, "x" * 200),
        ("x" * 199 + "e\u0301" + "y", "x" * 199), ("x" * 198 + "👩\u200d👩\u200d👧", "x" * 198), ("中" * 300, "中" * 200),
        ("x" * 199 + "👍🏽", "x" * 199), ("a\ud800b", "ab"),
    ],
)  # fmt: skip
def test_titles_are_one_line_and_whole_characters(title, kept):
    assert normalise_title(title) == kept


async def test_titles_tell_when_they_change(backend):
    told = []

    async def on_title(title):
        told.append(title)

    conversation = Conversation(backend, PROJECT_ID, "made", "c1", on_title=on_title)
    for title in ("a", " a ", "b", ""):
        await conversation.set_title(title)
    assert told == ["a", "b", None]
    assert (await conversation.summary()).title is None
    with pytest.raises(MessageInvalid):
        await conversation.set_title(5)


async def test_values_live_beside_messages(conversation):
    await conversation.set_value("topic", None)
    assert (await conversation.get_value()).values == {"topic": None}
    assert await conversation.get_value("topic", 7) is None
    assert await conversation.delete_value("topic") is True
    assert await conversation.get_value("topic", 7) == 7


@pytest.mark.parametrize("wrong", ["", "x" * 257, "a\x00b", "\ud800", 5, None], ids=repr)
def test_bad_ids_are_refused(wrong):
    with pytest.raises(InvalidId):
        Conversation(MemoryBackend(), PROJECT_ID, "made", wrong)


async def test_conversations_are_listed_by_last_use(backend):
    them = Conversations(backend, PROJECT_ID, "made")
    ids = ["a", "b/../c", "中 %_'", "a:b", "x" * 256]
    for conversation_id in ids:
        await them.open(conversation_id).append_message(said("hi"))
        await asyncio.sleep(0.002)
    await them.open("a").append_message(said("again"))
    await them.open("b/../c").messages()
    expected = ["a", "x" * 256, "a:b", "中 %_'", "b/../c"]
    found, cursor = [], None
    while True:
        page, cursor = await them.list(limit=2, cursor=cursor)
        found += [summary.conversation_id for summary in page]
        if cursor is None:
            break
    assert found == expected
    with pytest.raises(InvalidCursor):
        await them.list(cursor="bm9wZQ")
    assert await them.delete("a") == 2
    with pytest.raises(ConversationNotFound):
        await them.get("a")
    assert "a" not in [summary.conversation_id for summary in (await them.list())[0]]
    await them.open("a").append_message(said("anew"))
    assert [m["content"] async for m in them.export("a")] == ["anew"]
    assert "".join([part async for part in them.export_markdown("a")]) == "## User\n\nanew\n\n"


def test_transcripts_name_calls_and_attachments():
    text = render_markdown(
        [
            said([{"type": "text", "text": "see"}], attachments=[{"reference": "artifact://x", "name": "a.png"}]),
            said("", "assistant", tool_calls=[{"id": "c", "name": "search"}]),
            said({"k": "```"}, "tool", tool_call_id="c"),
        ]
    )
    assert "see\n- attached: a.png" in text
    assert "- called `search` (c)" in text
    assert "` ` `" in text


HARD = ["--message", "--x", "", "a b", "q\"'", "line\nline", "=", "--message=x", "-", "中", "--", "-- --files"]


@pytest.mark.parametrize("text", HARD)
def test_any_text_survives_the_arguments(text):
    value = ConversationInput(text, (text or "i",), ("f", text or "f"), ())
    assert parse_conversation_input(format_conversation_input(value)) == value
    assert parse_conversation_input([f"--message={text}"]).message == text


def test_the_last_message_wins_and_lists_merge():
    args = ["--message", "a", "--files", "1", "2", "--images", "x", "--message", "-b", "--files=3", "--videos", "v"]
    assert parse_conversation_input(args) == ConversationInput("-b", ("x",), ("1", "2", "3"), ("v",))
    only_files = parse_conversation_input(["--files", "1", "--videos", "v"], Attachments(files=True))
    assert (only_files.files, only_files.videos) == (("1", "v"), ())


@pytest.mark.parametrize(
    "args", [["x"], ["--nope", "1"], ["--message"], ["--message", "--files"], ["--files"], ["-m", "x"]]
)
def test_wrong_arguments_are_named(args):
    with pytest.raises(InputInvalid):
        parse_conversation_input(args)
    with pytest.raises(InputInvalid):
        parse_conversation_input(["--images", "x"], Attachments(files=True))


async def test_a_conversation_is_not_one_growing_document(tmp_path: Path):
    """The head and one entry per append, whatever the length: what is written does not grow."""
    backend = SqliteBackend(tmp_path / "x.sqlite")
    conversation = Conversation(backend, PROJECT_ID, "made", "c1")
    for number in range(300):
        await conversation.append_message(said(f"{number:05d}" * 20))
    records = await conversation.entries.records(limit=1_000)
    assert len(records) == 301
    assert max(len(record.text) for record in records) < 200
    assert json.loads(records[0].text)["count"] == 300
    await backend.close()
