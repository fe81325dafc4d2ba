"""Graph workflows as entrypoints: `workflow:KEY` runs `workflows/KEY/workflow.json` like any other workflow."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwell.authoring.calls import Frame, Recorded, current_frame
from stepwell.authoring.decorators import Workflow
from stepwell.authoring.executor import Entrypoint, TokenUsage, default_input
from stepwell.conversation.inputs import parse_conversation_input
from stepwell.errors import FileMissing, InvalidJson, ReplayMismatch, WorkflowInvalid
from stepwell.graph.execution import Outcome, Start, run_plan
from stepwell.graph.folder import Stored, WorkflowFolder
from stepwell.graph.format import WorkflowFile, content_hash, importable, read_workflow
from stepwell.graph.node_context import Services
from stepwell.graph.plan import Plan, make_plan
from stepwell.graph.ports import MISSING
from stepwell.graph.registry import Registry, default_registry
from stepwell.graph.validation import validate_file
from stepwell.jsontext import decode, decode_untrusted, encode

if TYPE_CHECKING:
    from stepwell.authoring.context import Context

PREFIX = "workflow:"
DEFAULT_PARALLELISM = 10
MAX_PARALLELISM = 1_000
MAX_OUTPUTS = 200
REPEATED_CHARS = 2_000
_SAID = ("--message", "--images", "--files", "--videos")


@dataclass
class GraphInput:
    """What a graph workflow is started with.

    Attributes:
        input: for `chat/input` and `io/input_text`: a text, or any JSON; null for none.
        nodes: values for single nodes, by id or name: `{"fetch": {"url": "…"}}`; they win over the configuration.
        max_parallelism: how many nodes run at once.
    """

    input: Any = None
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    max_parallelism: int = DEFAULT_PARALLELISM


def graph_entrypoint(key: str, *, title: str | None = None) -> Entrypoint:
    """A graph workflow as an entrypoint of an executor: `Executor(entrypoints=[graph_entrypoint("etl")])`.

    Args:
        key: `workflows/<key>/workflow.json` of the run's project is what runs.
        title: shown to people; the key by default.
    """

    async def run(data: GraphInput, ctx: "Context") -> dict[str, Any]:
        return await run_workflow_file(key, data, ctx)

    return Entrypoint(
        f"{PREFIX}{key}", Workflow(run, f"{PREFIX}{key}"), title=title or key, create_input=_read_arguments,
        token_usage=TokenUsage(enabled=True),
    )  # fmt: skip


def entrypoint_of(entrypoint_id: str, project_folder: Path) -> Entrypoint | None:
    """The entrypoint of a graph workflow of a project; None for an id of another form.

    Raises:
        WorkflowNotFound: the project has no such workflow.
    """
    if not entrypoint_id.startswith(PREFIX):
        return None
    key = entrypoint_id.removeprefix(PREFIX)
    WorkflowFolder(project_folder).check_exists(key)
    return graph_entrypoint(key)


def _read_arguments(args: Sequence[str]) -> Any:
    """One plain argument is the input, or what a conversation sends; else `--input`, `--nodes`, `--max-parallelism`."""
    if len(args) == 1 and not args[0].startswith("--"):
        return GraphInput(input=args[0])
    if args and args[0].startswith(_SAID):
        said = parse_conversation_input(args)
        files = {name: list(found) for name, found in said._asdict().items() if name != "message" and found}
        if files or _reads_as_message(said.message):
            return GraphInput(input={"text": said.message, **files})
        return GraphInput(input=said.message)
    return default_input(GraphInput, args)


def _reads_as_message(text: str) -> bool:
    """True for what a person wrote that `chat/input` would take for a message in its JSON form."""
    if not text.lstrip().startswith("{"):
        return False
    try:
        read = decode_untrusted(text)
    except InvalidJson:
        return False
    return isinstance(read, dict) and "text" in read


async def run_workflow_file(key: str, data: GraphInput, ctx: "Context") -> dict[str, Any]:
    """Run a workflow of the project inside a run.

    Raises:
        WorkflowInvalid: it has errors; nothing of it ran. GraphFailed: nodes failed.
    """
    registry = default_registry()
    folder = WorkflowFolder(ctx.project.folder)
    limit = max(1, min(int(data.max_parallelism), MAX_PARALLELISM))
    start = Start(MISSING if data.input is None else data.input, data.nodes)
    outcome = await run_stored(key, start, ctx, Services(registry, folder, (), limit, {}, []))
    outcome.raise_if_failed()
    return shown(key, outcome)


def shown(key: str, outcome: Outcome) -> dict[str, Any]:
    """An outcome as a run's output. Of very many nodes that nothing takes from, the first are shown."""
    outputs = dict(islice(outcome.outputs.items(), MAX_OUTPUTS))
    made: dict[str, Any] = {"workflow": key, "outputs": outputs, "nodes": outcome.counts}
    if len(outputs) < len(outcome.outputs):
        made["more_outputs"] = len(outcome.outputs) - len(outputs)
    if outcome.reply is not None:
        made["reply"] = outcome.reply
    handled = [{"node_id": f.node_id, "name": f.name, "error": f.error} for f in outcome.failures if f.handled]
    return made | ({"handled": handled} if handled else {})


