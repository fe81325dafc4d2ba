"""Nodes that reach outside: files confined to a folder, Python in a process of its own, HTTP that stays away from home."""

import contextlib
import http.server
import itertools
import json
import os
import threading
import time
from typing import ClassVar

import pytest

from stepwell.errors import NodeRefused
from stepwell.graph.nodes.confined import Confined
from stepwell.graph.nodes.http import is_allowed
from tests.graph.test_nodes_data import failure, one
from tests.unit.conftest import PROJECT_ID

ALL = {
    f"allow_{name}": True
    for name in ("write", "edit", "patch", "copy", "move", "delete", "backup", "rollback", "batch")
} | {"require_approval": False}


async def files(graphs, operation, path=".", **config):
    return await one(graphs, "tools/file_ops_hub", {"operation": operation, "path": path, "config": config, **ALL})


async def test_a_person_agrees_to_each_change_of_a_file(graphs):
    (graphs.folder / "keep.txt").write_text("x")
    asked = {"operation": "delete", "path": "keep.txt", "allow_delete": True}
    for answer in ("deny", "approve"):
        report = await graphs.graph({"n": ("tools/file_ops_hub", asked)})
        assert report.status == "waiting_input"
        assert (graphs.folder / "keep.txt").exists()
        approvals = graphs.host.approvals(PROJECT_ID)
        (pending,), _ = approvals.list(status="pending")
        assert pending.arguments == {"operation": "delete", "path": "keep.txt", "config": {}}
        await getattr(approvals, answer)(pending.id)
        report = await (await approvals.settle(graphs.project, pending.id)).report()
        outputs = report.output["outputs"]["n"]
        assert outputs["terminal"] is (answer == "deny")
        assert (graphs.folder / "keep.txt").exists() is (answer == "deny")
    assert (await one(graphs, "tools/file_ops_hub", {"operation": "list_directory"}))["result"] is not None


async def test_files_are_written_read_changed_and_rolled_back(graphs):
    receipt = (await files(graphs, "write", "a/b.txt", content="one\ntwo\n"))["mutation_receipt"]
    assert (receipt["size"], (graphs.folder / "a/b.txt").read_text()) == (8, "one\ntwo\n")
    assert (await files(graphs, "read_content", "a/b.txt"))["result"]["content"] == "one\ntwo\n"
    await files(graphs, "backup", "a/b.txt")
    await files(graphs, "edit", "a/b.txt", old="two", new="zwei")
    assert (await files(graphs, "search", "a", pattern="zwei"))["result"]["hits"][0]["line"] == 2
    assert "-two" in (await files(graphs, "diff", ".stepwell-backups/a/b.txt", destination="a/b.txt"))["result"]
    await files(graphs, "rollback", "a/b.txt")
    await files(graphs, "copy", "a/b.txt", destination="c.txt")
    await files(graphs, "move", "c.txt", destination="d/e.txt")
    tree = (await files(graphs, "file_tree"))["result"]["items"]
    assert {"a/", "a/b.txt", "d/e.txt"} <= set(tree)
    await files(graphs, "delete", "d/e.txt")
    assert not (graphs.folder / "d/e.txt").exists()
    done = await files(graphs, "batch", operations=[
        {"operation": "write", "path": "x.json", "config": {"content": "{"}}, {"operation": "validate", "path": "x.json"},
    ])  # fmt: skip
    assert done["result"][1]["valid"] is False


async def test_what_changes_files_is_off_until_the_workflow_allows_it(graphs):
    (graphs.folder / "a.txt").write_text("x")
    for operation in ("write", "edit", "patch", "copy", "move", "delete", "backup", "rollback", "batch"):
        outputs = await one(graphs, "tools/file_ops_hub", {
            "operation": operation, "path": "a.txt", "config": {"content": "y", "destination": "b", "old": "x", "new": "y"}
        })  # fmt: skip
        assert outputs["terminal"]
        assert outputs["retry_disposition"] == "do_not_retry"
    assert (graphs.folder / "a.txt").read_text() == "x"
    wrong = await files(graphs, "delte", "a.txt")
    assert wrong["suggested_action"] == "did you mean delete?"


