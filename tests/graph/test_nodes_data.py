"""The core nodes that need no network and no model: texts, values, branches, storage, subflows."""

import json

import pytest

from stepwell.graph.nodes.retrieval import chunks
from stepwell.graph.paths import at_path, matches
from stepwell.graph.ports import MISSING
from tests.graph.conftest import node_id, save

PASS = "t/pass"


async def one(graphs, kind, config=None, **options):
    """Run a single node and give its outputs."""
    report = await graphs.graph({"n": (kind, config or {})}, **options)
    assert report.status == "completed", report.error
    output = report.output
    if "$artifact" in output:
        output = json.loads(graphs.host.files.read(output["$artifact"]))
    return output["outputs"]["n"]


async def failure(graphs, kind, config=None, **options):
    """Run a single node that fails and give its error."""
    report = await graphs.graph({"n": (kind, config or {})}, **options)
    assert report.status == "failed"
    return report.error["failed"][0]["error"]


async def test_chat_input_takes_the_runs_text_and_chat_output_streams_the_reply(graphs):
    report = await graphs.graph(
        {"in": "chat/input", "out": "chat/output"}, "in.context>out.context", value="héllo"
    )  # fmt: skip
    assert report.output["reply"] == "héllo"
    assert [e.data["text"] for e in graphs.events if e.type == "output.chunk"] == ["héllo"]
    said = json.dumps({"text": "look", "images": ["artifact://x"]})
    outputs = await one(graphs, "chat/input", value=said)
    assert outputs["user_message"] == "look"
    assert json.loads(outputs["attachments_json"]) == [{"kind": "images", "reference": "artifact://x"}]
    assert (await one(graphs, "chat/input", value="{not json"))["user_message"] == "{not json"
    assert (await failure(graphs, "chat/input"))["code"] == "MISSING_REQUIRED_INPUT"


async def test_input_text_takes_the_runs_input_where_nothing_is_configured(graphs):
    assert (await one(graphs, "io/input_text", value="from run"))["text"] == "from run"
    assert (await one(graphs, "io/input_text", {"text": "own"}, value="from run"))["text"] == "own"
    outputs = await one(graphs, "io/input_text", value={"a": [1]})
    assert outputs["json_value"] == {"a": [1]}
    assert (await one(graphs, "io/input_text", {"text": ""}))["length"] == 0


@pytest.mark.parametrize(
    ("port", "value", "expected"),
    [
        ("text", "12", {"integer": 12, "number": 12, "boolean": True, "array": [12], "json": 12, "text": "12"}),
        ("text", '{"a": 1}', {"json": {"a": 1}, "array": [{"a": 1}]}), ("integer", 0, {"boolean": False, "text": "0"}),
        ("boolean", True, {"integer": 1, "text": "true"}), ("array", [], {"array": [], "boolean": False, "text": "[]"}),
        ("json", {"a": 1}, {"text": '{"a": 1}', "agent_context": {"a": 1}}), ("number", 2.5, {"integer": None}),
        ("text", "no", {"boolean": False, "integer": None}), ("json", None, {"json": None, "text": None}),
    ],
)  # fmt: skip
async def test_type_cast_gives_every_form_a_value_has(graphs, port, value, expected):
    report = await graphs.graph({"p": PASS, "n": "utils/type_cast"}, f"p.out>n.{port}", nodes={"p": {"value": value}})
    outputs = report.output["outputs"]["n"]
    assert outputs["source_type"] == port
    for name, form in expected.items():
        assert outputs.get(name) == form, name
        assert (name in outputs) == (form is not None or name == "json"), name


@pytest.mark.parametrize(
    ("config", "items"),
    [
        ({"input": "a\r\nb\n\nc"}, ["a", "b", "c"]), ({"input": "[1, 2]"}, [1, 2]), ({"input": [0, None]}, [0, None]),
        ({"input": "a; b", "mode": "delimiter", "splitBy": ";"}, ["a", "b"]),
        ({"input": "abcde", "mode": "size", "chunkSize": 2}, ["ab", "cd", "e"]),
        ({"mode": "range", "rangeStart": 1, "rangeEnd": 4}, [1, 2, 3]), ({"input": "a\nb", "maxItems": 1}, ["a"]),
        ({"input": {"k": 1}}, [{"key": "k", "value": 1}]),
    ],
)  # fmt: skip
async def test_to_items_splits_in_every_mode(graphs, config, items):
    outputs = await one(graphs, "utils/to_items", config)
    assert (outputs["items"], outputs["count"]) == (items, len(items))


async def test_variables_are_filled_from_wired_values_and_missing_ones_are_named(graphs):
    report = await graphs.graph(
        {"p": PASS, "n": ("utils/smart_var", {"template": "{{user.name}} is {{ age }}, {{gone}}, {{input_1}}"})},
        "p.out>n.input_0", "p.out>n.input_1", nodes={"p": {"value": 'user: {"name": "Ada"}\nage: 36'}},
    )  # fmt: skip
    outputs = report.output["outputs"]["n"]
    assert outputs["full_text"].startswith("Ada is 36, {{gone}}, ")
    assert outputs["statistics"]["missing"] == ["gone"]


