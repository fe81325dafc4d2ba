"""The HTTP backend: a server's entries, for runs on other machines. See `stepwell.store.backend.Backend`.

Every commit carries an id made here. If no answer comes, the same commit is sent again under the same id, and the
server does it once.
"""

import asyncio
import random
import threading
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

from stepwell.errors import EntryNotFound, LockTimeout, StepwellError, StorageUnavailable, error_of
from stepwell.identifiers import new_id
from stepwell.jsontext import decode, encode
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
from stepwell.store.http_client import PATIENCE_SECONDS, Client, address_of, quoted
from stepwell.store.lock_line import Turn
from stepwell.store.shared_lines import SharedLines, held

FOREIGN_LOCK_SECONDS: Final = 30.0
_MAX_PAGE = 1_000
_MAX_KEYS = 25_000
_RENEW_SECONDS = 4.0
NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


class HttpLease:
    """A lock held at the server, for as long as a connection to it is open and it is renewed."""

    __slots__ = ("_backend", "_releasing", "_stream", "_turn", "id", "namespace", "pending")

    def __init__(self, backend: "HttpBackend", namespace: Namespace, turn: Turn) -> None:
        self._backend = backend
        self._turn = turn
        self._releasing: asyncio.Task[None] | None = None
        self._stream: asyncio.Task[None] | None = None
        self.namespace = namespace
        self.id: str | None = None
        self.pending: set[asyncio.Task[Any]] = set()

    async def take(self, body: dict[str, Any]) -> None:
        """Ask the server for the lock, and keep its answer open.

        Raises:
            LockTimeout
        """
        taken: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._stream = asyncio.create_task(self._backend.hold(self.namespace, body, taken))
        self._backend.keep(self._stream)
        self.id = await taken

    async def release(self) -> None:
        """Give the lock back; harmless when repeated. A cancelled caller's lock is given back all the same."""
        if self._releasing is None:
            self._releasing = asyncio.create_task(self._release())
            self._backend.keep(self._releasing)
        await asyncio.shield(self._releasing)

    async def _release(self) -> None:
        try:
            if self.pending:
                await asyncio.wait(tuple(self.pending))
            if self.id is not None:
                with suppress(StepwellError):  # then it ends by its time
                    await self._backend.end_lease(self.namespace, self.id)
            if self._stream is not None:
                self._stream.cancel()
                await asyncio.gather(self._stream, return_exceptions=True)
        finally:
            self._backend.lines.leave(self.namespace, self._turn)


