"""`stepwell chat`: hold a conversation with a project."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.render import Output
from stepwell.errors import ConversationRequired, InvalidArgument


@click.command()
@click.argument("folder", metavar="[PROJECT]", required=False)
@click.option("-e", "--entrypoint", help="Which entrypoint gets the messages; the project's default one without.")
@click.option("--conversation-id", help="Continue (or begin) the conversation of this id.")
@click.option("-c", "--continue", "is_continued", is_flag=True, help="Continue the conversation used last.")
@click.option("--jsonl", is_flag=True, help="Print every event as a JSON line; --json does the same.")
@click.option("--json-input", is_flag=True, help="Read messages as JSON lines: message, request_id, attachments, …")
@common
@pass_output
def chat(
    output: Output, folder: str | None, entrypoint: str | None, conversation_id: str | None, is_continued: bool,
    jsonl: bool, json_input: bool,
) -> int:  # fmt: skip
    """Chat with PROJECT (default: the current folder).

    At a terminal `/` shows what there is. Without one every line of stdin is a message, or a command.
    """
    import asyncio

    from stepwell.cli.chat.session import Choices, chat_with
    from stepwell.identifiers import check_conversation_id
    from stepwell.project.loader import load_project

    if conversation_id is not None:
        check_conversation_id(conversation_id)
        if is_continued:
            raise InvalidArgument("--conversation-id and --continue exclude each other", argument="--continue")
    if folder == "":
        raise InvalidArgument("PROJECT is empty", hint="leave it out for the current folder", argument="PROJECT")
    output.json_errors = output.json_errors or jsonl or output.json
    choices = Choices(entrypoint, conversation_id, is_continued, jsonl or output.json, json_input)
    with output.user_prints():
        project = load_project(folder or output.project)
        project.entrypoint(entrypoint)
        if not project.executor.is_conversation:
            raise ConversationRequired(
                f"{project.manifest.name} is no conversation project",
                hint='declare Executor(project_type="conversation"), or use `stepwell run`',
            )
        return asyncio.run(chat_with(output, project, choices))