async def test_preview_shows_pages_and_keeps_the_value(graphs):
    outputs = await one(graphs, "utils/preview", {"data": "x" * 25, "pageLength": 10, "currentPage": 3})
    assert (outputs["preview_content"], outputs["pagination"]["pages"]) == ("xxxxx", 3)
    assert (await one(graphs, "utils/preview", {"data": 0}))["preview_content"] == "0"


async def test_delay_waits_and_hands_on_and_knows_its_kinds(graphs):
    report = await graphs.graph(
        {"p": PASS, "n": ("utils/delay", {"delay_value": 5, "delay_unit": "ms"})}, "p.out>n.passthrough",
        nodes={"p": {"value": None}},
    )  # fmt: skip
    assert report.output["outputs"]["n"]["passthrough"] is None
    assert report.output["outputs"]["n"]["actual_delay_ms"] == 5
    past = {"delay_type": "until timestamp", "target_timestamp": "2001-01-01T00:00:00Z"}
    assert (await one(graphs, "utils/delay", past))["actual_delay_ms"] == 0
    for wrong in ({"delay_type": "sometimes"}, {"delay_unit": "moons"}, {"delay_value": 1e12},
                  {"delay_type": "until time of day", "time_of_day": "25:00"}):  # fmt: skip
        assert (await failure(graphs, "utils/delay", wrong))["code"] == "invalid_argument"


@pytest.mark.parametrize(
    ("slots", "more", "fired"),
    [
        ({"branch_0": "ok", "branch_1": "bad", "branch_2": ""}, {}, {"branch_0"}),
        ({"branch_0": '{"field_name": "n", "operator": "greater_than", "match_value": 2}', "branch_3": "ok"}, {},
         {"branch_0", "branch_3"}),
        ({"branch_0": "ok", "branch_3": "n"}, {"match_policy": "first"}, {"branch_0"}),
        ({"branch_0": "gone"}, {}, {"fallback_out"}), ({"branch_0": "gone"}, {"fallback_mode": "none"}, set()),
        ({"branch_1": "gone"}, {"fallback_mode": "output0"}, {"branch_0"}),
        ({"branch_0": '{"field_name": "tags", "operator": "contains", "match_value": "x"}'}, {}, {"branch_0"}),
        ({"branch_0": '{"field_name": "n", "operator": "equals", "match_value": "3"}'}, {}, {"branch_0"}),
    ],
)  # fmt: skip
async def test_a_router_fires_what_its_conditions_say(graphs, slots, more, fired):
    reply = '```json\n{"ok": true, "bad": false, "n": 3, "tags": ["x"]}\n```'
    outputs = await one(graphs, "utils/condition_router", slots | more | {"response": reply})
    assert set(outputs) - {"context_out"} == fired


async def test_a_branch_on_a_reply_fires_every_match(graphs):
    outputs = await one(graphs, "ai/llm_branch", {"response": '{"a": 1, "b": true}', "branch_0": "a", "branch_2": "b"})
    assert {"branch_0", "branch_2"} == set(outputs) - {"context_out"}
    error = await failure(graphs, "ai/llm_branch", {"response": "hi", "branch_0": "a", "strict_mode": True})
    assert error["code"] == "invalid_argument"


def test_conditions_and_paths_treat_missing_and_falsy_values_apart():
    data = {"a": {"b": [0, {"c": None}]}, "x.y": 1, "t": True}
    assert at_path(data, "a.b[1].c") is None
    assert at_path(data, "a.b.1.c") is None
    assert at_path(data, "a.b.2") is MISSING
    assert at_path(data, "x.y") == 1
    assert matches(0, "exists", None)
    assert not matches(MISSING, "exists", None)
    assert not matches(0, "truthy", None)
    assert matches(MISSING, "not_equals", 1)
    assert not matches(True, "equals", 1)
    assert matches(1, "equals", "1")
    assert not matches(1, "equals", "true")
    assert not matches("a", "greater_than", 1)


async def test_contexts_are_merged_in_the_order_of_the_ports(graphs):
    nodes = {name: ("io/input_text", {"text": name}) for name in ("one", "two", "three", "four")}
    report = await graphs.graph(
        nodes | {"m": ("ai/context_merge", {"system_message": "S"})}, "three.context>m.input_5",
        "one.context>m.input1", "two.context>m.input2", "four.context>m.input_7",
    )  # fmt: skip
    contents = [part["content"] for part in report.output["outputs"]["m"]["context"]["messages"]]
    assert contents == ["S", "one", "two", "three", "four"]


