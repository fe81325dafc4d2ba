"""Sessions with MCP servers that are programs of this machine: one message a line, on their stdin and stdout.

Such a program may do whatever its user may. So it is started only if the workflow file itself names it and whoever runs
stepwell allows its command; without a shell, with an environment of its own, and it ends with the node, together with
what it started.
"""

import asyncio
import contextlib
import json
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stepwell.errors import NodeRefused, NodeTimeout
from stepwell.graph.nodes.mcp_sessions import Session

ALLOW_VARIABLE = "STEPWELL_MCP__ALLOW"
MAX_LINE_BYTES = 16 * 1024 * 1024
END_SECONDS = 0.5
_KEPT_STDERR = 2_000
_HANDED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "USER", "SYSTEMROOT")


def is_allowed(command: Sequence[str]) -> bool:
    """True for a command line that begins with one that the environment allows: `npx -y @org/server, uvx`."""
    listed = (part for part in os.environ.get(ALLOW_VARIABLE, "").split(",") if part.strip())
    return any(list(command[: len(words)]) == words for words in map(shlex.split, listed))


class StdioSession(Session):
    """A session with a program, which is started by the first message.

    Args:
        server: an entry of the registry, with `command` and, if wanted, `name` and `args`.
        variables: its environment, beside where programs and its home are.
        folder: where it works.
        seconds: for each request, its start included.

    Raises:
        NodeRefused: its command is not allowed.
    """

    def __init__(self, server: dict[str, Any], variables: Mapping[str, str], folder: Path, seconds: float) -> None:
        args = server.get("args")
        self._command = [str(server["command"]), *(str(word) for word in (args if isinstance(args, list) else ()))]
        super().__init__(str(server.get("name") or self._command[0]))
        if not is_allowed(self._command):
            shown = shlex.join(self._command)[:200]
            raise NodeRefused(
                f"{self.name!r:.80} is a program that may not be started: {shown}",
                hint=f"whoever runs stepwell can allow it with {ALLOW_VARIABLE}={shlex.quote(shown)}",
            )
        self._environment = {name: os.environ[name] for name in _HANDED_ON if name in os.environ} | dict(variables)
        self._folder = folder
        self._seconds = seconds
        self._process: asyncio.subprocess.Process | None = None
        self._told = bytearray()
        self._listening: asyncio.Task[None] | None = None

    async def send(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Write a message, and read until it is answered. What the program asks of us meanwhile is declined."""
        try:
            async with asyncio.timeout(max(0.001, self._seconds)) as limit:
                if self._process is None:
                    self._process = await self._start()
                await self._write(request)
                while "id" in request:
                    reply = await self._read()
                    if "method" not in reply and reply.get("id") == request["id"]:
                        return [reply]
                    if "method" in reply and "id" in reply:
                        declined = {"error": {"code": -32601, "message": "not offered"}}
                        made: dict[str, Any] = {"result": {}} if reply["method"] == "ping" else declined
                        await self._write({"jsonrpc": "2.0", "id": reply["id"], **made})
                return []
        except TimeoutError:
            if limit.expired():
                raise NodeTimeout(f"{self.name} did not answer within {self._seconds:g} s") from None
            raise
        except (BrokenPipeError, ConnectionResetError):
            raise await self._gone() from None

    async def close(self) -> None:
        """End the program and what it started: it may end by itself for a moment, then it is killed."""
        process = self._process
        if process is None:
            return
        try:
            if process.stdin is not None:
                process.stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), END_SECONDS)
        finally:
            self._kill(process)
            await process.wait()
            if self._listening is not None:
                self._listening.cancel()

    async def _start(self) -> asyncio.subprocess.Process:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE, cwd=self._folder, env=self._environment, limit=MAX_LINE_BYTES,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise NodeRefused(f"{self.name} cannot be started: {error}") from None
        self._listening = asyncio.create_task(self._listen(process))
        return process

    async def _listen(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None  # noqa: S101
        while chunk := await process.stderr.read(65_536):
            self._told = (self._told + chunk)[-_KEPT_STDERR:]

    async def _write(self, message: dict[str, Any]) -> None:
        assert self._process is not None  # noqa: S101
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        await self._process.stdin.drain()

    async def _read(self) -> dict[str, Any]:
        assert self._process is not None  # noqa: S101
        assert self._process.stdout is not None  # noqa: S101
        while True:
            try:
                line = await self._process.stdout.readline()
            except ValueError:
                raise NodeRefused(f"{self.name}: an answer is over {MAX_LINE_BYTES:,} bytes") from None
            if not line:
                raise await self._gone()
            with contextlib.suppress(ValueError):  # programs print other things too
                read = json.loads(line)
                if isinstance(read, dict):
                    return read

    async def _gone(self) -> NodeRefused:
        if self._listening is not None:
            await asyncio.wait({self._listening}, timeout=END_SECONDS)
        told = self._told.decode("utf-8", "replace").strip()
        return NodeRefused(f"{self.name} ended before it answered", stderr=told)

    def _kill(self, process: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
