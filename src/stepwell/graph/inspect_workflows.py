"""Questions about workflows: which there are, what one holds, whether it is valid."""

from typing import Any

from stepwell.errors import InvalidArgument
from stepwell.graph.answers import Answer, Sources, needed, page
from stepwell.graph.budget import MAX_ANSWER_BYTES, escaped_data, fit_list, preview, size_of
from stepwell.graph.folder import Stored, WorkflowFolder
from stepwell.graph.format import importable, read_definition
from stepwell.graph.registry import Registry
from stepwell.graph.similar import MAX_QUERY_CHARS, closest, score
from stepwell.graph.summary import agent_summary
from stepwell.graph.validation import validate_file, validate_graph

_FUZZY = 0.6


def list_workflows(sources: Sources, arguments: dict[str, Any]) -> Answer:
    """The templates, filtered, sorted, a page at a time."""
    templates = [stored for stored in sources.folder.all() if _is_template(stored)]
    return page(_selected(templates, arguments), arguments, listed)


def select_workflows(folder: WorkflowFolder, registry: Registry, arguments: dict[str, Any]) -> list[dict[str, Any]]:
    """Every workflow, also drafts and those that cannot run: `state` says so, `problems` how many there are."""
    names = folder.names()
    items = []
    for stored in _selected(folder.all(), arguments):
        item = listed(stored)
        if stored.file is None:
            item |= {"state": "unreadable", "problem": stored.problem}
        else:
            report = validate_file(stored.file, registry, workflow_names=names)
            item |= {"state": "valid" if report.valid else "invalid draft", "problems": len(report.errors)}
            if not report.valid:
                item["problem"] = f"{report.errors[0].path}: {report.errors[0].message}"
        items.append(item)
    return items


def _selected(found: list[Stored], arguments: dict[str, Any]) -> list[Stored]:
    name = (arguments.get("name_filter") or "")[:MAX_QUERY_CHARS].strip()
    if name:
        containing = [stored for stored in found if _has(name, stored)]
        found = containing or [stored for stored in found if _is_like(name, stored)]
    tag = arguments.get("tag_filter")
    if tag:
        found = [stored for stored in found if tag in _tags(stored)]
    return _sorted(found, arguments)


def find_workflows(sources: Sources, arguments: dict[str, Any]) -> Answer:
    wanted = needed(arguments, "node_type")
    found = [
        stored
        for stored in sources.folder.all()
        if _is_template(stored) and stored.file and any(node.type == wanted for node in stored.file.graph.nodes)
    ]
    made = page(_sorted(found, arguments), arguments, listed)
    if not found and sources.registry.get(wanted) is None:
        made["candidates"] = closest(wanted, sources.registry.names())
        made["hint"] = "there is no such node type; list_node_types shows what there is"
    return made


def get_workflow(sources: Sources, arguments: dict[str, Any]) -> Answer:
    stored = sources.folder.get(needed(arguments, "workflow_id"))
    assert stored.file is not None  # noqa: S101
    view = arguments.get("view", "both")
    report = validate_file(stored.file, sources.registry, workflow_names=sources.folder.names())
    data = listed(stored) | {"source_path": f"workflows/{stored.key}/workflow.json", "valid": report.valid}
    if not report.valid:
        data["validation"] = preview(report.to_dict(), items=10)
    if view in ("both", "summary"):
        data["agentSummary"] = agent_summary(stored.file.graph, sources.registry)
    made: Answer = {"status": "ok", "data": data}
    if view in ("both", "full"):
        definition = importable(stored.file.data.get("definition") or {})
        room = MAX_ANSWER_BYTES - size_of(made) - 200
        if size_of(definition) <= room:
            data["definition"] = definition
        else:
            size = size_of(definition)
            made["hint"] = f"the definition has {size:,} bytes and was left out: read {data['source_path']}"
            made["truncated"] = True
    return made


