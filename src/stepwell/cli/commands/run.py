"""`stepwell run`: run a project and show its output as it comes."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.render import Output
from stepwell.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stepwell.project.loader import Project


@click.command(context_settings={"ignore_unknown_options": False})
@click.argument("folder", metavar="[PROJECT]", required=False)
@click.argument("args", nargs=-1, metavar="[-- ARGS...]")
@click.option("-e", "--entrypoint", help="Which entrypoint; the project's default one without.")
@click.option("--conversation-id", help="Continue (or begin) the conversation of this id.")
@click.option("--related-project", "related", multiple=True, metavar="ALIAS=PATH", help="Folder of a related project.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), help="Cancel after this many seconds.")
@click.option("--detach", is_flag=True, help="Run in the background and print the run's id.")
@click.option("--jsonl", is_flag=True, help="Print every event as a JSON line.")
@click.option("--run-id", hidden=True)
@common
@pass_output
def run(
    output: Output, folder: str | None, args: tuple[str, ...], entrypoint: str | None, conversation_id: str | None,
    related: tuple[str, ...], timeout: float | None, detach: bool, jsonl: bool, run_id: str | None,
) -> int:  # fmt: skip
    """Run PROJECT (default: the current folder). What stands behind -- goes to the entrypoint."""
    from stepwell.identifiers import check_conversation_id
    from stepwell.project.loader import load_project

    if conversation_id is not None:
        check_conversation_id(conversation_id)
    check_related(related)
    project = load_project(folder or output.project)
    project.executor.entrypoint(entrypoint)
    if detach:
        return _detach(output, project, folder or output.project, args, entrypoint, conversation_id, timeout)
    from stepwell.cli.live import Live, execute

    return execute(
        output,
        project,
        Live(output, jsonl=jsonl),
        lambda host, on_event: host.start(
            project, entrypoint, args=args, conversation_id=conversation_id, on_event=on_event, run_id=run_id
        ),
        timeout=timeout,
    )


def check_related(related: tuple[str, ...]) -> dict[str, str]:
    """`alias=/absolute/path` options by alias.

    Raises:
        InvalidArgument: another form, a relative path, or an alias given twice.
    """
    import os

    folders: dict[str, str] = {}
    for option in related:
        alias, equals, path = option.partition("=")
        if not equals or not alias or not os.path.isabs(path) or alias in folders:
            raise InvalidArgument(
                f"--related-project {option!r:.200} is not alias=/absolute/path (each alias once)",
                argument="--related-project",
            )
        if not os.path.isdir(path):
            raise InvalidArgument(f"--related-project {alias}: there is no folder {path}", argument="--related-project")
        folders[alias] = path
    return folders


def _detach(
    output: Output, project: "Project", folder: str, args: tuple[str, ...], entrypoint: str | None,
    conversation_id: str | None, timeout: float | None,
) -> int:  # fmt: skip
    """Start the run in a process of its own session and wait until its journal shows it."""
    import os
    import subprocess
    import sys
    import time

    from stepwell.errors import StorageUnavailable
    from stepwell.identifiers import new_id
    from stepwell.settings import load_settings
    from stepwell.store.sqlite_journal import SqliteJournal

    run_id = new_id()
    settings = load_settings(project=project.manifest.settings)
    command = [sys.executable, "-m", "stepwell", "run", os.path.abspath(folder), "--json", "--run-id", run_id]
    for option, value in (("-e", entrypoint), ("--conversation-id", conversation_id), ("--timeout", timeout)):
        if value is not None:
            command += [option, str(value)]
    log = os.path.join(settings.home, "logs", f"{run_id}.log")
    os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
    with open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        child = subprocess.Popen(  # noqa: S603  (our own program, with arguments as a list)
            [*command, "--", *args], stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    journal = SqliteJournal(os.path.join(settings.home, "journal", f"{project.manifest.project_id}.sqlite"))
    try:
        deadline = time.monotonic() + 30
        while journal.get(run_id) is None:
            if child.poll() is not None:
                with open(log, encoding="utf-8", errors="replace") as file_text:
                    raise StorageUnavailable(f"the run did not start: {file_text.read()[-2_000:].strip()}")
            if time.monotonic() > deadline:
                raise StorageUnavailable(f"the run did not start within 30 s; its log is {log}")
            time.sleep(0.05)
    finally:
        journal.close()
    output.data({"run_id": run_id, "status": "running", "log": log}, run_id)
    output.talk(f"`stepwell runs follow {run_id}` shows it")
    return 0
