"""`stepwell workflows run`: run a graph workflow of the project."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.related import check_related, related_option
from stepwell.cli.render import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@click.command("run")
@click.argument("workflow")
@click.argument("text", required=False)
@click.option("--input", "json_input", help="The input as JSON (`-` is stdin) instead of a text.")
@click.option("--set", "settings", multiple=True, metavar="NODE.PORT=VALUE", help="A value for one node.")
@click.option("--max-parallelism", type=click.IntRange(1, 1_000), default=10, show_default=True)
@click.option("--conversation-id", help="Continue (or begin) the conversation of this id.")
@click.option("--timeout", type=click.FloatRange(0, min_open=True), help="Cancel after this many seconds.")
@click.option("--jsonl", is_flag=True, help="Print every event as a JSON line.")
@related_option
@common
@pass_output
def run(
    output: Output, workflow: str, text: str | None, json_input: str | None, settings: tuple[str, ...],
    max_parallelism: int, conversation_id: str | None, timeout: float | None, jsonl: bool, related: tuple[str, ...],
) -> int:  # fmt: skip
    """Run WORKFLOW (key, id or path). TEXT is its input."""
    from stepwell.cli.live import Live, execute
    from stepwell.errors import InvalidArgument
    from stepwell.graph.entrypoint import PREFIX, check_valid
    from stepwell.graph.execution import node_values
    from stepwell.graph.folder import WorkflowFolder
    from stepwell.graph.plan import make_plan
    from stepwell.graph.registry import default_registry
    from stepwell.identifiers import check_conversation_id
    from stepwell.project.loader import load_project

    if text is not None and json_input is not None:
        raise InvalidArgument("TEXT and --input cannot be combined", argument="--input")
    if conversation_id is not None:
        check_conversation_id(conversation_id)
    folders = check_related(related)
    value = _json(json_input) if json_input is not None else text
    nodes = _settings(settings)
    with output.user_prints():
        project = load_project(output.project)
    stored = WorkflowFolder(project.folder).get(workflow)
    assert stored.file is not None  # noqa: S101  (get raises otherwise)
    check_valid(stored.file, default_registry(), stored.key)
    if nodes:
        node_values(make_plan(stored.file.graph, default_registry()), nodes)
    start = {"input": value, "nodes": nodes, "max_parallelism": max_parallelism}
    return execute(
        output,
        project,
        Live(output, jsonl=jsonl),
        lambda host, on_event: host.start(
            project, f"{PREFIX}{stored.key}", input=start, conversation_id=conversation_id, on_event=on_event,
            related=folders,
        ),
        timeout=timeout,
    )  # fmt: skip


def _json(text: str) -> "Any":
    from stepwell.cli.commands.knowledge import read_text
    from stepwell.jsontext import decode_untrusted

    return decode_untrusted(read_text("-") if text == "-" else text, what="--input")


def _settings(settings: tuple[str, ...]) -> "dict[str, dict[str, Any]]":
    """`NODE.PORT=VALUE` options by node; values are JSON where they are, text otherwise."""
    from stepwell.errors import InvalidArgument, InvalidJson
    from stepwell.jsontext import decode_untrusted

    made: dict[str, dict[str, Any]] = {}
    for option in settings:
        place, equals, text = option.partition("=")
        node, dot, port = place.rpartition(".")
        if not equals or not dot or not node or not port:
            raise InvalidArgument(f"--set {option!r:.120} is not NODE.PORT=VALUE", argument="--set")
        try:
            value: Any = decode_untrusted(text)
        except InvalidJson:
            value = text
        made.setdefault(node, {})[port] = value
    return made


@click.command("due")
@click.option("--run", "run_them", is_flag=True, help="Run them, one after the other.")
@common
@pass_output
def due(output: Output, run_them: bool) -> int:
    """Show the scheduled tasks that are due. `--run` runs them: let cron or a timer call it."""
    import asyncio
    from datetime import UTC, datetime

    from stepwell.cli.place import Place
    from stepwell.graph.scheduling import Schedule, start_of
    from stepwell.project.loader import load_project
    from stepwell.runtime.host import Host

    with output.user_prints():
        project = load_project(output.project)
    place = Place(output)

    async def work() -> "list[dict[str, Any]]":
        async with Host(place.settings) as host:
            schedule, now = Schedule(place.location(None).kv), datetime.now(UTC)
            if not run_them:
                return await schedule.due(now)

            async def begin(task: "dict[str, Any]") -> "dict[str, Any]":
                from stepwell.errors import StepwellError
                from stepwell.graph.entrypoint import PREFIX
                from stepwell.graph.folder import WorkflowFolder

                start = start_of(task)
                try:
                    key = WorkflowFolder(project.folder).get(task["workflow_id"]).key
                    report = await (await host.start(project, f"{PREFIX}{key}", input=start)).report()
                except StepwellError as error:
                    return {"status": "failed", "error": error.message}
                return {"status": report.status, "run_id": report.run_id}

            return await schedule.run_due(now, begin)

    with output.user_prints():
        tasks = asyncio.run(work())
    output.items(
        tasks,
        [("task", lambda t: t["id"]), ("status", lambda t: t["status"]), ("workflow", lambda t: t["workflow_id"]),
         ("next", lambda t: t["next_run_at"][:19]), ("run", lambda t: t.get("last_run_id", ""))],
        empty="nothing is due",
    )  # fmt: skip
    return 0
