"""A graph run whose process is killed: nothing stays running, and what was done is not done again."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.graph.conftest import node_id, save

COUNT = ("storage/kv", {"action": "increment", "key": "done"})
NODES = {
    "first": COUNT, "wait": ("utils/delay", {"delay_value": 60}), "side": COUNT,
    "last": ("storage/kv", {"action": "increment", "key": "last"}),
}  # fmt: skip
EDGES = ("first.value>wait.passthrough", "wait.passthrough>last.value")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("STEPWELL_HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    assert stepwell(tmp_path, "init", str(folder), "-q").returncode == 0
    save(folder, "long", NODES, *EDGES)
    return folder


def stepwell(folder, *arguments, **options):
    command = [sys.executable, "-m", "stepwell", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, **options)


@pytest.mark.crash
def test_a_killed_graph_leaves_nothing_running_and_goes_on_with_what_it_began_with(project):
    command = [sys.executable, "-m", "stepwell", "workflows", "run", "long", "--jsonl"]
    child = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True)
    run_id, done = None, set()
    for line in child.stdout:
        event = json.loads(line)
        run_id = event["run_id"]
        if event["type"] == "node.completed":
            done.add(event["node"])
        if done == {node_id("first"), node_id("side")}:
            break
    time.sleep(0.3)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    shown = json.loads(stepwell(project, "workflows", "execution", run_id, "--json").stdout)["data"]
    assert shown["status"] == "interrupted"
    assert shown["node_counts"] == {"waiting": 1, "completed": 2, "failed": 1}
    assert shown["failed_nodes"][0]["code"] == "process_lost"
    # The file changes meanwhile: the run goes on with the workflow that it began with.
    save(project, "long", {"other": "t/gone"})
    resumed = subprocess.Popen(
        [sys.executable, "-m", "stepwell", "runs", "resume", run_id, "--jsonl"],
        cwd=project,
        stdout=subprocess.PIPE,
        text=True,
    )
    started = []
    for line in resumed.stdout:
        event = json.loads(line)
        if event["type"] == "node.started":
            started.append(event["node"])
            break
    resumed.send_signal(signal.SIGINT)
    resumed.stdout.read()
    assert resumed.wait() == 130
    resumed.stdout.close()
    assert started == [node_id("wait")]
    assert json.loads(stepwell(project, "kv", "get", "done", "--json").stdout)["value"] == 2
    shown = json.loads(stepwell(project, "workflows", "execution", run_id, "--json").stdout)["data"]
    assert (shown["status"], shown["node_counts"]) == ("cancelled", {"completed": 2, "failed": 1, "skipped": 1})


@pytest.mark.crash
def test_a_parallel_graph_that_is_killed_again_and_again_is_finished_by_resuming(project):
    nodes = {"start": ("io/input_text", {"text": "x"})}
    edges = []
    for branch in range(4):
        before = "start.text"
        for step in range(4):
            wait, count = f"w{branch}{step}", f"c{branch}{step}"
            nodes[wait] = ("utils/delay", {"delay_value": 20 + 15 * ((branch * 7 + step * 3) % 5), "delay_unit": "ms"})
            nodes[count] = ("storage/kv", {"action": "increment", "key": f"{branch}{step}"})
            edges += [f"{before}>{wait}.passthrough", f"{wait}.passthrough>{count}.default"]
            before = f"{count}.found"
    nodes["join"] = ("utils/smart_var", {"template": "{{input_0}} {{input_3}}"})
    edges += [f"c{branch}3.value>join.input_{branch}" for branch in range(4)]
    save(project, "wide", nodes, *edges)
    command = [sys.executable, "-m", "stepwell", "workflows", "run", "wide", "--jsonl"]
    run_id, kills = None, 0
    for attempt in range(12):
        child = subprocess.Popen(command, cwd=project, stdout=subprocess.PIPE, text=True)
        seen = 0
        for line in child.stdout:
            event = json.loads(line)
            run_id = event["run_id"]
            seen += event["type"] == "node.completed"
            if seen > 3 + attempt and kills < 6:
                os.kill(child.pid, signal.SIGKILL)
                kills += 1
                break
        child.stdout.close()
        code = child.wait()
        command = [sys.executable, "-m", "stepwell", "runs", "resume", run_id, "--jsonl"]
        if code == 0:
            break
        assert code == -signal.SIGKILL, code
    assert kills >= 3
    shown = json.loads(stepwell(project, "workflows", "execution", run_id, "--json").stdout)["data"]
    assert (shown["status"], shown["node_counts"]) == ("completed", {"completed": 34})
    counts = [json.loads(stepwell(project, "kv", "get", f"{b}{s}").stdout) for b in range(4) for s in (0, 3)]
    assert all(1 <= count <= 3 for count in counts)
    assert sum(counts) <= len(counts) + kills  # only what was not yet recorded may be done again
