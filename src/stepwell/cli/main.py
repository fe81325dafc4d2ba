"""The `stepwell` program's first lines: answer what needs little, load the rest when it is needed."""

import gc
import os
import sys


def main() -> int:
    """Run the command line; returns the exit code."""
    # Loading makes objects and no garbage; looking for it every 700 objects takes a tenth of a start with a model.
    gc.set_threshold(50_000, 20, 20)
    _give_missing_streams()
    code = 0
    try:
        code = _dispatch(sys.argv[1:])
        sys.stdout.flush()
    except OSError as error:
        return _output_lost(error, code)
    return code


def _dispatch(arguments: list[str]) -> int:
    if arguments in (["--version"], ["-V"]):
        from stepwell import __version__

        sys.stdout.write(f"stepwell {__version__}\n")
        return 0
    if "get" in arguments[:8]:
        from stepwell.cli.quick import quick_get

        if quick_get(arguments):
            return 0
    from stepwell.cli.app import run

    return run(arguments)


def _give_missing_streams() -> None:
    """A program started with a closed stdin, stdout or stderr has None there; the null device does as well."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115  (open as long as we run)


def _output_lost(error: OSError, code: int) -> int:
    """Stdout cannot be written. A reader that has gone is no error; a full disk is."""
    # The interpreter flushes once more on its way out, and would complain.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return code
    sys.stderr.write(f"error: the output cannot be written: {error.strerror}\n")
    return code or 6
