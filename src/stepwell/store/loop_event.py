"""An asyncio event that other threads may set."""

import asyncio
from contextlib import suppress


class LoopEvent:
    """Belongs to the event loop that runs when it is made; only that loop waits for it."""

    __slots__ = ("_event", "_loop")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()

    def set(self) -> None:
        """Wake the waiting task; from any thread."""
        with suppress(RuntimeError):  # the loop is closed: nobody waits there any more
            self._loop.call_soon_threadsafe(self._event.set)

    def clear(self) -> None:
        """Wait for the next `set`."""
        self._event.clear()

    async def wait(self, seconds: float | None) -> bool:
        """Wait until it is set; False if it was not within so many seconds (None: however long it takes)."""
        try:
            async with asyncio.timeout(None if seconds is None else max(seconds, 0)):
                await self._event.wait()
        except TimeoutError:
            return False
        return True
