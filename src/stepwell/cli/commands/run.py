"""`stepwell run`: run a project and show its output as it comes."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.related import check_related, related_option
from stepwell.cli.render import Output
from stepwell.errors import InvalidArgument, StepwellError

MAX_TIMEOUT_SECONDS = 366 * 24 * 3_600
START_SECONDS = 30

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stepwell.project.loader import Project


class RunCommand(click.Command):
    """Keeps what stands behind `--` for the entrypoint: `run -- --name Ada` names no project."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, behind = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        left = super().parse_args(ctx, own)
        ctx.params["args"] = (*ctx.params["args"], *behind)
        return left


def _finite(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0 < value < MAX_TIMEOUT_SECONDS:
        raise click.BadParameter("a number of seconds is needed, from above 0 to a year", ctx, parameter)
    return value


@click.command(cls=RunCommand)
@click.argument("folder", metavar="[PROJECT]", required=False)
@click.argument("args", nargs=-1, metavar="[-- ARGS...]")
@click.option("-e", "--entrypoint", help="Which entrypoint; the project's default one without.")
@click.option("--conversation-id", help="Continue (or begin) the conversation of this id.")
@related_option
@click.option("--timeout", type=float, callback=_finite, help="Cancel after this many seconds.")
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
    folders = check_related(related)
    if folder == "":
        raise InvalidArgument("PROJECT is empty", hint="leave it out for the current folder", argument="PROJECT")
    with output.user_prints():
        project = load_project(folder or output.project)
    project.executor.entrypoint(entrypoint)
    if detach:
        return _detach(output, project, folder or output.project, args, entrypoint, conversation_id, related, timeout)
    from stepwell.cli.live import Live, execute

    return execute(
        output,
        project,
        Live(output, jsonl=jsonl),
        lambda host, on_event: host.start(
            project,
            entrypoint,
            args=args,
            conversation_id=conversation_id,
            on_event=on_event,
            run_id=run_id,
            related=folders,
        ),
        timeout=timeout,
    )


def _detach(
    output: Output, project: "Project", folder: str, args: tuple[str, ...], entrypoint: str | None,
    conversation_id: str | None, related: tuple[str, ...], timeout: float | None,
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
    settings = load_settings(project=project.manifest.settings, project_folder=project.manifest.folder)
    # -P: whatever lies in the current folder must not take the place of our own modules.
    command = [sys.executable, "-P", "-m", "stepwell", "run", os.path.abspath(folder), "--json", f"--run-id={run_id}"]
    for option, value in (("entrypoint", entrypoint), ("conversation-id", conversation_id), ("timeout", timeout)):
        if value is not None:
            command.append(f"--{option}={value}")
    command += [f"--related-project={option}" for option in related]
    log = os.path.join(settings.home, "logs", f"{run_id}.log")
    try:
        os.makedirs(os.path.dirname(log), mode=0o700, exist_ok=True)
        with open(log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            child = subprocess.Popen(  # noqa: S603  (our own program, with arguments as a list)
                [*command, "--", *args], stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
            )
    except OSError as error:
        raise StorageUnavailable(f"{log} cannot be written: {error.strerror}", path=log) from None
    journal = SqliteJournal(os.path.join(settings.home, "journal", f"{project.manifest.project_id}.sqlite"))
    deadline = time.monotonic() + START_SECONDS
    try:
        while journal.get(run_id) is None:
            # Asked in this order: a short run may have begun and ended since the journal was read.
            if child.poll() is not None and journal.get(run_id) is None:
                raise _child_error(log)
            if time.monotonic() > deadline:
                raise StorageUnavailable(f"the run did not start within {START_SECONDS} s; its log is {log}", path=log)
            time.sleep(0.05)
    finally:
        journal.close()
    output.data({"run_id": run_id, "status": "running", "log": log}, run_id)
    output.talk(f"`stepwell runs follow {run_id}` shows it")
    return 0


def _child_error(log: str) -> StepwellError:
    """The error that a detached run ended with before it began: its last line on stderr."""
    import json

    from stepwell import errors

    with open(log, encoding="utf-8", errors="replace") as file:
        text = file.read()[-10_000:].strip()
    try:
        told = json.loads(text.rpartition("\n")[2])["error"]
        for kind in vars(errors).values():
            if isinstance(kind, type) and issubclass(kind, StepwellError) and kind.code == told["code"]:
                return kind(told["message"], hint=told.get("hint"))
    except (ValueError, KeyError, TypeError):
        pass
    return errors.RunFailed(f"the run did not start: {text[-2_000:]}", log=log)
