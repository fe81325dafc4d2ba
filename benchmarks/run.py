"""Run the benchmarks: print a table of ratios and write results.json.

    python benchmarks/run.py                     everything (`make bench`)
    python benchmarks/run.py kv_sync startup     only these files
    python benchmarks/run.py --quick             does everything work? the figures mean nothing
    python benchmarks/run.py --no-peers          without installing other libraries

Every figure is a median of rounds in which both sides take turns in this very run, so ratios can be compared
between machines and times cannot.
"""

import argparse
import importlib
import json
import os
import platform
import sqlite3
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from environment import Peers
from harness import Options, Row

from stepwell import __version__

BENCHMARKS = (
    "kv_sync",
    "kv_async",
    "kv_langgraph",
    "kv_server",
    "workbench",
    "counter",
    "conversation",
    "knowledge_listing",
    "knowledge_search",
    "knowledge_save",
    "chain",
    "graph",
    "startup",
)
RESULTS = Path(__file__).with_name("results.json")
COLUMNS = (("work", 55), ("against", 34), ("ours", 12), ("reference", 12), ("ratio", 8), ("target", 8), ("", 4))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for; the exit code is 1 only if a benchmark could not be run."""
    parser = argparse.ArgumentParser(description="Measure stepwell against the raw driver and its peers.")
    parser.add_argument("only", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHMARKS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that everything works")
    parser.add_argument("--no-peers", action="store_true", help="leave out what needs other libraries")
    given = parser.parse_args(arguments)
    unknown = set(given.only) - set(BENCHMARKS)
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}")
    peers = None if given.no_peers else Peers()
    print_line([name for name, _ in COLUMNS])
    print_line(["-" * width for _, width in COLUMNS])
    rows = []
    for name in given.only or BENCHMARKS:
        started = perf_counter()
        with tempfile.TemporaryDirectory(prefix="stepwell-bench-") as folder:
            for row in importlib.import_module(name).rows(Options(Path(folder), given.quick, peers)):
                print_row(row)
                rows.append(row)
        print(f"{name}: {perf_counter() - started:.0f} s", file=sys.stderr)
    missed = sum(row.verdict == "MISS" for row in rows)
    print(f"\n{sum(row.verdict == 'OK' for row in rows)} targets met, {missed} missed")
    if not given.quick and not given.only:
        RESULTS.write_text(json.dumps(results(rows), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
        print(f"written: {RESULTS.relative_to(RESULTS.parent.parent)}")
    return 0


def print_row(row: Row) -> None:
    """Show a row as soon as it is there."""
    target = "" if row.target is None else f"{'≥' if row.at_least else '≤'} {row.target:g}"
    values = [
        f"{value:,.0f} {row.unit}" if value >= 100 else f"{value:,.2f} {row.unit}"
        for value in (row.ours, row.reference)
    ]
    print_line([row.work, row.against, *values, f"{row.ratio:.2f}", target, row.verdict])
    if row.note:
        print(f"    {row.note}")


def print_line(cells: Sequence[str]) -> None:
    """One line of the table; figures to the right."""
    padded = [
        cell.ljust(width) if position < 2 else cell.rjust(width)
        for position, (cell, (_, width)) in enumerate(zip(cells, COLUMNS, strict=True))
    ]
    print("  ".join(padded).rstrip(), flush=True)


def results(rows: Sequence[Row]) -> dict[str, object]:
    """What results.json holds: the rows, and what they were measured on."""
    return {
        "stepwell": __version__,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors",
        "rows": [row.to_dict() for row in rows],
    }


if __name__ == "__main__":
    sys.exit(main())
