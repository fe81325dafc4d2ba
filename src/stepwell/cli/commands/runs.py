"""`stepwell runs`: look at runs and act on them."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.confirm import confirm
from stepwell.cli.place import Place
from stepwell.cli.related import check_related, related_option
from stepwell.cli.render import Output, dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from stepwell.runtime.approvals import Approvals
    from stepwell.runtime.runs import Runs


@click.group()
def runs() -> None:
    """List, show, follow, resume, cancel and delete runs."""


def _with_runs(place: Place, operation: "Callable[[Runs], Awaitable[Any]]") -> "Any":
    import asyncio

    from stepwell.runtime.host import Host

    async def session() -> "Any":
        async with Host(place.settings) as host:
            return await operation(host.runs(place.manifest.project_id))

    return asyncio.run(session())


@runs.command("list")
@click.option("--status", help="Only runs of this status.")
@click.option("-e", "--entrypoint", help="Only runs of this entrypoint.")
@click.option("--conversation-id", help="Only runs of this conversation.")
@click.option("--text", help="Only runs whose input or ids contain this text.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@click.option("--cursor", help="Continue a list.")
@common
@pass_output
def list_(
    output: Output, status: str | None, entrypoint: str | None, conversation_id: str | None, text: str | None,
    limit: int, cursor: str | None,
) -> None:  # fmt: skip
    """List runs, newest first."""
    from stepwell.store.journal import RunFilter

    async def read(found: "Runs") -> "Any":
        return found.list(RunFilter(status, entrypoint, conversation_id, text), limit=limit, cursor=cursor)

    items, following = _with_runs(Place(output), read)
    shown = [report.to_dict() | {"label": label} for report, label in items]
    output.items(
        shown,
        [("run", lambda r: r["run_id"]), ("status", _status), ("entrypoint", lambda r: r["entrypoint"]),
         ("started", lambda r: (r["started_at"] or "")[:19]), ("seconds", _seconds), ("about", lambda r: r["label"])],
        next_cursor=following, empty="no runs",
    )  # fmt: skip


def _status(report: "dict[str, Any]") -> str:
    return "interrupted" if report["interrupted"] else str(report["status"])


def _seconds(report: "dict[str, Any]") -> str:
    return "" if report["duration_ms"] is None else f"{report['duration_ms'] / 1000:.2f}"


@runs.command("show")
@click.argument("run_id")
@common
@pass_output
def show(output: Output, run_id: str) -> None:
    """Show a run's report."""

    async def read(found: "Runs") -> "Any":
        return found.get(run_id)

    report = _with_runs(Place(output), read)
    shown = report.to_dict()

    def text() -> str:
        names = ("status", "entrypoint", "conversation_id", "started_at", "ended_at", "duration_ms", "tokens", "nodes")
        lines = [f"run {report.run_id}"] + [f"  {name}: {shown[name]}" for name in names if shown[name] is not None]
        if report.status == "waiting_input":
            lines.append(f"  {_waiting_for(output, run_id)}")
        if report.interrupted:
            lines.append(f"  its process is gone: `stepwell runs resume {run_id}` continues it")
        if report.error is not None:
            lines.append(f"  error: {report.error['type']}: {report.error['message']}")
        if report.output is not None:
            lines.append(f"  output: {dumps(report.output)}")
        return "\n".join(lines)

    output.data(shown, text)


def _waiting_for(output: Output, run_id: str) -> str:
    """What a run that waits for a person needs now."""
    from stepwell.cli.commands.tools import with_approvals

    async def read(found: "Approvals") -> "Any":
        return [found.list(run_id=run_id, status=status, limit=1)[0] for status in ("pending", "expired")]

    pending, expired = with_approvals(Place(output), read)
    if pending:
        return f"it waits for a person: `stepwell approvals list --run {run_id}`"
    if expired and expired[0].overdue is not None:
        return str(expired[0].overdue)
    return f"it was answered: `stepwell runs resume {run_id}` goes on"


@runs.command("events")
@click.argument("run_id")
@click.option("--after", type=click.IntRange(0), default=0, help="Only events behind this sequence.")
@click.option("--follow", is_flag=True, help="Go on to the end of the run.")
@click.option("--jsonl", is_flag=True, help="One JSON object a line.")
@common
@pass_output
def events(output: Output, run_id: str, after: int, follow: bool, jsonl: bool) -> None:
    """Print a run's events in order."""
    collected: list[dict[str, Any]] = []

    async def read(found: "Runs") -> None:
        async for event in found.events(run_id, after=after, follow=follow):
            if output.json and not jsonl:
                collected.append(event.to_dict())
            elif jsonl:
                output.line(dumps(event.to_dict()))
            else:
                output.text(f"{event.seq:>6} {event.at[11:23]} {event.type:<22} {_brief(event.data)}")
            output.flush()

    _with_runs(Place(output), read)
    if output.json and not jsonl:
        output.line(dumps({"items": collected, "next_cursor": None}))


def _brief(data: "dict[str, Any]") -> str:
    shown = {name: value for name, value in data.items() if name not in ("fingerprint", "parent", "kind", "traceback")}
    text = dumps(shown)
    return text if len(text) <= 160 else f"{text[:159]}…"


@runs.command("follow")
@click.argument("run_id")
@click.option("--jsonl", is_flag=True, help="Print every event as a JSON line.")
@common
@pass_output
def follow(output: Output, run_id: str, jsonl: bool) -> int:
    """Show a run's output as it comes, to its end. Ctrl-C stops the looking, not the run."""
    from stepwell.cli.live import Live, exit_code_of

    live = Live(output, jsonl=jsonl)

    async def read(found: "Runs") -> "Any":
        async for event in found.events(run_id, follow=True):
            live.show(event)
        return found.get(run_id)

    report = _with_runs(Place(output), read)
    live.end(report)
    return exit_code_of(report)


@runs.command("resume")
@click.argument("run_id")
@related_option
@click.option("--jsonl", is_flag=True, help="Print every event as a JSON line.")
@common
@pass_output
def resume(output: Output, run_id: str, related: tuple[str, ...], jsonl: bool) -> int:
    """Continue a run whose process was killed."""
    from stepwell.cli.live import Live, execute
    from stepwell.project.loader import load_project

    folders = check_related(related)
    with output.user_prints():
        project = load_project(output.project)
    return execute(
        output, project, Live(output, jsonl=jsonl),
        lambda host, on_event: host.resume(project, run_id, on_event=on_event, related=folders),
    )  # fmt: skip


@runs.command("cancel")
@click.argument("run_id")
@common
@pass_output
def cancel(output: Output, run_id: str) -> None:
    """Ask a run to stop."""
    report = _with_runs(Place(output), lambda found: found.cancel(run_id))
    output.data(report.to_dict(), f"run {run_id}: {'cancelled' if report.status == 'cancelled' else 'asked to stop'}")


@runs.command("delete")
@click.argument("run_id")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
@pass_output
def delete(output: Output, run_id: str, yes: bool) -> None:
    """Delete a run with its events and files."""
    confirm(yes, f"delete the run {run_id}, its events and files?")
    files = _with_runs(Place(output), lambda found: found.delete(run_id))
    output.data({"run_id": run_id, "removed": True, "files": files}, f"deleted run {run_id} and {files} files")