@pytest.mark.parametrize(
    "path", ["../out.txt", "/etc/passwd", "a/../../out.txt", "link/out.txt", "filelink", "a\\..\\b", "\0", ".env", "~/x",
             ".git/config", "", ".", "x/" * 100 + "y"],
)  # fmt: skip
async def test_no_path_leads_out_of_the_folder(graphs, path):
    outside = graphs.folder.parent / "out.txt"
    outside.write_text("outside")
    (graphs.folder / "link").symlink_to(graphs.folder.parent)
    (graphs.folder / "filelink").symlink_to(outside)
    for operation, config in (("read_content", {}), ("edit", {"old": "outside", "new": "x"}), ("copy", {"destination": "c"}),
                              ("move", {"destination": "m"})):  # fmt: skip
        outputs = await files(graphs, operation, path, **config)
        assert outputs["error"] or (path, operation) == ("filelink", "move"), operation  # a link itself may be moved
    if path != "filelink":  # a link of that name is replaced, not followed
        assert (await files(graphs, "write", path, content="y"))["error"]
    await files(graphs, "copy", "nothing", destination=path or "..")
    assert outside.read_text() == "outside"
    assert not (graphs.folder.parent / "c").exists()


async def test_the_sandbox_root_is_inside_the_project(graphs):
    for root in ("/", "..", "../..", str(graphs.folder.parent)):
        outputs = await one(graphs, "tools/file_ops_hub", {"sandbox_root": root})
        assert "not inside the project" in outputs["error"]
    (graphs.folder / "sub").mkdir()
    outputs = await one(graphs, "tools/file_ops_hub", {
        "sandbox_root": "sub", "operation": "write", "path": "f", "config": {"content": "1"}, **ALL
    })  # fmt: skip
    assert (graphs.folder / "sub/f").read_text() == "1"


def test_a_folder_that_turns_into_a_link_while_it_is_used_leads_nowhere(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "d").mkdir(parents=True)
    outside.mkdir()
    (outside / "f").write_text("secret")
    confined, stop, seen, numbers = Confined(root), threading.Event(), set(), itertools.count()

    def swap() -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError):  # a write may make the folder anew while it is away
                (root / "d").rename(root / f"e{next(numbers)}")
                (root / "d").symlink_to(outside)
                (root / "d").unlink()
                (root / "d").mkdir()
                (root / "d/f").write_text("inside")

    thread = threading.Thread(target=swap)
    thread.start()
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        for work in (lambda: confined.read("d/f"), lambda: confined.write("d/g", b"x")):
            try:
                seen.add(work())
            except NodeRefused:
                seen.add("refused")
    stop.set()
    thread.join()
    assert b"secret" not in seen
    assert b"inside" in seen
    assert [path.name for path in outside.iterdir()] == ["f"]


async def test_read_file_reads_windows_of_files_and_artifacts(graphs):
    (graphs.folder / "t.txt").write_text("a\nb\nc\n")
    outputs = await one(graphs, "io/read_file", {"file_path": "t.txt", "start_line": 2, "max_lines": 1, "prefix": ">"})
    assert (outputs["content"], outputs["truncated"]) == (">b\n", True)
    record = graphs.host.files.put_bytes(b"artifact", name="a.txt")
    outputs = await one(graphs, "io/read_file", {"artifact": {"reference": record.reference}, "max_bytes": 3})
    assert (outputs["content"], outputs["total_bytes"]) == ("art", 8)
    assert (await failure(graphs, "io/read_file", {"file_path": "../x"}))["code"] == "node_refused"
    outputs = await one(graphs, "io/file_upload", {"files_json": json.dumps([record.reference, "/etc/passwd"])})
    assert (outputs["file_count"], len(outputs["errors"])) == (1, 1)


# -- Python ------------------------------------------------------------------------------------------------------


async def python(graphs, script, **config):
    return await one(graphs, "tools/code_python", {"script": script, **config})


async def test_a_script_takes_an_input_and_gives_a_result(graphs):
    outputs = await python(
        graphs,
        "import math, collections\nprint('hé')\nresult = {'n': input['n'] + 1, 'f': math.floor(2.5)}",
        input={"n": 1},
    )
    assert (outputs["result"], outputs["stdout"]) == ({"n": 2, "f": 2}, "hé\n")
    assert (await python(graphs, "open('f', 'w').write('x')\nresult = open('f').read()"))["result"] == "x"


