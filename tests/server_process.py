"""A real `stepwell server` in a process of its own, which can be killed and started again on the same port."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from stepwell.store.http import HttpBackend

START_SECONDS = 60


class AnyName(dict[str, str]):
    """A name for every project, so that a client makes it known to the server by itself."""

    def get(self, key: str, default: object = None) -> str:  # type: ignore[override]
        return "faults"


class ServerProcess:
    """`stepwell server` as people start it.

    Args:
        folder: its home and its log; made if missing.
        dsn: the database; None is an embedded PostgreSQL in the folder.
        key: the administrator's key, where another server was the first on the database.
        options: further words of the command line.
    """

    def __init__(
        self, folder: Path, dsn: str | None = None, *, key: str | None = None, options: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.dsn = dsn
        self.key = key
        self.port = 0
        self.url = ""
        self.process: subprocess.Popen[str] | None = None
        self._options = options
        self.start()

    @property
    def log(self) -> str:
        """What it wrote to stderr so far, over all starts."""
        return (self.folder / "server.log").read_text(encoding="utf-8")

    def start(self) -> None:
        """Start it, on the port it had before, and wait until it serves."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start it without waiting."""
        self.folder.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("STEPWELL_")}
        environment["STEPWELL_HOME"] = str(self.folder / "home")
        if self.dsn is not None:
            environment["STEPWELL_DATABASE_URL"] = self.dsn
        with (self.folder / "server.log").open("a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "stepwell", "--json", "server", "--port", str(self.port), *self._options],
                env=environment, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip

    def wait(self) -> None:
        """Wait until it serves."""
        assert self.process is not None
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], START_SECONDS)
        line = self.process.stdout.readline() if ready else ""
        assert line, f"the server did not start: {self.log[-2_000:]}"
        told: dict[str, Any] = json.loads(line)
        self.url = told["url"]
        self.port = int(self.url.rpartition(":")[2])
        self.key = told.get("admin_key", self.key)

    def kill(self) -> None:
        """Kill it: no goodbye."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Let it end cleanly."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(how)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            finally:
                if process.stdout is not None:
                    process.stdout.close()

    def backend(self, url: str | None = None, **options: Any) -> HttpBackend:
        """A handle on its entries as the administrator.

        Args:
            url: of a proxy before it.
            options: for the handle.
        """
        assert self.key
        return HttpBackend(url or self.url, self.key, names=AnyName(), **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


def eventually(condition: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until a condition holds; an assertion error if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.02)
