"""The real program against a real server, and what goes over the wire between them."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from tests.cli.conftest import Result
from tests.databases import Database
from tests.servers import ThreadServer

SECONDS = 90


class Client:
    """One person's program: a home of their own, and a key for a server.

    Args:
        home: their data folder.
        url, key: the server in their environment; None leaves them to the login file.
    """

    def __init__(self, home: Path, url: str | None = None, key: str | None = None) -> None:
        self.home = home
        given = {"STEPWELL_SERVER_URL": url, "STEPWELL_SERVER_KEY": key, "STEPWELL_HOME": str(home), "NO_COLOR": "1"}
        self.environment = {name: value for name, value in given.items() if value is not None}

    def command(self, *arguments: str | Path) -> list[str]:
        """The command line of the program."""
        return [sys.executable, "-P", "-m", "stepwell", *map(str, arguments)]

    def __call__(self, *arguments: str | Path, stdin: str = "", **environment: str) -> Result:
        """Run the program."""
        done = subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, text=True, timeout=SECONDS, check=False,
            env=os.environ | self.environment | environment,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return Result(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str | Path, **environment: str) -> Any:
        """Run it with --json, insist that it works, and give what it prints."""
        done = self("--json", *arguments, **environment)
        assert done.code == 0, done.err
        return done.json

    def run(self, folder: Path, *arguments: str | Path) -> dict[str, Any]:
        """The report of a run, however it ended."""
        done = self("run", folder, "--json", *arguments)
        report: dict[str, Any] = done.json
        assert (done.code == 0) == (report["status"] == "completed")
        return report

    def stored(self) -> list[str]:
        """The database files of entries in the person's home: local data."""
        return [file.name for part in ("kv", "persistent") for file in (self.home / part).rglob("*") if file.is_file()]


def person(server: ThreadServer, name: str, home: Path, url: str | None = None) -> Client:
    """A new user of a server with a key, and their program."""
    with server.client() as admin:
        assert admin.post("/users", json={"name": name}).status_code == 201
        key = admin.post("/tokens", json={"label": "test", "user": name}).json()["token"]
    return Client(home, url or server.url, key)


class ServerProcess:
    """`stepwell server` in a process of its own that can be killed and started again at the same address.

    Args:
        home: its data folder.
        database: what it serves.
    """

    def __init__(self, home: Path, database: Database) -> None:
        self._client = Client(home)
        self._dsn = database.dsn
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        told = self.start()
        self.key: str = told["admin_key"]

    def start(self) -> dict[str, Any]:
        """Start it; gives what it prints when it is ready."""
        self.process = subprocess.Popen(
            self._client.command("server", "--json", "--port", str(self._port), "--log-level", "warning"),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=os.environ | self._client.environment | {"STEPWELL_DATABASE_URL": self._dsn},
        )  # fmt: skip
        assert self.process.stdout is not None
        told: dict[str, Any] = json.loads(self.process.stdout.readline())
        return told

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.wait(timeout=10)

    def stop(self) -> int:
        """End it as a service manager does; gives its exit code."""
        self.process.terminate()
        return self.process.wait(timeout=20)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Wire:
    """A TCP proxy in front of a server that keeps what clients send.

    Args:
        url: the server's address.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._sent: list[bytes] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def sent(self) -> str:
        """Everything clients sent so far."""
        return b"".join(self._sent).decode("latin-1")

    @property
    def requests(self) -> list[str]:
        """Method and address of every request so far."""
        return re.findall(r"((?:GET|PUT|POST|PATCH|DELETE) \S+) HTTP/1\.1\r\n", self.sent)

    def forget(self) -> None:
        """Start anew."""
        self._sent.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for source, target, kept in ((client, server, self._sent), (server, client, None)):
                    threading.Thread(target=self._pass, args=(source, target, kept), daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket, kept: list[bytes] | None) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                if kept is not None:
                    kept.append(data)
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
