"""The PostgreSQL backend. See `stepwell.store.backend.Backend` for the contract.

Reads are one statement. A commit is one call of `stepwell.commit_entries`, which locks the namespace's row, checks,
writes, and logs the commit under an id: if the connection breaks before the answer, asking again with the same id
tells what became of it. No transaction is open while user code runs, and no session state is needed except on the
listener's own connection.
"""

import asyncio
import random
import threading
import weakref
from collections.abc import AsyncGenerator, Sequence
from time import monotonic
from typing import Any

import psycopg

from stepwell.errors import Conflict, LockTimeout, StorageUnavailable
from stepwell.identifiers import new_id, now_micros
from stepwell.store import postgres_statements as sql
from stepwell.store.backend import Lease
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
from stepwell.store.lock_line import Turn
from stepwell.store.postgres_connections import Connections, translated
from stepwell.store.postgres_lanes import Lanes, Row
from stepwell.store.postgres_lease import LEASE_SECONDS, LeaseToken, PostgresLease
from stepwell.store.postgres_listener import Listener
from stepwell.store.postgres_schema import ensure_schema
from stepwell.store.shared_lines import SharedLines, held

FOREIGN_LOCK_SECONDS = 30.0
_LOG_KEPT_SECONDS = 86_400
_TRIM_EVERY = 2_000


class _Session:
    """What belongs to one event loop."""

    def __init__(self, dsn: str, direct_dsn: str, size: int) -> None:
        self.connections = Connections(dsn, size)
        self.lanes = Lanes(self.connections)
        self.listener = Listener(direct_dsn)

    async def close(self) -> None:
        await self.lanes.drain()
        await self.listener.close()
        await self.connections.close()


