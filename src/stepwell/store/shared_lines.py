"""The lines of those who want a namespace's lock at one server: one place for all handles of this process.

A server hands its locks out in whatever order it is asked; standing in line here first makes a process ask once at a
time, and first come first served.
"""

import asyncio
import threading
from concurrent.futures import Future
from time import monotonic

from stepwell.errors import LockTimeout
from stepwell.store.entries import Holder, Namespace
from stepwell.store.lock_line import Line, Turn
from stepwell.store.loop_event import LoopEvent

_places: dict[str, "SharedLines"] = {}
_places_mutex = threading.Lock()


class SharedLines:
    """The lines of one server, and the first looks of watchers, which commits of this process must not overtake."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._lines: dict[Namespace, Line] = {}
        self._holders: dict[Namespace, Holder] = {}
        self._looks: set[Future[None]] = set()

    @classmethod
    def of(cls, address: str) -> "SharedLines":
        """The one of that server, shared by every handle on it in this process."""
        with _places_mutex:
            return _places.setdefault(address, cls())

    async def join(self, ns: Namespace, timeout: float, holder: Holder | None = None) -> Turn:
        """Wait for a turn, which `leave` ends: alone as `holder`, or without one beside other writers.

        Raises:
            LockTimeout: it did not come in time.
        """
        ready = LoopEvent()
        turn = Turn(ready.set, shared=holder is None)
        with self._mutex:
            self._lines.setdefault(ns, Line()).join(turn)
        try:
            if not turn.granted and not await ready.wait(timeout):
                raise held(ns, self._holders.get(ns), timeout)  # noqa: TRY301  (leaves the line like other failures)
        except BaseException:
            self.leave(ns, turn)
            raise
        if holder is not None:
            self._holders[ns] = holder
        return turn

    def leave(self, ns: Namespace, turn: Turn) -> None:
        """End a turn; harmless when repeated."""
        with self._mutex:
            line = self._lines.get(ns)
            if line is not None:
                if turn.granted and not turn.shared:
                    self._holders.pop(ns, None)
                line.leave(turn)
                if not line:
                    del self._lines[ns]

    def look(self) -> Future[None]:
        """A watcher takes its first look: commits of this process wait until the future is resolved."""
        future: Future[None] = Future()
        with self._mutex:
            self._looks.add(future)
        future.add_done_callback(self._looks.discard)
        return future

    async def looks_taken(self) -> None:
        """Wait until every first look that was begun before is taken."""
        deadline = monotonic() + 10
        for future in tuple(self._looks):
            await asyncio.wait([asyncio.wrap_future(future)], timeout=max(0.0, deadline - monotonic()))


def held(ns: Namespace, holder: Holder | str | None, seconds: float) -> LockTimeout:
    """The error of whoever waited in vain."""
    return LockTimeout(
        f"the lock of {ns} was not free within {seconds:g} s: held by {holder or 'another writer'}",
        holder=holder._asdict() if isinstance(holder, Holder) else holder,
        seconds=seconds,
    )
