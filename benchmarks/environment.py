"""The peers: other libraries in an environment of their own, each driven as a subprocess."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements" / "bench.txt"
ENVIRONMENT = ROOT / ".bench"


class Peer:
    """A running peer script; see `peers/serve.py` for what is said on its pipes."""

    def __init__(self, python: Path, script: str, *arguments: str | Path) -> None:
        path = ROOT / "benchmarks" / "peers" / script
        self._process = subprocess.Popen(
            [python, path, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def call(self, operation: str, **arguments: Any) -> float:
        """Have an operation done; the seconds it took as the peer measured them."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"operation": operation, **arguments}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the peer {self._process.args!r} ended: exit code {self._process.wait()}")
        return float(json.loads(answer)["seconds"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Peers:
    """The environment of the peers, made on first use."""

    def __init__(self) -> None:
        self._python = ENVIRONMENT / "bin" / "python"
        self._prepare()

    def start(self, script: str, *arguments: str | Path) -> Peer:
        """Start a peer script."""
        return Peer(self._python, script, *arguments)

    def _prepare(self) -> None:
        wanted = hashlib.sha256(REQUIREMENTS.read_bytes()).hexdigest()
        ready = ENVIRONMENT / ".ready"
        if ready.exists() and ready.read_text() == wanted:
            return
        print(f"installing the peers into {ENVIRONMENT.name} ...", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
        pip = [self._python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
        subprocess.run([*pip, "-r", REQUIREMENTS], check=True)
        ready.write_text(wanted)
