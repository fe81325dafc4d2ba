"""The signal that a run is being cancelled, for code on the event loop and in worker threads."""

import asyncio
import threading


class Cancellation:
    """`ctx.cancelled`: true once the run is being cancelled."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reason: str | None = None

    def __bool__(self) -> bool:
        return self._event.is_set()

    def is_set(self) -> bool:
        """True once the run is being cancelled."""
        return self._event.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block a worker thread until the run is cancelled, or for `timeout` seconds; True if it was."""
        return self._event.wait(timeout)

    def raise_if_set(self) -> None:
        """Raise `asyncio.CancelledError` if the run is being cancelled: for loops in worker threads."""
        if self._event.is_set():
            raise asyncio.CancelledError(self.reason or "the run was cancelled")

    def set(self, reason: str) -> None:
        """Give the signal."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()