class HttpBackend:
    """Entries of a server.

    Args:
        url: the server's address.
        key: a token; never shown.
        names: names of projects by id: one that the server does not know is made known to it under its name at its
            first use; without a name it is an error.
        patience: seconds for which requests are repeated while the server cannot be reached.
    """

    def __init__(
        self, url: str, key: str, *, names: Mapping[str, str] = NO_NAMES, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._patience = patience
        self._url = url.rstrip("/")
        self._key = key
        self._names = names
        self._clients: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Client] = weakref.WeakKeyDictionary()
        self._mutex = threading.Lock()
        self._closed = False
        self._tasks: set[asyncio.Task[Any]] = set()
        self.lines = SharedLines.of(self._url)

    # -- reading ---------------------------------------------------------------------------------------------------

    async def text(self, ns: Namespace, key: str) -> str | None:
        path, query = address_of(ns)
        try:
            found = await self._client().ask("GET", f"{path}/entries/{quoted(key)}", query | {"as": "text"})
        except EntryNotFound:
            return None
        return str(found["text"])

    async def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        path, query = address_of(ns)
        found: dict[str, Record] = {}
        for start in range(0, len(keys), _MAX_KEYS):
            body = {"keys": list(keys[start : start + _MAX_KEYS])}
            answer = await self._client().ask("POST", f"{path}/read", query | {"as": "text"}, body)
            found |= {item["key"]: record_of(item) for item in answer["items"]}
        return found

    async def scan(
        self, ns: Namespace, span: Span, *, after: str | None = None, limit: int = 200, reverse: bool = False
    ) -> list[Record]:
        path, query = address_of(ns)
        query |= {"as": "text", "start": span.start, "reverse": "true" if reverse else "false"}
        if span.stop is not None:
            query["stop"] = span.stop
        found: list[Record] = []
        while len(found) < limit:
            query["limit"] = str(min(limit - len(found), _MAX_PAGE))
            if after is not None:
                query["after"] = after
            page = await self._client().ask("GET", f"{path}/entries", query)
            found += [record_of(item) for item in page["items"]]
            after = page["next_cursor"]
            if after is None:
                break
        return found

    async def namespaces(
        self,
        *,
        project_id: str | None = None,
        domain: Domain | None = None,
        scope: Scope | None = None,
        after: tuple[int, Namespace] | None = None,
        limit: int = 200,
    ) -> list[NamespaceInfo]:
        given = {"project_id": project_id, "domain": domain, "scope": scope, "limit": min(limit, _MAX_PAGE)}
        query = {name: str(value) for name, value in given.items() if value is not None}
        if after is not None:
            query["after"] = encode([after[0], *after[1].plain()])
        answer = await self._client().ask("GET", "/namespaces", query)
        return [
            NamespaceInfo(Namespace(item[0], Domain(item[1]), Scope(item[2]), item[3], item[4]), *item[5:])
            for item in answer["items"]
        ]

    # -- writing ---------------------------------------------------------------------------------------------------

    async def commit(
        self,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        *,
        source: Source = NO_SOURCE,
        lease: Lease | None = None,
    ) -> Committed:
        own = lease if isinstance(lease, HttpLease) else None
        if own is not None and own.id is None:
            raise LockTimeout(f"the lock of {ns} was lost before the commit")
        path, query = address_of(ns)
        body = commit_body(checks, writes, source) | {"lease": None if own is None else own.id}
        return committed_of(await self.patiently(ns, f"{path}/commit", query, body, own))

    async def clear(self, ns: Namespace, *, source: Source = NO_SOURCE) -> int:
        path, query = address_of(ns)
        return int((await self.patiently(ns, f"{path}/clear", query, {"source": source._asdict()}))["removed"])

    async def patiently(
        self, ns: Namespace, path: str, query: Mapping[str, str], body: dict[str, Any], lease: HttpLease | None = None
    ) -> Any:
        """Commit as soon as nobody else holds the namespace's lock.

        The waiting is done here, not at the server: a caller that gives up meanwhile has changed nothing.

        Raises:
            LockTimeout: it was held for too long.
        """
        body["wait"] = 0
        deadline = monotonic() + FOREIGN_LOCK_SECONDS
        pause = 0.005
        turn = None
        try:
            while True:
                try:
                    return await self.once(path, query, body, lease)
                except LockTimeout as error:
                    holder = error.data.get("holder")
                    if holder is None:
                        raise  # the own lease was lost
                if monotonic() > deadline:
                    raise held(ns, str(holder), FOREIGN_LOCK_SECONDS)
                turn = turn or await self.lines.join(ns, FOREIGN_LOCK_SECONDS)
                await asyncio.sleep(pause * (0.5 + random.random()))
                pause = min(pause * 1.5, 0.1)
        finally:
            if turn is not None:
                self.lines.leave(ns, turn)

    async def once(
        self,
        path: str,
        query: Mapping[str, str],
        body: dict[str, Any],
        lease: HttpLease | None = None,
        *,
        method: str = "POST",
    ) -> Any:
        """Have something done exactly once, whether or not the caller still waits for it: `body` gets a `commit_id`.

        Raises:
            StepwellError: what the server answered.
            StorageUnavailable: no answer in time.
        """
        client = self._client()
        await self.lines.looks_taken()
        task = asyncio.create_task(client.ask(method, path, query, {**body, "commit_id": new_id()}, once=True))
        self.keep(task)
        if lease is not None:
            lease.pending.add(task)
            task.add_done_callback(lease.pending.discard)
        return await asyncio.shield(task)

    # -- locks -----------------------------------------------------------------------------------------------------

    async def lock(self, ns: Namespace, *, timeout: float, holder: Holder) -> HttpLease:
        self._client()
        deadline = monotonic() + timeout
        lease = HttpLease(self, ns, await self.lines.join(ns, timeout, holder))
        try:
            left = max(0.0, deadline - monotonic())
            await lease.take({"timeout": left, "holder": holder._asdict()})
        except BaseException:
            await lease.release()
            raise
        return lease

    async def hold(self, ns: Namespace, body: dict[str, Any], taken: "asyncio.Future[str]") -> None:
        """Read the server's answer to a lock for as long as it lasts, and renew the lease meanwhile."""
        path, query = address_of(ns)
        client = self._client()
        try:
            async with client.stream("POST", f"{path}/lock", query, body) as lines:
                renewed = monotonic()
                async for line in lines:
                    if line and not taken.done():
                        answer = decode(line)
                        if "error" in answer:
                            raise error_of(answer["error"])
                        taken.set_result(answer["lease"])
                    if taken.done() and monotonic() - renewed > _RENEW_SECONDS:
                        renewed = monotonic()
                        self.keep(asyncio.create_task(self._renew(f"{path}/lock/{taken.result()}", query)))
            raise StorageUnavailable("the server ended the lock")
        except StepwellError as error:
            if not taken.done():
                taken.set_exception(error)
        finally:
            taken.cancel()

    async def _renew(self, path: str, query: dict[str, str]) -> None:
        with suppress(StepwellError):  # asked again soon; the commit will tell if it was lost
            await self._client().ask("PUT", path, query)

    async def end_lease(self, ns: Namespace, lease_id: str) -> None:
        """Give a lease back."""
        if not self._closed:
            path, query = address_of(ns)
            await self._client().ask("DELETE", f"{path}/lock/{lease_id}", query)

    # -- watching --------------------------------------------------------------------------------------------------

    def watch(self, ns: Namespace, span: Span) -> AsyncGenerator[Change, None]:
        self._client()
        look = self.lines.look()
        first = asyncio.ensure_future(self._revision(ns))
        first.add_done_callback(lambda _: look.set_result(None))
        return self._watch(ns, span, first)

    async def _revision(self, ns: Namespace) -> int:
        path, query = address_of(ns)
        return int((await self._client().ask("GET", f"{path}/revision", query))["revision"])

    async def _watch(self, ns: Namespace, span: Span, first: "asyncio.Future[int]") -> AsyncGenerator[Change, None]:
        since = await first
        path, query = address_of(ns)
        query["start"] = span.start
        if span.stop is not None:
            query["stop"] = span.stop
        told: set[tuple[str, int]] = set()  # of revisions that were not told to their end
        while True:
            query["since"] = str(since)
            with suppress(StorageUnavailable):  # the server goes away for a while now and then
                async with (
                    self._client().stream("GET", f"{path}/watch", query) as lines,
                    aclosing(_events(lines)) as events,
                ):
                    async for number, change in events:
                        since = max(since, number)
                        if change is not None and (change.key, change.revision) not in told:
                            told.add((change.key, change.revision))
                            told = {each for each in told if each[1] > since}
                            yield change
            await asyncio.sleep(0.2)

    # -- the rest --------------------------------------------------------------------------------------------------

    async def ask(self, method: str, path: str, query: Mapping[str, str], body: Any = None) -> Any:
        """A request of another kind, under `/api/v1`; repeated if no answer comes, so it must change nothing.

        Raises:
            StepwellError: what the server answered.
            StorageUnavailable: no answer in time.
        """
        return await self._client().ask(method, path, query, body)

    async def close(self) -> None:
        self._closed = True
        here = asyncio.get_running_loop()
        with self._mutex:
            clients = list(self._clients.items())
            self._clients.clear()
        for task in tuple(self._tasks):
            if task.get_loop() is here:
                task.cancel()
        for loop, client in clients:
            if loop is here:
                await client.close()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(client.close(), loop))

    def keep(self, task: "asyncio.Task[Any]") -> None:
        """Hold on to a task until it is done: the event loop itself does not."""
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _client(self) -> Client:
        if self._closed:
            raise StorageUnavailable("the connection to the server is closed")
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            with self._mutex:
                made = Client(self._url, self._key, self._names, self._patience)
                client = self._clients.setdefault(loop, made)
        return client

    def __repr__(self) -> str:
        return f"<HttpBackend {self._url}>"


async def _events(lines: AsyncIterator[str]) -> AsyncGenerator[tuple[int, Change | None], None]:
    """The changes of an event stream, each with the revision up to which everything was told."""
    number, data = 0, None
    async for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            number = int(value)
        elif name == "data":
            data = decode(value)
        elif not line:
            yield number, None if data is None else Change(data["key"], data["revision"], data["deleted"])
            data = None


def commit_body(checks: Sequence[Check], writes: Sequence[Write], source: Source) -> dict[str, Any]:
    """A commit as the server takes it."""
    return {
        "checks": [check._asdict() for check in checks],
        "writes": [
            {"key": key, "delete": True} if text is None else {"key": key, "text": text} for key, text in writes
        ],
        "source": source._asdict(),
    }


def committed_of(answer: dict[str, Any]) -> Committed:
    """The server's answer to a commit."""
    return Committed(answer["revision"], answer["at"], answer["created"], frozenset(answer["removed"]))


def record_of(item: dict[str, Any]) -> Record:
    """An entry as the server shows it with `as=text`."""
    source = item["source"]
    return Record(
        item["key"],
        item["text"],
        item["revision"],
        item["created"],
        item["updated"],
        Source(*(source.get(name) for name in Source._fields)),
    )
