"""`tools/import_workflow`: a whole workflow in one call, written only if it is valid."""

import json
import uuid
from typing import Any, NamedTuple

from stepwell.errors import InvalidArgument, StepwellError, WorkflowContentInvalid
from stepwell.graph.answers import Sources
from stepwell.graph.budget import fit_list
from stepwell.graph.diagnostics import Report, quoted
from stepwell.graph.folder import FILE, FOLDER, Stored, check_workflow_key
from stepwell.graph.format import (
    MAX_NAME_CHARS,
    MAX_NODE_NAME_CHARS,
    content_hash,
    is_name,
    parse_content,
    read_workflow,
)
from stepwell.graph.inspect_workflows import bounded_report
from stepwell.graph.layout import positions
from stepwell.graph.similar import closest
from stepwell.graph.validation import validate_file
from stepwell.identifiers import iso_time, now_micros

STRUCTURED = ("name", "description", "nodes", "edges")
MAX_DESCRIPTION_CHARS = 4_000
_PARTS = ("nodes", "edges")
_SET = ("nodeId", "nodeType", "name", "position", "config", "inputs", "outputs")
_CONTROL = frozenset(map(chr, (*range(0x20), 0x7F)))

Answer = dict[str, Any]


class ImportRefused(Exception):
    """An import that does not happen: a stable code, what is wrong, and the report where there is one."""

    def __init__(self, code: str, message: str, *, report: Report | None = None, **more: Any) -> None:
        super().__init__(message)
        self.code = code
        self.report = report
        self.more = more


class _Wanted(NamedTuple):
    """What is to be stored, and the ids of the nodes by their keys."""

    document: dict[str, Any]
    node_ids: dict[str, str] | None


def import_workflow(sources: Sources, arguments: dict[str, Any]) -> Answer:
    """Create or change a workflow of the project; every failure is an answer with an `error_code`.

    The same content again is `unchanged`; other content under the same key keeps the workflow's id, and nodes of the
    same key keep theirs, and what an editor noted of them. Imports into one project take turns; nothing is written
    where anything is wrong.

    Args:
        arguments: `workflow_key` and either `content`, or `name`, `description`, `nodes` and `edges`.
    """
    try:
        return _within_budget(_import(sources, arguments))
    except ImportRefused as refused:
        made: Answer = {"error_code": refused.code, "error": str(refused), "warnings": []}
        if refused.report is not None:
            made["validation"] = refused.report.to_dict()
        return _within_budget(made | refused.more)
    except StepwellError as error:  # the folder cannot be read or written, or another import does not end
        return {"error_code": "WRITE_FAILED", "error": error.message, "warnings": []}


def _within_budget(answer: Answer) -> Answer:
    """The answer with its parts cut to what they may take of 20 KB, and exact counts of what was left out."""
    made = dict(answer)
    if "validation" in made:
        made["validation"] = bounded_report(made["validation"], room=9_000)
    if "node_ids" in made:
        made["node_ids"] = dict(fit_list(list(made["node_ids"].items()), room=6_500))
    made["warnings"] = fit_list(made["warnings"], room=2_500)
    left = len(answer["warnings"]) - len(made["warnings"])
    if left:
        made["warnings"].append(f"… and {left} more warnings")
    left = len(answer.get("node_ids", ())) - len(made.get("node_ids", ()))
    if left:
        where = (
            f"get_workflow, or {made['source_path']}, has them"
            if "source_path" in made
            else "ask again when it is valid"
        )
        made["warnings"].append(f"node_ids: {left} more were left out: {where}")
    return made


def _import(sources: Sources, arguments: dict[str, Any]) -> Answer:
    key = _checked_key(arguments.get("workflow_key"))
    content = arguments.get("content")
    given = [name for name in STRUCTURED if arguments.get(name) not in (None, [], "")]
    if content and given:
        raise ImportRefused(
            "AMBIGUOUS_REQUEST", f"content cannot be combined with {', '.join(given)}: give one or the other"
        )
    if not content and not given:
        raise ImportRefused("MISSING_FIELDS", "give name, nodes and edges, or the whole file as content")
    parsed = _parsed(content) if content else None
    if parsed is None:
        _check_structured(arguments)
    with sources.folder.locked():
        known = sources.folder.find(key)
        if parsed is None:
            return _store(sources, key, known, _from_parts(key, arguments, known))
        wanted, warnings = _from_content(parsed, known, sources)
        answer = _store(sources, key, known, wanted)
        return answer | {"warnings": warnings + answer["warnings"]}


