"""The `composition` example is killed at any moment, again and again, and ends as if it had not been."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from stepwell.identifiers import new_id
from tests.examples.test_examples import EXAMPLES, stepwell

PROJECT = EXAMPLES / "composition"
ROUNDS = 5

pytestmark = pytest.mark.crash


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_a_composition_that_is_killed_again_and_again(seed: int):
    chance = random.Random(seed)
    run_id, talk = new_id(), f"c{seed}"
    arguments = ["run", str(PROJECT), "--run-id", run_id, "--conversation-id", talk, "--", "--message", "Thank Ada"]
    arguments.insert(2, "--jsonl")
    kills, code = 0, None
    while code != 0:
        command = arguments if not kills else ["runs", "resume", run_id, "--project", str(PROJECT), "--jsonl"]
        process = subprocess.Popen(
            [sys.executable, "-m", "stepwell", *command], env=os.environ | {"NO_COLOR": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        if kills < 3:
            for _, _line in zip(range(chance.randint(2, 16)), process.stdout, strict=False):
                pass
            time.sleep(chance.random() * 0.05)
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
        else:
            _, err = process.communicate(timeout=60)
            assert "Traceback" not in err, err
            code = process.returncode
            if code and "run_state_conflict" in err:  # it had ended before it was killed
                break
            assert code == 0, err
    report = json.loads(stepwell("runs", "show", run_id, "--json", "--project", PROJECT).stdout)
    assert report["status"] == "completed"
    assert report["output"]["verdict"] == "approved"
    assert report["output"]["text"] == "Here is a greeting. Here is thank ada. Here is a farewell."
    # A call is made again where the process died before its answer was durable; every one is counted, once.
    total = json.loads(stepwell("usage", "--json", "--project", PROJECT).stdout)["tokens"]
    assert total == report["tokens"]
    assert total["total"] == total["calls"] * 18
    assert 2 <= total["calls"] <= 2 + kills
    messages = json.loads(stepwell("conversations", "show", talk, "--json", "--project", PROJECT).stdout)["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant"]
    events = json.loads(stepwell("runs", "events", run_id, "--json", "--project", PROJECT).stdout)["items"]
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    shown = "".join(event["text"] for event in events if event["type"] == "output.chunk")
    assert shown == report["output"]["text"] + " "
    assert "output.restarted" not in [event["type"] for event in events]
    ended = [event["node"] for event in events if event["type"] == "node.completed"]
    assert len(ended) == len(set(ended))
