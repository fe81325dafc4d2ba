"""Python code in a process of its own, with limits of time, memory and output, and without a network."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

from pydantic import BaseModel

from stepwell.errors import InvalidJson, NodeRefused, NodeTimeout
from stepwell.graph.node_context import NodeContext
from stepwell.graph.nodes import python_child
from stepwell.graph.ports import WORKFLOW_ONLY, Anything, Json, without_effect
from stepwell.graph.registry import node_type
from stepwell.jsontext import decode_untrusted

MAX_SCRIPT_CHARS = 200_000
MAX_OUTPUT_BYTES = 1024 * 1024
MAX_TIMEOUT_MS = 600_000
MAX_MEMORY_MB = 8_192
MIN_MEMORY_MB = 32


@node_type("tools/code_python", title="Python code", is_tool=True, kind="tool")
class PythonCode:
    """Runs a script: `input` is a variable in it, and what it assigns to `result` comes out.

    `request_read_paths` are files and folders of the project that it may read; `read_paths` in it says where they are.
    The process has no network, an empty folder to write to, no environment, and is killed with all its children when
    it takes too long. It is no sandbox against code that means harm to the files its user may read.
    """

    class Inputs(BaseModel):
        script: str
        input: Anything = None
        memory_mb: Annotated[int, WORKFLOW_ONLY] = 128
        timeout_ms: Annotated[int, WORKFLOW_ONLY] = 5_000
        allow_filesystem: Annotated[bool, WORKFLOW_ONLY] = False
        allow_full_disk_readonly: Annotated[bool, WORKFLOW_ONLY] = False
        request_read_paths: Annotated[list[Any] | None, WORKFLOW_ONLY] = None
        working_subdir: Annotated[str | None, without_effect("a script works in an empty folder of its own")] = None

    class Outputs(BaseModel):
        isolation_level: str
        metrics: dict[str, Any]
        result: Json
        stderr: str
        stdout: str
        warnings: list[Any]

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        if len(inputs.script) > MAX_SCRIPT_CHARS:
            raise NodeRefused(f"the script has {len(inputs.script):,} characters; at most {MAX_SCRIPT_CHARS:,}")
        if os.name == "nt":
            raise NodeRefused("this system has no limits for scripts", hint="use Linux or macOS")
        seconds = max(1, min(inputs.timeout_ms, MAX_TIMEOUT_MS)) / 1_000
        task = {
            "script": inputs.script, "input": inputs.input, "seconds": seconds,
            "memory": max(MIN_MEMORY_MB, min(inputs.memory_mb, MAX_MEMORY_MB)) * 1024 * 1024,
            "read_files": bool(inputs.allow_filesystem or inputs.allow_full_disk_readonly), "output": MAX_OUTPUT_BYTES,
            "read_paths": [
                os.path.realpath(ctx.run.project.folder / str(path)) for path in inputs.request_read_paths or ()
            ],
        }  # fmt: skip
        began = monotonic()
        with tempfile.TemporaryDirectory(prefix="stepwell-code-") as folder:
            answer, out, err = await _in_child(task, Path(folder), seconds)
        warnings = list(answer.get("warnings", ()))
        for name, text in (("stdout", out), ("stderr", err)):
            if len(text) > MAX_OUTPUT_BYTES:
                warnings.append(f"{name} was cut to {MAX_OUTPUT_BYTES:,} bytes")
        if "error" in answer:
            raise NodeRefused(
                f"the script failed: {answer['error']}", hint="correct the script",
                stderr=_text(err)[-4_000:], stdout=_text(out)[-4_000:], traceback=answer.get("traceback"),
            )  # fmt: skip
        return {
            "result": answer.get("result"), "stdout": _text(out), "stderr": _text(err), "warnings": warnings,
            "isolation_level": answer.get("isolation", "process"),
            "metrics": {"elapsed_ms": round((monotonic() - began) * 1_000), "max_memory_kb": answer.get("peak_kb", 0)},
        }  # fmt: skip


async def _in_child(task: dict[str, Any], folder: Path, seconds: float) -> tuple[dict[str, Any], bytes, bytes]:
    """Run the task in a child; its answer, stdout and stderr, each read up to its limit."""
    answer_end, child_end = os.pipe()
    os.set_inheritable(child_end, True)
    try:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-B", "-X", "utf8", python_child.__file__, str(child_end),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            cwd=folder, env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "TMPDIR": str(folder)},
            pass_fds=(child_end,), start_new_session=True,
        )  # fmt: skip
    except BaseException:
        os.close(answer_end)
        raise
    finally:
        os.close(child_end)
    assert process.stdin is not None  # noqa: S101
    assert process.stdout is not None  # noqa: S101
    assert process.stderr is not None  # noqa: S101
    try:
        async with asyncio.timeout(seconds + 2) as limit:
            readers = asyncio.gather(
                _read(process.stdout), _read(process.stderr), asyncio.to_thread(_drain, answer_end), process.wait()
            )
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                process.stdin.write(json.dumps(task).encode())
                await process.stdin.drain()
                process.stdin.close()
            out, err, raw, code = await readers
    except TimeoutError:
        if not limit.expired():
            raise
        raise NodeTimeout(f"the script did not finish within {seconds:g} s", node="code_python") from None
    finally:
        # Whatever the script started goes with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    if code < 0 and not raw:
        name = signal.Signals(-code).name
        if name in ("SIGXCPU", "SIGALRM"):
            raise NodeTimeout(f"the script did not finish within {seconds:g} s", node="code_python")
        return {"error": f"its process was ended by {name}: perhaps it took too much memory"}, out, err
    try:
        answer = decode_untrusted(raw, what="the script's result")
    except InvalidJson as error:
        return {"error": error.message if raw else f"its process ended with code {code}"}, out, err
    return (answer if isinstance(answer, dict) else {"error": "its answer was damaged"}), out, err


async def _read(stream: asyncio.StreamReader) -> bytes:
    """All of a stream, of which one byte more than allowed is kept."""
    kept = bytearray()
    while chunk := await stream.read(65_536):
        kept += chunk[: max(0, MAX_OUTPUT_BYTES + 1 - len(kept))]
    return bytes(kept)


def _drain(descriptor: int) -> bytes:
    with os.fdopen(descriptor, "rb") as file:
        raw = file.read(8 * MAX_OUTPUT_BYTES + 1)
        while file.read(65_536):
            pass
    return raw


def _text(raw: bytes) -> str:
    return raw[:MAX_OUTPUT_BYTES].decode("utf-8", "replace")
