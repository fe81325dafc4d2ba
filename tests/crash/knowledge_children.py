"""What the processes of the Knowledge crash tests do: `python -m tests.crash.knowledge_children write PATH SEED`."""

import asyncio
import random
import sys

from stepwell.knowledge import Knowledge
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Domain, Namespace, Scope
from stepwell.store.sqlite_backend import SqliteBackend

NS = Namespace("01936d3f-6a00-7000-8000-0000000000aa", Domain.PERSISTENT_VALUE, Scope.PROJECT)
WRITERS = 3
IDS_EACH = 60


def text_of(name: str, step: int) -> str:
    """A text that tells which step wrote it; its length varies over pages of the database."""
    return f"{name} at {step}\n" + "line 行 ß\n" * (step * 37 % 900)


async def write(path: str, seed: int) -> None:
    """Create, edit and delete documents for ever, saying what is about to be done and what was."""
    base = Knowledge(KeyValue(SqliteBackend(path), NS))
    there = {document.id for document in await base.list_documents()}

    async def writer(number: int) -> None:
        choose = random.Random(f"{seed}.{number}")
        step = seed * 1_000_000
        while True:
            step += 1
            name = f"w{number}.{choose.randrange(IDS_EACH)}"
            if name not in there:
                print("begin", name, step, flush=True)
                await base.create_document(f"title {step}", text_of(name, step), name)
                there.add(name)
                print("done", name, step, flush=True)
            elif choose.random() < 0.5:
                print("begin", name, step, flush=True)
                await base.edit_document(name, f"title {step}", text_of(name, step))
                print("done", name, step, flush=True)
            else:
                print("begin", name, "deleted", flush=True)
                assert await base.delete_document(name)
                there.discard(name)
                print("done", name, "deleted", flush=True)

    print("ready", flush=True)
    await asyncio.gather(*map(writer, range(WRITERS)))


if __name__ == "__main__":
    asyncio.run(write(sys.argv[2], int(sys.argv[3])))
