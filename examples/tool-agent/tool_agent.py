"""An agent that tidies a folder of notes. Reading is free; deleting waits for a person, however long that takes.

stepwell run . -- --message "Delete the notes about last year"     # streams; exits with 7 where it waits
stepwell approvals list
stepwell approvals approve REQUEST                                 # also after a restart: the run goes on
"""

import os
from pathlib import Path

from stepwell import (
    Context,
    Conversation,
    Entrypoint,
    Executor,
    TokenUsage,
    parse_conversation_input,
    tool,
    workflow,
)

FOLDER = Path(os.environ.get("TOOL_AGENT_NOTES", Path(__file__).parent / "notes"))
SYSTEM = "You tidy a folder of notes. Look before you act, and say in one sentence what you did."


@tool
def list_notes() -> list[str]:
    """The names of all notes."""
    return sorted(path.name for path in FOLDER.glob("*.md"))


@tool
def read_note(name: str) -> str:
    """The text of a note."""
    return note(name).read_text(encoding="utf-8")


@tool(mode="manual")
def delete_note(name: str) -> str:
    """Delete a note for good."""
    note(name).unlink()
    return f"deleted {name}"


def note(name: str) -> Path:
    """The file of a note: one of the list, so that no name leads out of the folder."""
    if name not in list_notes():
        raise ValueError(f"there is no note {name!r}; there are {', '.join(list_notes()) or 'none'}")
    return FOLDER / name


@workflow
async def tidy(data: dict, ctx: Context) -> dict:
    """Answer one message of the conversation."""
    result = await ctx.agent(system=SYSTEM, max_turns=12, name="answer").run(data["message"])
    return {"text": result.text, "turns": result.turns, "tokens": result.tokens, "display_input": data["message"]}


executor = Executor(
    project_type="conversation",
    conversation=Conversation(),
    tools=[list_notes, read_note, delete_note],
    entrypoints=[
        Entrypoint(
            "main", tidy, title="Tidy notes", token_usage=TokenUsage(enabled=True),
            create_input=lambda args: {"message": parse_conversation_input(args).message},
        )
    ],
)  # fmt: skip
