"""What each input of an agent node does, and that validation tells of those that do nothing."""

import json

import pytest

from stepwell.graph.registry import Registry
from stepwell.graph.validation import validate_graph
from tests.graph.conftest import graph_of
from tests.graph.test_nodes_agents import MODEL, use
from tests.scripted_model_server import ScriptedServer

CALL = {"tool_calls": [{"name": "wait", "arguments": {}}]}
EDGES = ("m.llm_config>agent.llm_config", "wait.info>agent.tool_0")


async def work(graphs, script, config, *, edges=EDGES, **nodes):
    """Run an agent with a tool called wait; its outputs, and the bodies of the requests to the model."""
    with ScriptedServer(script) as server:
        use(graphs, server)
        report = await graphs.graph(
            {"m": MODEL, "agent": ("agent/react_agent", {"task": "count"} | config), "wait": "utils/delay", **nodes},
            *edges,
        )
    assert report.status == "completed", report.error
    return report.output["outputs"]["agent"], [request["body"] for request in server.requests]


def told(body):
    return [str(message["content"]) for message in body["messages"]]


def verdict(approved, remark=""):
    return {"text": json.dumps({"approved": approved, "remark": remark}), "when": "You review"}


async def test_a_reviewers_remark_goes_back_to_the_agent_until_it_accepts(graphs):
    script = [
        {"text": '{"approved": true}', "when": '\\"answer\\": \\"7\\"'}, verdict(False, "count again"),
        {"text": "6"}, {"text": "7"},
    ]  # fmt: skip
    outputs, bodies = await work(graphs, script, {"use_llm_evaluation": True})
    assert (outputs["final_answer"], outputs["success"], outputs["requires_review"]) == ("7", True, False)
    assert outputs["trace"].splitlines() == ["review not accepted: count again", "review accepted"]
    assert "count again" in told(bodies[2])[-1]
    assert outputs["iterations_used"] == 2


@pytest.mark.parametrize(("rounds", "asked"), [(0, 1), (2, 3)])
async def test_an_answer_that_the_reviewer_never_accepts_requires_review(graphs, rounds, asked):
    config = {"use_llm_evaluation": True, "max_review_rounds": rounds, "reviewer_prompt": "Judge the sum."}
    script = [{"text": '{"approved": false, "remark": "no"}', "when": "Judge the sum."}, {"text": "6"}]
    outputs, bodies = await work(graphs, script, config)
    assert (outputs["final_answer"], outputs["success"], outputs["status"]) == ("6", False, "requires_review")
    assert outputs["requires_review"] is True
    assert sum("Judge the sum." in json.dumps(body) for body in bodies) == asked
    assert len(bodies) == 2 * asked


async def test_a_reviewer_has_a_model_of_its_own_and_one_that_says_nothing_clear_has_not_accepted(graphs):
    nodes = {"judge": ("ai/llm_config", {"model": "main", "temperature": 0.125})}
    script = [{"text": "well", "when": "You review"}, {"text": "6"}]
    outputs, bodies = await work(
        graphs, script, {"use_llm_evaluation": True, "max_review_rounds": 0},
        edges=(*EDGES, "judge.llm_config>agent.reviewer_llm_config"), **nodes,
    )  # fmt: skip
    assert outputs["requires_review"] is True
    assert [body.get("temperature") for body in bodies] == [None, 0.125, 0.125]  # asked once more for what fits
    assert any("gave no verdict" in event.data["message"] for event in graphs.events if event.type == "log")


async def test_a_short_task_pauses_after_its_chunk_and_another_agent_goes_on_from_there(graphs):
    script = [CALL, CALL, {"text": "done"}]
    outputs, _ = await work(graphs, script, {"task_run_mode": "short", "short_task_budget_chunk": 2})
    assert (outputs["status"], outputs["pause_reason"], outputs["success"]) == ("paused", "short_task_budget", False)
    assert outputs["continuation_policy"]["iterations_used"] == outputs["iterations_used"] == 2
    assert "2 tool calls" in outputs["interim_report"]
    with ScriptedServer([CALL, {"text": "done"}]) as server:
        use(graphs, server)
        first = {"task": "count", "task_run_mode": "short", "short_task_budget_chunk": 1}
        report = await graphs.graph(
            {"m": MODEL, "agent": ("agent/react_agent", first), "next": "agent/react_agent", "wait": "utils/delay"},
            *EDGES, "m.llm_config>next.llm_config", "agent.context>next.context",
        )  # fmt: skip
    assert report.output["outputs"]["next"]["final_answer"] == "done"
    assert [message["role"] for message in server.requests[1]["body"]["messages"]] == ["user", "assistant", "tool"]


