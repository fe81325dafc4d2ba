"""Namespace locks of the SQLite backend: holding one, and being let in as a writer while nobody else does."""

from time import monotonic

from stepwell.errors import LockTimeout
from stepwell.store.entries import Namespace
from stepwell.store.file_lock import LockFile, Ticket, offset_of

FOREIGN_LOCK_SECONDS = 30.0


class SqliteLease:
    """A held namespace lock."""

    __slots__ = ("locks", "namespace", "ticket")

    def __init__(self, namespace: Namespace, locks: LockFile, ticket: Ticket) -> None:
        self.namespace = namespace
        self.locks = locks
        self.ticket = ticket

    def unlock(self) -> None:
        """Give the lock back; harmless when repeated."""
        self.locks.release(self.ticket)

    async def release(self) -> None:
        """Give the lock back; harmless when repeated."""
        self.unlock()


class NamespaceAdmission:
    """Lets a writer in while nobody else holds the namespace's lock.

    Raises (from `enter`):
        LockTimeout: the lease was lost, or somebody else held the lock for 30 s.
    """

    __slots__ = ("_deadline", "_inside", "_lease", "_locks", "_namespace", "_offset")

    def __init__(self, locks: LockFile, ns: Namespace, lease: SqliteLease | None) -> None:
        self._locks = locks
        self._namespace = ns
        self._lease = lease
        self._offset = lease.ticket.offset if lease is not None else offset_of(str(ns))
        self._deadline = monotonic() + FOREIGN_LOCK_SECONDS
        self._inside = False

    def enter(self) -> bool:
        """Try to get in."""
        if self._lease is not None:
            if not self._locks.is_holder(self._lease.ticket):
                raise LockTimeout(f"the lock of {self._namespace} was lost before the commit")
            return True
        self._inside = self._locks.enter(self._offset)
        if not self._inside and monotonic() > self._deadline:
            raise LockTimeout(f"the lock of {self._namespace} was held by another for {FOREIGN_LOCK_SECONDS:g} s")
        return self._inside

    def leave(self) -> None:
        """Get out."""
        if self._inside:
            self._inside = False
            self._locks.leave(self._offset)
