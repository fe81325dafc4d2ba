"""The child process of `tools/code_python`: takes limits upon itself, then runs the script. Imports nothing of ours."""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

_REFUSED_EVENTS = (
    "socket.", "subprocess.", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty",
    "ctypes.", "os.kill", "os.killpg", "os.startfile", "shutil.", "ftplib.", "smtplib.", "urllib.", "http.client",
    "pty.spawn", "signal.pthread_kill", "sys.addaudithook", "cpython.run_command",
)  # fmt: skip
_WRITING_EVENTS = (
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "os.utime", "os.chflags", "os.lchmod", "os.mknod", "os.mkfifo", "os.setxattr", "os.removexattr",
)  # fmt: skip


def main() -> None:
    """Read the task from stdin, run it, write the answer to the descriptor that the first argument names."""
    answers = os.fdopen(int(sys.argv[1]), "wb")
    task = json.loads(sys.stdin.buffer.read())
    isolation = _without_network()
    warnings = _limit(task)
    import traceback

    folder = os.path.realpath(".")
    code = None
    answer: dict[str, Any] = {"isolation": isolation, "warnings": warnings}
    try:
        code = compile(task["script"], "<script>", "exec")
        scope = {"__name__": "__main__", "input": task["input"], "read_paths": task["read_paths"]}
        scope["result"] = None
        _without_processes()
        sys.addaudithook(_guard(folder, task["read_files"], task["read_paths"]))
        exec(code, scope)  # noqa: S102  (that is what it is for)
        text = json.dumps(scope.get("result"), allow_nan=False)
        if len(text) > 8 * task["output"]:
            raise ValueError("the result is too large")  # noqa: TRY301
        answer["result"] = json.loads(text)
    except MemoryError:
        answer["error"] = "MemoryError: over its memory limit"
    except BaseException as error:  # noqa: BLE001  (whatever the script raises is its answer)
        answer["error"] = f"{type(error).__name__}: {str(error)[:2000]}"
        lines = traceback.format_exception(error)
        answer["traceback"] = "".join(line for line in lines if "python_child.py" not in line)[-4000:]
    sys.stdout.flush()
    try:
        import resource

        answer["peak_kb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    except ImportError:
        pass
    answers.write(json.dumps(answer).encode())
    answers.close()
    os._exit(0)  # threads the script left behind do not keep the process


def _limit(task: dict[str, Any]) -> list[str]:
    """Limits that the kernel keeps. What a system does not have is told as a warning."""
    try:
        import resource
        import signal
    except ImportError:
        return ["this system has no limits of memory and processor time"]
    warnings: list[str] = []
    seconds = int(task["seconds"]) + 1
    for name, value in (
        ("RLIMIT_AS", task["memory"] + 64 * 1024 * 1024),
        ("RLIMIT_CPU", seconds),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_FSIZE", 16 * 1024 * 1024),
        ("RLIMIT_NOFILE", 64),
    ):
        if hasattr(resource, name):
            limit = getattr(resource, name)
            hard = resource.getrlimit(limit)[1]
            least = value if hard == resource.RLIM_INFINITY else min(value, hard)
            try:
                resource.setrlimit(limit, (least, least))
            except (ValueError, OSError):  # macOS, for one, does not take every limit
                warnings.append(f"{name} could not be set")
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, task["seconds"])
    return warnings


def _without_network() -> str:
    """Leave the network by a namespace of its own where the system lets us; the audit hook refuses sockets anyway."""
    try:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        new_user, new_net = 0x10000000, 0x40000000
        if libc.unshare(new_net) == 0 or libc.unshare(new_user | new_net) == 0:
            return "process+network-namespace"
    except (ImportError, OSError, AttributeError):
        pass
    return "process"


def _without_processes() -> None:
    """Close the one way to a new process that raises no audit event: what `subprocess` itself stands on."""
    try:
        import _posixsubprocess
    except ImportError:
        return

    def refuse(*_: Any) -> int:
        raise PermissionError("starting a process is not allowed in a script")

    _posixsubprocess.fork_exec = refuse


def _guard(folder: str, read_files: bool, read_paths: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook: no sockets, no processes, no native code, and files only where they are allowed."""
    library = f"{os.__file__}/.."
    homes = tuple(os.path.realpath(path) + os.sep for path in (sys.prefix, sys.base_prefix, library, *read_paths))
    own = folder + os.sep
    refused, writing = _REFUSED_EVENTS, _WRITING_EVENTS
    realpath, fspath, isinstance_, flags = os.path.realpath, os.fspath, isinstance, (
        os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    )  # fmt: skip

    def inside(path: Any) -> bool:
        if isinstance_(path, int):
            return True
        path = fspath(path)
        path = path.decode("utf-8", "surrogateescape") if isinstance_(path, bytes) else path
        return bool((realpath(path) + "/").startswith(own))

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if event == "import" and args[0] == "_posixsubprocess":
            raise PermissionError("starting a process is not allowed in a script")
        if event.startswith(refused):
            raise PermissionError(f"{event} is not allowed in a script")
        if event == "open":
            path, mode, flag = args[0], args[1], args[2]
            writes = (isinstance_(mode, str) and any(letter in mode for letter in "wax+")) or (
                isinstance_(flag, int) and flag & flags
            )
            if isinstance_(path, int) or inside(path):
                return
            text = fspath(path)
            text = text.decode("utf-8", "surrogateescape") if isinstance_(text, bytes) else text
            if writes or not (read_files or (realpath(text) + "/").startswith(homes)):
                raise PermissionError(f"{text[:200]} is not allowed in a script")
        elif event.startswith(writing) and not all(
            inside(path) for path in args[:2] if isinstance_(path, (str, bytes))
        ):
            raise PermissionError(f"{event} outside of its folder is not allowed in a script")
        elif event in ("os.listdir", "os.scandir") and not (
            read_files or args[0] is None or inside(args[0]) or (realpath(args[0]) + "/").startswith(homes)
        ):
            raise PermissionError(f"listing {str(args[0])[:200]} is not allowed in a script")

    return hook


if __name__ == "__main__":
    main()