async def test_a_long_task_is_told_how_far_it_is_and_pauses_after_its_checkpoints(graphs):
    config = {"task_run_mode": "long", "short_task_budget_chunk": 2, "max_checkpoints": 2, "max_iterations": 50}
    outputs, bodies = await work(graphs, [CALL], config)
    assert (outputs["pause_reason"], outputs["iterations_used"]) == ("max_checkpoints", 6)
    assert outputs["continuation_policy"]["checkpoints"] == 2
    marks = [text for text in told(bodies[-1]) if text.startswith("Checkpoint")]
    assert [mark[:12] for mark in marks] == ["Checkpoint 1", "Checkpoint 2"]
    assert "4 of 50 turns" in marks[1]
    assert [event.data["done"] for event in graphs.events if event.type == "progress"] == [2, 4]


async def test_an_agent_is_reminded_of_its_task(graphs):
    script = [CALL, CALL, CALL, {"text": "done"}]
    _, bodies = await work(graphs, script, {"reminder_policy": {"every_iterations": 2, "message": "keep on"}})
    assert [told(body).count("keep on") for body in bodies] == [0, 0, 1, 1]
    _, bodies = await work(graphs, script, {"reminder_policy": {"every_iterations": 1}})
    assert told(bodies[1])[-1] == "Remember your task: count"


async def test_only_so_many_calls_of_a_turn_are_made_and_the_model_is_told(graphs):
    twice = {"tool_calls": [{"name": "wait", "arguments": {}}, {"name": "wait", "arguments": {"delay_value": 1}}]}
    _, bodies = await work(graphs, [twice, {"text": "done"}], {"max_tool_calls_per_turn": 1})
    results = [message for message in bodies[1]["messages"] if message["role"] == "tool"]
    assert len(results) == 2
    assert "at most 1 calls" in results[1]["content"]
    assert sum(event.type == "tool.completed" for event in graphs.events) == 1
    await work(graphs, [twice, {"text": "done"}], {"max_tool_calls_per_turn": 0})
    assert sum(event.type == "tool.completed" for event in graphs.events) == 2


async def test_a_model_without_function_calling_calls_tools_in_words(graphs):
    call = json.dumps({"tool_calls": [{"name": "wait", "arguments": {"delay_value": 0}}, {"name": "no"}]})
    script = [{"text": f"```json\n{call}\n```"}, {"text": "done: {last}"}]
    outputs, bodies = await work(graphs, script, {"use_function_calling": False})
    assert all("tools" not in body for body in bodies)
    assert "- wait: " in told(bodies[0])[0]
    assert outputs["final_answer"].startswith("done: Results of the calls:\nwait: {")
    assert "no failed: There is no tool" in outputs["final_answer"]
    assert outputs["context"]["messages"][0] == {"role": "user", "content": "count"}
    assert sum(event.type == "tool.completed" for event in graphs.events) == 2


async def test_a_task_that_took_tools_leaves_a_summary_for_the_next_time(graphs):
    script = [CALL, CALL, {"text": "done"}]
    outputs, _ = await work(graphs, script, {"min_tool_calls_for_skill": 2})
    summary = outputs["skill_summary"]["messages"][0]["content"]
    assert "Task: count" in summary
    assert summary.count("wait {}") == 2
    outputs, _ = await work(graphs, script, {})  # it takes three by default
    assert "skill_summary" not in outputs


async def test_a_task_and_a_user_message_both_count(graphs):
    _, bodies = await work(graphs, [{"text": "done"}], {"user_message": "the sheep"})
    assert told(bodies[0]) == ["count\n\nthe sheep"]


def warned(types: Registry, config, *edges):
    graph = graph_of(
        {"m": MODEL, "agent": ("agent/react_agent", {"task": "x"} | config), "wait": "utils/delay", "t": "t/pass"},
        *EDGES, *edges,
    )  # fmt: skip
    report = validate_graph(graph, types)
    assert report.valid, report.errors
    return [finding.path for finding in report.warnings if finding.code == "INPUT_WITHOUT_EFFECT"]


def test_inputs_that_change_nothing_are_warned_of(types: Registry):
    assert warned(types, {"execution_mode": "light", "max_checkpoints": 3, "reviewer_prompt": None}) == []
    assert warned(types, {"execution_mode": "deep"}) == ["nodes[1].config.execution_mode"]
    assert warned(types, {}, "t.out>agent.long_task_safety_policy") == ["edges[2].targetPort"]
    assert warned(types, {"reviewer_prompt": "x"}) == ["nodes[1].config.reviewer_prompt"]
    assert warned(types, {"reviewer_prompt": "x", "use_llm_evaluation": True}) == []
    assert warned(types, {"reviewer_prompt": "x"}, "t.out>agent.use_llm_evaluation") == []
    assert warned(types, {"short_task_budget_chunk": 5}) == ["nodes[1].config.short_task_budget_chunk"]
    assert warned(types, {"short_task_budget_chunk": 5, "task_run_mode": "short"}) == []
    assert warned(types, {"max_checkpoints": 1, "task_run_mode": "short"}) == ["nodes[1].config.max_checkpoints"]
    assert warned(types, {"reminder_policy": {"every": 3}}) == ["nodes[1].config.reminder_policy"]
    assert warned(types, {"tools": ["search"]}) == ["nodes[1].config.tools"]
