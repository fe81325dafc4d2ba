"""Validation: every finding at once, each at its place, fast and at any depth."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stepwell.graph import similar
from stepwell.graph.format import read_definition
from stepwell.graph.topology import cycles, order
from stepwell.graph.validation import validate_graph
from tests.graph.conftest import definition, graph_of, node_id

PASS = "t/pass"


def found(types, nodes, *edges, **options):
    report = validate_graph(graph_of(nodes, *edges), types, **options)
    return [(finding.code, finding.path) for finding in (*report.errors, *report.warnings)]


def test_everything_is_found_at_once_and_in_the_order_of_the_file(types):
    nodes = {"a": "t/pas", "b": ("t/need", {"number": "many"}), "c": ("t/fork", {}), "lone": "t/need"}
    report = validate_graph(
        graph_of(nodes, "a.out>b.text", "b.out>c.valu", "c.branch_77>b.number", "c.nope>b.number", "c.branch_1>b.text"),
        types,
    )
    assert [(e.code, e.path) for e in report.errors] == [
        ("UNKNOWN_NODE_TYPE", "nodes[0].nodeType"), ("INVALID_CONFIG", "nodes[1].config.number"),
        ("INVALID_TARGET_PORT", "edges[1].targetPort"), ("DYNAMIC_PORT_RANGE", "edges[2].sourcePort"),
        ("CYCLE_DETECTED", "edges[2]"), ("INVALID_SOURCE_PORT", "edges[3].sourcePort"),
        ("MULTIPLE_EDGES_INTO_INPUT", "edges[3].targetPort"), ("MULTIPLE_EDGES_INTO_INPUT", "edges[4].targetPort"),
    ]  # fmt: skip
    assert report.errors[0].candidates[0] == "t/pass"
    assert not report.valid
    assert ("UNUSED_NODE", "nodes[3]") in [(w.code, w.path) for w in report.warnings]
    assert ("REQUIRED_INPUT_UNSATISFIED", "nodes[3].config") in [(w.code, w.path) for w in report.warnings]


def test_a_cycle_in_a_long_chain_is_shown_by_its_two_nodes(types):
    nodes = {f"n{i}": PASS for i in range(500)}
    edges = [f"n{i}.out>n{i + 1}.value" for i in range(499)] + ["n400.out>n399.text"]
    report = validate_graph(graph_of(nodes, *edges), types)
    (error,) = report.errors
    assert error.code == "CYCLE_DETECTED"
    assert error.data["cycle"] == [node_id("n399"), node_id("n400")]
    assert error.data["edges"] == [399, 499]
    assert '"n399" → "n400" → "n399"' in error.message


def test_a_node_wired_to_itself_is_a_cycle(types):
    assert found(types, {"a": PASS}, "a.out>a.value") == [("CYCLE_DETECTED", "edges[0]")]


def test_ends_that_are_missing_containers_or_names_are_told_apart(types):
    made = definition({"a": PASS, "b": PASS}, "a.out>b.value", "a.out>b.text", "a.out>b.value")
    made["containers"] = [{"id": "box"}]
    made["edges"][0]["targetNode"], made["edges"][1]["targetNode"], made["edges"][2]["targetNode"] = "box", "b", "zz"
    report = validate_graph(read_definition(made, any_ids=True), types)
    assert [(e.code, e.path, e.candidates) for e in report.errors] == [
        ("CONTAINER_ENDPOINT_UNSUPPORTED", "edges[0].targetNode", ()),
        ("MISSING_EDGE_ENDPOINT", "edges[1].targetNode", (node_id("b"),)),
        ("MISSING_EDGE_ENDPOINT", "edges[2].targetNode", ()),
    ]


def test_ids_that_are_used_twice_and_names_that_are(types):
    made = definition({"a": PASS, "b": PASS}, "a.out>b.value", "a.out>b.text")
    made["nodes"].append(made["nodes"][0] | {"nodeType": "t/need"})
    made["edges"][1]["edgeId"] = made["edges"][0]["edgeId"]
    report = validate_graph(read_definition(made), types)
    assert [(e.code, e.path) for e in report.errors] == [
        ("DUPLICATE_NODE_ID", "nodes[2].nodeId"), ("DUPLICATE_EDGE_ID", "edges[1].edgeId")
    ]  # fmt: skip
    assert "nodes[0]" in report.errors[0].message
    assert ("DUPLICATE_NODE_NAME", "nodes[2].name") in [(w.code, w.path) for w in report.warnings]


def test_duplicate_edges_are_told_by_all_four_ends(types):
    nodes = {"f": ("t/fork", {"fire": []}), "j": PASS}
    edges = ("f.branch_0>j.value", "f.branch_1>j.text", "f.branch_0>j.value")
    assert found(types, nodes, *edges) == [("DUPLICATE_EDGE", "edges[2]")]


def test_two_edges_into_one_input_need_exclusive_branches(types):
    nodes = {"f": ("t/fork", {"only_one": True}), "a": PASS, "b": PASS, "j": PASS}
    edges = ["f.branch_0>a.value", "a.out>j.value", "f.branch_1>b.value", "b.out>j.value", "f.fallback_out>j.value"]
    assert found(types, nodes, *edges) == []
    nodes["f"] = ("t/fork", {"only_one": False})
    assert [code for code, _ in found(types, nodes, *edges)] == ["MULTIPLE_EDGES_INTO_INPUT"] * 2


def test_warnings_for_types_secrets_settings_and_subflows(types):
    nodes = {
        "a": ("t/need", {"text": "sk-" + "a" * 30, "onError": "ignore", "retries": True, "numbr": 1}),
        "b": ("t/pass", {"workflow_path": "nowhere"}),
    }
    codes = found(types, nodes, "a.out>b.value", workflow_names=frozenset({"somewhere"}))
    assert codes == [
        ("INVALID_CONFIG", "nodes[0].config.onError"), ("INVALID_CONFIG", "nodes[0].config.retries"),
        ("SECRET_IN_DEFINITION", "nodes[0].config.text"), ("UNKNOWN_FIELD", "nodes[0].config.numbr"),
        ("UNKNOWN_FIELD", "nodes[1].config.workflow_path"), ("DANGLING_SUBFLOW", "nodes[1].config.workflow_path"),
    ]  # fmt: skip
    mismatch = found(types, {"a": ("t/need", {"text": "x"}), "b": ("t/need", {"text": "x"})}, "a.out>b.number")
    assert mismatch == [("PORT_TYPE_MISMATCH", "edges[0]")]


@pytest.mark.parametrize("name", ["聊天", "💥", "x" * 10_000, " ", "a/b/c"])
def test_names_that_match_nothing_get_no_candidates(types, name):
    (error,) = validate_graph(graph_of({"a": name}), types).errors
    assert error.candidates == ()
    assert len(error.message) < 300


def test_hostile_names_are_quoted_and_cut(types):
    (error,) = validate_graph(graph_of({"\u202eevil\x1b[31m": "t/nope\u202e"}), types).errors
    assert "\u202e" not in error.message


def test_a_file_that_is_wrong_in_thousands_of_places_costs_no_more_than_a_few_suggestions(types, monkeypatch):
    compared = []
    monkeypatch.setattr(similar, "score", lambda wanted, name: compared.append(name) or 0.9)
    nodes = {f"n{number}": "t/pass" for number in range(1_500)}
    graph = graph_of(nodes, *(f"n{number}.out>gone{number}.value" for number in range(1_500)))
    report = validate_graph(graph, types)
    found = [finding for finding in report.errors if finding.code == "MISSING_EDGE_ENDPOINT"]
    assert len(found) == 1_500
    assert found[0].candidates
    assert not found[-1].candidates
    assert len(compared) <= similar.MAX_COMPARED


def test_a_chain_of_ten_thousand_nodes_is_valid(types):
    nodes = {f"n{i}": PASS for i in range(10_000)}
    edges = [f"n{i}.out>n{i + 1}.value" for i in range(9_999)]
    assert validate_graph(read_definition(definition(nodes, *edges)), types).valid


def test_stacked_diamonds_and_chains_of_100_000_nodes_are_no_problem():
    size = 2_000
    targets = [[] for _ in range(3 * size + 1)]
    for i in range(size):
        targets[3 * i] = [3 * i + 1, 3 * i + 2]
        targets[3 * i + 1] = targets[3 * i + 2] = [3 * i + 3]
    assert cycles(targets) == []
    chain = [[i + 1] for i in range(100_000)] + [[]]
    assert order(chain)[0] == list(range(100_001))
    chain[100_000] = [99_000]
    assert cycles(chain)[0][0] == 99_000


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 9).flatmap(
        lambda n: st.tuples(st.just(n), st.sets(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))))
    )
)
def test_cycles_are_the_shortest_of_their_components(case):
    size, edges = case
    targets = [[b for a, b in sorted(edges) if a == node] for node in range(size)]
    reach = [[(a, b) in edges for b in range(size)] for a in range(size)]
    for k in range(size):
        for a in range(size):
            for b in range(size):
                reach[a][b] = reach[a][b] or (reach[a][k] and reach[k][b])
    components = {frozenset(b for b in range(size) if reach[a][b] and reach[b][a]) for a in range(size) if reach[a][a]}
    shown = cycles(targets)
    assert len(shown) == len(components)
    for cycle in shown:
        assert all(following in targets[node] for node, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
        component = next(c for c in components if cycle[0] in c)
        assert len(cycle) == min(_girth(targets, node) for node in component)


def _girth(targets, start) -> int:
    level, length, seen = {start}, 0, set()
    while level:
        length += 1
        level = {b for a in level for b in targets[a]} - seen
        if start in level:
            return length
        seen |= level
    return 10**9


@settings(max_examples=100, deadline=None)
@given(st.randoms())
def test_no_definition_makes_validation_raise(seed: random.Random):
    junk = [None, 1, "x", [], {}, "t/pass", node_id("a"), {"nodeId": 3}, True, -1.5, "\ud800"]

    def value():
        return seed.choice(junk)

    from stepwell.graph.registry import Registry
    from tests.graph.conftest import TYPES

    nodes = [
        {key: value() for key in seed.sample(["nodeId", "nodeType", "name", "config", "inputs", "x", "type"], 4)}
        if seed.random() < 0.8
        else value()
        for _ in range(4)
    ]
    edges = [
        {key: value() for key in ("edgeId", "sourceNode", "sourcePort", "targetNode", "targetPort")} for _ in range(3)
    ]
    whole = {"nodes": nodes, "edges": edges, "containers": value()} if seed.random() < 0.9 else {"nodes": value()}
    report = validate_graph(read_definition(whole, any_ids=seed.random() < 0.5), Registry(TYPES))
    assert report.to_dict()["valid"] in (True, False)
