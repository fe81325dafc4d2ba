"""Running graphs: readiness, joins, branches, values, failure, retries, cancellation, scale."""

import asyncio
import json

import pytest

from tests.graph.conftest import SEEN, node_id, save

PASS = "t/pass"


async def test_a_chain_hands_values_on_and_ends_with_its_outputs(graphs):
    report = await graphs.graph({"a": (PASS, {"value": 7}), "b": PASS, "c": PASS}, "a.out>b.value", "b.out>c.value")
    assert report.status == "completed", report.error
    assert report.output == {
        "workflow": "made", "outputs": {"c": {"out": 7}}, "nodes": {"completed": 3, "failed": 0, "skipped": 0}
    }  # fmt: skip
    assert report.nodes == {"completed": 3}


@pytest.mark.parametrize("value", [0, 0.0, False, "", [], {}, None, 9123372036854000123, "é\u2028💥"])
async def test_every_value_is_delivered_as_it_is(graphs, value):
    report = await graphs.graph(
        {"a": ("t/fork", {"fire": ["branch_0"]}), "b": (PASS, {"value": "config"}), "c": PASS},
        "a.branch_0>b.value", "b.out>c.value", nodes={"a": {"value": value}},
    )  # fmt: skip
    assert json.dumps(report.output["outputs"]["c"]["out"]) == json.dumps(value)


async def test_a_join_runs_once_however_long_its_ways_are(graphs):
    await graphs.graph(
        {"s": (PASS, {"value": 1}), "a": PASS, "b": PASS, "b2": PASS, "j": ("t/spoil", {})},
        "s.out>a.value", "s.out>b.value", "b.out>b2.value", "a.out>j.value", "b2.out>j.returns",
    )  # fmt: skip
    assert graphs.statuses()["j"] == "failed"  # 1 is no text: but it was tried once
    started = [event for event in graphs.events if event.type == "node.started"]
    assert len(started) == 5


async def test_branches_not_taken_are_skipped_and_joins_behind_them_run(graphs):
    nodes = {
        "f": ("t/fork", {"fire": ["branch_0"], "value": "x"}), "a": PASS, "b": PASS, "b2": PASS,
        "j": ("t/need", {}),
    }  # fmt: skip
    edges = ("f.branch_0>a.value", "f.branch_1>b.value", "b.out>b2.value", "a.out>j.text", "b2.out>j.number")
    report = await graphs.graph(nodes, *edges)
    assert graphs.statuses() == {"f": "completed", "a": "completed", "b": "skipped", "b2": "skipped", "j": "completed"}
    assert report.output["outputs"]["j"] == {"out": "x1"}
    skipped = [event.data for event in graphs.events if event.type == "node.skipped"]
    assert [data["reason"] for data in skipped] == ["branch_not_taken"] * 2


async def test_two_branches_that_fire_both_run(graphs):
    await graphs.graph(
        {"f": ("t/fork", {"fire": ["branch_0", "branch_1"]}), "a": PASS, "b": PASS},
        "f.branch_0>a.value", "f.branch_1>b.value",
    )  # fmt: skip
    assert graphs.statuses() == {"f": "completed", "a": "completed", "b": "completed"}


async def test_exclusive_branches_may_meet_in_one_input(graphs):
    nodes = {"f": ("t/fork", {"fire": ["branch_1"], "only_one": True, "value": 3}), "a": PASS, "j": PASS}
    report = await graphs.graph(nodes, "f.branch_0>a.value", "a.out>j.value", "f.branch_1>j.value")
    assert report.output["outputs"]["j"] == {"out": 3}


async def test_a_failed_node_stops_what_is_behind_it_and_nothing_else(graphs):
    report = await graphs.graph(
        {"s": PASS, "bad": "t/bad", "behind": PASS, "far": PASS, "good": "t/slow", "after": PASS},
        "s.out>bad.value", "bad.out>behind.value", "behind.out>far.value", "s.out>good.value", "good.out>after.value",
    )  # fmt: skip
    assert report.status == "failed"
    assert report.error["code"] == "graph_failed"
    assert [failed["node_id"] for failed in report.error["failed"]] == [node_id("bad")]
    assert "broken on purpose" in report.error["message"]
    assert graphs.statuses() == {
        "s": "completed", "bad": "failed", "behind": "skipped", "far": "skipped", "good": "completed",
        "after": "completed",
    }  # fmt: skip
    far = next(e.data for e in graphs.events if e.type == "node.skipped" and e.data["title"] == "far")
    assert (far["reason"], far["causes"]) == ("upstream_failed", [node_id("bad")])


