"""No input of a core node is accepted and ignored: it does something, or who sets it is told."""

import ast
import base64
import inspect
import json
import sys

import pytest

from stepwell.graph.entrypoint import graph_entrypoint
from stepwell.graph.nodes import CORE_TYPES
from stepwell.graph.ports import MISSING
from stepwell.graph.registry import Registry
from stepwell.graph.scheduling import start_of
from stepwell.graph.validation import validate_graph
from tests.graph.conftest import graph_of, save
from tests.graph.test_nodes_agents import MODEL, use
from tests.graph.test_nodes_data import failure, one
from tests.scripted_model_server import ScriptedServer

TYPES = Registry(CORE_TYPES)
PASSED_ON = {
    # These hand all their inputs to something that checks each of them.
    "tools/workflow_inspect", "tools/import_workflow", "tools/get_execution_trace", "tools/read_artifact",
    "tools/file_ops_hub",
}  # fmt: skip
IDLE = [(made.name, port.name) for made in TYPES.all() for port in made.inputs.values() if port.without_effect]
PICTURE = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 20).decode()


def names_in_code(implementation):
    """Every name and text that a node type's module uses, without the other node types in it and all declarations."""
    names = set()
    for part in ast.parse(inspect.getsource(sys.modules[implementation.__module__])).body:
        if isinstance(part, ast.ClassDef) and part.decorator_list and part.name != implementation.__name__:
            continue
        for node in ast.walk(part):
            if isinstance(node, ast.Attribute) and isinstance(node.value, (ast.Name, ast.Attribute)):
                if getattr(node.value, "id", getattr(node.value, "attr", "")) in ("inputs", "_inputs", "ctx"):
                    names.add(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                names.add(node.value)
            elif isinstance(node, ast.ImportFrom):
                names |= {found for alias in node.names for found in constants(node.module, alias.name)}
    return names


def constants(module, name):
    value = getattr(sys.modules.get(module or ""), name, None)
    return value if isinstance(value, tuple) and all(isinstance(item, str) for item in value) else ()


@pytest.mark.parametrize("name", [name for name in TYPES.names() if name not in PASSED_ON])
def test_every_input_is_read_or_marked_as_without_effect(name):
    made = TYPES.get(name)
    used = names_in_code(made.implementation)
    assert [port.name for port in made.inputs.values() if port.name not in used and not port.without_effect] == []


def warnings_of(config, name):
    report = validate_graph(graph_of({"n": (name, config)}), TYPES)
    return [finding.path for finding in report.warnings if finding.code == "INPUT_WITHOUT_EFFECT"]


@pytest.mark.parametrize(("name", "field"), IDLE)
def test_who_sets_an_input_without_effect_is_told(name, field):
    port = TYPES.get(name).input_port(field)
    others = {
        "string": "other", "boolean": port.default is False, "integer": 7, "array": ["x"], "object": {"x": 1},
    }  # fmt: skip
    other = next(value for value in (*port.enum, others[port.type]) if value != port.default)
    assert warnings_of({field: other}, name) == [f"nodes[0].config.{field}"]
    assert warnings_of({field: None if port.default is MISSING else port.default}, name) == []


def put(graphs, content, name):
    return graphs.host.files.put_bytes(content, name=name).reference


def logged(graphs):
    return [event.data["message"] for event in graphs.events if event.type == "log"]


async def test_files_of_a_message_go_to_the_model_and_what_cannot_be_attached_is_told(graphs):
    picture, large = put(graphs, base64.b64decode(PICTURE), "a.png"), put(graphs, b"x" * 1_100_000, "large.txt")
    said = json.dumps({"text": "look", "images": [picture, "artifact://x"], "files": [{"reference": large}]})
    with ScriptedServer([{"text": "ok"}]) as server:
        use(graphs, server)
        nodes = {"in": ("chat/input", {"max_file_size_mb": 1, "enable_ocr": True}), "m": MODEL, "llm": "ai/llm"}
        edges = ("in.context>llm.context", "m.llm_config>llm.llm_config", "in.user_message_rich>llm.user_message_rich")
        report = await graphs.graph(nodes, *edges, value=said)
    assert report.status == "completed", report.error
    (sent,) = server.requests[0]["body"]["messages"]
    assert json.dumps(sent).count(PICTURE) == 1
    assert "look" in json.dumps(sent)
    told = logged(graphs)
    assert [text for text in told if "large.txt is over 1 MB" in text]
    assert [text for text in told if "artifact://x" in text]
    assert [text for text in told if "no text is read from pictures" in text]


async def test_what_a_conversation_sends_is_the_input_of_a_graph(graphs):
    point = graph_entrypoint("made")
    assert point.input_from(["--message=hi"], None).input == "hi"
    sent = point.input_from(
        ['--message={"text": "x"}', "--images=artifact://a", "--files=artifact://b", "--videos=artifact://c"], None
    )
    assert sent.input == {
        "text": '{"text": "x"}', "images": ["artifact://a"], "files": ["artifact://b"], "videos": ["artifact://c"]
    }  # fmt: skip
    outputs = await one(graphs, "chat/input", value=sent.input)
    assert outputs["user_message"] == '{"text": "x"}'
    assert [part["kind"] for part in json.loads(outputs["attachments_json"])] == ["images", "files", "videos"]
    assert point.input_from(["--input=x"], None).input == "x"
    assert point.input_from(['--message={"text": 1}'], None).input == {"text": '{"text": 1}'}
    assert point.input_from(['--message={"rows": [1]}'], None).input == '{"rows": [1]}'


async def test_chat_input_says_what_became_of_its_files(graphs):
    outputs = await one(
        graphs, "chat/input", {"enable_ocr": True}, value=json.dumps({"text": "look", "files": ["artifact://x"]})
    )
    assert outputs["stats"]["ocr_status"] == "unavailable"
    assert len(outputs["stats"]["problems"]) == 1
    assert "ocr_status" not in (await one(graphs, "chat/input", value="hi"))["stats"]


async def test_a_picture_as_base64_goes_to_the_model(graphs):
    with ScriptedServer([{"text": "ok"}]) as server:
        use(graphs, server)
        nodes = {
            "m": MODEL,
            "llm": ("ai/llm", {"user_message": "look", "image_base64": f"data:image/png;base64,{PICTURE}"}),
        }
        await graphs.graph(nodes, "m.llm_config>llm.llm_config")
        assert json.dumps(server.requests[0]["body"]).count(PICTURE) == 1
        for wrong, why in (("!", "not base64"), (base64.b64encode(b"text").decode(), "no PNG")):
            nodes["llm"] = ("ai/llm", {"user_message": "look", "image_base64": wrong})
            report = await graphs.graph(nodes, "m.llm_config>llm.llm_config")
            assert why in report.error["message"]


async def test_uploads_say_that_there_is_no_ocr_and_no_parser(graphs):
    listed = json.dumps([put(graphs, b"%PDF-1.7 \xff\xfe", "a.pdf"), put(graphs, b"text", "a.md")])
    outputs = await one(graphs, "io/file_upload", {"files_json": listed})
    assert (outputs["errors"], outputs["llm_text"], outputs["document_text"]) == ([], "text", "text")
    outputs = await one(graphs, "io/file_upload", {"files_json": listed, "enable_ocr": True, "parse_documents": True})
    assert outputs["ocr_status"] == "unavailable"
    assert [error.partition(":")[0] for error in outputs["errors"]] == ["a.pdf", "enable_ocr"]
    assert outputs["file_count"] == 2


async def test_a_script_reads_the_paths_that_the_workflow_names(graphs):
    (graphs.folder / "a.txt").write_text("here")
    (graphs.folder / "b.txt").write_text("not here")
    script = "result = open(read_paths[0]).read()"
    config = {"script": script, "request_read_paths": ["a.txt"]}
    assert (await one(graphs, "tools/code_python", config))["result"] == "here"
    config["script"] = "open(read_paths[0].replace('a.txt', 'b.txt')).read()"
    assert "not allowed" in (await failure(graphs, "tools/code_python", config))["message"]


async def test_a_preview_leaves_out_its_statistics(graphs):
    assert "statistics" in await one(graphs, "utils/preview", {"data": 1})
    assert "statistics" not in await one(graphs, "utils/preview", {"data": 1, "showStats": False})


async def test_a_provider_that_is_silent_for_too_long_is_given_up(graphs):
    with ScriptedServer([{"text": "late", "delay": 3}]) as server:
        use(graphs, server)
        main = graphs.project.manifest.providers["main"] | {"max-retries": 0}
        graphs.project = graphs.project._replace(manifest=graphs.project.manifest._replace(providers={"main": main}))
        nodes = {
            "m": ("ai/llm_config", {"model": "main", "timeout_secs": 0.2}),
            "llm": ("ai/llm", {"user_message": "x"}),
        }
        report = await graphs.graph(nodes, "m.llm_config>llm.llm_config")
    assert report.error["failed"][0]["error"]["code"] == "model_unavailable"
    assert report.duration_ms < 2_500


async def test_what_a_file_operation_does_not_take_is_told(graphs):
    (graphs.folder / "a.txt").write_text("text")
    config = {"operation": "read_content", "path": "a.txt", "config": {"offset": 5, "limit": None}}
    outputs = await one(graphs, "tools/file_ops_hub", config)
    assert outputs["result"]["content"] == "text"
    assert outputs["suggested_action"] == "offset in config changed nothing: read_content takes nothing"
    outputs = await one(graphs, "tools/file_ops_hub", {"path": ".", "config": {"limit": 1, "allow_ignored": None}})
    assert "suggested_action" not in outputs
    assert warnings_of({"config": {"allow_ignored": False}}, "tools/file_ops_hub") == ["nodes[0].config.config"]
    assert warnings_of({"config": {"allow_ignored": True}}, "tools/file_ops_hub") == []


async def test_a_scheduled_task_gives_its_params_to_the_node_it_names(graphs):
    save(graphs.folder, "later", {"in": "io/input_text", "other": ("t/pass", {"value": 1})})
    task = {"action": "create_task", "workflow_id": "later", "run_at": "1s", "task_text": "hi"}
    made = await one(graphs, "tools/schedule", task | {"params": {"value": 2}, "target_node_id": "other"})
    start = start_of(made["data"])
    report = await graphs.run("later", start["input"], nodes=start["nodes"])
    assert report.output["outputs"]["other"] == {"out": 2}
    assert report.output["outputs"]["in"]["text"] == "hi"
    assert "both" in (await failure(graphs, "tools/schedule", task | {"params": {"a": 1}}))["message"]
    assert "params" in (await failure(graphs, "tools/schedule", task | {"target_node_id": "other"}))["message"]
    update = {"action": "update_task", "id": made["data"]["id"], "params": {}}
    assert "params" in (await failure(graphs, "tools/schedule", update))["message"]
