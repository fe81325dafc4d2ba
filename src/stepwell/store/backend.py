"""The seam every backend implements: read, scan, commit, lock, watch, close.

The contract is in the docstrings, and `tests/conformance` checks them against every backend. Arguments arrive
checked (keys, ids, JSON text): a backend adds no rules of its own, so limits are the same everywhere.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from stepwell.store.entries import (
    NO_SOURCE,
    Change,
    Check,
    Committed,
    Domain,
    Holder,
    Namespace,
    NamespaceInfo,
    Record,
    Scope,
    Source,
    Span,
    Write,
)


class Lease(Protocol):
    """A namespace lock that is held. It dies with its process."""

    @property
    def namespace(self) -> Namespace:
        """The one namespace it covers."""
        ...

    async def release(self) -> None:
        """Give the lock back; doing it twice is harmless. Never raises because the lock was already lost."""
        ...


class Backend(Protocol):
    """Ordered, transactional JSON entries per namespace.

    Every method may raise `StorageUnavailable` (cannot be reached or written), `StorageCorrupt` and, on first
    use, `SchemaTooNew`. Methods may be called from any thread's event loop at any time.
    """

    async def text(self, ns: Namespace, key: str) -> str | None:
        """The JSON text of one entry, or None if it is absent. The hot path of `get_value`."""
        ...

    async def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        """The records of the keys that exist, all as of one moment."""
        ...

    async def scan(
        self, ns: Namespace, span: Span, *, after: str | None = None, limit: int = 200, reverse: bool = False
    ) -> list[Record]:
        """Up to `limit` records of the span in UTF-8 byte order of their keys (descending with `reverse`).

        `after` continues behind that key, in the direction of travel. A page is materialised: no cursor or
        transaction stays open between calls.
        """
        ...

    async def commit(
        self,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        *,
        source: Source = NO_SOURCE,
        lease: Lease | None = None,
    ) -> Committed:
        """All checks hold and all writes land, durably; or `Conflict` and nothing is changed.

        At most one write a key. Waits while somebody else holds the namespace's lock; `lease` says that the
        caller does. Cancelling the call leaves the commit either wholly done or wholly not done.

        Raises:
            Conflict: `keys` in its data lists the checks that failed, with `current` revisions.
            LockTimeout: `lease` was lost, or a foreign lock was held for over 30 s.
        """
        ...

    async def lock(self, ns: Namespace, *, timeout: float, holder: Holder) -> Lease:
        """Exclude every other holder and every other writer of the namespace, across threads, processes, hosts.

        Args:
            timeout: seconds to wait; 0 tries once.
            holder: shown to those who wait in vain.

        Raises:
            LockTimeout: naming the current holder.
        """
        ...

    def watch(self, ns: Namespace, span: Span) -> AsyncGenerator[Change, None]:
        """Changes committed by anyone after the call, each key's newest state at least once, in revision order.

        Changes of one key in quick succession may be folded into the last. The generator ends only when closed. A
        watcher that falls more than 10,000 commits behind may miss deletions, never values.
        """
        ...

    async def namespaces(
        self,
        *,
        project_id: str | None = None,
        domain: Domain | None = None,
        scope: Scope | None = None,
        after: tuple[int, Namespace] | None = None,
        limit: int = 200,
    ) -> list[NamespaceInfo]:
        """Namespaces that have entries, last written first; `after` = (updated_at, namespace) of the last one seen."""
        ...

    async def clear(self, ns: Namespace, *, source: Source = NO_SOURCE) -> int:
        """Delete every entry of a namespace in one commit; returns how many there were. Revisions go on growing."""
        ...

    async def close(self) -> None:
        """Finish what was accepted and release files and connections. Using the backend again raises."""
        ...
