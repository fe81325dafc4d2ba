"""`stepwell workflows`: the graph workflows of a project."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.commands.workflow_run import due, run
from stepwell.cli.place import Place
from stepwell.cli.render import Output, dumps

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


_LIMIT = click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True)
_OFFSET = click.option("--offset", type=click.IntRange(0), default=0, help="Continue a list.")
_SORT = click.option("--sort-by", type=click.Choice(["created_at", "updated_at", "name", "node_count"]))


@click.group()
def workflows() -> None:
    """List, check, import, run and explain workflows that are JSON graphs."""


def _call(output: Output, tool: str, arguments: "dict[str, Any]") -> "dict[str, Any]":
    """Call a workflow tool on the project's folder, its runs and its files."""
    import asyncio
    from pathlib import Path

    from stepwell.graph.answers import Sources
    from stepwell.graph.folder import WorkflowFolder
    from stepwell.graph.registry import default_registry
    from stepwell.graph.toolbox import WorkflowTools
    from stepwell.runtime.host import Host

    place = Place(output)

    async def session() -> "dict[str, Any]":
        async with Host(place.settings) as host:
            folder, runs = WorkflowFolder(Path(place.manifest.folder)), host.runs(place.manifest.project_id)
            sources = Sources(folder, default_registry(), runs, host.files.read)
            return WorkflowTools(sources, host.files).call(tool, arguments)

    return asyncio.run(session())


def _ask(output: Output, tool: str, arguments: "dict[str, Any]", text: "Callable[[dict[str, Any]], str]") -> int:
    """Call a tool and print its answer; the exit code says whether there was one."""
    answer = _call(output, tool, _given(arguments))
    failed = answer.get("status") in ("error", "not_found") or (answer.get("error") and "status" not in answer)
    missing = answer.get("status") == "not_found" or (answer.get("found") is False and not failed)
    code = 3 if missing else 2 if failed else 0
    if output.json:
        output.line(dumps(answer))
        return code
    if failed:
        output.talk(f"error: {answer['error']}")
        if answer.get("hint"):
            output.talk(f"hint: {answer['hint']}")
        for finding in (answer.get("validation") or {}).get("errors", ()):
            output.talk(f"  {finding['path']}: {finding['message']}")
        return code
    if answer.get("data") == []:
        output.talk("there is none")
    else:
        output.text(text(answer))
    if answer.get("truncated") and "next_offset" in answer:
        output.talk(f"more: --offset {answer['next_offset']}")
    elif answer.get("hint"):
        output.talk(f"hint: {answer['hint']}")
    return code


def _inspect(output: Output, action: str, text: "Callable[[dict[str, Any]], str]", **arguments: "Any") -> int:
    return _ask(output, "workflow_inspect", {"action": action, **arguments}, text)


def _rows(*columns: str) -> "Callable[[dict[str, Any]], str]":
    def text(answer: "dict[str, Any]") -> str:
        return "\n".join("\t".join(str(row.get(column, "")) for column in columns) for row in answer["data"])

    return text


def _as_json(answer: "dict[str, Any]") -> str:
    import json

    return json.dumps(answer.get("data", answer), ensure_ascii=False, indent=2)


