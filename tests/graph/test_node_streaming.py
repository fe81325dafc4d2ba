"""The text of models in a graph is shown while it comes, and once."""

from stepwell.cli.live import Live
from stepwell.cli.render import Output
from stepwell.runtime.events import Event
from tests.graph.test_nodes_agents import MODEL, use
from tests.scripted_model_server import ScriptedServer
from tests.unit.conftest import PROJECT_ID

LONG = "The sheep are all here, every one of them."
CHAT = ("in.context>llm.context", "m.llm_config>llm.llm_config")


def shown(events):
    return "".join(event.data["text"] for event in events if event.type == "output.chunk")


async def test_the_text_is_shown_while_the_model_writes_and_once(graphs):
    with ScriptedServer([{"text": LONG, "pause": 0.05, "usage": {"input": 11, "output": 5}}]) as server:
        use(graphs, server)
        nodes = {"in": "chat/input", "m": MODEL, "llm": "ai/llm", "out": "chat/output"}
        for port in ("context", "response"):
            report = await graphs.graph(nodes, *CHAT, f"llm.{port}>out.context", value="hi")
            assert report.output["reply"] == LONG
            chunks = [n for n, event in enumerate(graphs.events) if event.type == "output.chunk"]
            assert len(chunks) > 2
            ended = next(
                n for n, e in enumerate(graphs.events) if e.type == "node.completed" and "/chat" in e.data["node"]
            )
            assert chunks[1] < ended
            assert shown(graphs.events) == LONG
            assert (report.tokens["input"], report.tokens["calls"]) == (11, 1)
            assert sum(event.type == "token_usage.reported" for event in graphs.events) == 1
    assert all(request["body"]["stream"] for request in server.requests)


async def test_streaming_can_be_switched_off_and_json_is_not_shown(graphs):
    with ScriptedServer([{"text": LONG}]) as server:
        use(graphs, server)
        for config in ({"stream": False}, {"json_mode": True}):
            nodes = {"in": "chat/input", "m": ("ai/llm_config", {"model": "main"} | config), "llm": "ai/llm"}
            await graphs.graph(nodes, *CHAT, value="hi")
            assert shown(graphs.events) == ""
        agent = ("agent/react_agent", {"task": "x", "transparent_agent_streaming": False})
        await graphs.graph({"m": MODEL, "agent": agent, "out": "chat/output"}, "m.llm_config>agent.llm_config",
                           "agent.final_answer>out.context")  # fmt: skip
        assert shown(graphs.events) == LONG  # by chat/output
    assert not any(request["body"].get("stream") for request in server.requests)


async def test_an_agent_shows_its_text_and_what_is_put_behind_it_is_shown_alone(graphs):
    with ScriptedServer([{"text": LONG}]) as server:
        use(graphs, server)
        nodes = {
            "m": MODEL, "agent": ("agent/react_agent", {"task": "x"}), "out": "chat/output",
            "more": ("utils/smart_var", {"template": "{{input_0}} Good night."}),
        }  # fmt: skip
        report = await graphs.graph(nodes, "m.llm_config>agent.llm_config", "agent.final_answer>more.input_0",
                                    "more.full_text>out.context")  # fmt: skip
    assert report.output["reply"] == f"{LONG} Good night."
    assert shown(graphs.events) == f"{LONG}Good night."  # two items


async def test_a_single_word_that_a_model_said_is_no_beginning_of_another_text(graphs):
    with ScriptedServer([{"text": "A", "when": "label"}, {"text": "A sheep is here."}]) as server:
        use(graphs, server)
        nodes = {
            "m": MODEL, "label": ("ai/llm", {"user_message": "label"}), "wait": "t/slow", "out": "chat/output",
            "more": ("utils/smart_var", {"template": "{{input_0}} sheep is here."}),
        }  # fmt: skip
        await graphs.graph(nodes, "m.llm_config>label.llm_config", "label.response>more.input_0",
                           "more.full_text>out.context")  # fmt: skip
    assert shown(graphs.events) == "AA sheep is here."


async def test_a_resumed_run_knows_what_was_shown_before(graphs):
    with ScriptedServer([{"text": LONG}]) as server:
        use(graphs, server)
        nodes = {
            "in": "chat/input", "m": MODEL, "llm": "ai/llm", "gate": "utils/approver", "out": "chat/output",
            "both": ("utils/smart_var", {"template": "{{input_0}}"}),
        }  # fmt: skip
        edges = (*CHAT, "llm.response>gate.param_summary", "llm.response>both.input_0", "gate.approved_out>both.input_1",
                 "both.full_text>out.context")  # fmt: skip
        report = await graphs.graph(nodes, *edges, value="hi")
        assert report.status == "waiting_input"
        approvals = graphs.host.approvals(PROJECT_ID)
        (pending,), _ = approvals.list(status="pending")
        await approvals.approve(pending.id)
        report = await (await approvals.settle(graphs.project, pending.id)).report()
    assert report.output["reply"] == LONG
    assert shown(graphs.runs.all_events(report.run_id)) == LONG
    assert len(server.requests) == 1


def test_texts_of_models_that_work_side_by_side_are_not_torn_to_pieces(capsys):
    live = Live(Output())

    def show(kind, item, text=""):
        live.show(Event("r", 1, "", f"output.{kind}", {"item": item, "name": item, "media_type": "", "text": text}))

    for kind, item, *text in (
        ("started", "a"), ("chunk", "a", "a1"), ("started", "b"), ("chunk", "b", "b1"), ("started", "c"),
        ("chunk", "c", "c1"), ("completed", "c"), ("chunk", "a", "a2"), ("completed", "a"), ("chunk", "b", "b2"),
        ("completed", "b"),
    ):  # fmt: skip
        show(kind, item, *text)
    assert capsys.readouterr().out == "a1a2\nb1b2\nc1\n"
    show("started", "d")
    show("chunk", "d", "d1")
    assert capsys.readouterr().out == "d1"


async def test_a_graph_without_a_reply_still_shows_what_came_out_of_it(graphs, capsys):
    with ScriptedServer([{"text": LONG}]) as server:
        use(graphs, server)
        nodes = {"in": "chat/input", "m": MODEL, "llm": "ai/llm", "end": "utils/preview"}
        for last, is_shown in (("utils/preview", True), ("chat/output", False)):
            port = "data" if is_shown else "context"
            report = await graphs.graph(nodes | {"end": last}, *CHAT, f"llm.response>end.{port}", value="hi")
            live = Live(Output())
            for event in graphs.events:
                live.show(event)
            live.end(report)
            told = capsys.readouterr().out
            assert told.startswith(f"{LONG}\n")
            assert ('"preview_content"' in told) is is_shown
