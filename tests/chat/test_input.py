"""The default input, slash parameters, drafts, export and compacting: the parts that need no terminal."""

import asyncio
import json
from pathlib import Path

import pytest

from stepwell import Conversation as Declared
from stepwell import Executor, Footer, Host, SlashCommand, SlashParameter, load_settings, message_of, workflow
from stepwell.conversation.compact import CHUNK_CHARS, compact, compacted, context_messages
from stepwell.conversation.default_input import (
    Attachment,
    InputToSend,
    attachment_of,
    kind_of,
    read_draft,
    write_draft,
)
from stepwell.conversation.export import export_name, export_to
from stepwell.conversation.inputs import Attachments, ConversationInput, parse_conversation_input
from stepwell.conversation.slash import current_values, footer_lines, parse_slash_parameters
from stepwell.conversation.state import Conversation
from stepwell.errors import (
    ExecutorInvalid,
    FileRejected,
    InputInvalid,
    InvalidArgument,
    ModelAnswerBroken,
    StorageUnavailable,
)
from stepwell.files.run_files import RunFiles
from stepwell.files.store import FileStore
from stepwell.store.memory import MemoryBackend
from tests.unit.conftest import PROJECT_ID, Bench

PARAMETERS = (SlashParameter("mode", ("fast", "slow")), SlashParameter("web", default=True, title="Search the web"))
EVERYTHING = Attachments(images=True, files=True, videos=True)


@pytest.fixture
def conversation() -> Conversation:
    return Conversation(MemoryBackend(), PROJECT_ID, "made", "c1")


@pytest.fixture
def files(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path / "files")


# -- slash ---------------------------------------------------------------------------------------------------------


def test_parameters_are_taken_out_of_the_arguments_and_texts_are_left_alone():
    given = InputToSend("--mode=slow\n'quoted' \"too\"", (), {"mode": "slow", "web": False})
    values, left = parse_slash_parameters(given.args(), PARAMETERS)
    assert values == {"mode": "slow", "web": False}
    assert parse_conversation_input(left).message == given.message
    assert parse_slash_parameters([], PARAMETERS)[0] == {"mode": "fast", "web": True}


@pytest.mark.parametrize(
    ("parameter", "text", "value"),
    [(PARAMETERS[0], " slow ", "slow"), (PARAMETERS[1], "", False), (PARAMETERS[1], "ON", True), (PARAMETERS[1], "no", False)],
)  # fmt: skip
def test_a_value_is_read(parameter, text, value):
    assert parameter.parse(text) == value


@pytest.mark.parametrize(
    ("parameter", "text"), [(PARAMETERS[0], "quick"), (PARAMETERS[0], ""), (PARAMETERS[1], "maybe")]
)
def test_a_value_that_cannot_be_is_refused(parameter, text):
    with pytest.raises(InputInvalid):
        parameter.parse(text)


def test_a_boolean_without_a_value_toggles_what_it_is_now():
    assert PARAMETERS[1].parse("", current=False) is True


def test_a_choice_that_the_project_no_longer_offers_falls_back_to_the_default():
    assert current_values(PARAMETERS, {"mode": "gone", "web": False, "old": "x"}) == {"mode": "fast", "web": False}


def test_the_footer_depends_on_parameters():
    footer = (Footer("always"), Footer("slow and careful", {"mode": "slow"}))
    assert footer_lines(footer, {"mode": "fast"}) == ["always"]
    assert footer_lines(footer, {"mode": "slow"}) == ["always", "slow and careful"]


@pytest.mark.parametrize(
    ("declared", "named"),
    [
        ({"parameters": [SlashParameter("Mode")]}, "/Mode"),
        ({"parameters": [SlashParameter("a"), SlashParameter("a")]}, "twice"),
        ({"parameters": [SlashParameter("message")]}, "standard input"),
        ({"parameters": [SlashParameter("export")]}, "/export is built in"),
        ({"parameters": [SlashParameter("quit")]}, "/quit is built in"),
        ({"parameters": [SlashParameter("m", ("a",), default="b")]}, "default"),
        ({"commands": ["shout"]}, "shout"),
        ({"commands": [SlashCommand("compact", "main")]}, "built in"),
        ({"footer": [Footer("x", {"nothing": True})]}, "footer"),
        ({"parameters": PARAMETERS, "footer": [Footer("x", {"mode": "medium"})]}, "footer"),
    ],
)
def test_a_menu_that_cannot_work_is_refused(declared, named):
    with pytest.raises(ExecutorInvalid, match=named):
        Declared(**declared)


