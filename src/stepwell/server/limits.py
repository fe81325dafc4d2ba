"""What the server allows: sizes, rates, open streams. Each has an answer that says when to try again."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from stepwell.errors import ServerBusy, TooManyRequests


@dataclass(frozen=True)
class Limits:
    """The server's limits.

    Args:
        body_bytes: of one request; one commit may hold several values of 16 MiB.
        requests_per_second, burst: of one token, on average and at once.
        streams: open event streams and held locks at a time.
    """

    body_bytes: int = 128 * 1024 * 1024
    requests_per_second: float = 500.0
    burst: int = 2_000
    streams: int = 1_000


class RateLimiter:
    """A token bucket for each caller."""

    def __init__(self, per_second: float, burst: int) -> None:
        self._per_second = per_second
        self._burst = float(burst)
        self._buckets: dict[str, tuple[float, float]] = {}

    def spend(self, caller: str) -> None:
        """Count one request of a caller.

        Raises:
            TooManyRequests: the caller's bucket is empty.
        """
        now = monotonic()
        left, since = self._buckets.get(caller, (self._burst, now))
        left = min(self._burst, left + (now - since) * self._per_second)
        if left < 1:
            wait = (1 - left) / self._per_second
            raise TooManyRequests(
                f"over {self._per_second:g} requests a second", hint="slow down and try again", retry_after=wait
            )
        self._buckets[caller] = (left - 1, now)
        if len(self._buckets) > 10_000:
            full = self._burst / self._per_second
            self._buckets = {name: state for name, state in self._buckets.items() if now - state[1] < full}


class Streams:
    """Counts open streams, and ends them when the server stops."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.open = 0
        self.closing = asyncio.Event()

    def admit(self) -> None:
        """See whether another stream may be opened, before its answer begins.

        Raises:
            ServerBusy: there are too many, or the server is stopping.
        """
        if self.closing.is_set() or self.open >= self._most:
            raise ServerBusy("the server is stopping" if self.closing.is_set() else "too many open streams")

    @contextmanager
    def one(self) -> Iterator[None]:
        """A stream, for as long as the block lasts."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1
