"""Atomic changes of one namespace: the transaction inside `lock()`, and optimistic ones that retry.

One rule keeps them safe: while a transaction (or an updater) is active, its task tree touches nothing else. The
active one is carried by a context variable, so tasks started inside inherit it and other tasks do not.
"""

import asyncio
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from inspect import isawaitable
from time import monotonic
from types import TracebackType
from typing import Any, Final, TypeVar

from stepwell.errors import (
    Conflict,
    CrossNamespaceAccess,
    InvalidArgument,
    LockReentry,
    LockTimeout,
    TransactionClosed,
    UpdateConflict,
)
from stepwell.identifiers import check_key, check_prefix
from stepwell.jsontext import MAX_VALUE_BYTES, check_size, decode, encode
from stepwell.storage.entry import MISSING, Entry
from stepwell.store.backend import Backend, Lease
from stepwell.store.entries import Check, Committed, Holder, Namespace, Record, Source, Span, Write

T = TypeVar("T")
Updater = Callable[[Any], Any]

UPDATE_TIMEOUT: Final = 30.0
PAGE: Final = 200


class Transaction:
    """Reads and buffered writes of one namespace, committed together or not at all.

    Reads see the transaction's own writes; values are copied in and out. Got from `kv.lock()`.
    """

    __slots__ = (
        "_backend",
        "_closed",
        "_max_value_bytes",
        "_reads",
        "_source",
        "_writes",
        "lease",
        "namespace",
    )

    def __init__(
        self,
        backend: Backend,
        namespace: Namespace,
        source: Source,
        *,
        lease: Lease | None = None,
        max_value_bytes: int = MAX_VALUE_BYTES,
    ) -> None:
        self._backend = backend
        self.namespace = namespace
        self._source = source
        self.lease = lease
        self._max_value_bytes = max_value_bytes
        self._reads: dict[str, int] = {}
        self._writes: dict[str, str | None] = {}
        self._closed = False

    async def get_value(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default` if it is absent. A stored null is None."""
        text = await self.get_text(key)
        return default if text is None else decode(text)

    async def get_text(self, key: str) -> str | None:
        """The JSON text of `key`, or None if it is absent."""
        check_key(key)
        self._check_open()
        if key in self._writes:
            return self._writes[key]
        record = await self._record(key)
        return None if record is None else record.text

    async def get_entry(self, key: str) -> Entry | None:
        """The committed entry of `key`, with this transaction's value where it wrote one.

        The revision and times of an entry written here are those of the last commit (0 and "" for a new key).
        """
        check_key(key)
        self._check_open()
        record = await self._record(key)
        if key not in self._writes:
            return None if record is None else Entry.of(record)
        text = self._writes[key]
        if text is None:
            return None
        if record is None:
            return Entry(key, decode(text), 0, "", "", self._source)
        return Entry.of(record._replace(text=text, source=self._source))

    async def set_value(self, key: str, value: Any) -> None:
        """Store `value` when the transaction commits."""
        check_key(key)
        self._check_open()
        if value is MISSING:
            raise InvalidArgument("MISSING is not a value", hint="use delete_value to remove an entry")
        self._writes[key] = encode(value, max_bytes=self._max_value_bytes)

    async def set_encoded(self, key: str, text: str, size: int) -> None:
        """Store a value that is JSON text already, for callers who made it with `encode` off the event loop.

        Args:
            key: the entry.
            text: what `encode` makes of the value.
            size: how many UTF-8 bytes that is.

        Raises:
            ValueTooLarge: the text is over the limit.
        """
        check_key(key)
        self._check_open()
        check_size(size, self._max_value_bytes)
        self._writes[key] = text

    async def delete_value(self, key: str) -> bool:
        """Remove `key` when the transaction commits; True if it is there as this transaction sees it."""
        present = await self.get_value(key, MISSING) is not MISSING
        self._writes[key] = None
        return present

    async def update_value(self, key: str, updater: Updater, default: Any = None) -> Any:
        """Replace the value by `updater(value)`; returns the new value."""
        value = await call_updater(updater, await self.get_value(key, default))
        await self.set_value(key, value)
        return decode(self._writes[key] or "")

    async def scan(self, prefix: str = "", *, reverse: bool = False) -> AsyncIterator[Entry]:
        """Entries whose keys start with `prefix`, in key order, as this transaction sees them."""
        span = Span.prefix(check_prefix(prefix))
        self._check_open()
        mine = sorted((key for key in self._writes if key in span), reverse=reverse)
        after: str | None = None
        while True:
            page = await self._backend.scan(self.namespace, span, after=after, limit=PAGE, reverse=reverse)
            last = page[-1].key if len(page) == PAGE else None
            stored = {record.key: record for record in page}
            while mine and (last is None or (mine[0] >= last if reverse else mine[0] <= last)):
                stored.setdefault(mine[0], Record(mine[0], "", 0, 0, 0, self._source))
                mine.pop(0)
            for key in sorted(stored, reverse=reverse):
                entry = await self.get_entry(key) if key in self._writes else Entry.of(stored[key])
                if entry is not None:
                    yield entry
            if last is None:
                return
            after = last

    async def _record(self, key: str) -> Record | None:
        record = (await self._backend.read(self.namespace, (key,))).get(key)
        if self.lease is None and self._reads.setdefault(key, _revision(record)) != _revision(record):
            raise Conflict(f"{key!r} changed while it was being read", keys=[key])
        return record

    def _check_open(self) -> None:
        if self._closed:
            raise TransactionClosed(f"the transaction on {self.namespace} has ended")

    async def commit(self) -> Committed | None:
        """Commit the buffered writes; None if there are none. For `lock()` and `transact`, not for callers."""
        self._closed = True
        if not self._writes:
            return None
        checks = [Check(key, revision) for key, revision in self._reads.items()]
        writes = [Write(key, text) for key, text in self._writes.items()]
        return await self._backend.commit(self.namespace, checks, writes, source=self._source, lease=self.lease)

    async def check_reads(self) -> None:
        """See whether what was read without a lock is still there: what never was there together proves nothing.

        Raises:
            Conflict: it changed meanwhile.
        """
        if self.lease is None and len(self._reads) > 1:
            found = await self._backend.read(self.namespace, tuple(self._reads))
            changed = [key for key, revision in self._reads.items() if _revision(found.get(key)) != revision]
            if changed:
                raise Conflict(f"{changed[0]!r} changed while it was being read", keys=changed)

    def close(self) -> None:
        """Refuse further use."""
        self._closed = True

    @property
    def closed(self) -> bool:
        """True once the transaction committed or was abandoned."""
        return self._closed

    def covers(self, backend: Backend, namespace: Namespace) -> bool:
        """True if this transaction is on that namespace of that backend."""
        return self.namespace == namespace and self._backend is backend


def _revision(record: Record | None) -> int:
    return 0 if record is None else record.revision


class _Updating:
    """Active while an updater runs: it must be pure, so every access is refused."""

    closed = False

    def covers(self, backend: Backend, namespace: Namespace) -> bool:
        return False


_UPDATING: Final = _Updating()
_active: ContextVar[Transaction | _Updating | None] = ContextVar("stepwell_active_transaction", default=None)


def active_transaction(backend: Backend, namespace: Namespace) -> Transaction | None:
    """The transaction of the current task tree, which must be on this namespace; None if there is none.

    Raises:
        CrossNamespaceAccess: a transaction on another namespace, or an updater, is active.
    """
    active = _active.get()
    if active is None or active.closed:
        return None
    if isinstance(active, Transaction) and active.covers(backend, namespace):
        return active
    if isinstance(active, _Updating):
        raise CrossNamespaceAccess(
            "an updater touched storage; it must be pure",
            hint="compute the new value from the argument only, or use lock()",
        )
    raise CrossNamespaceAccess(f"{namespace} was touched while the lock of {active.namespace} is held")


def check_no_transaction(what: str) -> None:
    """Refuse what belongs to no namespace of this task tree's transaction.

    Args:
        what: the thing that was touched, for the message.

    Raises:
        CrossNamespaceAccess: a transaction or an updater is active.
    """
    active = _active.get()
    if active is not None and not active.closed:
        raise CrossNamespaceAccess(f"{what} was touched while a lock is held or an updater runs")


async def call_updater(updater: Updater, value: Any) -> Any:
    """Run an updater, sync or async, with storage closed to it."""
    token = _active.set(_UPDATING)
    try:
        value = updater(value)
        if isawaitable(value):
            value = await value
    finally:
        _active.reset(token)
    if value is MISSING:
        raise InvalidArgument("an updater returned MISSING", hint="use delete_value to remove an entry")
    return value


def this_holder(run_id: str | None) -> Holder:
    """This process, as the holder of a lock."""
    return Holder(os.getpid(), socket.gethostname(), run_id)


class NamespaceLock:
    """`async with kv.lock(timeout=30) as tx`: the namespace's lock around one atomic commit.

    Raises (on entering):
        LockTimeout: not free within `timeout` seconds; names the holder.
        LockReentry: this task tree holds it already.
        CrossNamespaceAccess: this task tree holds another namespace's lock.
    """

    __slots__ = ("_arguments", "_token", "_transaction", "timeout")

    def __init__(self, backend: Backend, namespace: Namespace, source: Source, timeout: float, max_bytes: int) -> None:
        self._arguments = (backend, namespace, source, max_bytes)
        self.timeout = timeout

    async def __aenter__(self) -> Transaction:
        backend, namespace, source, max_bytes = self._arguments
        if active_transaction(backend, namespace) is not None:
            raise LockReentry(f"the lock of {namespace} is already held by this task")
        lease = await backend.lock(namespace, timeout=self.timeout, holder=this_holder(source.run_id))
        self._transaction = Transaction(backend, namespace, source, lease=lease, max_value_bytes=max_bytes)
        self._token = _active.set(self._transaction)
        return self._transaction

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _active.reset(self._token)
        transaction = self._transaction
        lease = transaction.lease
        try:
            if kind is None:
                await transaction.commit()
        finally:
            transaction.close()
            if lease is not None:
                # A cancelled task must still give the lock back.
                await asyncio.shield(lease.release())


class Contention:
    """Remembers that a namespace is contended, so that updates queue on its lock instead of racing."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0

    def __bool__(self) -> bool:
        return monotonic() < self._until

    def note(self) -> None:
        """A race was lost."""
        self._until = monotonic() + 1.0


async def transact(
    backend: Backend,
    namespace: Namespace,
    source: Source,
    body: Callable[[Transaction], Awaitable[T]],
    *,
    contention: Contention | None = None,
    locking: bool = True,
    timeout: float = UPDATE_TIMEOUT,
    max_value_bytes: int = MAX_VALUE_BYTES,
) -> tuple[T, Committed | None]:
    """Run `body` and commit what it wrote, atomically with what it read; run it again if it lost a race.

    The first try is optimistic: it costs no lock. After a lost race the namespace's lock is taken, where writers
    queue, so nobody starves; with `locking` false it is tried again after a growing pause. `body` must be free of
    side effects, because it may run more than once.

    Raises:
        UpdateConflict: not landed within `timeout` seconds.
        LockTimeout: the lock was not free in that time; names the holder.
    """
    joined = active_transaction(backend, namespace)
    if joined is not None:
        return await body(joined), None
    deadline = monotonic() + timeout
    optimistic = not contention
    pause = 0.001
    while True:
        remaining = deadline - monotonic()
        if remaining <= 0:
            raise UpdateConflict(f"{namespace} kept changing for {timeout:g} s")
        lease = None
        if not optimistic:
            lease = await backend.lock(namespace, timeout=remaining, holder=this_holder(source.run_id))
        transaction = Transaction(backend, namespace, source, lease=lease, max_value_bytes=max_value_bytes)
        try:
            token = _active.set(transaction)
            try:
                result = await body(transaction)
            except Conflict:
                raise
            except Exception:
                await transaction.check_reads()
                raise
            finally:
                _active.reset(token)
            # Somebody's lock() may keep the commit waiting: the time we have is for that too.
            try:
                async with asyncio.timeout(max(deadline - monotonic(), 0.001)):
                    return result, await transaction.commit()
            except TimeoutError:
                raise UpdateConflict(f"{namespace} was kept locked by another for {timeout:g} s") from None
            except LockTimeout:
                if lease is None:
                    raise
                # The lease was lost with what kept it alive, such as a server's connection: nothing was written.
        except Conflict:
            if contention is not None:
                contention.note()
            optimistic = not locking
            pause = 0.002 if locking else min(pause * 2, 0.1)
            await asyncio.sleep(random.random() * pause)
        finally:
            transaction.close()
            if lease is not None:
                await asyncio.shield(lease.release())