class PostgresBackend:
    """Entries in a PostgreSQL database, shared by all namespaces.

    Args:
        dsn: a connection string. Behind a pooler that shares sessions, give `direct_dsn` too.
        direct_dsn: for the one connection that listens; defaults to `dsn`.
        size: connections an event loop may use.
    """

    def __init__(self, dsn: str, *, direct_dsn: str | None = None, size: int = 10) -> None:
        self._dsn = dsn
        self._direct_dsn = direct_dsn or dsn
        self._size = size
        self._sessions: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Session] = weakref.WeakKeyDictionary()
        self._mutex = threading.Lock()
        self._ids: dict[Namespace, int] = {}
        self._lines = SharedLines.of(dsn)
        self._ready = False
        self._closed = False
        self._commits = 0
        self._tasks: set[asyncio.Task[Any]] = set()

    # -- reading ---------------------------------------------------------------------------------------------------

    async def text(self, ns: Namespace, key: str) -> str | None:
        namespace_id = self._ids.get(ns) or await self._find(ns)
        rows = await self._session().connections.fetch(sql.TEXT, (namespace_id, key)) if namespace_id else ()
        return rows[0][0] if rows else None

    async def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        namespace_id = self._ids.get(ns) or await self._find(ns)
        if not namespace_id:
            return {}
        one = len(keys) == 1
        condition = sql.IS_KEY if one else sql.IN_KEYS
        given = (namespace_id, keys[0] if one else list(keys))
        rows = await self._session().connections.fetch(sql.RECORDS + condition, given)
        found = {row[0]: _record(row) for row in rows}
        return {key: found[key] for key in keys if key in found}

    async def scan(
        self, ns: Namespace, span: Span, *, after: str | None = None, limit: int = 200, reverse: bool = False
    ) -> list[Record]:
        namespace_id = self._ids.get(ns) or await self._find(ns)
        if not namespace_id:
            return []
        start: tuple[str, str] | None = (">=", span.start) if span.start else None
        stop: tuple[str, str] | None = None if span.stop is None else ("<", span.stop)
        if after is not None:
            if reverse:
                stop = ("<", after) if stop is None else ("<", min(after, stop[1]))
            elif after >= span.start:
                start = (">", after)
        condition, bounds = sql.page(start, stop, reverse=reverse)
        rows = await self._session().connections.fetch(sql.RECORDS + condition, (namespace_id, *bounds, limit))
        return [_record(row) for row in rows]

    async def namespaces(
        self,
        *,
        project_id: str | None = None,
        domain: Domain | None = None,
        scope: Scope | None = None,
        after: tuple[int, Namespace] | None = None,
        limit: int = 200,
    ) -> list[NamespaceInfo]:
        given = {"project_id": project_id, "domain": domain, "scope": scope}
        filters = {name: str(value) for name, value in given.items() if value is not None}
        values: list[Any] = list(filters.values())
        if after is not None:
            values += [after[0], after[0], after[0], *_identity(after[1])]
        statement = sql.namespaces(list(filters), following=after is not None)
        await self._prepare()
        rows = await self._session().connections.fetch(statement, [*values, limit])
        return [NamespaceInfo(_namespace(row), *row[5:]) for row in rows]

    # -- writing ---------------------------------------------------------------------------------------------------

    async def commit(
        self,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        *,
        source: Source = NO_SOURCE,
        lease: Lease | LeaseToken | None = None,
        commit_id: str | None = None,
        repeat: bool = False,
        wait: float = FOREIGN_LOCK_SECONDS,
    ) -> Committed:
        """See the contract. A commit sent again under its `commit_id` (with `repeat`) is done once.

        Args:
            wait: seconds to wait while somebody else holds the namespace's lock; 0 tries once.
        """
        own = lease if isinstance(lease, PostgresLease) else None
        token = lease if isinstance(lease, PostgresLease | LeaseToken) else None
        namespace_id = self._ids.get(ns) or await self._found(ns)
        commit_id = commit_id or new_id()
        key, text = writes[0] if len(writes) == 1 and not checks and token is None else ("", None)
        if text is not None:
            given: list[Any] = [namespace_id, commit_id, repeat, key, text, *source]
            await self._lines.looks_taken()
            row = await self._ordered(ns, sql.COMMIT_VALUE, given, len(text), None)
            if row[0] == "done":
                await self._count()
                return Committed(row[1], row[2], {key: row[3]}, frozenset())
            # Somebody holds the lock, or it was sent before: from here on like every other commit.
            repeat = given[2]
        values: list[Any] = [
            namespace_id,
            commit_id,
            repeat,
            None if token is None else token.id,
            [check.key for check in checks],
            [check.revision for check in checks],
            [write.key for write in writes],
            [write.text for write in writes],
            *source,
        ]
        weight = sum(len(write.text) for write in writes if write.text is not None)
        return _committed(await self._submit(ns, sql.COMMIT, values, weight, own, wait))

    async def clear(
        self,
        ns: Namespace,
        *,
        source: Source = NO_SOURCE,
        commit_id: str | None = None,
        repeat: bool = False,
        wait: float = FOREIGN_LOCK_SECONDS,
    ) -> int:
        namespace_id = self._ids.get(ns) or await self._found(ns)
        row = await self._submit(ns, sql.CLEAR, [namespace_id, commit_id or new_id(), repeat, *source], 0, None, wait)
        return len(_committed(row).removed)

    async def _submit(
        self, ns: Namespace, statement: str, values: list[Any], weight: int, lease: PostgresLease | None, wait: float
    ) -> Row:
        """Run a commit; wait while somebody else holds the namespace's lock."""
        await self._lines.looks_taken()
        row = await self._ordered(ns, statement, values, weight, lease)
        if row[0] == "locked":
            deadline = monotonic() + wait
            if wait <= 0:
                raise held(ns, row[6], wait)
            turn = await self._lines.join(ns, wait)
            try:
                pause = 0.002
                while row[0] == "locked":
                    if monotonic() > deadline:
                        raise held(ns, row[6], wait)
                    await asyncio.sleep(pause * random.random())
                    pause = min(pause * 1.5, 0.05)
                    row = await self._ordered(ns, statement, list(values), weight, lease)
            finally:
                self._lines.leave(ns, turn)
        if row[0] == "lost":
            raise LockTimeout(f"the lock of {ns} was lost before the commit")
        if row[0] == "conflict":
            current = dict(zip(row[3], row[4], strict=True))
            raise Conflict(f"changed since it was read: {row[3][0]!r}", keys=list(current), current=current)
        await self._count()
        return row

    async def _count(self) -> None:
        self._commits += 1
        if self._commits % _TRIM_EVERY == 0:
            await self.trim_log()

    async def _ordered(
        self, ns: Namespace, statement: str, values: list[Any], weight: int, lease: PostgresLease | None
    ) -> Row:
        future = self._session().lanes.submit(ns, statement, values, weight)
        if lease is not None:
            lease.pending.add(future)
            future.add_done_callback(lease.pending.discard)
        return await asyncio.shield(future)

    async def is_committed(self, ns: Namespace, commit_id: str) -> bool:
        """True if a commit of that id was made within the last day."""
        namespace_id = self._ids.get(ns) or await self._find(ns)
        return bool(await self._session().connections.fetch(sql.IS_COMMITTED, (namespace_id, commit_id)))

    async def trim_log(self) -> None:
        """Forget commits of more than a day ago: receipts are asked for within seconds.

        Ids are made by clients, whose clocks may be wrong: what counts is when the database took the commit.
        """
        oldest = now_micros() - _LOG_KEPT_SECONDS * 1_000_000
        digits = f"{oldest // 1_000:012x}"
        below = f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"
        await self._session().connections.change(sql.TRIM_LOG, (below, _LOG_KEPT_SECONDS * 1_000_000))

    # -- locks -----------------------------------------------------------------------------------------------------

    async def lock(
        self, ns: Namespace, *, timeout: float, holder: Holder, seconds: float | None = None
    ) -> PostgresLease:
        """See the contract. With `seconds` the lease ends after so long unless `renew` is called."""
        self._session()
        deadline = monotonic() + timeout
        lease = PostgresLease(self, ns, await self._lines.join(ns, timeout, holder))
        try:
            lease.namespace_id = self._ids.get(ns) or await self._found(ns)
            session = self._session()
            await session.listener.ready()
            values = (lease.namespace_id, lease.id, str(holder), session.listener.presence, seconds or LEASE_SECONDS)
            pause = 0.002
            while (other := (await session.connections.fetch(sql.ACQUIRE, values))[0][0]) is not None:
                left = deadline - monotonic()
                if left <= 0:
                    raise held(ns, other, timeout)  # noqa: TRY301  (gives the turn back like every other failure)
                await asyncio.sleep(min(left, pause * (0.5 + random.random() / 2)))
                pause = min(pause * 1.5, 0.05)
        except BaseException:
            # If the question was cut off, nobody knows its answer: the lease is given back in any case.
            await lease.release()
            raise
        if seconds is None:
            lease.beat()
        return lease

    async def renew(self, ns: Namespace, lease_id: str, seconds: float) -> bool:
        """Let a lease live on; False if it is no longer held."""
        namespace_id = self._ids.get(ns) or await self._find(ns)
        if not namespace_id:
            return False
        return await self._session().connections.change(sql.RENEW, (seconds, namespace_id, lease_id)) > 0

    async def lease_lives(self, ns: Namespace, lease_id: str) -> bool:
        """True if the lease is still held and its time not over."""
        namespace_id = self._ids.get(ns) or await self._find(ns)
        return bool(await self._session().connections.fetch(sql.LEASE_LIVES, (namespace_id, lease_id)))

    async def give_back(self, lease: PostgresLease, turn: Turn) -> None:
        """End a lease: commits made with it are over before the next holder begins."""
        try:
            if lease.pending:
                await asyncio.wait(tuple(lease.pending))
            if lease.namespace_id and not self._closed:
                await self._session().connections.change(sql.RELEASE, (lease.namespace_id, lease.id))
        except StorageUnavailable:
            pass  # then it ends by its time
        finally:
            self._lines.leave(lease.namespace, turn)

    async def end_lease(self, token: LeaseToken) -> bool:
        """Give back a lease of another handle; False if it was over already."""
        namespace_id = self._ids.get(token.namespace) or await self._find(token.namespace)
        if not namespace_id:
            return False
        return await self._session().connections.change(sql.RELEASE, (namespace_id, token.id)) > 0

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Hold on to a task until it is done: the event loop itself does not."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- watching --------------------------------------------------------------------------------------------------

    def watch(self, ns: Namespace, span: Span) -> AsyncGenerator[Change, None]:
        self._session()
        look = self._lines.look()
        first = asyncio.ensure_future(self.revision(ns))
        first.add_done_callback(lambda _: look.set_result(None))
        return self.watch_from(ns, span, first)

    async def revision(self, ns: Namespace) -> int:
        """The namespace's revision now; 0 if it was never written."""
        namespace_id = self._ids.get(ns) or await self._find(ns)
        if not namespace_id:
            return 0
        return int((await self._session().connections.fetch(sql.NAMESPACE_REVISION, (namespace_id,)))[0][0])

    async def watch_from(
        self, ns: Namespace, span: Span, since: "asyncio.Future[int] | int"
    ) -> AsyncGenerator[Change, None]:
        """Changes after a revision."""
        seen = since if isinstance(since, int) else await since
        namespace_id = self._ids.get(ns) or await self._found(ns)
        session = self._session()
        await session.listener.ready()
        changed = asyncio.Event()
        session.listener.add(namespace_id, changed)
        try:
            while True:
                changed.clear()
                await session.connections.change(sql.BE_WATCHED, (namespace_id,))
                seen, changes = await self._changes(session, namespace_id, seen)
                for change in changes:
                    if change.key in span:
                        yield change
                try:
                    async with asyncio.timeout(20):  # to stay watched
                        await changed.wait()
                except TimeoutError:
                    pass
        finally:
            session.listener.discard(namespace_id, changed)

    async def _changes(self, session: _Session, namespace_id: int, since: int) -> tuple[int, list[Change]]:
        now, logged = (await session.connections.fetch(sql.LOGGED_FROM, (namespace_id,)))[0]
        if now <= since:
            return since, []
        complete = logged is not None and logged <= since + 1
        statement = sql.CHANGES if complete else sql.CHANGES_WITHOUT_LOG
        rows = await session.connections.fetch(statement, (namespace_id, since, now))
        return now, [Change(*row) for row in rows]

    # -- opening and closing -----------------------------------------------------------------------------------------

    async def close(self) -> None:
        self._closed = True
        here = asyncio.get_running_loop()
        with self._mutex:
            sessions = list(self._sessions.items())
            self._sessions.clear()
        for loop, session in sessions:
            if loop is here:
                await session.close()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(session.close(), loop))

    @property
    def connections(self) -> Connections:
        """The connections of the running event loop, for the server's own tables."""
        return self._session().connections

    async def prepare(self) -> None:
        """Bring the schema up to date; done by itself on first use."""
        await self._prepare()

    def _session(self) -> _Session:
        if self._closed:
            raise StorageUnavailable("the PostgreSQL store is closed")
        loop = asyncio.get_running_loop()
        session = self._sessions.get(loop)
        if session is None:
            with self._mutex:
                session = self._sessions.setdefault(loop, _Session(self._dsn, self._direct_dsn, self._size))
        return session

    async def _prepare(self) -> None:
        self._session()
        if not self._ready:
            try:
                await ensure_schema(self._direct_dsn)  # it holds a lock of its session
            except psycopg.Error as error:
                raise translated(error) from error
            self._ready = True

    async def _find(self, ns: Namespace) -> int | None:
        await self._prepare()
        rows = await self._session().connections.fetch(sql.FIND_NAMESPACE, _identity(ns))
        if not rows:
            return None
        return self._ids.setdefault(ns, rows[0][0])

    async def _found(self, ns: Namespace) -> int:
        """The id of a namespace, made if there is none."""
        found = await self._find(ns)
        while found is None:
            await self._session().connections.change(sql.ADD_NAMESPACE, _identity(ns))
            found = await self._find(ns)
        return found


def _identity(ns: Namespace) -> tuple[str, ...]:
    return tuple(part or "" for part in ns.plain())


def _namespace(row: Row) -> Namespace:
    project_id, domain, scope, workflow, conversation_id = row[:5]
    return Namespace(project_id or None, Domain(domain), Scope(scope), workflow or None, conversation_id or None)


def _record(row: Row) -> Record:
    return Record(row[0], row[1], row[2], row[3], row[4], Source(*row[5:9]))


def _committed(row: Row) -> Committed:
    _, revision, at, keys, created, removed, _ = row
    return Committed(revision, at, dict(zip(keys or (), created or (), strict=True)), frozenset(removed or ()))
