"""The examples do what their documentation says, through the real program."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def stepwell(*arguments: str | Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the program; insist on its exit code."""
    command = [sys.executable, "-m", "stepwell", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | {"NO_COLOR": "1"})
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def report(*arguments: str | Path) -> dict:
    return json.loads(stepwell("run", *arguments[:1], "--json", *arguments[1:]).stdout)


def test_hello_counts_every_visit():
    for visit in (1, 2, 3):
        assert report(EXAMPLES / "hello", "--", "--name", "Ada")["output"]["visits"] == visit
    shown = stepwell("run", EXAMPLES / "hello").stdout
    assert shown == "Hello, world!\n"


def test_conversation_knowledge_mirrors_the_conversation():
    project = EXAMPLES / "conversation-knowledge"
    dry = report(project, "--conversation-id", "c/1 é", "--", "--dry-run", "--message", "first")
    assert dry["output"]["written"] is False
    assert json.loads(stepwell("knowledge", "list", "--json", "--project", project).stdout)["items"] == []
    done = report(project, "--conversation-id", "c/1 é", "--", "--message", "--second")
    assert done["output"]["document_id"] == dry["output"]["document_id"]
    markdown = stepwell("knowledge", "get", done["output"]["document_id"], "--project", project).stdout
    for said in ("first", "Noted: first", "--second", "Noted: --second"):
        assert said in markdown
    other = report(project, "--conversation-id", "other", "--", "--message", "x")
    assert other["output"]["document_id"] != done["output"]["document_id"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small collection of documents."""
    docs = tmp_path / "manual"
    (docs / "guide").mkdir(parents=True)
    (docs / "guide" / "backup.md").write_text("# Backing up\n\nCopy the folder while nothing runs.\n", encoding="utf-8")
    (docs / "告警.md").write_text("# 告警组\n\n管理员在安全中心创建告警组。\n", encoding="utf-8")
    (docs / "latin1.md").write_bytes(b"caf\xe9")
    (docs / "notes.txt").write_text("not Markdown", encoding="utf-8")
    return docs


def test_docs_assistant_keeps_knowledge_in_line_with_the_folder(folder: Path):
    project = EXAMPLES / "docs-assistant"

    def ingest() -> dict:
        return report(project, "-e", "ingest", "--", folder)["output"]

    first = ingest()
    assert (first["created"], first["unchanged"], first["deleted"]) == (2, 0, 0)
    assert first["skipped"] == [f"{folder}/latin1.md"]
    assert (ingest()["unchanged"], ingest()["created"]) == (2, 0)
    (folder / "guide" / "backup.md").write_text("# Backing up\n\nUse snapshots.\n", encoding="utf-8")
    (folder / "告警.md").unlink()
    changed = ingest()
    assert (changed["updated"], changed["deleted"]) == (1, 1)
    assert ingest()["unchanged"] == 1
    listed = json.loads(stepwell("knowledge", "list", "--json", "--project", project).stdout)["items"]
    assert [item["title"] for item in listed] == ["Backing up"]
    stepwell("run", project, "-e", "ingest", "--", folder / "nowhere", code=1)
    stepwell("run", project, "-e", "ingest", code=2)


def test_docs_assistant_answers_with_places_in_both_languages(folder: Path):
    project = EXAMPLES / "docs-assistant"
    report(project, "-e", "ingest", "--", folder)
    english = report(project, "--conversation-id", "c", "--", "--message", "How do I copy my folder?")["output"]
    assert english["citations"][0] == "manual.guide.backup:3"
    assert "Copy the folder while nothing runs." in english["answer"]
    chinese = report(project, "--conversation-id", "c", "--", "--message", "谁可以创建告警组？")["output"]
    assert "管理员在安全中心创建告警组。" in chinese["answer"]
    document, line = chinese["citations"][0].rsplit(":", 1)
    quoted = stepwell("knowledge", "lines", document, line, line, "--project", project).stdout
    assert "告警组" in quoted
    nothing = report(project, "--conversation-id", "c", "--", "--message", "xylophone")["output"]
    assert nothing["citations"] == []

    shown = json.loads(stepwell("conversations", "show", "c", "--json", "--project", project).stdout)
    assert shown["title"] == "How do I copy my folder?"
    assert [message["role"] for message in shown["messages"]] == ["user", "assistant"] * 3
    usage = json.loads(stepwell("usage", "--json", "--project", project).stdout)["tokens"]
    assert usage["calls"] == 3
    assert usage["total"] == usage["input"] + usage["output"] > 0
