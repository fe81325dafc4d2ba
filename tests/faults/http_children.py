"""What clients in processes of their own do; run as `python -m tests.faults.http_children COMMAND URL KEY ...`."""

import asyncio
import json
import random
import sys
from pathlib import Path
from time import monotonic

from stepwell.errors import StepwellError
from stepwell.storage.kv import KeyValue
from stepwell.store.entries import Domain, Holder, Namespace, Scope
from stepwell.store.http import HttpBackend
from tests.server_process import AnyName

PROJECT = "01936d3f-6a00-7000-8000-0000000000aa"
NS = Namespace(PROJECT, Domain.KV, Scope.PROJECT)


def space(name: str) -> Namespace:
    """A namespace of a test's own."""
    return Namespace(PROJECT, Domain.KV, Scope.CONVERSATION, conversation_id=name)


def say(what: object) -> None:
    """One line for the parent."""
    sys.stdout.write(f"{json.dumps(what)}\n")
    sys.stdout.flush()


async def increment(backend: HttpBackend, name: str, times: str) -> None:
    """Add one to a counter so many times, and say so after each."""
    kv = KeyValue(backend, space(name))
    for _ in range(int(times)):
        say(await kv.update_value("count", lambda n: n + 1, default=0))


async def hold(backend: HttpBackend, name: str) -> None:
    """Take the lock and keep it."""
    await backend.lock(space(name), timeout=10, holder=Holder(1, "child"))
    say("held")
    await asyncio.sleep(600)


async def random_operations(backend: HttpBackend, name: str, who: str, times: str, notes: str) -> None:
    """Write to keys of one's own in many ways; note each intent before and each outcome after.

    A pair of keys is always written together and the counter is shared with the other clients.
    """
    choose = random.Random(f"{name} {who}")
    kv = KeyValue(backend, space(name))
    with Path(notes).open("a", encoding="utf-8") as file:

        def note(*what: object) -> None:
            file.write(f"{json.dumps(what)}\n")
            file.flush()

        for number in range(int(times)):
            kind = choose.choice(["set", "delete", "update", "lock", "pair", "set", "lock"])
            value = f"{who}-{number}"
            note("intent", number, kind, value)
            began = monotonic()
            try:
                if kind == "set":
                    await kv.set_value(f"{who}:one", value)
                elif kind == "delete":
                    await kv.delete_value(f"{who}:one")
                elif kind == "update":
                    await kv.update_value("count", lambda n: n + 1, default=0)
                elif kind == "lock":
                    async with kv.lock(timeout=20) as tx:
                        await tx.set_value(f"{who}:left", value)
                        await tx.update_value("locked", lambda n: n + 1, default=0)
                        await tx.set_value(f"{who}:right", value)
                else:

                    async def both(tx, value=value):
                        await tx.set_value(f"{who}:left", value)
                        await tx.set_value(f"{who}:right", value)

                    await kv.transact(both)
            except StepwellError as error:
                note("failed", number, kind, value, error.code, error.message, round(monotonic() - began, 2))
            else:
                note("done", number, kind, value, round(monotonic() - began, 2))
            await asyncio.sleep(choose.random() * 0.02)


async def main(command: str, url: str, key: str, *arguments: str) -> None:
    """Run a command."""
    backend = HttpBackend(url, key, names=AnyName())
    await {"increment": increment, "hold": hold, "random_operations": random_operations}[command](backend, *arguments)
    await backend.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
