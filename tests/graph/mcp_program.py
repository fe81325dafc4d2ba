"""An MCP server for tests, as a program: `python mcp_program.py MODE [PID_FILE]`.

Modes: `talk` answers and says other things in between, `hang` starts a child and never answers a call, `die` ends.
"""

import json
import os
import subprocess
import sys
from pathlib import Path


def answer(message, **fields):
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **fields}), flush=True)


def main(mode, *files):
    if mode == "die":
        sys.exit("no licence")
    if mode == "hang":
        child = subprocess.Popen(["sleep", "300"])
        Path(files[0]).write_text(f"{os.getpid()} {child.pid}")
    for line in sys.stdin:
        asked = json.loads(line)
        method = asked.get("method")
        if method == "initialize":
            print("starting …", flush=True)
            answer(asked, result={"protocolVersion": "2025-06-18", "capabilities": {}})
        elif method == "tools/list":
            print(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}), flush=True)
            pong = json.loads(sys.stdin.readline())
            answer(asked, result={"tools": [{"name": "look", "description": json.dumps(pong)}]})
        elif method == "tools/call" and mode == "talk":
            answer(asked, result={"given": asked["params"], "env": dict(os.environ), "cwd": str(Path.cwd())})


if __name__ == "__main__":
    main(*sys.argv[1:])