@pytest.mark.parametrize(
    ("script", "part"),
    [
        ("raise ValueError('no')", "ValueError: no"), ("result = object()", "TypeError"), ("x = (", "SyntaxError"),
        ("result = float('nan')", "ValueError"), ("x = 'a' * (10 ** 9)", "MemoryError"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "not allowed"),
        ("import urllib.request; urllib.request.urlopen('http://127.0.0.1:9')", "not allowed"),
        ("import subprocess; subprocess.run(['true'])", "not allowed"), ("import os; os.system('true')", "not allowed"),
        ("import os; os.fork()", "not allowed"), ("import ctypes; ctypes.CDLL(None)", "not allowed"),
        ("open('/etc/passwd').read()", "not allowed"), ("open('/tmp/stepwell-x', 'w')", "not allowed"),
        ("import os; os.remove('/tmp/x')", "not allowed"), ("import os; os.listdir('/')", "not allowed"),
        ("import os; os.symlink('/etc', 'e'); open('e/passwd')", "not allowed"),
        ("import sys; sys.exit(3)", "SystemExit"), ("import os; os._exit(3)", "ended with code 3"),
        ("import os; os.kill(os.getppid(), 9)", "not allowed"),
        ("import subprocess; subprocess._fork_exec([b'/bin/true'], [b'/bin/true'], *range(21))", "not allowed"),
        ("import _posixsubprocess as p; p.fork_exec([b'/bin/true'], [b'/bin/true'])", "not allowed"),
        ("import sys; del sys.modules['_posixsubprocess']; import _posixsubprocess", "not allowed"),
    ],
)  # fmt: skip
async def test_what_a_script_must_not_do_fails_it(graphs, script, part):
    error = await failure(graphs, "tools/code_python", {"script": script})
    assert part in error["message"] + str(error.get("stderr")), error


async def test_a_script_that_takes_too_long_or_prints_too_much_is_stopped(graphs):
    began = time.monotonic()
    for script in ("while True: pass", "import time\ntime.sleep(60)"):
        error = await failure(graphs, "tools/code_python", {"script": script, "timeout_ms": 300})
        assert error["code"] == "node_timeout"
    assert time.monotonic() - began < 15
    outputs = await python(graphs, "print('x' * 3_000_000)\nresult = 1")
    assert len(outputs["stdout"]) == 1024 * 1024
    assert outputs["warnings"]


async def test_a_script_sees_nothing_of_our_environment(graphs, monkeypatch):
    monkeypatch.setenv("STEPWELL_CANARY_KEY", "canary-secret-value")
    outputs = await python(graphs, "import os\nresult = dict(os.environ)")
    assert "canary" not in json.dumps(outputs)


# -- HTTP --------------------------------------------------------------------------------------------------------


