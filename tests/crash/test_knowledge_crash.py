"""Writers of documents that are killed at any instant: index, locators and documents always agree."""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stepwell.errors import DocumentNotFound
from stepwell.knowledge import Knowledge
from stepwell.knowledge.checking import check_base
from stepwell.storage.kv import KeyValue
from stepwell.store.sqlite_backend import SqliteBackend
from tests.crash.knowledge_children import NS, text_of

pytestmark = [pytest.mark.crash, pytest.mark.skipif(sys.platform == "win32", reason="needs kill -9")]

ROOT = Path(__file__).parents[2]
ROUNDS = 12


def run_and_kill(path: Path, seed: int, seconds: float) -> list[list[str]]:
    """What the writers said before they were killed."""
    words = [sys.executable, "-m", "tests.crash.knowledge_children", "write", str(path), str(seed)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        time.sleep(seconds)
        child.kill()
        said = child.stdout.read()
    return [line.split() for line in said.split("\n")[:-1]]


@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_writers_leave_whole_documents_and_an_index_that_agrees(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "x.sqlite"
    choose = random.Random(seed)
    sure: dict[str, str] = {}
    changes = 0
    for round_ in range(ROUNDS):
        said = run_and_kill(path, seed * 100 + round_, choose.uniform(0.05, 0.4))
        maybe: dict[str, str] = {}
        for word, name, step in said:
            if word == "begin":
                maybe[name] = step
            else:
                sure[name] = maybe.pop(name)
                changes += 1
        backend = SqliteBackend(path)
        base = Knowledge(KeyValue(backend, NS))
        assert await check_base(base) == []
        for name in sure | maybe:
            found = await step_of(base, name)
            allowed = {sure.get(name, "deleted")} | ({maybe[name]} if name in maybe else set())
            assert found in allowed, f"{name} is at {found}"
            sure[name] = found
        listed = {document.id for document in await base.list_documents()}
        assert listed == {name for name, step in sure.items() if step != "deleted"}
        await backend.close()
    assert changes > 10  # they did get to write, also on a busy machine


async def step_of(base: Knowledge, name: str) -> str:
    """Which step a document is of; every part of it must be of that one."""
    try:
        document = await base.get_document(name)
    except DocumentNotFound:
        return "deleted"
    step = document.title.removeprefix("title ")
    assert document.markdown == text_of(name, int(step))
    [hit] = (await base.search_documents(f"{name} at {step}", name)).hits
    assert hit.line == 1
    return step
