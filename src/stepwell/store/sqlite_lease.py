"""Namespace locks of the SQLite backend: holding one, and being let in as a writer while nobody else does.

A holder that keeps its lock for a while leaves a sign, a small file beside the lock file, so that those who wait in
vain can name it. The sign is a courtesy: the lock itself is the kernel's.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from time import monotonic

from stepwell.errors import LockTimeout
from stepwell.store.entries import Holder, Namespace
from stepwell.store.file_lock import LockFile, Ticket, offset_of

FOREIGN_LOCK_SECONDS = 30.0


class SqliteLease:
    """A held namespace lock. Made from a ticket that holds it; `holder` is named to those who wait in vain."""

    __slots__ = ("_signed", "locks", "namespace", "ticket")

    def __init__(self, namespace: Namespace, locks: LockFile, ticket: Ticket, holder: Holder | None = None) -> None:
        self.namespace = namespace
        self.locks = locks
        self.ticket = ticket
        self._signed = False
        ticket.owner = holder or Holder(os.getpid(), _this_host())

    def sign(self) -> None:
        """Tell other processes who holds it: for locks that are held long enough to be asked about."""
        if isinstance(self.ticket.owner, Holder) and self.locks.is_holder(self.ticket):
            self._signed = True
            _write_sign(self.locks, self.ticket.offset, self.ticket.owner)

    def unlock(self) -> None:
        """Give the lock back; harmless when repeated. A commit under way keeps it until it is through."""
        if self._signed:
            self._signed = False
            if self.locks.is_holder(self.ticket):
                with suppress(OSError):
                    os.unlink(_sign_of(self.locks, self.ticket.offset))
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
    holder = _holder(locks, offset_of_namespace(ns))
    return LockTimeout(
        f"the lock of {ns} was not free within {seconds:g} s: held by {holder or 'another writer'}",
        holder=None if holder is None else holder._asdict(),
        seconds=seconds,
    )


def _holder(locks: LockFile, offset: int) -> Holder | None:
    owner = locks.owner(offset)
    if isinstance(owner, Holder):
        return owner
    process, signed = locks.process(offset), _read_sign(locks, offset)
    if process is None or (signed is not None and signed.pid == process):
        return signed
    # Another sign was left behind by a process that was killed.
    return Holder(process, _this_host()) if process else None


def _this_host() -> str:
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "this host")


def _sign_of(locks: LockFile, offset: int) -> str:
    return f"{locks.path}.{offset:x}"


def _write_sign(locks: LockFile, offset: int, holder: Holder) -> None:
    with suppress(OSError):
        descriptor = os.open(_sign_of(locks, offset), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            os.write(descriptor, "\n".join((str(holder.pid), holder.host, holder.run_id or "")).encode())
        finally:
            os.close(descriptor)


def _read_sign(locks: LockFile, offset: int) -> Holder | None:
    try:
        with open(_sign_of(locks, offset), encoding="utf-8") as file:
            pid, host, run_id = file.read().split("\n")
        return Holder(int(pid), host, run_id or None)
    except (OSError, ValueError):
        return None  # nobody signed, or nobody could