class Handler(http.server.BaseHTTPRequestHandler):
    seen: ClassVar[list] = []
    charset: ClassVar[str | None] = None

    def do_GET(self):
        Handler.seen.append((self.path, dict(self.headers)))
        if self.path.startswith("/to"):
            self.send_response(302)
            self.send_header("Location", self.path.partition("=")[2])
            self.end_headers()
            return
        body = b"x" * 200_000 if self.path == "/big" else json.dumps({"path": self.path}).encode()
        self.send_response(200)
        named = f"; charset={self.charset}" if self.charset else ""
        self.send_header("Content-Type", "text/plain" if self.path == "/big" else f"application/json{named}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.path == "/slow":
            time.sleep(3)
        self.wfile.write(body)

    def do_POST(self):
        length = int(self.headers["Content-Length"])
        Handler.seen.append((self.path, self.rfile.read(length)))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    Handler.seen = []
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    thread.join()
    made.server_close()


async def test_requests_to_this_machine_are_refused_unless_allowed(graphs, server, monkeypatch):
    for url in (server, server.replace("127.0.0.1", "localhost"), "http://[::1]:9/", "http://169.254.169.254/latest",
                "http://0.0.0.0/", "http://10.0.0.1/", "http://2130706433/", "http://[::ffff:127.0.0.1]/"):  # fmt: skip
        error = await failure(graphs, "tools/http", {"url": url})
        assert error["code"] == "node_refused", url
    for url in ("file:///etc/passwd", "ftp://x/", "nonsense", "http://user:pass@example.org/"):
        assert (await failure(graphs, "tools/http", {"url": url}))["code"] == "invalid_argument"
    assert Handler.seen == []
    port = server.rpartition(":")[2]
    monkeypatch.setenv("STEPWELL_HTTP__ALLOW", f"127.0.0.1:{port}")
    outputs = await one(graphs, "tools/http", {"url": f"{server}/a"})
    assert (outputs["status_code"], json.loads(outputs["body"])) == (200, {"path": "/a"})
    error = await failure(graphs, "tools/http", {"url": f"{server}/to=http://169.254.169.254/"})
    assert error["code"] == "node_refused"


async def test_bodies_redirects_limits_and_credentials(graphs, server, monkeypatch):
    monkeypatch.setenv("STEPWELL_HTTP__ALLOW", "127.0.0.0/8")
    monkeypatch.setenv("STEPWELL_CREDENTIALS__MINE", "token-of-mine-123456")
    big = await one(graphs, "tools/http", {"url": f"{server}/big"})
    assert big["body_truncated"]
    assert graphs.host.files.read(big["body_artifact"]["reference"]) == b"x" * 200_000
    assert big["retained_bytes"] == len(big["body"]) == 65_536
    assert json.loads((await one(graphs, "tools/http", {"url": f"{server}/to=/b"}))["body"]) == {"path": "/b"}
    sent = {"X-Api-Key": "of-this-host", "Accept": "text/html"}
    elsewhere = server.replace("127.0.0.1", "localhost")
    await one(graphs, "tools/http", {"url": f"{server}/to={elsewhere}/b", "headers": sent})
    assert Handler.seen[-1][1]["Accept"] == "text/html"
    assert "X-Api-Key" not in Handler.seen[-1][1]
    posted = await one(graphs, "tools/http", {"url": f"{server}/p", "method": "POST", "body": "é"})
    assert (posted["status_code"], Handler.seen[-1]) == (201, ("/p", "é".encode()))
    error = await failure(graphs, "tools/http", {"url": f"{server}/slow", "timeout_seconds": 0.2})
    assert error["code"] == "node_timeout"
    used = await one(graphs, "tools/http", {"url": f"{server}/c", "credential_id": "mine"})
    assert used["credential_used"]
    assert Handler.seen[-1][1]["Authorization"] == "Bearer token-of-mine-123456"
    assert "token-of-mine" not in json.dumps([event.data for event in graphs.events])
    assert (await failure(graphs, "tools/http", {"url": server, "credential_id": "none"}))["code"] == "node_refused"
    named = await one(graphs, "utils/credential", {"bindings": {"KEY": "mine"}})
    assert named == {"env_vars": {"KEY": "STEPWELL_CREDENTIALS__MINE"}, "missing_bindings": [], "resolved_count": 1}
    assert (await failure(graphs, "utils/credential", {"bindings": {"KEY": "gone"}}))["code"] == "node_refused"


@pytest.mark.parametrize(
    ("address", "allowed"),
    [("8.8.8.8", True), ("127.0.0.1", False), ("10.1.2.3", False), ("100.64.0.1", False), ("::1", False),
     ("fe80::1", False), ("fc00::1", False), ("::ffff:10.0.0.1", False), ("2002:7f00:1::", False), ("224.0.0.1", False),
     ("2606:4700::1111", True), ("192.0.2.1", False), ("0.0.0.0", False), ("64:ff9b::7f00:1", False),
     ("64:ff9b::808:808", True), ("::7f00:1", False), ("fec0::1", False), ("168.63.129.16", False)],
)  # fmt: skip
def test_only_public_addresses_may_be_reached(address, allowed):
    assert is_allowed("host", 80, address) is allowed


async def test_files_of_odd_names_do_not_hide_the_others(graphs):
    (graphs.folder / "odd").mkdir()
    (graphs.folder / "odd/good.txt").write_text("wanted")
    (graphs.folder / "odd/back\\slash.txt").write_text("wanted")
    (graphs.folder / "odd/back\\folder").mkdir()
    with contextlib.suppress(OSError):  # a system that takes only UTF-8 names has no such file
        (graphs.folder / "odd" / os.fsdecode(b"\xff.txt")).write_text("wanted")
    assert [item["path"] for item in (await files(graphs, "list_directory", "odd"))["result"]] == ["odd/good.txt"]
    assert (await files(graphs, "file_tree", "odd"))["result"]["items"] == ["odd/good.txt"]
    hits = (await files(graphs, "search", "odd", pattern="wanted"))["result"]["hits"]
    assert [hit["path"] for hit in hits] == ["odd/good.txt"]


@pytest.mark.parametrize("charset", ["no-such-charset", "base64", None])
async def test_a_body_of_an_unknown_charset_is_read_as_utf8(graphs, server, monkeypatch, charset):
    monkeypatch.setenv("STEPWELL_HTTP__ALLOW", "127.0.0.0/8")
    monkeypatch.setattr(Handler, "charset", charset)
    assert (await one(graphs, "tools/http", {"url": f"{server}/a"}))["status_code"] == 200
