"""An agent that keeps what it learns as Knowledge documents, and looks there before it answers.

stepwell run . --conversation-id ada -- --message "Note that Ada wrote the first program, in 1843"
stepwell run . --conversation-id ada -- --message "What do we know about Ada?"
stepwell knowledge list                                   # the notes, one document each
stepwell run . -e index                                   # a table of contents, without a model
"""

from stepwell import (
    Context,
    Conversation,
    Entrypoint,
    Executor,
    TokenUsage,
    node,
    parse_conversation_input,
    tool,
    workflow,
)
from stepwell.errors import DocumentNotFound

SYSTEM = """You keep research notes. Search them before you answer, and say which notes (by id) an answer rests on.
Write one note a subject, in Markdown; bring a note that is there up to date instead of writing a second one."""
HITS = 10
PAGE_LINES = 200


@tool
async def search_notes(text: str, ctx: Context) -> list[dict]:
    """Lines of notes that contain a text, whatever its case. Search for one word, not for a question."""
    page = await ctx.knowledge.search_documents(text, page_size=HITS)
    return [{"id": hit.document_id, "title": hit.title, "line": hit.line, "text": hit.text} for hit in page.hits]


@tool
async def read_note(note_id: str, ctx: Context) -> str:
    """A note's text, by its id."""
    found = await ctx.knowledge.read_document_lines(note_id, 1, PAGE_LINES)
    return "\n".join(found.lines)


@tool
async def write_note(note_id: str, title: str, markdown: str, ctx: Context) -> str:
    """Write a note, or replace the one of that id. Ids are short, lower case, with dashes: `ada-lovelace`."""
    try:
        await ctx.knowledge.edit_document(note_id, title, markdown)
    except DocumentNotFound:
        await ctx.knowledge.create_document(title, markdown, note_id)
        return f"created {note_id}"
    return f"replaced {note_id}"


@tool(mode="manual")
async def delete_note(note_id: str, ctx: Context) -> str:
    """Delete a note for good."""
    return f"deleted {note_id}" if await ctx.knowledge.delete_document(note_id) else f"there was no {note_id}"


@node
async def contents(ctx: Context) -> list[dict]:
    """Id, title and beginning of every note."""
    found = await ctx.knowledge.list_documents()
    return [{"id": each.id, "title": each.title, "begins": each.markdown_preview} for each in found]


@workflow
async def index(data: dict, ctx: Context) -> list[dict]:
    """The table of contents."""
    notes = await contents(ctx)
    async with ctx.output("index") as out:
        await out.write(
            "\n".join(f"- {note['title']} ({note['id']}): {note['begins']}" for note in notes) or "no notes"
        )
    return notes


@workflow
async def research(data: dict, ctx: Context) -> dict:
    """Answer one message; the agent is told which notes there are."""
    notes = await ctx.run_workflow(index, {}, output_visibility="hidden")
    known = "\n".join(f"- {note['id']}: {note['title']}" for note in notes) or "none yet"
    agent = ctx.agent(system=f"{SYSTEM}\n\nThe notes there are:\n{known}", max_turns=12, name="answer")
    result = await agent.run(data["message"])
    return {"text": result.text, "turns": result.turns, "tokens": result.tokens, "display_input": data["message"]}


executor = Executor(
    project_type="conversation",
    conversation=Conversation(),
    tools=[search_notes, read_note, write_note, delete_note],
    entrypoints=[
        Entrypoint(
            "main", research, title="Research", token_usage=TokenUsage(enabled=True),
            create_input=lambda args: {"message": parse_conversation_input(args).message},
        ),
        Entrypoint("index", index, title="Table of contents"),
    ],
)  # fmt: skip