def _checked_key(key: Any) -> str:
    try:
        return check_workflow_key(key)
    except InvalidArgument as error:
        code = "MISSING_FIELDS" if key is None else "INVALID_WORKFLOW_KEY"
        raise ImportRefused(code, "workflow_key is needed" if key is None else error.message) from None


def _parsed(content: Any) -> dict[str, Any]:
    if isinstance(content, dict):  # models hand over the object itself
        content = json.dumps(content)
    try:
        return parse_content(content, what="content")
    except WorkflowContentInvalid as error:
        hint = f" ({error.hint})" if error.hint else ""
        raise ImportRefused("INVALID_CONTENT", f"{error.message}{hint}") from None


def _check_structured(arguments: dict[str, Any]) -> None:
    missing = [name for name in ("name", "nodes") if not arguments.get(name)]
    if missing:
        raise ImportRefused("MISSING_FIELDS", f"{' and '.join(missing)} missing: a workflow has a name and nodes")
    name = arguments["name"]
    if not is_name(name, MAX_NAME_CHARS) or not name.strip():
        raise ImportRefused("INVALID_CONTENT", f"name is not a text of 1 to {MAX_NAME_CHARS} characters")
    description = arguments.get("description")
    if description is not None and (not isinstance(description, str) or len(description) > MAX_DESCRIPTION_CHARS):
        raise ImportRefused("INVALID_CONTENT", f"description is not a text of up to {MAX_DESCRIPTION_CHARS} characters")
    try:
        size = len(json.dumps([arguments["nodes"], arguments.get("edges")], allow_nan=False))
    except ValueError:
        raise ImportRefused("INVALID_CONTENT", "nodes or edges have NaN or Infinity, which is not JSON") from None
    if size > 8 * 1024 * 1024:
        raise ImportRefused("INVALID_CONTENT", f"nodes and edges have {size:,} bytes; the limit is 8 MiB")


def _from_content(document: dict[str, Any], known: Stored | None, sources: Sources) -> tuple[_Wanted, list[str]]:
    """A V1 file as it is. A key that is known keeps its id, whatever the file says; two keys never share one."""
    made, warnings = dict(document), []
    kept = known.id if known is not None else None
    given = made.get("workflowId")
    if kept is None and isinstance(given, str):
        other = next((stored for stored in sources.folder.all() if stored.id == given.lower()), None)
        if other is not None:
            warnings.append(f"workflowId: {quoted(given)} is the id of {other.key}: this workflow has a new one.")
            given = None
    if kept is not None or given is None:
        made["workflowId"] = kept or str(uuid.uuid4())
    return _Wanted(made, None), warnings


def _from_parts(key: str, arguments: dict[str, Any], known: Stored | None) -> _Wanted:
    workflow_id = (known.id if known is not None else None) or str(uuid.uuid4())
    home = uuid.UUID(workflow_id)
    stored = known.file.data.get("definition") if known is not None and known.file is not None else None
    kept = {field: value for field, value in stored.items() if field not in _PARTS} if isinstance(stored, dict) else {}
    listed = stored.get("nodes") if isinstance(stored, dict) else None
    before = {n["nodeId"]: n for n in listed or () if isinstance(n, dict) and isinstance(n.get("nodeId"), str)}
    ids: dict[str, str] = {}
    nodes: list[dict[str, Any]] = []
    for number, raw in enumerate(_objects(arguments["nodes"], "nodes")):
        node_key, node_type = raw.get("key"), raw.get("nodeType")
        for field, value in (("key", node_key), ("nodeType", node_type)):
            if not isinstance(value, str) or not value:
                raise ImportRefused("MISSING_FIELDS", f"nodes[{number}] has no {field}: a text is needed")
        if not is_name(node_key, MAX_NODE_NAME_CHARS) or not _CONTROL.isdisjoint(node_key):
            raise ImportRefused(
                "INVALID_CONTENT", f"nodes[{number}]: the key {quoted(node_key)} is not a text of up to "
                f"{MAX_NODE_NAME_CHARS} characters without control characters",
            )  # fmt: skip
        if node_key in ids:
            raise ImportRefused("DUPLICATE_NODE_KEY", f"nodes[{number}]: the key {quoted(node_key)} is used twice")
        ids[str(node_key)] = node_id = str(uuid.uuid5(home, f"node {node_key}"))
        name, config = raw.get("name"), raw.get("config")
        made: dict[str, Any] = {field: value for field, value in before.get(node_id, {}).items() if field not in _SET}
        made |= {
            "nodeId": node_id,
            "nodeType": node_type,
            "name": node_key if name in (None, "") else name,
        }
        position = raw.get("position") or before.get(node_id, {}).get("position")
        if position is not None:
            made["position"] = _position(number, position)
        nodes.append({**made, "config": {} if config is None else config})
    edges = [
        _edge(number, raw, ids, home, nodes)
        for number, raw in enumerate(_objects(arguments.get("edges") or [], "edges"))
    ]
    places = positions([node["nodeId"] for node in nodes], [(e["sourceNode"], e["targetNode"]) for e in edges])
    for node in nodes:
        node.setdefault("position", places[node["nodeId"]])
    made = dict(known.file.data) if known is not None and known.file is not None else {"isTemplate": True}
    made |= {
        "workflowId": workflow_id,
        "name": arguments["name"].strip(),
        "definition": kept | {"nodes": nodes, "edges": edges},
    }
    if arguments.get("description") is not None:
        made["description"] = arguments["description"]
    return _Wanted(made, ids)


