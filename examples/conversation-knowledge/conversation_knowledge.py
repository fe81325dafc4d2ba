"""Keep a Knowledge document per conversation: its transcript, brought up to date by every run."""

import argparse
from dataclasses import dataclass

from stepwell import Context, Conversation, Entrypoint, Executor, parse_conversation_input, workflow
from stepwell.knowledge import mirror_conversation


@dataclass
class Input:
    """One message; with `dry_run` the transcript is shown and nothing is written to Knowledge."""

    message: str
    dry_run: bool = False
    conversation_id: str | None = None


@dataclass
class Output:
    """The mirrored document."""

    document_id: str
    written: bool


def read_arguments(args: list[str], conversation_id: str | None) -> Input:
    """`--dry-run` is ours; the rest is the standard conversation input."""
    parser = argparse.ArgumentParser(prog="conversation-knowledge", add_help=False, exit_on_error=False)
    parser.add_argument("--dry-run", action="store_true")
    own, rest = parser.parse_known_args(args)
    return Input(parse_conversation_input(rest).message, own.dry_run, conversation_id)


@workflow
async def conversation_knowledge(data: Input, ctx: Context) -> Output:
    """Append the turn, then mirror the whole conversation. A run that is resumed appends nothing twice."""
    await ctx.conversation.append_message({"role": "user", "content": data.message})
    await ctx.conversation.append_message({"role": "assistant", "content": f"Noted: {data.message}"})
    mirrored = await mirror_conversation(ctx, dry_run=data.dry_run)
    async with ctx.output("transcript") as out:
        verb = "Would write" if data.dry_run else "Wrote"
        await out.write(f"{verb} {mirrored.document_id}\n\n{mirrored.markdown}")
    return Output(mirrored.document_id, not data.dry_run)


executor = Executor(
    project_type="conversation",
    default_entrypoint="main",
    entrypoints=[
        Entrypoint(id="main", title="Note a message", workflow=conversation_knowledge, create_input=read_arguments)
    ],
    conversation=Conversation(),
)
