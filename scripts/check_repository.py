"""Checks of the repository itself: file lengths, and words and paths that do not belong in it."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_LINES = 450
SHOWN = 5
# Paths of one machine, addresses of package registries, and conflict marks.
FORBIDDEN = re.compile(
    r"/work/|/root/|/home/\w+/|pypi\.org/simple|files\.pythonhosted|registry\.npmjs|^<<<<<<< |^>>>>>>> ", re.MULTILINE
)
GENERATED = ("requirements/", "LICENSE")


def main() -> int:
    """Print what is wrong; the exit code is 1 if anything is."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True).stdout
    files = [ROOT / name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()]
    problems = []
    lengths = []
    for path in files:
        name = path.relative_to(ROOT).as_posix()
        if name == "scripts/check_repository.py":
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found = FORBIDDEN.search(text)
        if found and not name.startswith(GENERATED):
            problems.append(f"{name}: {found[0]!r} does not belong in the repository")
        if name.startswith("src/") and name.endswith(".py"):
            lengths.append((text.count("\n"), name))
    lengths.sort(reverse=True)
    print("longest files: " + ", ".join(f"{name} {count}" for count, name in lengths[:SHOWN]))
    problems += [f"{name} has {count} lines (at most {MAX_LINES})" for count, name in lengths if count > MAX_LINES]
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