async def run_stored(key: str, start: Start, ctx: "Context", services: Services) -> Outcome:
    """Run a stored workflow inside the current node.

    The definition is recorded as it was at the start: a run that is resumed goes on with what it began with.

    Raises:
        WorkflowNotFound, WorkflowContentInvalid, WorkflowInvalid: it does not run.
    """
    frame = current_frame()
    assert frame is not None  # noqa: S101  (only called inside a run)
    loaded = await _recorded(frame, key, ctx, services)
    if loaded is None:
        loaded = services.loaded.get(key)
        if loaded is None:
            # Thousands of nodes take a while to read and check: the event loop is for others meanwhile.
            stored, digest, plan = await asyncio.to_thread(_load, key, services)
            definition = await _definition(frame, stored, ctx)
            loaded = _Loaded(plan, stored.id or stored.key, stored.name, digest, definition)
            services.loaded[key] = loaded
        _record_start(frame, key, loaded)
        if not frame.path and start.input is not MISSING and not _takes_input(loaded.plan):
            ctx.log(
                "the run's input goes nowhere: the workflow has no chat/input, no io/input_text, nor any other node "
                "that takes it", level="warning",
            )  # fmt: skip
    services = services._replace(stack=(*services.stack, key))
    return await run_plan(loaded.plan, start, ctx, services)


def _takes_input(plan: Plan) -> bool:
    return any(port.run_input is not None for type_ in plan.types for port in type_.inputs.values())


class _Loaded(NamedTuple):
    """A workflow that is ready to run, and what to record of it."""

    plan: Plan
    workflow_id: str
    title: str
    digest: str
    definition: Recorded


def _load(key: str, services: Services) -> tuple[Stored, str, Plan]:
    stored = services.folder.get(key)
    assert stored.file is not None  # noqa: S101  (get raises otherwise)
    return stored, content_hash(stored.file.data), _planned(stored.file, services.registry, key)


def _planned(file: WorkflowFile, registry: Registry, key: str) -> Plan:
    check_valid(file, registry, key)
    return make_plan(file.graph, registry)


async def _definition(frame: Frame, stored: Stored, ctx: "Context") -> Recorded:
    """What to record of a definition. A subflow may be called thousands of times: then its text is kept once."""
    assert stored.file is not None  # noqa: S101
    made = await frame.session.record_aside(importable(stored.file.data.get("definition") or {}))
    if made.spilled or not frame.path:
        return made
    text = encode(made.value)
    if len(text) <= REPEATED_CHARS:
        return made
    kept = await ctx.files.write("definition.json", text, media_type="application/json")
    return made._replace(value={"$artifact": kept.reference, "size": kept.size}, spilled=True)


async def _recorded(frame: Frame, key: str, ctx: "Context", services: Services) -> _Loaded | None:
    """What a resumed run began with; None for a new run, and where it cannot be had again."""
    recorded = frame.session.recorded_mark("graph.started", frame.path)
    if recorded is None or not recorded["exact"]:
        return None
    definition = recorded["definition"]
    reference = definition["$artifact"] if recorded["spilled"] else None
    if reference in services.loaded:
        found: _Loaded = services.loaded[reference]
        return found
    if reference is not None:
        try:
            definition = decode((await ctx.files.read(reference)).decode())
        except FileMissing:
            return None
    document = {"name": recorded["title"] or key, "definition": definition}
    plan = await asyncio.to_thread(lambda: _planned(read_workflow(document), services.registry, key))
    kept = Recorded(recorded["definition"], "", True, recorded["spilled"])
    loaded = _Loaded(plan, recorded["workflow_id"], recorded["title"], recorded["content_hash"], kept)
    if reference is not None:
        services.loaded[reference] = loaded
    return loaded


def _record_start(frame: Frame, key: str, loaded: _Loaded) -> None:
    """Record the workflow as it is now. A resumed run whose record holds a secret needs the file unchanged."""
    recorded = frame.session.recorded_mark("graph.started", frame.path)
    if recorded is not None:
        if recorded["content_hash"] != loaded.digest:
            raise ReplayMismatch(f"the workflow {key!r} was changed since the run was cut off")
        return
    frame.session.emit(
        "graph.started", node=frame.path, workflow_key=key, workflow_id=loaded.workflow_id, title=loaded.title,
        content_hash=loaded.digest, definition=loaded.definition.value, exact=loaded.definition.exact,
        spilled=loaded.definition.spilled,
    )  # fmt: skip


def check_valid(file: WorkflowFile, registry: Registry, key: str) -> None:
    """Refuse a workflow with errors.

    Raises:
        WorkflowInvalid: `validation` is the whole report.
    """
    report = validate_file(file, registry)
    if not report.valid:
        first = report.errors[0]
        more = f" (and {len(report.errors) - 1} more)" if len(report.errors) > 1 else ""
        raise WorkflowInvalid(
            f"the workflow {key!r} has errors: {first.path}: {first.message}{more}",
            hint=f"`stepwell workflows validate {key}` shows every problem",
            validation=report.to_dict(),
        )