def test_a_command_needs_its_entrypoint():
    @workflow
    async def main(data: dict, ctx) -> None: ...

    with pytest.raises(ExecutorInvalid, match="nowhere"):
        Executor(workflow=main, conversation=Declared(commands=[SlashCommand("sum", "nowhere")]))


# -- attachments -----------------------------------------------------------------------------------------------------


def test_what_a_file_goes_as_follows_from_its_type_and_the_declaration():
    assert kind_of("image/png", "a", EVERYTHING) == "images"
    assert kind_of("video/mp4", "a", EVERYTHING) == "videos"
    assert kind_of("text/plain", "a", EVERYTHING) == "files"
    assert kind_of("video/mp4", "a", Attachments(files=True)) == "files"
    with pytest.raises(FileRejected, match="takes images"):
        kind_of("text/plain", "a.txt", Attachments(images=True))
    with pytest.raises(FileRejected, match="no attachments"):
        kind_of("image/png", "a.png", Attachments())


async def test_attachments_travel_as_references_and_the_message_says_what_they_are(files, tmp_path):
    (tmp_path / "a b.png").write_bytes(b"png")
    stored = files.put_path(tmp_path / "a b.png")
    sent = InputToSend("look", (attachment_of(stored, EVERYTHING),))
    (tmp_path / "a b.png").write_bytes(b"changed afterwards")
    given = parse_conversation_input(sent.args())
    assert given.images == (stored.reference,)
    message = await message_of(given, RunFiles(files, "r1"))
    assert message["attachments"] == [
        {"reference": stored.reference, "name": "a b.png", "media_type": "image/png", "size": 3, "kind": "images"}
    ]
    assert files.read(stored.reference) == b"png"
    assert InputToSend.of(json.loads(json.dumps(sent.to_dict()))) == sent


async def test_paths_are_stored_and_checked(files, tmp_path):
    (tmp_path / "n.txt").write_text("hi")
    message = await message_of(ConversationInput("x", files=(str(tmp_path / "n.txt"),)), RunFiles(files, "r1"))
    assert message["attachments"][0]["reference"].startswith("artifact://")
    with pytest.raises(FileRejected, match="text/plain"):
        await message_of(ConversationInput("x", images=(str(tmp_path / "n.txt"),)), RunFiles(files, "r1"))
    assert await message_of(ConversationInput("x"), RunFiles(files, "r1")) == {"role": "user", "content": "x"}


def test_inputs_have_limits():
    one = Attachment("artifact://x", "x", "text/plain", 1, "files")
    for refused in (InputToSend(" \n"), InputToSend("x" * 1_000_001), InputToSend("x", (one,) * 21)):
        with pytest.raises(InputInvalid):
            refused.checked()
    assert InputToSend("", (one,) * 20).checked().attachments


async def test_a_draft_is_kept_with_the_conversation(conversation):
    draft = InputToSend("half a sent", (Attachment("artifact://x", "x", "text/plain", 1, "files"),), {"web": False})
    await write_draft(conversation, draft)
    assert await read_draft(Conversation(conversation.entries.backend, PROJECT_ID, "made", "c1")) == draft
    await write_draft(conversation, InputToSend())
    assert await read_draft(conversation) == InputToSend()


# -- export ----------------------------------------------------------------------------------------------------------


async def test_export_writes_every_message(conversation, tmp_path):
    for number in range(450):
        await conversation.append_message({"role": "user", "content": f"message {number} \ud83d\n`é`"})
    await export_to(conversation, tmp_path / "all.json")
    read = json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))
    assert [message["seq"] for message in read["messages"]] == list(range(1, 451))
    assert read["conversation_id"] == "c1"
    size = await export_to(conversation, tmp_path / "all.md")
    text = (tmp_path / "all.md").read_text(encoding="utf-8")
    assert size == (tmp_path / "all.md").stat().st_size
    assert text.count("## User") == 450
    assert "message 449" in text