@workflows.command("list")
@click.option("--templates", is_flag=True, help="Only templates, as the tool lists them.")
@click.option("--name", "name_filter", help="Only workflows of a name like this.")
@click.option("--tag", "tag_filter", help="Only workflows with this tag.")
@_SORT
@_LIMIT
@_OFFSET
@common
@pass_output
def list_(
    output: Output, templates: bool, name_filter: str | None, tag_filter: str | None, sort_by: str | None, limit: int,
    offset: int,
) -> int:  # fmt: skip
    """List the workflows of the project, with what is wrong with them."""
    if templates:
        return _inspect(
            output, "list_workflows", _rows("workflow_key", "node_count", "updated_at", "name"),
            name_filter=name_filter, tag_filter=tag_filter, sort_by=sort_by, limit=limit, offset=offset,
        )  # fmt: skip
    from pathlib import Path

    from stepwell.graph.folder import WorkflowFolder
    from stepwell.graph.inspect_workflows import select_workflows
    from stepwell.graph.registry import default_registry

    arguments = {"name_filter": name_filter, "tag_filter": tag_filter, "sort_by": sort_by}
    folder = WorkflowFolder(Path(Place(output).manifest.folder))
    items = select_workflows(folder, default_registry(), arguments)
    more = str(offset + limit) if offset + limit < len(items) else None
    output.items(
        items[offset : offset + limit],
        [("workflow", lambda w: w["workflow_key"]), ("state", lambda w: w["state"]),
         ("nodes", lambda w: w["node_count"]), ("template", lambda w: "yes" if w["is_template"] else ""),
         ("updated", lambda w: w["updated_at"][:19]), ("name", lambda w: w["name"])],
        empty="no workflows: `stepwell workflows import KEY FILE` adds one", next_cursor=more if output.json else None,
    )  # fmt: skip
    if more is not None and not output.json:
        output.talk(f"more: --offset {more}")
    return 0


@workflows.command("find")
@click.argument("node_type")
@_SORT
@_LIMIT
@_OFFSET
@common
@pass_output
def find(output: Output, node_type: str, sort_by: str | None, limit: int, offset: int) -> int:
    """List the templates that have a node of NODE_TYPE."""
    return _inspect(
        output, "find_workflows_by_node_type", _rows("workflow_key", "node_count", "name"), node_type=node_type,
        sort_by=sort_by, limit=limit, offset=offset,
    )  # fmt: skip


@workflows.command("show")
@click.argument("workflow")
@click.option("--view", type=click.Choice(["both", "summary", "full"]), default="both", show_default=True)
@click.option("--svg", is_flag=True, help="Print a picture of it instead.")
@common
@pass_output
def show(output: Output, workflow: str, view: str, svg: bool) -> int:
    """Show a workflow (by key, id or path): a line a node, and its definition under --json."""
    if svg:
        from pathlib import Path

        from stepwell.graph.folder import WorkflowFolder
        from stepwell.graph.picture import svg_of
        from stepwell.graph.registry import default_registry

        stored = WorkflowFolder(Path(Place(output).manifest.folder)).get(workflow)
        assert stored.file is not None  # noqa: S101  (get raises otherwise)
        output.stream_raw(svg_of(stored.file.graph, default_registry(), stored.name))
        return 0
    return _inspect(output, "get_workflow", _shown, workflow_id=workflow, view=view if output.json else "summary")


def _shown(answer: "dict[str, Any]") -> str:
    data, summary = answer["data"], answer["data"].get("agentSummary", {})
    lines = [f"{data['name']} ({data['workflow_key']}, {data['workflow_id']})", *summary.get("nodes", ())]
    for name in ("entry", "exit", "branches", "missing_config"):
        if summary.get(name):
            lines.append(f"{name.replace('_', ' ')}: {', '.join(summary[name])}")
    for agent, tools in summary.get("tools", {}).items():
        lines.append(f"tools of {agent}: {', '.join(tools)}")
    if not data["valid"]:
        lines += [f"! {finding['path']}: {finding['message']}" for finding in data["validation"]["errors"]]
    return "\n".join(lines)


