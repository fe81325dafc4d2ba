"""The key-value handle: what `ctx.storage.local.kv` is."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from stepwell.errors import InvalidArgument
from stepwell.identifiers import check_key, check_prefix, iso_time
from stepwell.jsontext import MAX_VALUE_BYTES, decode, encode
from stepwell.storage.entry import MISSING, Entry
from stepwell.storage.transaction import (
    PAGE,
    UPDATE_TIMEOUT,
    Contention,
    NamespaceLock,
    Transaction,
    Updater,
    active_transaction,
    transact,
)
from stepwell.store.backend import Backend
from stepwell.store.entries import NO_SOURCE, Change, Namespace, Record, Source, Span, Write

T = TypeVar("T")


class KeyValue:
    """JSON values by key in one namespace.

    Inside `lock()` the same calls from the same task tree join its transaction; calls on any other namespace
    raise `CrossNamespaceAccess`.

    Args:
        backend: where the namespace lives.
        namespace: which one.
        source: recorded as the last writer of what is written through this handle.
        max_value_bytes: limit of one value's JSON text, in UTF-8 bytes.
        locking: false where the namespace's lock cannot be taken: updates that lost a race then try again.
    """

    def __init__(
        self,
        backend: Backend,
        namespace: Namespace,
        *,
        source: Source = NO_SOURCE,
        max_value_bytes: int = MAX_VALUE_BYTES,
        locking: bool = True,
    ) -> None:
        self.backend = backend
        self.namespace = namespace
        self.source = source
        self._max_value_bytes = max_value_bytes
        self._contention = Contention()
        self._locking = locking

    async def get_value(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default` if there is no entry.

        A stored null is None: pass `MISSING` as the default to tell the two apart. Changing the returned object
        changes nothing stored.
        """
        joined = active_transaction(self.backend, self.namespace)
        if joined is not None:
            return await joined.get_value(key, default)
        text = await self.backend.text(self.namespace, check_key(key))
        return default if text is None else decode(text)

    async def get_entry(self, key: str) -> Entry | None:
        """The whole entry of `key`: value, revision, times and last writer; None if there is none."""
        joined = active_transaction(self.backend, self.namespace)
        if joined is not None:
            return await joined.get_entry(key)
        record = (await self.backend.read(self.namespace, (check_key(key),))).get(key)
        return None if record is None else Entry.of(record)

    async def set_value(self, key: str, value: Any) -> Entry:
        """Store `value` under `key` and return the entry written.

        Every call makes a new revision, also when the value is the one already there.

        Raises:
            InvalidKey, ValueNotSerializable, ValueTooLarge: nothing was written.
        """
        check_key(key)
        if value is MISSING:
            raise InvalidArgument("MISSING is not a value", hint="use delete_value to remove an entry")
        joined = active_transaction(self.backend, self.namespace)
        if joined is not None:
            await joined.set_value(key, value)
            entry = await joined.get_entry(key)
            assert entry is not None  # noqa: S101  (just written)
            return entry
        text = encode(value, max_bytes=self._max_value_bytes)
        committed = await self.backend.commit(self.namespace, (), (Write(key, text),), source=self.source)
        return Entry(
            key,
            decode(text),
            committed.revision,
            iso_time(committed.created[key]),
            iso_time(committed.at),
            self.source,
        )

    async def delete_value(self, key: str) -> bool:
        """Remove the entry of `key` for good: True if there was one. An absent key is not an error."""
        check_key(key)
        joined = active_transaction(self.backend, self.namespace)
        if joined is not None:
            return await joined.delete_value(key)
        committed = await self.backend.commit(self.namespace, (), (Write(key, None),), source=self.source)
        return key in committed.removed

    async def update_value(
        self, key: str, updater: Updater, default: Any = None, *, timeout: float = UPDATE_TIMEOUT
    ) -> Any:
        """Replace the value of `key` by `updater(value)`, never losing another writer's update.

        Args:
            key: the entry; `updater` gets `default` if there is none.
            updater: sync or async, free of side effects (it may run more than once) and of storage calls.
                Returning None stores null; returning `MISSING` is refused.
            default: the value of an absent entry.
            timeout: seconds to keep trying.

        Returns:
            The new value.

        Raises:
            UpdateConflict: not landed in time. Whatever `updater` raises leaves the entry as it was.

        >>> await kv.update_value("visits", lambda n: n + 1, default=0)  # doctest: +SKIP
        1
        """
        check_key(key)

        async def body(transaction: Transaction) -> Any:
            return await transaction.update_value(key, updater, default)

        return await self.transact(body, timeout=timeout)

    async def transact(self, body: Callable[[Transaction], Awaitable[T]], *, timeout: float = UPDATE_TIMEOUT) -> T:
        """Run `body(tx)` and commit its writes atomically with its reads, retrying when it lost a race.

        For changes of several keys that need no long lock. `body` may run more than once; it must have no other
        effects and must not scan.
        """
        result, _ = await transact(
            self.backend,
            self.namespace,
            self.source,
            body,
            contention=self._contention if self._locking else None,
            locking=self._locking,
            timeout=timeout,
            max_value_bytes=self._max_value_bytes,
        )
        return result

    def lock(self, timeout: float = 30.0) -> NamespaceLock:
        """`async with kv.lock() as tx`: exclude every other writer of this namespace, then commit atomically.

        Any exception (cancellation too) rolls everything back. Keep it short: other writers wait.

        Args:
            timeout: seconds to wait for the lock; 0 tries once.
        """
        return NamespaceLock(self.backend, self.namespace, self.source, timeout, self._max_value_bytes)

    async def scan(self, prefix: str = "", *, after: str | None = None, reverse: bool = False) -> AsyncIterator[Entry]:
        """Entries whose keys start with `prefix`, in UTF-8 byte order of their keys.

        Pages are read as the loop goes on and nothing stays locked in between: entries that exist throughout
        come exactly once, others may or may not come.

        Args:
            prefix: taken literally; empty means every key.
            after: continue behind this key.
            reverse: descending order.
        """
        span = Span.prefix(check_prefix(prefix))
        joined = active_transaction(self.backend, self.namespace)
        if joined is not None:
            async for entry in joined.scan(prefix, reverse=reverse):
                if after is None or (entry.key < after if reverse else entry.key > after):
                    yield entry
            return
        while True:
            page = await self.backend.scan(self.namespace, span, after=after, limit=PAGE, reverse=reverse)
            for record in page:
                yield Entry.of(record)
            if len(page) < PAGE:
                return
            after = page[-1].key

    async def records(
        self, prefix: str = "", *, after: str | None = None, limit: int = PAGE, reverse: bool = False
    ) -> list[Record]:
        """One page of undecoded records whose keys start with `prefix`; committed state only."""
        active_transaction(self.backend, self.namespace)
        span = Span.prefix(check_prefix(prefix))
        return await self.backend.scan(self.namespace, span, after=after, limit=limit, reverse=reverse)

    async def watch(self, prefix: str = "") -> AsyncGenerator[Change, None]:
        """Changes of the keys that start with `prefix`, by anyone, from now on: key, revision, deleted flag."""
        active_transaction(self.backend, self.namespace)
        async for change in self.backend.watch(self.namespace, Span.prefix(check_prefix(prefix))):
            yield change

    def __repr__(self) -> str:
        return f"<KeyValue {self.namespace}>"
