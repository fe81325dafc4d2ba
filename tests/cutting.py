"""Runs that die in the middle, where their workflow says so."""

import subprocess
import sys
from pathlib import Path

from stepwell.identifiers import new_id

ROOT = Path(__file__).parents[1]


def cut_off(module: str, name: str) -> str:
    """Run a workflow of a module in a process that dies where the workflow says so; the run's id."""
    run_id = new_id()
    died = subprocess.run(
        [sys.executable, "-m", module, name, run_id], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert died.returncode == 9, died.stderr
    return run_id