def listed(stored: Stored) -> dict[str, Any]:
    """A workflow as lists show it."""
    data = stored.file.data if stored.file is not None else {}
    graph = stored.file.graph if stored.file is not None else None
    made: dict[str, Any] = {
        "workflow_id": stored.id or stored.key, "workflow_key": stored.key, "name": escaped_data(stored.name)[:200],
        "node_count": len(graph.nodes) if graph else 0, "edge_count": len(graph.edges) if graph else 0,
        "tags": [escaped_data(tag)[:80] for tag in _tags(stored)][:20], "is_template": _is_template(stored),
        "created_at": stored.time("createdAt")[:40], "updated_at": stored.time("updatedAt")[:40],
    }  # fmt: skip
    description = data.get("description")
    if isinstance(description, str) and description:
        made["description"] = escaped_data(description)[:300]
    return made


def _is_template(stored: Stored) -> bool:
    return stored.file is not None and stored.file.data.get("isTemplate") is True


def _tags(stored: Stored) -> list[str]:
    tags = stored.file.data.get("tags") if stored.file is not None else None
    return [tag for tag in tags if isinstance(tag, str)] if isinstance(tags, list) else []


def _has(wanted: str, stored: Stored) -> bool:
    return any(wanted.casefold() in name.casefold() for name in (stored.name, stored.key))


def _is_like(wanted: str, stored: Stored) -> bool:
    return any(score(wanted, name) >= _FUZZY for name in (stored.name, stored.key))


def _sorted(found: list[Stored], arguments: dict[str, Any]) -> list[Stored]:
    """In the wanted order, each with the id as tie-break."""
    sort = arguments.get("sort_by") or "created_at"
    found = sorted(found, key=lambda stored: stored.id or stored.key)
    if sort == "name":
        return sorted(found, key=lambda stored: stored.name.casefold())
    if sort == "node_count":
        return sorted(found, key=lambda stored: len(stored.file.graph.nodes) if stored.file else 0, reverse=True)
    field = "createdAt" if sort == "created_at" else "updatedAt"
    return sorted(found, key=lambda stored: stored.time(field), reverse=True)


def validate_workflow(sources: Sources, arguments: dict[str, Any]) -> Answer:
    definition = arguments.get("definition")
    names = sources.folder.names()
    if definition is not None and arguments.get("workflow_id"):
        raise InvalidArgument("validate_workflow takes definition or workflow_id, not both", argument="definition")
    if definition is None:
        if not arguments.get("workflow_id"):
            raise InvalidArgument(
                "validate_workflow needs definition (a draft) or workflow_id", argument="definition",
                hint='e.g. {"action": "validate_workflow", "definition": {"nodes": […], "edges": […]}}',
            )  # fmt: skip
        stored = sources.folder.get(needed(arguments, "workflow_id"))
        assert stored.file is not None  # noqa: S101
        report = validate_file(stored.file, sources.registry, workflow_names=names)
    else:
        inner = definition.get("definition")
        draft = inner if isinstance(inner, dict) and "nodes" not in definition else definition
        graph = read_definition(_with_ids(draft), any_ids=True)
        report = validate_graph(graph, sources.registry, workflow_names=names)
    return {"status": "ok", "data": bounded_report(report.to_dict())}


_KEYS = {"key": "nodeId", "sourceKey": "sourceNode", "targetKey": "targetNode"}


def _with_ids(draft: dict[str, Any]) -> dict[str, Any]:
    """A draft in the form that import_workflow takes, with node keys, as one with ids; any other as it is."""
    made = dict(draft)
    for field in ("nodes", "edges"):
        if isinstance(draft.get(field), list):
            made[field] = [
                ({"name": part["key"]} if "key" in part else {})
                | {(_KEYS[name] if _KEYS.get(name, name) not in part else name): value for name, value in part.items()}
                if isinstance(part, dict)
                else part
                for part in draft[field]
            ]
    return made


def bounded_report(report: dict[str, Any], *, room: int = MAX_ANSWER_BYTES - 4_000) -> dict[str, Any]:
    """A validation report of about `room` bytes at most, with exact counts of what was left out."""
    made = dict(report)
    for name in ("errors", "warnings"):
        kept = fit_list(report[name], room=room) if report[name] else []
        room = max(500, room - size_of(kept))
        made[name] = kept
        if len(kept) < len(report[name]):
            made[f"more_{name}"] = len(report[name]) - len(kept)
    return made