async def test_export_never_overwrites_and_leaves_nothing_half_written(conversation, tmp_path, monkeypatch):
    (tmp_path / "a.md").write_text("mine")
    with pytest.raises(InvalidArgument, match="exists"):
        await export_to(conversation, tmp_path / "a.md")
    assert (tmp_path / "a.md").read_text() == "mine"
    with pytest.raises(InvalidArgument, match="neither"):
        await export_to(conversation, tmp_path / "a.txt")
    with pytest.raises(StorageUnavailable):
        await export_to(conversation, tmp_path / "no" / "a.md")

    async def broken():
        yield {"role": "user", "content": "x", "seq": 1}
        raise StorageUnavailable("gone")

    monkeypatch.setattr(conversation, "all_messages", broken)
    with pytest.raises(StorageUnavailable, match="gone"):
        await export_to(conversation, tmp_path / "b.json")
    assert not (tmp_path / "b.json").exists()


def test_no_title_leads_out_of_the_folder():
    assert "/" not in export_name("../../etc/passwd", "2026-01-02T03:04:05Z")
    assert export_name("…", "2026-01-02T03:04:05Z") == "conversation-20260102-030405"


# -- compacting --------------------------------------------------------------------------------------------------------


async def test_a_summary_takes_the_place_of_messages_for_the_model_only(conversation):
    asked = []

    async def ask(messages):
        asked.append(messages[1]["content"])
        return f" summary {len(asked)} "

    for number in range(3):
        await conversation.append_message({"role": "user", "content": f"fact {number}"})
    made = await compact(conversation, ask)
    assert (made.summary, made.upto, made.messages) == ("summary 1", 3, 3)
    assert "fact 0" in asked[0]
    await conversation.append_message({"role": "user", "content": "later"})
    shown = await context_messages(conversation, 100)
    assert [message["content"] for message in shown] == ["[Summary of the conversation so far]\nsummary 1", "later"]
    assert len(await conversation.messages(100)) == 4

    again = await compact(conversation, ask)
    assert "summary 1" in asked[1]
    assert "fact 0" not in asked[1]
    assert (again.upto, again.messages) == (4, 4)
    with pytest.raises(InputInvalid, match="nothing new"):
        await compact(conversation, ask)


async def test_a_failed_compaction_leaves_the_last_summary(conversation):
    async def good(messages):
        return "good"

    async def empty(messages):
        return " "

    await conversation.append_message({"role": "user", "content": "x"})
    await compact(conversation, good)
    await conversation.append_message({"role": "user", "content": "y"})
    with pytest.raises(ModelAnswerBroken):
        await compact(conversation, empty)
    assert (await compacted(conversation)).summary == "good"


async def test_long_conversations_are_summarised_piece_by_piece(conversation):
    sizes = []

    async def ask(messages):
        sizes.append(len(messages[1]["content"]))
        return "s"

    for number in range(20):
        await conversation.append_message({"role": "user", "content": f"{number}" + "x" * 9_000})
    await compact(conversation, ask)
    assert len(sizes) >= 3
    assert max(sizes) < CHUNK_CHARS + 1_000


async def test_an_agent_reads_the_summary(tmp_path, monkeypatch):
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    seen = []

    async def answer(messages, info):
        seen.append(str(messages))
        yield "done"

    @workflow
    async def main(data: dict, ctx) -> None:
        model = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("x")]), stream_function=answer)
        await ctx.agent(llm=model, tools=[]).run(data["message"])

    async with Host(load_settings()) as host:
        bench = Bench(host, tmp_path)
        executor = Executor(workflow=main, project_type="conversation")
        assert (await bench.run(executor, input={"message": "old secret"}, conversation_id="c")).status == "completed"
        from stepwell.store.entries import Domain

        kept = Conversation(host.local_stores.backend(PROJECT_ID, Domain.CONVERSATION), PROJECT_ID, "made", "c")

        async def ask(messages):
            return "THE SUMMARY"

        await compact(kept, ask)
        assert (await bench.run(executor, input={"message": "new"}, conversation_id="c")).status == "completed"
    assert "THE SUMMARY" in seen[1]
    assert "old secret" not in seen[1]


async def test_two_compactions_at_once_keep_the_one_that_covers_more(conversation):
    await conversation.append_message({"role": "user", "content": "1"})
    gate = asyncio.Event()

    async def slow(messages):
        await gate.wait()
        return "slow"

    async def quick(messages):
        return "quick"

    first = asyncio.create_task(compact(conversation, slow))
    await asyncio.sleep(0.05)
    await conversation.append_message({"role": "user", "content": "2"})
    await compact(conversation, quick)
    gate.set()
    await first
    assert (await compacted(conversation)).summary == "quick"