async def test_a_failure_that_is_handled_lets_the_run_complete(graphs):
    report = await graphs.graph(
        {"bad": ("t/bad", {"onError": "continue"}), "other": (PASS, {"value": 1}), "j": PASS},
        "bad.out>j.text", "other.out>j.value",
    )  # fmt: skip
    assert report.status == "completed"
    assert report.output["outputs"] == {"j": {"out": 1}}
    assert report.output["handled"][0]["name"] == "bad"


async def test_retries_and_timeouts_come_from_the_configuration(graphs):
    report = await graphs.graph({"bad": ("t/bad", {"times": 1, "retries": 2, "value": 5})})
    assert report.output["outputs"] == {"bad": {"out": 5}}
    assert [e.type for e in graphs.events].count("node.retrying") == 1
    report = await graphs.graph({"slow": ("t/slow", {"seconds": 30, "timeout": 0.05})})
    assert report.error["failed"][0]["error"]["code"] == "node_timeout"
    assert report.error["failed"][0]["error"]["message"] == "slow did not finish within 0.05 s"


async def test_sixteen_levels_of_workflows_answer_what_the_last_one_does_and_one_more_is_refused(graphs, tools):
    for level in range(17):
        inner = ("tools/subflow", {"workflow_path": f"level-{level + 1}"}) if level < 16 else (PASS, {"value": 1})
        save(graphs.folder, f"level-{level}", {"a": inner, "b": (PASS, {"value": level})})
    report = await graphs.run("level-1", "x")
    assert report.status == "completed", report.error
    answer, levels = report.output["outputs"]["a"]["response"], 2
    while answer["a"] != 1:
        assert answer["b"] == levels
        answer, levels = answer["a"], levels + 1
    assert levels == 16
    assert len(json.dumps(report.output)) < 100_000
    report = await graphs.run("level-0", "x")
    execution = tools.call("workflow_inspect", {"action": "get_execution", "execution_id": report.run_id})["data"]
    assert execution["node_counts"] == {"completed": 16, "failed": 16}
    assert execution["failed_nodes"][1]["node_id"] == f"{node_id('a')}/{node_id('a')}"


async def test_a_workflow_that_calls_itself_is_refused_and_a_copy_with_the_same_id_is_not(graphs):
    for reference in ("loop", node_id("workflow loop").upper(), "./workflows/loop/workflow.json"):
        save(graphs.folder, "loop", {"again": ("tools/subflow", {"workflow_path": reference})})
        report = await graphs.run("loop")
        assert report.error["failed"][0]["error"]["code"] == "subflow_nesting"
        assert "loop → loop" in report.error["message"]
    save(graphs.folder, "inner", {"a": (PASS, {"value": 1})}, workflowId=node_id("same"))
    save(graphs.folder, "outer", {"a": ("tools/subflow", {"workflow_path": "inner"})}, workflowId=node_id("same"))
    assert (await graphs.run("outer")).status == "completed"


async def test_a_subflow_that_is_tried_again_shows_every_try_of_its_nodes_behind_it(graphs, tools):
    save(graphs.folder, "child", {"bad": ("t/bad", {"times": 1})})
    report = await graphs.graph({"sub": ("tools/subflow", {"workflow_path": "child", "retries": 1}), "other": PASS})
    asked = {"action": "get_execution", "execution_id": report.run_id, "node_status_filter": "completed"}
    nodes = tools.call("workflow_inspect", asked)["data"]["nodes"]
    assert [(node["name"], node["attempts"]) for node in nodes] == [("sub", 2), ("bad", 2), ("other", 1)]


async def test_what_a_node_does_to_its_input_no_other_sees(graphs):
    value = {"deep": [1, {"a": 2}]}
    report = await graphs.graph(
        {"a": PASS, "b": "t/spoil", "c": "t/slow"}, "a.out>b.value", "a.out>c.value", nodes={"a": {"value": value}}
    )
    assert report.output["outputs"] == {"b": {"out": value | {"spoiled": True}}, "c": {"out": value}}
    given = next(e.data for e in graphs.events if e.type == "node.started" and e.data["title"] == "b")
    assert given["input"] == {"inputs": {"value": value}}


@pytest.mark.parametrize("returns", ["nan", "port"])
async def test_outputs_that_are_no_json_or_no_port_fail_the_node(graphs, returns):
    report = await graphs.graph({"a": ("t/spoil", {"returns": returns})})
    assert report.error["failed"][0]["error"]["code"] == "OUTPUT_NOT_JSON"


