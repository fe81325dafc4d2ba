"""Locks that die with their process: one lock file beside a database, one byte range per name.

POSIX record locks (`fcntl`), because the kernel drops them when their process ends however it ends, and because a
forked child does not inherit them (it would inherit `flock` and OFD locks, and keep them alive). Record locks belong
to the process, so a table in the process keeps its own threads and event loops apart, first come first served, and
the file's descriptor is never closed: closing any descriptor of a file drops all of the process's locks on it.

Per name there are two bytes. *Main* is held shared by a writer for the time of its transaction and exclusive by
`lock()`. *Gate* is passed through by everyone on the way to main; whoever waits for main exclusively keeps the gate,
so that a stream of writers cannot starve it. Within the process one line of tickets, shared and exclusive alike, does
the same: nobody overtakes, so neither writers nor holders starve.
"""

import os
import struct
import sys
import threading
from collections.abc import Callable
from time import monotonic, perf_counter_ns, sleep

from stepwell.errors import LockTimeout, StorageUnavailable
from stepwell.store.lock_line import Line, Turn

try:
    from _blake2 import blake2b  # the same function without the OpenSSL library that hashlib loads: 20 ms
except ImportError:
    from hashlib import blake2b

SETUP = "\x00setup"
"""The name locked while a database file is created or migrated."""

_NEXT_IN_LINE = 0.000_05

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

    def _exclusive_holder(fd: int, offset: int) -> int | None:
        return None

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

    def _exclusive_holder(fd: int, offset: int) -> int | None:
        """The other process that holds the byte exclusively, 0 if there is none; None where we do not know to ask."""
        if sys.maxsize < 2**32:
            return None
        if sys.platform == "linux":  # struct flock: type, whence, start, length, process
            layout, question, kind, process = "hhqqi", (fcntl.F_RDLCK, os.SEEK_SET, offset, 1, 0), 0, 4
        elif sys.platform == "darwin":  # start, length, process, type, whence
            layout, question, kind, process = "qqihh", (offset, 1, 0, fcntl.F_RDLCK, os.SEEK_SET), 3, 2
        else:
            return None
        answer = struct.unpack(layout, fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack(layout, *question)))
        if answer[kind] == fcntl.F_UNLCK:
            return 0
        return answer[process] if answer[process] > 0 else -1  # a process of another container has no number here


