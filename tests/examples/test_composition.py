"""The `composition` example through the real program."""

import json

from tests.examples.test_examples import EXAMPLES, report, stepwell

PROJECT = EXAMPLES / "composition"
TALK = ("--conversation-id", "c1")


def entries(*options: str) -> dict:
    listed = json.loads(stepwell("kv", "list", "--json", "--project", PROJECT, *options).stdout)["items"]
    return {entry["key"]: entry["value"] for entry in listed if not entry["key"].startswith("tokenUsage")}


def test_a_letter_is_made_by_workflows_in_every_mode():
    first = report(PROJECT, *TALK, "--", "--message", "Thank Ada")
    text = "Here is a greeting. Here is thank ada. Here is a farewell."
    assert first["output"] == {
        "text": text, "points": ["a greeting", "thank ada", "a farewell"], "verdict": "approved", "plans": 1, "heard": ["1"]
    }  # fmt: skip
    assert (first["tokens"]["total"], first["tokens"]["calls"]) == (36, 2)
    shown = stepwell("run", PROJECT, *TALK, "--", "--message", "Again").stdout
    assert shown == "Here is a greeting. Here is again. Here is a farewell. \n"
    assert entries() == {"plans": "the parent's own"}
    messages = json.loads(stepwell("conversations", "show", "c1", "--json", "--project", PROJECT).stdout)["messages"]
    assert [message["content"] for message in messages][:2] == ["Thank Ada", text]
    assert len(messages) == 4
    listed = json.loads(stepwell("usage", "--json", "--project", PROJECT).stdout)
    assert listed["tokens"]["total"] == 72


def test_the_events_are_those_of_one_run():
    made = report(PROJECT, *TALK, "--", "--message", "Thank Ada")
    events = json.loads(stepwell("runs", "events", made["run_id"], "--json", "--project", PROJECT).stdout)["items"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    children = [event for event in events if event["type"] == "node.started" and event["kind"] == "workflow"]
    assert [(event["node"], event["title"]) for event in children] == [
        ("run-workflow", "Plan the letter"), ("run-workflow#2", "draft"), ("run-workflow#2/run-workflow", "plan"),
        ("run-workflow#3", "review"),
    ]  # fmt: skip
    assert [event["name"] for event in events if event["type"] == "output.started"] == ["letter"]
    assert [event["name"] for event in events if event["type"] == "output.hidden"] == ["draft"]


def test_each_workflow_runs_by_itself():
    shown = stepwell("run", PROJECT, "-e", "draft", "--", "--message", "Only this").stdout
    assert shown == "Here is a greeting. Here is only this. Here is a farewell. \n"


def test_the_keys_of_an_isolated_workflow_can_be_looked_at():
    report(PROJECT, *TALK, "--", "--message", "Thank Ada")
    assert entries("--workflow", "plan") == {"plans": 2}
    assert entries("--workflow", "plan", *TALK) == entries("--workflow", "other") == {}
    stepwell("kv", "list", "--workflow", "plan", "--domain", "persistent_value", "--project", PROJECT, code=2)
