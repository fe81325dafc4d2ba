"""Locks that die with their process: one lock file beside a database, one byte range per name.

POSIX record locks (`fcntl`), because the kernel drops them when their process ends however it ends, and because a
forked child does not inherit them (it would inherit `flock` and OFD locks, and keep them alive). Record locks belong
to the process, so a table in the process keeps its own threads and event loops apart, first come first served, and
the file's descriptor is never closed: closing any descriptor of a file drops all of the process's locks on it.

Per name there are two bytes. *Main* is held shared by a writer for the time of its transaction and exclusive by
`lock()`. *Gate* is passed through by everyone on the way to main; whoever waits for main exclusively keeps the gate,
so that a stream of writers cannot starve it.
"""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from hashlib import blake2b
from random import random
from time import monotonic, sleep

from stepwell.errors import LockTimeout, StorageUnavailable

SETUP = "\x00setup"
"""The name locked while a database file is created or migrated."""

if sys.platform == "win32":
    import msvcrt

    def _lock(fd: int, offset: int, *, shared: bool) -> bool:
        # Windows has no shared byte locks in msvcrt: writers of one namespace simply take turns.
        os.lseek(fd, offset & 0x7FFF_FFFF, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(fd: int, offset: int) -> None:
        os.lseek(fd, offset & 0x7FFF_FFFF, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _lock(fd: int, offset: int, *, shared: bool) -> bool:
        try:
            fcntl.lockf(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB, 1, offset)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock(fd: int, offset: int) -> None:
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, offset)


def offset_of(name: str) -> int:
    """The main byte of a name; the gate is the one after it. 61 bits of hash: collisions only cost waiting."""
    digest = int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    return (digest >> 3) << 1


class Ticket:
    """A place in the line for one name's exclusive lock."""

    __slots__ = ("gate", "granted", "held", "offset", "wake")

    def __init__(self, offset: int, wake: Callable[[], None]) -> None:
        self.offset = offset
        self.wake = wake
        self.granted = False  # first in this process
        self.gate = False  # our process keeps the gate byte
        self.held = False  # our process holds the main byte


class _Line:
    __slots__ = ("holder", "shared", "waiting")

    def __init__(self) -> None:
        self.holder: Ticket | None = None
        self.shared = 0
        self.waiting: deque[Ticket] = deque()


class LockFile:
    """The locks of one file. Get it by `LockFile.at(path)`: there is one per file and process."""

    _open: "dict[str, LockFile]" = {}  # noqa: RUF012  (the kernel's own per-process table, mirrored)
    _open_mutex = threading.Lock()

    def __init__(self, path: str) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._lines: dict[int, _Line] = {}
        self._fd = _open_lock_file(path)
        self._inode = os.fstat(self._fd).st_ino

    @classmethod
    def at(cls, path: str) -> "LockFile":
        """The lock file at `path`, created (mode 0600) if it is not there."""
        path = os.path.realpath(path)
        with cls._open_mutex:
            known = cls._open.get(path)
            if known is not None and known.is_current():
                return known
            cls._open[path] = opened = cls(path)
            return opened

    def is_current(self) -> bool:
        """False once the file was deleted or replaced: locks on the old one exclude nobody."""
        try:
            return os.stat(self.path).st_ino == self._inode
        except OSError:
            return False

    # -- writers: shared, never waiting -----------------------------------------------------------------------

    def enter(self, offset: int) -> bool:
        """Take the main byte shared for the time of one transaction; False while somebody holds it exclusively."""
        with self._mutex:
            line = self._lines.setdefault(offset, _Line())
            if line.holder is not None:
                return False
            if line.shared == 0:
                if not _lock(self._fd, offset + 1, shared=True):
                    return False
                try:
                    if not _lock(self._fd, offset, shared=True):
                        return False
                finally:
                    _unlock(self._fd, offset + 1)
            line.shared += 1
            return True

    def leave(self, offset: int) -> None:
        """Give back what `enter` took."""
        with self._mutex:
            line = self._lines[offset]
            line.shared -= 1
            if line.shared == 0:
                _unlock(self._fd, offset)
                self._pass_on(offset, line)

    # -- holders: exclusive, first come first served ------------------------------------------------------------

    def enqueue(self, offset: int, wake: Callable[[], None]) -> Ticket:
        """Stand in line; `wake` is called (from any thread) once the ticket is granted within this process."""
        ticket = Ticket(offset, wake)
        with self._mutex:
            line = self._lines.setdefault(offset, _Line())
            if line.holder is None and line.shared == 0 and not line.waiting:
                line.holder = ticket
                ticket.granted = True
            else:
                line.waiting.append(ticket)
        return ticket

    def try_take(self, ticket: Ticket) -> bool:
        """Try to take the bytes of a granted ticket from the other processes; keeps the gate while waiting."""
        with self._mutex:
            if not ticket.gate:
                ticket.gate = _lock(self._fd, ticket.offset + 1, shared=False)
            if ticket.gate and _lock(self._fd, ticket.offset, shared=False):
                ticket.held = True
                _unlock(self._fd, ticket.offset + 1)
                ticket.gate = False
            return ticket.held

    def release(self, ticket: Ticket) -> None:
        """Give the lock (or the place in the line) back; harmless when repeated."""
        with self._mutex:
            line = self._lines.get(ticket.offset)
            if line is None:
                return
            if line.holder is not ticket:
                if ticket in line.waiting:
                    line.waiting.remove(ticket)
                return
            if ticket.held:
                _unlock(self._fd, ticket.offset)
            if ticket.gate:
                _unlock(self._fd, ticket.offset + 1)
            ticket.held = ticket.gate = False
            line.holder = None
            self._pass_on(ticket.offset, line)

    def is_holder(self, ticket: Ticket) -> bool:
        """True while the ticket's lock is really held."""
        line = self._lines.get(ticket.offset)
        return ticket.held and line is not None and line.holder is ticket

    def _pass_on(self, offset: int, line: _Line) -> None:
        if line.holder is not None or line.shared:
            return
        if line.waiting:
            line.holder = line.waiting.popleft()
            line.holder.granted = True
            line.holder.wake()
        else:
            del self._lines[offset]

    def acquire(self, offset: int, timeout: float, what: str = "the lock") -> Ticket:
        """Take a lock exclusively on this thread, waiting up to `timeout` seconds.

        Raises:
            LockTimeout: not free in time.
        """
        deadline = monotonic() + timeout
        granted = threading.Event()
        ticket = self.enqueue(offset, granted.set)
        if not ticket.granted and not granted.wait(timeout):
            self.release(ticket)
            raise LockTimeout(f"{what} was not free within {timeout:g} s: held by this process", seconds=timeout)
        pause = Pause()
        while not self.try_take(ticket):
            if monotonic() >= deadline:
                self.release(ticket)
                raise LockTimeout(f"{what} was not free within {timeout:g} s: held by another process", seconds=timeout)
            sleep(pause.next())
        return ticket

    def _forget(self) -> None:
        """In a forked child: nothing is held, and the parent's descriptor is left alone."""
        self._mutex = threading.Lock()
        self._lines = {}
        self._fd = _open_lock_file(self.path)
        self._inode = os.fstat(self._fd).st_ino


class Pause:
    """Growing, jittered waits for polling: half a millisecond at first, 10 ms at most."""

    __slots__ = ("_bound",)

    def __init__(self) -> None:
        self._bound = 0.000_5

    def next(self) -> float:
        """The next wait in seconds."""
        bound = self._bound
        self._bound = min(bound * 1.5, 0.010)
        return bound * (0.5 + random() / 2)


def _open_lock_file(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    except OSError as error:
        raise StorageUnavailable(
            f"the lock file {path} cannot be opened: {error.strerror}",
            hint="check that the data folder exists and that you may write there",
            path=path,
        ) from None


def _after_fork() -> None:
    LockFile._open_mutex = threading.Lock()
    for lock_file in LockFile._open.values():
        lock_file._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