def offset_of(name: str) -> int:
    """The main byte of a name; the gate is the one after it. 61 bits of hash: collisions only cost waiting."""
    digest = int.from_bytes(blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")
    return (digest >> 3) << 1


class Ticket(Turn):
    """A place in the line for one name's lock; `LockFile.release` gives it back whatever its state is."""

    __slots__ = ("gate", "held", "leaving", "line", "offset", "owner", "pins")

    def __init__(self, line: "_NameLine", offset: int, wake: Callable[[], object], *, shared: bool) -> None:
        super().__init__(wake, shared=shared)
        self.line = line
        self.offset = offset
        self.gate = False  # our process keeps the gate byte for it
        self.held = False  # our process holds the main byte for it
        self.pins = 0  # commits under way that rely on it
        self.owner: object = None  # whom to name to those who wait in vain
        self.leaving = False  # to be given back when the last of them is through


class _NameLine(Line):
    """The line of one name, and how many of its shared turns hold the main byte our process locks once for all."""

    __slots__ = ("held",)

    def __init__(self) -> None:
        super().__init__()
        self.held = 0


class LockFile:
    """The locks of one file. Get it by `LockFile.at(path)`: there is one per file and process."""

    _open: "dict[str, LockFile]" = {}  # noqa: RUF012  (the kernel's own per-process table, mirrored)
    _open_mutex = threading.Lock()

    def __init__(self, path: str) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._lines: dict[int, _NameLine] = {}
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

    # -- taking and giving back ---------------------------------------------------------------------------------

    def enqueue(self, offset: int, wake: Callable[[], object], *, shared: bool = False) -> Ticket:
        """Stand in line. `wake` is called, from any thread, when the ticket's turn comes after it had to wait."""
        with self._mutex:
            line = self._lines.get(offset)
            if line is None:
                line = self._lines[offset] = _NameLine()
            ticket = Ticket(line, offset, wake, shared=shared)
            line.join(ticket)
        return ticket

    def try_take(self, ticket: Ticket) -> bool:
        """Take the lock if it is the ticket's turn and no other process is in the way; True when it is held.

        Never waits. A granted exclusive ticket keeps the gate between its tries.
        """
        with self._mutex:
            if ticket.held or not ticket.granted:
                return ticket.held
            line = ticket.line
            if self._lines.get(ticket.offset) is not line:
                return False  # a ticket of the process that forked us
            if not ticket.shared:
                ticket.held = self._take_exclusive(ticket)
            elif line.held or self._take_shared(ticket.offset):
                line.held += 1
                ticket.held = True
            return ticket.held

    def _take_exclusive(self, ticket: Ticket) -> bool:
        if not ticket.gate:
            ticket.gate = _lock(self._fd, ticket.offset + 1, shared=False)
        if not ticket.gate or not _lock(self._fd, ticket.offset, shared=False):
            return False
        _unlock(self._fd, ticket.offset + 1)
        ticket.gate = False
        return True

    def _take_shared(self, offset: int) -> bool:
        if not _lock(self._fd, offset + 1, shared=True):
            return False
        try:
            return _lock(self._fd, offset, shared=True)
        finally:
            _unlock(self._fd, offset + 1)

    def release(self, ticket: Ticket) -> None:
        """Give the lock (or the place in the line) back; harmless when repeated.

        While commits that rely on the lock are under way it stays taken, and is given back after the last.
        """
        with self._mutex:
            if ticket.pins:
                ticket.leaving = True
            else:
                self._release(ticket)

    def _release(self, ticket: Ticket) -> None:
        line = ticket.line
        if self._lines.get(ticket.offset) is not line:
            return
        if ticket.held and ticket.shared:
            line.held -= 1
        if ticket.held and not line.held:
            _unlock(self._fd, ticket.offset)
        if ticket.gate:
            _unlock(self._fd, ticket.offset + 1)
        ticket.held = ticket.gate = False
        line.leave(ticket)
        if not line:
            del self._lines[ticket.offset]

    # -- relying on a held lock -----------------------------------------------------------------------------------

    def is_holder(self, ticket: Ticket) -> bool:
        """True while the exclusive ticket's lock is held and not about to be given back."""
        line = ticket.line
        return (
            ticket.held
            and not ticket.leaving
            and line.holder is ticket
            and self._lines.get(ticket.offset) is line  # not one of the process that forked us
        )

    def pin(self, ticket: Ticket) -> bool:
        """Keep a held exclusive lock until `unpin`, whatever its owner does; False if it is not held any more."""
        with self._mutex:
            if not self.is_holder(ticket):
                return False
            ticket.pins += 1
            return True

    def unpin(self, ticket: Ticket) -> None:
        """The commit that pinned the lock is through."""
        with self._mutex:
            ticket.pins -= 1
            if ticket.leaving and not ticket.pins:
                self._release(ticket)

    # -- asking -------------------------------------------------------------------------------------------------

    def is_free(self, offset: int) -> bool:
        """True if nobody holds the name's lock exclusively, or waits for it in this process.

        Where the system can tell, it is asked without taking anything, so that nobody who tries at the same moment
        is turned away.
        """
        with self._mutex:
            line = self._lines.get(offset)
            if line is not None and (line.holder is not None or line.waiting):
                return False
            holder = _exclusive_holder(self._fd, offset)
        if holder is not None:
            return holder == 0
        ticket = self.enqueue(offset, _nothing, shared=True)
        try:
            return self.try_take(ticket)
        finally:
            self.release(ticket)

    def owner(self, offset: int) -> object:
        """What the ticket that holds the name exclusively in this process has as its owner."""
        line = self._lines.get(offset)
        holder = None if line is None else line.holder
        return holder.owner if isinstance(holder, Ticket) else None

    def process(self, offset: int) -> int | None:
        """The other process that holds the name exclusively, 0 if there is none; None if the system cannot tell."""
        holder = _exclusive_holder(self._fd, offset)
        return None if holder is None or holder < 0 else holder

    # -- waiting on a thread --------------------------------------------------------------------------------------

    def acquire(self, offset: int, timeout: float, what: str = "the lock") -> Ticket:
        """Take a lock exclusively on this thread, waiting up to `timeout` seconds.

        Raises:
            LockTimeout: not free in time.
        """
        granted = threading.Event()
        ticket = self.enqueue(offset, granted.set)
        try:
            in_the_way = self._wait(ticket, granted, timeout)
        except BaseException:
            self.release(ticket)
            raise
        if in_the_way is not None:
            self.release(ticket)
            raise LockTimeout(f"{what} was not free within {timeout:g} s: held by {in_the_way}", seconds=timeout)
        return ticket

    def _wait(self, ticket: Ticket, granted: threading.Event, timeout: float) -> str | None:
        """Wait until the lock is held (None) or the time is over (who was in the way)."""
        deadline = monotonic() + timeout
        if not ticket.granted and not granted.wait(max(timeout, 0)):
            return "this process"
        return None if self.take_from_others(ticket, deadline - monotonic()) else "another process"

    def take_from_others(self, ticket: Ticket, timeout: float) -> bool:
        """Wait up to `timeout` seconds, on this thread, until other processes let a granted ticket take its lock.

        Whoever is next (has the gate) asks often, so that the lock passes on at once; there is only one of them. Ends
        early when the ticket is given back meanwhile.
        """
        deadline = monotonic() + timeout
        pause = Pause()
        while not self.try_take(ticket):
            if not ticket.granted or monotonic() >= deadline:
                return False
            sleep(_NEXT_IN_LINE if ticket.gate else pause.next())
        return True

    def _forget(self) -> None:
        """In a forked child: nothing is held. The descriptor serves on: record locks belong to processes."""
        self._mutex = threading.Lock()
        self._lines = {}


def _nothing() -> None:
    """Nobody to wake."""


class Pause:
    """Growing, jittered waits for polling: half a millisecond at first, 10 ms at most."""

    __slots__ = ("_bound",)

    def __init__(self) -> None:
        self._bound = 0.000_5

    def next(self) -> float:
        """The next wait in seconds."""
        bound = self._bound
        self._bound = min(bound * 1.5, 0.010)
        # The clock's last digits are jitter enough, and the random module takes 6 ms to load.
        return bound * (0.5 + (perf_counter_ns() >> 3 & 0xFF) / 512)


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
