"""Start-up: the fast commands against an empty Python."""

import compileall
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter

from harness import Options, Row, cost, in_turn

import stepwell

PROGRAM = Path(sys.executable).with_name("stepwell")
PROJECT = Path(__file__).resolve().parent.parent / "examples" / "hello"


def rows(options: Options) -> Iterator[Row]:
    """`--version`, `--help`, `kv get`."""
    environment = os.environ | {"STEPWELL_HOME": str(options.folder)}
    # An installed wheel comes compiled; a checkout may not, where Python is told to write no byte code.
    compileall.compile_dir(Path(stepwell.__file__).parent, quiet=1)

    def timed(command: Sequence[str | Path]) -> float:
        started = perf_counter()
        subprocess.run(command, env=environment, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL)
        return perf_counter() - started

    subprocess.run(
        [PROGRAM, "kv", "set", "-q", "k", "1"], env=environment, cwd=PROJECT, check=True, stdout=subprocess.DEVNULL
    )
    for arguments, target in ((["--version"], 2.5), (["--help"], 5), (["kv", "get", "k"], 5)):
        sides = {
            "ours": lambda arguments=arguments: timed([PROGRAM, *arguments]),
            "empty": lambda: timed([sys.executable, "-c", "pass"]),
        }
        taken = in_turn(options.rounds(21), sides)
        yield cost(f"stepwell {' '.join(arguments)}", "python -c pass", taken["ours"], taken["empty"], target)