@workflows.command("validate")
@click.argument("workflow", required=False)
@click.option("--file", help="A draft that lies elsewhere (`-` is stdin).")
@common
@pass_output
def validate(output: Output, workflow: str | None, file: str | None) -> int:
    """Check a WORKFLOW of the project, or a draft in a file. Exit code 2 says that it has errors."""
    from stepwell.cli.commands.knowledge import read_text
    from stepwell.errors import InvalidArgument

    if (workflow is None) == (file is None):
        raise InvalidArgument("give WORKFLOW or --file, one of them", argument="WORKFLOW")
    arguments: dict[str, Any] = {"workflow_id": workflow}
    if file is not None:
        from stepwell.graph.format import parse_content

        arguments["definition"] = parse_content(read_text(file), what=file)
    valid: list[bool] = []

    def text(answer: "dict[str, Any]") -> str:
        report = answer["data"]
        valid.append(report["valid"])
        lines = [f"{kind[:-1]}: {finding['path']}: {finding['message']}" for kind in ("errors", "warnings")
                 for finding in report[kind]]  # fmt: skip
        lines += [
            f"… and {report[more]} more {more[5:]}" for more in ("more_errors", "more_warnings") if more in report
        ]
        return "\n".join([*lines, "valid" if report["valid"] else "not valid"])

    if output.json:
        answer = _call(output, "workflow_inspect", {"action": "validate_workflow"} | _given(arguments))
        output.line(dumps(answer))
        return 0 if answer["status"] == "ok" and answer["data"]["valid"] else 2
    code = _inspect(output, "validate_workflow", text, **arguments)
    return code or (0 if valid == [True] else 2)


def _given(arguments: "dict[str, Any]") -> "dict[str, Any]":
    return {name: value for name, value in arguments.items() if value is not None}


@workflows.command("import")
@click.argument("key")
@click.argument("file")
@common
@pass_output
def import_(output: Output, key: str, file: str) -> int:
    """Store the workflow in FILE (`-` is stdin) under KEY: a V1 file, or one with node keys."""
    from stepwell.cli.commands.knowledge import read_text
    from stepwell.graph.format import parse_content

    text = read_text(file)
    document = parse_content(text, what=file)
    arguments: dict[str, Any] = {"workflow_key": key}
    if "nodes" in document and "definition" not in document:
        arguments |= {name: document[name] for name in ("name", "description", "nodes", "edges") if name in document}
    else:
        arguments["content"] = text

    def told(answer: "dict[str, Any]") -> str:
        return "\n".join(
            [f"{answer['outcome']} {answer['source_path']}", *(f"warning: {w}" for w in answer["warnings"])]
        )

    return _ask(output, "import_workflow", arguments, told)


@workflows.command("nodes")
@click.option("--filter", "node_filter", help="Only node types like this.")
@click.option("--category", "category_filter", help="Only node types of this category.")
@click.option("--verbose-types", is_flag=True, help="With descriptions.")
@click.option("--limit", type=click.IntRange(1, 200), default=200, show_default=True)
@_OFFSET
@common
@pass_output
def nodes(
    output: Output, node_filter: str | None, category_filter: str | None, verbose_types: bool, limit: int, offset: int
) -> int:
    """List the node types."""
    columns = ("node_type", "name", "description") if verbose_types or output.verbose else ("node_type", "name")
    return _inspect(
        output, "list_node_types", _rows(*columns), node_filter=node_filter, category_filter=category_filter,
        verbose=len(columns) > 2, limit=limit, offset=offset,
    )  # fmt: skip


@workflows.command("schema")
@click.argument("node_type")
@click.option("--compact", is_flag=True, help="Only the names of the fields.")
@common
@pass_output
def schema(output: Output, node_type: str, compact: bool) -> int:
    """Show the JSON Schemas of a node type."""
    return _inspect(output, "get_node_schema", _as_json, node_type=node_type, compact=compact)


@workflows.command("ports")
@click.argument("node_type")
@common
@pass_output
def ports(output: Output, node_type: str) -> int:
    """Show the ports of a node type."""

    def text(answer: "dict[str, Any]") -> str:
        return "\n".join(
            f"{side[:-1]}\t{port['name']}\t{port['type']}{'!' if port.get('required') else ''}"
            for side in ("inputs", "outputs")
            for port in answer["data"][side]
        )

    return _inspect(output, "list_ports", text, node_type=node_type)


@workflows.command("replacements")
@click.argument("node_types", nargs=-1, required=True)
@common
@pass_output
def replacements(output: Output, node_types: tuple[str, ...]) -> int:
    """Show what could replace node types that are not known."""

    def text(answer: "dict[str, Any]") -> str:
        return "\n".join(
            f"{row['node_type']}\t{'exists' if row['exists'] else ', '.join(row['candidates']) or 'nothing alike'}"
            for row in answer["data"]
        )

    return _inspect(output, "find_replacements", text, node_types=list(node_types))


