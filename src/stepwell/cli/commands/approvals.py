"""`stepwell approvals`: what runs wait for, and the answers."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.commands.tools import with_approvals
from stepwell.cli.place import Place
from stepwell.cli.render import Output, dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from stepwell.runtime.approvals import Approvals

_STATUSES = ("pending", "approved", "denied", "expired", "withdrawn", "all")


@click.group()
def approvals() -> None:
    """List, show, approve and deny calls that wait for a person."""


@approvals.command("list")
@click.option("--status", type=click.Choice(_STATUSES), default="pending", show_default=True)
@click.option("--run", "run_id", help="Only requests of this run.")
@click.option("--limit", type=click.IntRange(1, 1_000), default=20, show_default=True)
@click.option("--cursor", help="Continue a list.")
@common
@pass_output
def list_(output: Output, status: str, run_id: str | None, limit: int, cursor: str | None) -> None:
    """List requests, newest first."""

    async def read(found: "Approvals") -> "Any":
        wanted = None if status == "all" else status
        page = found.list(run_id=run_id, status=wanted, limit=limit, cursor=cursor)
        return page, found.list(run_id=run_id, status="expired", limit=limit)[0]

    (items, following), expired = with_approvals(Place(output), read)
    output.items(
        [request.to_dict() for request in items],
        [("request", lambda r: r["id"]), ("tool", lambda r: r["tool"]), ("arguments", lambda r: r["arguments"]),
         ("status", lambda r: r["status"]), ("asked", lambda r: r["created_at"][:19]), ("run", lambda r: r["run_id"])],
        next_cursor=following, empty="nothing waits for approval",
    )  # fmt: skip
    for request in expired:
        if request.overdue is not None:
            output.talk(f"{request.id} ({request.tool}): {request.overdue}")


@approvals.command("show")
@click.argument("request_id")
@common
@pass_output
def show(output: Output, request_id: str) -> None:
    """Show a request with its answer."""

    async def read(found: "Approvals") -> "Any":
        return found.get(request_id)

    request = with_approvals(Place(output), read)
    shown = request.to_dict()

    def text() -> str:
        lines = [f"request {request_id}: {shown['tool']}, {shown['status']}"]
        names = ("arguments", "edited_arguments", "reason", "run_id", "node", "created_at", "expires_at", "answered_at")
        for name in names:
            if shown[name] is not None:
                lines.append(f"  {name}: {shown[name] if isinstance(shown[name], str) else dumps(shown[name])}")
        return "\n".join([*lines, f"  {request.overdue}"] if request.overdue is not None else lines)

    output.data(shown, text)


def _resuming(command: "Callable[..., Any]") -> "Callable[..., Any]":
    """The options of an answer."""
    for option in (
        click.option("--jsonl", is_flag=True, help="Print every event of the resumed run as a JSON line."),
        click.option("--no-resume", is_flag=True, help="Only record the answer; `runs resume` goes on later."),
        click.option("--reason", help="Why; recorded, and told to the model where the call is denied."),
    ):
        command = option(command)
    return common(command)


@approvals.command("approve")
@click.argument("request_id")
@click.option("--arguments", metavar="JSON", help="Other arguments to use instead.")
@_resuming
@pass_output
def approve(
    output: Output, request_id: str, arguments: str | None, reason: str | None, no_resume: bool, jsonl: bool
) -> int:
    """Approve a call, and continue its run here where no process is at it."""
    from stepwell.jsontext import decode_untrusted

    edited = None if arguments is None else decode_untrusted(arguments, what="--arguments")

    async def answer(found: "Approvals") -> "Any":
        return await found.approve(request_id, arguments=edited, reason=reason)

    return _answer(output, request_id, answer, no_resume, jsonl, edited)


@approvals.command("deny")
@click.argument("request_id")
@_resuming
@pass_output
def deny(output: Output, request_id: str, reason: str | None, no_resume: bool, jsonl: bool) -> int:
    """Deny a call, and continue its run here where no process is at it."""

    async def answer(found: "Approvals") -> "Any":
        return await found.deny(request_id, reason=reason)

    return _answer(output, request_id, answer, no_resume, jsonl)


def _answer(
    output: Output, request_id: str, answer: "Callable[[Approvals], Awaitable[Any]]", no_resume: bool, jsonl: bool,
    edited: "Any" = None,
) -> int:  # fmt: skip
    import asyncio

    from stepwell.cli.live import Live, show_to_end
    from stepwell.project.loader import load_project
    from stepwell.runtime.host import Host

    place = Place(output)
    with output.user_prints():
        project = load_project(output.project)

    async def session() -> int:
        async with Host(place.settings) as host:
            requests = host.approvals(place.manifest.project_id)
            declared = project.executor.tools.get(requests.get(request_id).tool)
            if edited is not None and declared is not None:
                declared.checked(edited)
            given = await answer(requests)
            if no_resume:
                output.data(given.to_dict(), f"{request_id}: {given.status}")
                return 0
            live = Live(output, jsonl=jsonl)
            handle = await requests.settle(project, request_id, on_event=live.show)
            if handle is None:
                output.data(given.to_dict(), f"{request_id}: {given.status}; its run goes on in its own process")
                return 0
            output.talk(f"{request_id}: {given.status}")
            return await show_to_end(place, live, handle)

    with output.user_prints():
        return asyncio.run(session())
