"""The graph examples, through the real program."""

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

from tests.examples.test_examples import EXAMPLES, stepwell
from tests.scripted_model_server import ScriptedServer


def test_graph_etl_converts_each_line_and_stores_the_result(tmp_path):
    project = tmp_path / "graph-etl"
    shutil.copytree(EXAMPLES / "graph-etl", project)
    run = ["workflows", "run", "etl", "apples: 3\npears: 4", "--json", "--project", project]
    report = json.loads(stepwell(*run).stdout)
    assert report["status"] == "completed"
    assert json.loads(stepwell("kv", "get", "etl/latest", "--project", project).stdout) == [{"apples": 3}, {"pears": 4}]
    assert stepwell("run", project, "--json", "--", "--input", "plums: 5").stdout
    assert json.loads(stepwell("kv", "get", "etl/latest", "--project", project).stdout) == [{"plums": 5}]
    listed = json.loads(stepwell("workflows", "executions", "etl", "--json", "--project", project).stdout)
    assert listed["total"] == 2
    trace = stepwell("workflows", "trace", report["run_id"], "--project", project).stdout
    assert "tools: Store ×1" in trace


def test_graph_chat_answers_offline_and_keeps_the_conversation(tmp_path):
    project = tmp_path / "graph-chat"
    shutil.copytree(EXAMPLES / "graph-chat", project)
    for message in ("remember milk", "what did I say?"):
        told = stepwell("run", project, "-q", "--conversation-id", "c", "--", message).stdout
        assert told.startswith("I am offline, but I looked into the notes.\nSet a real model")
    shown = stepwell("conversations", "show", "c", "--json", "--project", project).stdout
    assert [m["role"] for m in json.loads(shown)["messages"]] == ["user", "assistant"] * 2
    report = json.loads(stepwell("run", project, "--json", "--", "bye").stdout)
    assert report["tokens"]["calls"] == 2  # one that asks for the tool, one that answers
    trace = stepwell("workflows", "trace", "c:1", "--mode", "tool_calls", "--project", project).stdout
    assert "notes success" in trace


def test_graph_chat_is_talked_to_and_its_text_is_shown_while_it_comes(tmp_path):
    project = tmp_path / "graph-chat"
    shutil.copytree(EXAMPLES / "graph-chat", project)
    text = "The milk is on the list, and so are the eggs."
    with ScriptedServer([{"text": text, "pause": 0.3}]) as server:
        provider = {"TYPE": "openai-compatible", "MODEL": "scripted", "BASE_URL": f"{server.url}/v1"}
        environment = os.environ | {f"STEPWELL_PROVIDERS__MAIN__{name}": value for name, value in provider.items()}
        environment |= {"NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
        chat = subprocess.Popen(
            [sys.executable, "-m", "stepwell", "chat", "--project", project], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment,
        )  # fmt: skip
        with chat:
            chat.stdin.write(b'{"text": "braces"}\n')
            chat.stdin.close()
            first = os.read(chat.stdout.fileno(), 8)
            assert text.encode().startswith(first)
            assert chat.poll() is None  # the rest of it is still to come
            rest = chat.stdout.read().decode()
        assert chat.returncode == 0
    assert first.decode() + rest == f"{text}\n"  # once
    assert server.requests[0]["body"]["messages"][-1]["content"] == '{"text": "braces"}'


def test_workflows_are_shown_checked_and_drawn(tmp_path):
    project = EXAMPLES / "graph-chat"
    picture = ET.fromstring(stepwell("workflows", "show", "chat", "--svg", "--project", project).stdout)
    assert picture.tag.endswith("svg")
    texts = [element.text for element in picture.iter() if element.tag.endswith("text")]
    assert {"Answer", "ai/llm", "Reply"} <= set(texts)
    for name, key in (("graph-chat", "chat"), ("graph-etl", "etl"), ("graph-etl", "one-line")):
        told = stepwell("workflows", "validate", key, "--json", "--project", EXAMPLES / name).stdout
        assert json.loads(told)["data"] == {"valid": True, "errors": [], "warnings": []}, told


def test_drafts_that_cannot_run_are_listed_and_refused(tmp_path):
    project = tmp_path / "graph-etl"
    shutil.copytree(EXAMPLES / "graph-etl", project)
    path = project / "workflows/etl/workflow.json"
    path.write_text(path.read_text().replace("utils/preview", "utils/previw"))
    (project / "workflows/broken").mkdir()
    (project / "workflows/broken/workflow.json").write_text("{")
    items = json.loads(stepwell("workflows", "list", "--json", "--project", project).stdout)["items"]
    assert {item["workflow_key"]: item["state"] for item in items} == {
        "broken": "unreadable", "etl": "invalid draft", "one-line": "valid"
    }  # fmt: skip
    refused = stepwell("workflows", "run", "etl", "x", "--json", "--project", project, code=2)
    error = json.loads(refused.stderr)["error"]
    assert error["code"] == "workflow_invalid"
    assert error["validation"]["errors"][0]["candidates"][0] == "utils/preview"
    assert "utils/preview" in stepwell("workflows", "validate", "etl", "--project", project, code=2).stdout
    stepwell("workflows", "show", "gone", "--project", project, code=3)
    stepwell("workflows", "execution", "gone", "--project", project, code=3)
    assert json.loads(stepwell("runs", "list", "--json", "--project", project).stdout)["items"] == []


def test_files_are_imported_from_the_command_line(tmp_path):
    project = tmp_path / "graph-etl"
    shutil.copytree(EXAMPLES / "graph-etl", project)
    nodes = [{"key": "a", "nodeType": "io/input_text"}, {"key": "b", "nodeType": "utils/preview"}]
    edges = [{"sourceKey": "a", "sourcePort": "text", "targetKey": "b", "targetPort": "data"}]
    (tmp_path / "new.json").write_text(json.dumps({"name": "New", "nodes": nodes, "edges": edges}))
    arguments = ("workflows", "import", "new", tmp_path / "new.json", "--project", project)
    assert stepwell(*arguments).stdout == "created workflows/new/workflow.json\n"
    assert stepwell(*arguments).stdout == "unchanged workflows/new/workflow.json\n"
    report = json.loads(
        stepwell("workflows", "run", "new", "--set", "a.text=hi", "--json", "--project", project).stdout
    )
    assert report["output"]["outputs"]["b"]["preview_content"] == "hi"
    (tmp_path / "new.json").write_text(json.dumps({"name": "New", "nodes": nodes, "edges": [{"sourceKey": "x"}]}))
    refused = json.loads(stepwell(*arguments, "--json", code=2).stdout)
    assert refused["error_code"] == "MISSING_FIELDS"
    saved = stepwell("workflows", "snapshot", project, "--project", project).stdout.strip()
    read = [
        "workflows",
        "artifact",
        saved,
        "--snapshot-path",
        "pyproject.toml",
        "--max-lines",
        "2",
        "--project",
        project,
    ]
    assert stepwell(*read).stdout == '[project]\nname = "graph-etl"\n'
    stepwell("workflows", "artifact", "/etc/passwd", "--project", project, code=2)
