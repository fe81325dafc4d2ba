"""The demo behind `make demo`: real documents, real questions, a conversation that outlives its process.

Every step is an ordinary `stepwell` command in a process of its own, printed before it runs, so that each line
can be typed by hand afterwards. Data goes to `.demo/`, and running the demo again finds it there.
"""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = ROOT / "examples" / "docs-assistant"
HOME = ROOT / ".demo"
SAMPLES = ROOT.parent / "shared" / "data"
CONVERSATION = "demo"
QUESTIONS = (
    ["How does stepwell resume a run after kill -9?", "How do I cancel a flow run?", "如何配置告警组？"]
    if SAMPLES.is_dir()
    else ["How does stepwell resume a run after kill -9?", "What does a lock cover?", "如何恢复被杀掉的运行？"]
)
COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


def main() -> int:
    """Run the demo; the exit code is 0 when every step did what it should."""
    started = time.monotonic()
    step("1. Import documentation into Knowledge (unchanged files are skipped the next time)")
    stepwell("run", PROJECT, "-e", "ingest", "--", *folders())

    step("2. Ask three questions in one conversation; each answer cites document:line")
    for question in QUESTIONS:
        ask(question)

    step("3. Another process continues the same conversation")
    ask("And what happens to its events?")
    conversation = shown("conversations", "show", CONVERSATION, "--json")
    print(f"   {conversation['title']!r}: {conversation['message_count']} messages, in a store of their own\n")

    step("4. What is stored: runs, token totals, and the entries behind them")
    stepwell("runs", "list", "--limit", "6")
    stepwell("usage")
    stepwell("kv", "list", "--prefix", "file:", "--limit", "3")
    stepwell("knowledge", "search", "告警" if SAMPLES.is_dir() else "scope", "--limit", "2")

    step(f"Done in {time.monotonic() - started:.0f} s. Where to look next")
    print("   the example's code      examples/docs-assistant/")
    print("   your first project      docs/guide/first-project.md   (中文: docs/zh/guide/first-project.md)")
    print("   everything it can do    .venv/bin/stepwell --help")
    print(f"   the demo's data         STEPWELL_HOME={HOME.relative_to(ROOT)}  (delete it to start afresh)")
    return 0


def folders() -> list[str]:
    """This project's own documentation, and the sample collections where they are present."""
    found = [ROOT / "docs", SAMPLES / "docs-en", SAMPLES / "docs-zh"]
    return [os.path.relpath(folder, ROOT) for folder in found if folder.is_dir()]


def ask(question: str) -> None:
    """Ask in the demo's conversation and insist on a cited answer."""
    stepwell("run", PROJECT, "--conversation-id", CONVERSATION, "--", "--message", question)


def step(text: str) -> None:
    """Print a heading."""
    print(f"\n\033[1m{text}\033[0m\n" if COLOUR else f"\n{text}\n", flush=True)


def stepwell(*arguments: str | Path) -> None:
    """Show a command, run it with its output on this terminal, and stop the demo if it fails."""
    command = ["stepwell", *map(shown_path, arguments)]
    if arguments[0] != "run":
        command += ["--project", shown_path(PROJECT)]
    prompt = f"$ {shlex.join(command)}"
    print(f"\033[36m{prompt}\033[0m" if COLOUR else prompt, flush=True)
    finished = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, env=environment(), check=False)
    print(flush=True)
    if finished.returncode != 0:
        sys.exit(finished.returncode)


def shown(*arguments: str) -> dict[str, object]:
    """The JSON a command prints."""
    command = [sys.executable, "-m", "stepwell", *arguments, "--project", str(PROJECT)]
    answer = subprocess.run(command, cwd=ROOT, env=environment(), check=True, capture_output=True, text=True)
    return dict(json.loads(answer.stdout))


def shown_path(argument: str | Path) -> str:
    """Paths as a person would type them here."""
    return os.path.relpath(argument, ROOT) if isinstance(argument, Path) else argument


def environment() -> dict[str, str]:
    """The demo keeps its data apart from the user's own."""
    names = ("STEPWELL_KV_STORE_DIR", "STEPWELL_PERSISTENT_VALUE_STORE_DIR")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return kept | {"STEPWELL_HOME": str(HOME)}


if __name__ == "__main__":
    sys.exit(main())