def _position(number: int, position: Any) -> dict[str, Any]:
    if isinstance(position, dict) and all(type(position.get(axis)) in (int, float) for axis in "xy"):
        return position
    raise ImportRefused("INVALID_CONTENT", f'nodes[{number}]: position is not {{"x": a number, "y": a number}}')


def _objects(value: Any, name: str) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ImportRefused("INVALID_CONTENT", f"{name} is not an array of objects")
    return value


def _edge(
    number: int, raw: dict[str, Any], ids: dict[str, str], home: uuid.UUID, nodes: list[dict[str, Any]]
) -> dict[str, Any]:
    fields = ("sourceKey", "sourcePort", "targetKey", "targetPort")
    missing = [field for field in fields if not isinstance(raw.get(field), str) or not raw[field]]
    if missing:
        known = ", ".join(map(str, list(raw)[:8]))
        raise ImportRefused("MISSING_FIELDS", f"edges[{number}] has no {', '.join(missing)} (it has {known})")
    for field in ("sourceKey", "targetKey"):
        if raw[field] not in ids:
            named = next((k for k, i in ids.items() if i == raw[field]), None) or next(
                (key for key, node in zip(ids, nodes, strict=True) if node["name"] == raw[field]), None
            )
            close = [named] if named else closest(raw[field], ids)
            meant = f"; did you mean {quoted(close[0])}?" if close else ""
            raise ImportRefused(
                "UNKNOWN_NODE_KEY", f"edges[{number}].{field}: there is no node of the key {quoted(raw[field])}: edges "
                f"use node keys, not names or ids{meant}", candidates=close,
            )  # fmt: skip
    return {
        "edgeId": str(uuid.uuid5(home, "edge " + json.dumps([raw[field] for field in fields]))),
        "sourceNode": ids[raw["sourceKey"]], "sourcePort": raw["sourcePort"], "targetNode": ids[raw["targetKey"]],
        "targetPort": raw["targetPort"],
    }  # fmt: skip


def _counted(report: Report) -> str:
    return "1 error" if len(report.errors) == 1 else f"{len(report.errors)} errors; the first"


def _store(sources: Sources, key: str, known: Stored | None, wanted: _Wanted) -> Answer:
    file = read_workflow(wanted.document)
    report = validate_file(file, sources.registry, workflow_names=sources.folder.names() | {key})
    if not report.valid:
        first = report.errors[0]
        raise ImportRefused(
            "VALIDATION_FAILED", f"{_counted(report)}: {first.path}: {first.message}",
            report=report,
            **({"node_ids": wanted.node_ids} if wanted.node_ids else {}),
        )  # fmt: skip
    outcome = "created"
    if known is not None:
        outcome = "unchanged" if known.hash == content_hash(wanted.document) else "updated"
    if outcome != "unchanged":
        now = iso_time(now_micros())
        document = wanted.document | {"updatedAt": now}
        document["createdAt"] = (known.time("createdAt") if known is not None else None) or now
        if known is None and isinstance(wanted.document.get("createdAt"), str):
            document["createdAt"] = wanted.document["createdAt"]
        try:
            sources.folder.write(key, document)
        except StepwellError as error:
            raise ImportRefused("WRITE_FAILED", error.message) from None
    made: Answer = {
        "workflow_id": file.id, "outcome": outcome, "source_path": f"{FOLDER}/{key}/{FILE}",
        "warnings": [f"{finding.path}: {finding.message}" for finding in report.warnings],
    }  # fmt: skip
    if wanted.node_ids is not None:
        made |= {"node_ids": wanted.node_ids, "validation": report.to_dict()}
    return made