@workflows.command("executions")
@click.argument("workflow")
@_LIMIT
@_OFFSET
@common
@pass_output
def executions(output: Output, workflow: str, limit: int, offset: int) -> int:
    """List the runs of a workflow, newest first."""
    columns = _rows("execution_id", "status", "started_at", "duration_ms", "error")
    return _inspect(output, "list_executions", columns, workflow_id=workflow, limit=limit, offset=offset)


@workflows.command("execution")
@click.argument("run_id")
@click.option("--node", "execution_node_filter", help="Only nodes whose id contains this.")
@click.option(
    "--status", "node_status_filter",
    type=click.Choice(["waiting", "ready", "running", "completed", "failed", "skipped"]), help="Only these nodes.",
)  # fmt: skip
@_LIMIT
@_OFFSET
@common
@pass_output
def execution(
    output: Output, run_id: str, execution_node_filter: str | None, node_status_filter: str | None, limit: int,
    offset: int,
) -> int:  # fmt: skip
    """Show what a run of a workflow did, node by node."""
    return _inspect(
        output, "get_execution", _as_json, execution_id=run_id, execution_node_filter=execution_node_filter,
        node_status_filter=node_status_filter, limit=limit, offset=offset,
    )  # fmt: skip


@workflows.command("trace")
@click.argument("reference")
@click.option("--mode", type=click.Choice(["summary", "tool_calls", "detail"]), default="summary", show_default=True)
@common
@pass_output
def trace(output: Output, reference: str, mode: str) -> int:
    """Show the trace of a run: REFERENCE is its id, or CONVERSATION:TURN."""
    name = "trace_key" if ":" in reference.removeprefix("run:") else "archive_ref"

    def text(answer: "dict[str, Any]") -> str:
        return str(answer["content"]) if answer["found"] else str(answer["unavailable_reason"])

    return _ask(output, "get_execution_trace", {name: reference, "mode": mode}, text)


@workflows.command("artifact")
@click.argument("reference")
@click.option("--start-byte", type=int)
@click.option("--max-bytes", type=int)
@click.option("--start-line", type=int, help="Read lines, from this one.")
@click.option("--max-lines", type=int)
@click.option("--snapshot-path", help="A file of a source snapshot.")
@common
@pass_output
def artifact(
    output: Output, reference: str, start_byte: int | None, max_bytes: int | None, start_line: int | None,
    max_lines: int | None, snapshot_path: str | None,
) -> int:  # fmt: skip
    """Print a window of an artifact (artifact://…)."""
    arguments = {
        "artifact": reference, "start_byte": start_byte, "max_bytes": max_bytes, "start_line": start_line,
        "max_lines": max_lines, "snapshot_path": snapshot_path,
    }  # fmt: skip
    warnings: list[str] = []

    def text(answer: "dict[str, Any]") -> str:
        warnings.extend([answer["warning"]] if "warning" in answer else [])
        if "next_offset" in answer:
            warnings.append(f"more: --start-byte {answer['next_offset']}")
        return str(answer["content"])

    code = _ask(output, "read_artifact", arguments, text)
    for warning in warnings:
        output.talk(warning)
    return code


@workflows.command("snapshot")
@click.argument("folder")
@common
@pass_output
def snapshot(output: Output, folder: str) -> int:
    """Store the files of FOLDER as a source snapshot and print its reference."""
    from pathlib import Path

    from stepwell.errors import InvalidArgument
    from stepwell.files.store import FileStore
    from stepwell.graph.artifacts import take_snapshot

    if not Path(folder).is_dir():
        raise InvalidArgument(f"there is no folder {folder}", argument="FOLDER")
    record = take_snapshot(FileStore(Path(Place(output).settings.home) / "files"), Path(folder).resolve())
    output.data(record.to_dict(), record.reference)
    return 0


workflows.add_command(run)
workflows.add_command(due)
