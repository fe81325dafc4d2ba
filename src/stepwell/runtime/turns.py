"""Turns of a conversation: the runs that talk in it go one after the other, whichever processes they are in."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable

from stepwell.store.file_lock import LockFile, offset_of

POLL_SECONDS = 0.05


@contextlib.asynccontextmanager
async def conversation_turn(locks: LockFile, conversation_id: str, on_wait: Callable[[], None]) -> AsyncIterator[None]:
    """Hold a conversation's turn: two agents that talk at once would answer each other's questions.

    The turn is given back with its process, however that ends. A run that starts another one in its own conversation
    and waits for it would wait forever: that is what `ctx.run_workflow` is for.

    Args:
        locks: those of the project's journal; the turn counts on this machine.
        on_wait: called once where another run has the turn.
    """
    ticket = locks.enqueue(offset_of(f"turn {conversation_id}"), lambda: None)
    try:
        if not locks.try_take(ticket):
            on_wait()
            while not locks.try_take(ticket):  # noqa: ASYNC110  (another process gives no sign)
                await asyncio.sleep(POLL_SECONDS)
        yield
    finally:
        locks.release(ticket)
