"""Namespace locks of the SQLite backend: holding one, and being let in as a writer while nobody else does.

A holder that gives its name leaves a sign, a small file beside the lock file, for the message of those who wait in
vain. The sign is a courtesy: the lock itself is the kernel's.
"""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from time import monotonic

from stepwell.errors import LockTimeout
from stepwell.store.entries import Holder, Namespace
from stepwell.store.file_lock import LockFile, Ticket, offset_of

FOREIGN_LOCK_SECONDS = 30.0


class SqliteLease:
    """A held namespace lock. Made from a ticket that holds it; `holder` leaves a sign."""

    __slots__ = ("_sign", "locks", "namespace", "ticket")

    def __init__(self, namespace: Namespace, locks: LockFile, ticket: Ticket, holder: Holder | None = None) -> None:
        self.namespace = namespace
        self.locks = locks
        self.ticket = ticket
        self._sign = None if holder is None else _write_sign(locks, ticket.offset, holder)

    def unlock(self) -> None:
        """Give the lock back; harmless when repeated. A commit under way keeps it until it is through."""
        if self._sign is not None and self.locks.is_holder(self.ticket):
            with suppress(OSError):
                os.unlink(self._sign)
        self.locks.release(self.ticket)

    async def release(self) -> None:
        """Give the lock back; harmless when repeated."""
        self.unlock()


class NamespaceAdmission:
    """Lets a writer in while nobody else holds the namespace's lock.

    Args:
        lease: the writer's own lock, if it has one: it is kept until the writer leaves.

    Raises (from `enter`):
        LockTimeout: the lease was lost, or somebody else held the lock for 30 s.
    """

    __slots__ = ("_deadline", "_lease", "_locks", "_namespace", "_pinned", "_ticket")

    def __init__(self, locks: LockFile, ns: Namespace, lease: SqliteLease | None) -> None:
        self._locks = locks
        self._namespace = ns
        self._lease = lease
        self._ticket: Ticket | None = None
        self._pinned = False
        self._deadline = 0.0

    def enter(self, wake: Callable[[], object]) -> bool:
        """Try to get in; `wake` is called when it is worth another try, which other processes cannot tell us."""
        if self._lease is not None:
            self._pinned = self._locks.pin(self._lease.ticket)
            if not self._pinned:
                raise LockTimeout(f"the lock of {self._namespace} was lost before the commit")
            return True
        if self._ticket is None:
            self._ticket = self._locks.enqueue(offset_of_namespace(self._namespace), wake, shared=True)
            if self._locks.try_take(self._ticket):
                return True
            self._deadline = monotonic() + FOREIGN_LOCK_SECONDS
            return False
        if self._locks.try_take(self._ticket):
            return True
        if monotonic() > self._deadline:
            raise lock_timeout(self._namespace, FOREIGN_LOCK_SECONDS, self._locks)
        return False

    def leave(self) -> None:
        """Get out, or stop trying to get in; harmless when repeated."""
        if self._pinned and self._lease is not None:
            self._pinned = False
            self._locks.unpin(self._lease.ticket)
        if self._ticket is not None:
            self._locks.release(self._ticket)
            self._ticket = None


@lru_cache(maxsize=4_096)
def offset_of_namespace(ns: Namespace) -> int:
    """Where a namespace's lock is in the lock file."""
    return offset_of(str(ns))


def lock_timeout(ns: Namespace, seconds: float, locks: LockFile) -> LockTimeout:
    """The error of whoever waited in vain, naming the holder as far as it is known."""
    holder = _read_sign(locks, offset_of_namespace(ns))
    return LockTimeout(
        f"the lock of {ns} was not free within {seconds:g} s: held by {holder or 'another writer'}",
        holder=None if holder is None else holder._asdict(),
        seconds=seconds,
    )


def _sign_of(locks: LockFile, offset: int) -> str:
    return f"{locks.path}.{offset:x}"


def _write_sign(locks: LockFile, offset: int, holder: Holder) -> str:
    path = _sign_of(locks, offset)
    with suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, "\n".join((str(holder.pid), holder.host, holder.run_id or "")).encode())
        finally:
            os.close(descriptor)
    return path


def _read_sign(locks: LockFile, offset: int) -> Holder | None:
    try:
        with open(_sign_of(locks, offset), encoding="utf-8") as file:
            pid, host, run_id = file.read().split("\n")
        holder = Holder(int(pid), host, run_id or None)
    except (OSError, ValueError):
        return None  # nobody signed, or nobody could
    return None if _is_dead(holder) else holder


def _is_dead(holder: Holder) -> bool:
    """True for a sign left behind by a killed process, as far as can be told."""
    if sys.platform == "win32" or holder.host != os.uname().nodename:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