async def test_an_input_that_no_node_takes_is_warned_of(graphs):
    for made, value, warned in (
        ({"a": PASS}, "x", True),
        ({"a": PASS}, None, False),
        ({"a": "io/input_text"}, "x", False),
    ):
        assert (await graphs.graph(made, value=value)).status == "completed"
        told = [event.data["message"] for event in graphs.events if event.type == "log"]
        assert [message.startswith("the run's input goes nowhere") for message in told] == [True] * warned


@pytest.mark.parametrize(
    ("nodes", "part"),
    [
        ({"fecth": {"value": 1}}, 'did you mean "fetch"?'), ({"twin": {"value": 1}}, "several nodes have that name"),
        ({"fetch": {"valeu": 1}}, "did you mean value?"), ({node_id("gone"): {}}, "name or the id"),
    ],
)  # fmt: skip
async def test_values_for_nodes_or_inputs_that_are_not_there_are_refused(graphs, nodes, part):
    made = {"fetch": PASS, "twin": PASS, "other": PASS}
    path = save(graphs.folder, "made", made)
    path.write_text(path.read_text().replace('"name": "other"', '"name": "twin"'))
    report = await graphs.run("made", nodes=nodes)
    assert report.error["code"] == "invalid_argument"
    assert part in report.error["hint"]
    assert not SEEN
    report = await graphs.run("made", nodes={node_id("fetch").upper(): {"value": 3}})
    assert report.output["outputs"]["fetch"] == {"out": 3}


async def test_values_that_do_not_fit_and_inputs_that_are_missing_say_where(graphs):
    report = await graphs.graph({"a": (PASS, {}), "b": "t/need"}, "a.out>b.text", nodes={"a": {"value": None}})
    error = report.error["failed"][0]["error"]
    assert error["code"] == "INPUT_TYPE"
    assert error["message"] == '"a".out → "b".text: null is not text'
    report = await graphs.graph({"b": ("t/need", {"number": 2})})
    error = report.error["failed"][0]["error"]
    assert (error["code"], error["ports"]) == ("MISSING_REQUIRED_INPUT", ["text"])
    report = await graphs.graph({"a": (PASS, {"value": "3"}), "b": ("t/need", {"text": "n"})}, "a.out>b.number")
    assert report.output["outputs"]["b"] == {"out": "n3"}


async def test_at_most_so_many_nodes_run_at_once_and_the_others_are_ready(graphs):
    await graphs.graph({f"n{i}": ("t/slow", {"seconds": 0.01}) for i in range(9)}, max_parallelism=3)
    running = most = 0
    for _, what in SEEN:
        running += 1 if what == "begin" else -1
        most = max(most, running)
    assert most == 3
    (ready,) = [event.data["nodes"] for event in graphs.events if event.type == "graph.ready"]
    assert ready == [node_id(f"n{i}") for i in range(3, 9)]


async def test_cancelling_leaves_no_node_running(graphs):
    save(graphs.folder, "made", {"a": ("t/slow", {"seconds": 60}), "b": ("t/slow", {"seconds": 60}), "c": PASS},
         "a.out>c.value")  # fmt: skip
    handle = await graphs.start("made")
    while sum(what == "begin" for _, what in SEEN) < 2:
        await asyncio.sleep(0.01)
    handle.cancel("enough")
    report = await handle.report()
    assert report.status == "cancelled"
    assert report.nodes == {"cancelled": 2}
    assert not any(what == "end" for _, what in SEEN)


async def test_invalid_workflows_do_not_run_and_say_why(graphs):
    report = await graphs.graph({"a": "t/nonsense", "b": PASS}, "a.out>b.nope")
    assert report.status == "failed"
    assert report.error["code"] == "workflow_invalid"
    assert [e["code"] for e in report.error["validation"]["errors"]] == ["UNKNOWN_NODE_TYPE", "INVALID_TARGET_PORT"]
    assert not SEEN


async def test_a_long_skipped_chain_and_a_long_chain_run_without_recursion(graphs):
    size = 3_000
    nodes = {"f": ("t/fork", {"fire": ["branch_0"], "value": 1})} | {f"n{i}": PASS for i in range(size)}
    nodes |= {f"m{i}": PASS for i in range(size)}
    edges = ["f.branch_0>n0.value", "f.branch_1>m0.value"]
    edges += [f"{c}{i}.out>{c}{i + 1}.value" for c in "nm" for i in range(size - 1)]
    report = await graphs.graph(nodes, *edges)
    assert report.status == "completed", report.error
    assert report.output["nodes"] == {"completed": size + 1, "failed": 0, "skipped": size}
