"""The workflow file: what is read, what is refused, what is written back, what counts as the same."""

import json

import pytest

from stepwell.errors import WorkflowContentInvalid
from stepwell.graph.format import MAX_BYTES, content_hash, parse_content, read_workflow, written
from tests.graph.conftest import definition, node_id

DOCUMENT = {
    "name": "demo", "definition": definition({"a": ("t/pass", {"value": 1.0, "t": "é"}), "b": "t/pass"}, "a.out>b.value"),
    "tags": ["x"], "ownExtra": {"kept": [1]},
}  # fmt: skip


def test_what_is_written_is_read_again_equal_with_every_unknown_field():
    document = json.loads(json.dumps(DOCUMENT))
    document["definition"] |= {"notes": [{"text": "n"}], "containers": [{"id": "box", "title": "B"}]}
    document["definition"]["nodes"][0] |= {"position": {"x": 1, "y": 2}, "color": "red", "inputs": [{"name": "x"}]}
    again = parse_content(written(document))
    assert again["ownExtra"] == {"kept": [1]}
    assert again["definition"]["notes"] == [{"text": "n"}]
    assert again["definition"]["containers"] == [{"id": "box", "title": "B"}]
    assert again["definition"]["nodes"][0]["color"] == "red"
    assert "inputs" not in again["definition"]["nodes"][0]
    assert (again["nodeCount"], again["edgeCount"]) == (2, 1)
    assert content_hash(again) == content_hash(document)
    assert written(again) == written(parse_content(written(again)))


def test_the_same_content_written_in_other_ways_is_the_same():
    text = json.dumps(DOCUMENT)
    reordered = json.loads(text)
    reordered["definition"]["nodes"].reverse()
    reordered["definition"]["nodes"] = [dict(reversed(node.items())) for node in reordered["definition"]["nodes"]]
    for other in (
        json.dumps(DOCUMENT, ensure_ascii=False, indent=4).replace("\n", "\r\n"), "\ufeff" + text,
        text.replace("1.0", "1"), json.dumps(reordered), text.encode("utf-8-sig"),
    ):  # fmt: skip
        assert content_hash(parse_content(other)) == content_hash(DOCUMENT)
    moved = json.loads(text)
    moved["definition"]["nodes"][0]["position"] = {"x": 1, "y": 1}
    assert content_hash(moved) != content_hash(DOCUMENT)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ('{"a": 1, "a": 2}', "twice"), ('{"a": NaN}', "NaN"), ("[1]", "not a JSON object"), ("{,}", "line 1, column 2"),
        ("{}{}", "line 1, column 3"), ('{"a": 1,}', "not JSON"), ("{'a': 1}", "not JSON"), (b"\xff\xfe{\x00", "UTF-16"),
        (b'{"a": "\xe9"}', "not UTF-8"), ('{"a": 1e999}', "overflows"), ("[" * 5_000 + "]" * 5_000, "nested"),
        (" " * (MAX_BYTES + 1), "limit"), ("", "not JSON"),
    ],
)  # fmt: skip
def test_bad_bytes_get_one_clear_error(content, part):
    with pytest.raises(WorkflowContentInvalid, match=part):
        parse_content(content)


def test_a_code_fence_gets_a_hint():
    with pytest.raises(WorkflowContentInvalid) as caught:
        parse_content("```json\n{}\n```")
    assert caught.value.hint == "remove the code fence around the JSON"


def codes(document: dict) -> list[tuple[str, str]]:
    file = read_workflow(document)
    return [(problem.code, problem.path) for problem in (*file.problems, *file.graph.problems)]


def test_the_shapes_of_other_editors_are_refused_by_the_field_that_is_wrong():
    assert ("UNSUPPORTED_SHAPE", "nodes") in codes({"name": "x", "nodes": [], "edges": []})
    nodes = [{"node_id": node_id("a"), "node_type": "t/pass", "name": "a"}]
    found = read_workflow({"name": "x", "definition": {"nodes": nodes, "edges": []}})
    assert [(p.code, p.path, p.candidates) for p in found.graph.problems] == [
        ("UNSUPPORTED_SHAPE", "nodes[0].node_id", ("nodeId",)),
        ("UNSUPPORTED_SHAPE", "nodes[0].node_type", ("nodeType",)),
    ]
    edges = [{"id": "e", "source": "a", "target": "b", "sourceHandle": "out"}]
    found = read_workflow({"name": "x", "definition": {"nodes": [], "edges": edges}})
    assert [p.candidates for p in found.graph.problems if p.code == "UNSUPPORTED_SHAPE"] == [
        ("sourceNode",), ("targetNode",), ("sourcePort",)
    ]  # fmt: skip
    assert ("MISSING_FIELD", "edges[0].targetPort") in [(p.code, p.path) for p in found.graph.problems]


@pytest.mark.parametrize("listed", [None, [{"name": "x", "type": "string"}], {"type": "object"}])
def test_real_exports_with_ports_counts_and_uuids_of_all_kinds_are_read(listed):
    node = {"nodeId": "00000000-0000-0000-c000-000000000046", "nodeType": "t/pass", "inputs": listed, "outputs": listed}
    document = {"name": "x", "nodeCount": 9, "definition": {"nodes": [node], "edges": []}, "isFavorite": True}
    file = read_workflow(document)
    assert not any(problem.is_error for problem in (*file.problems, *file.graph.problems))
    assert file.graph.nodes[0].type == "t/pass"
    assert ("COUNT_MISMATCH", "nodeCount") in codes(document)
    assert (("LEGACY_PORTS", "nodes[0]") in codes(document)) == (listed is not None)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"schemaVersion": 2}, ("INVALID_FIELD", "schemaVersion")), ({"name": ""}, ("INVALID_FIELD", "name")),
        ({"name": "x" * 101}, ("INVALID_FIELD", "name")), ({"workflowId": "12"}, ("INVALID_ID", "workflowId")),
        ({"definition": 3}, ("INVALID_FIELD", "definition")), ({"isTemplat": True}, ("UNKNOWN_FIELD", "isTemplat")),
        ({"definition": {"nodes": {}}}, ("INVALID_FIELD", "nodes")),
        ({"definition": {"nodes": [3], "edges": [4]}}, ("INVALID_FIELD", "edges[0]")),
    ],
)  # fmt: skip
def test_each_wrong_field_is_named(change, expected):
    assert expected in codes(DOCUMENT | change)
