"""The line of those who want one name's lock within this process: first come, first served.

Shared turns (writers) run together, an exclusive one (a holder) runs alone, and nobody overtakes: neither a stream of
writers nor a stream of holders starves the others. Callers bring their own mutex.
"""

from collections import deque
from collections.abc import Callable


class Turn:
    """A place in the line. `wake` is called when the turn comes, unless it came at once."""

    __slots__ = ("granted", "shared", "wake")

    def __init__(self, wake: Callable[[], object], *, shared: bool) -> None:
        self.wake = wake
        self.shared = shared
        self.granted = False


class Line:
    """Whose turn it is, and who waits."""

    __slots__ = ("holder", "sharing", "waiting")

    def __init__(self) -> None:
        self.holder: Turn | None = None
        self.sharing = 0
        self.waiting: deque[Turn] = deque()

    def __bool__(self) -> bool:
        return self.holder is not None or self.sharing > 0 or bool(self.waiting)

    def join(self, turn: Turn) -> None:
        """Stand in line; `turn.granted` tells whether the turn came at once."""
        if self.waiting or not self._admits(turn):
            self.waiting.append(turn)
        else:
            self._grant(turn)

    def leave(self, turn: Turn) -> None:
        """End a turn, or leave the line without one; harmless when repeated."""
        if not turn.granted:
            if turn not in self.waiting:
                return
            self.waiting.remove(turn)
        elif turn.shared:
            self.sharing -= 1
        else:
            self.holder = None
        turn.granted = False
        while self.waiting and self._admits(self.waiting[0]):
            following = self.waiting.popleft()
            self._grant(following)
            following.wake()

    def _admits(self, turn: Turn) -> bool:
        return self.holder is None and (turn.shared or not self.sharing)

    def _grant(self, turn: Turn) -> None:
        turn.granted = True
        if turn.shared:
            self.sharing += 1
        else:
            self.holder = turn