async def test_kv_and_knowledge_nodes_reach_the_projects_storage(graphs):
    await one(graphs, "storage/kv", {"action": "set", "key": "a/1", "value": {"n": 0}})
    assert (await one(graphs, "storage/kv", {"key": "a/1"}))["value"] == {"n": 0}
    assert await one(graphs, "storage/kv", {"key": "gone", "default": 7}) == {"value": 7, "found": False}
    assert (await one(graphs, "storage/kv", {"action": "increment", "key": "n"}))["value"] == 1
    assert (await one(graphs, "storage/kv", {"action": "list", "prefix": "a/"}))["items"] == [
        {"key": "a/1", "value": {"n": 0}}
    ]  # fmt: skip
    assert (await failure(graphs, "storage/kv", {"action": "set"}))["code"] == "invalid_argument"
    made = await one(graphs, "storage/knowledge", {"action": "create", "title": "T", "markdown": "alpha\nbeta"})
    document = {"document_id": made["result"]["id"]}
    assert (await one(graphs, "storage/knowledge", {"query": "beta"}))["items"][0]["line"] == 2
    assert (await one(graphs, "storage/knowledge", {"action": "get", **document}))["result"][
        "markdown"
    ] == "alpha\nbeta"
    assert (await one(graphs, "storage/knowledge", {"action": "delete", **document}))["found"]
    assert not (await one(graphs, "storage/knowledge", {"action": "get", **document}))["found"]


def test_chunks_put_together_are_the_text():
    text = "Eins zwei. Drei vier fünf.\n\nAbsatz zwei。第三句。" * 40
    found = chunks(text, 50)
    assert "".join(part for _, part in found) == text
    assert all(len(part) <= 50 and text[start : start + len(part)] == part for start, part in found)


async def test_chunker_and_formatter_work_on_text_and_on_artifacts(graphs):
    outputs = await one(graphs, "rag/chunker", {"content": "word " * 500, "parent_chunk_chars": 500})
    assert outputs["parent_count"] == len(outputs["parent_chunks"])
    assert "".join(part["text"] for part in outputs["child_chunks"]) == "word " * 500
    outputs = await one(graphs, "rag/formatter", {
        "query": "Q {{documents}}", "documents": [{"text": "says {{query}}", "source": "s"}],
        "custom_template": "<{{documents}}|{{query}}>",
    })  # fmt: skip
    assert outputs["prompt"] == "<[1] s\nsays {{query}}|Q {{documents}}>"


async def test_a_subflow_runs_inside_the_run_and_gives_its_answer(graphs):
    save(graphs.folder, "child", {"t": "io/input_text", "c": "utils/type_cast"}, "t.text>c.text")
    report = await graphs.graph({
        "s": ("tools/subflow", {"workflow_path": "child", "input_data": "41", "response_path": "c.integer"})
    })  # fmt: skip
    assert report.output["outputs"]["s"]["response"] == 41
    inner = [e.data["node"] for e in graphs.events if e.type == "node.completed"]
    assert inner == [f"{node_id('s')}/{node_id('t')}", f"{node_id('s')}/{node_id('c')}", node_id("s")]
    for reference in (node_id("workflow child"), "workflows/child/workflow.json", "./workflows/child"):
        report = await graphs.graph({"s": ("tools/subflow", {"workflow_path": reference, "input_data": "1"})})
        assert report.status == "completed", report.error


async def test_a_subflow_that_fails_fails_its_node_and_one_that_calls_itself_is_refused(graphs):
    save(graphs.folder, "child", {"b": "t/bad"})
    report = await graphs.graph({"s": ("tools/subflow", {"workflow_path": "child"})})
    assert report.error["failed"][0]["error"]["code"] == "graph_failed"
    report = await graphs.graph({"s": ("tools/subflow", {"workflow_path": "made"})})
    assert report.error["failed"][0]["error"]["code"] == "subflow_nesting"
    report = await graphs.graph({"s": ("tools/subflow", {"workflow_path": "chidl"})})
    assert report.error["failed"][0]["error"]["hint"] == "did you mean child?"
    save(graphs.folder, "slow", {"s": ("t/slow", {"seconds": 30})})
    report = await graphs.graph({"s": ("tools/subflow", {"workflow_path": "slow", "timeout_seconds": 0.05})})
    assert report.error["failed"][0]["error"]["code"] == "node_timeout"


async def test_a_batch_keeps_the_order_of_its_items_and_counts_failures(graphs):
    save(graphs.folder, "child", {"t": "io/input_text", "c": "t/need"}, "t.text>c.text", "t.json_value>c.number")
    report = await graphs.graph({
        "s": ("tools/batch_subflow", {"workflow_path": "child", "items": ["b", "a", {"x": 1}], "response_path": "c.out"})
    })  # fmt: skip
    outputs = report.output["outputs"]["s"]
    assert outputs["status"] == "partial_failed"
    assert outputs["responses"] == ["b1", "a1", None]
    assert (outputs["succeeded"], outputs["failed"], outputs["total"]) == (2, 1, 3)
