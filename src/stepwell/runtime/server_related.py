"""Related projects at a server: it decides, and a request names only the calling project and the alias."""

from collections.abc import Sequence
from typing import Any, NoReturn

from stepwell.errors import EntryNotFound, StorageForbidden
from stepwell.knowledge.documents import Knowledge
from stepwell.knowledge.related import RelatedKnowledge
from stepwell.knowledge.remote import RemoteKnowledge
from stepwell.storage.kv import KeyValue
from stepwell.storage.location import Remote
from stepwell.storage.relations import Asked, check_alias
from stepwell.storage.unavailable import UnavailableBackend
from stepwell.store.backend import Lease
from stepwell.store.entries import NO_SOURCE, Check, Committed, Domain, Namespace, Record, Scope, Source, Write
from stepwell.store.http import commit_body, committed_of, record_of
from stepwell.store.http_client import quoted


class ServerRelated:
    """Implements `RelatedPlace` for one run, through its server.

    Args:
        remote: the server.
        caller_id: the calling project's id.
        source: recorded as the last writer.
    """

    def __init__(self, remote: Remote, caller_id: str, source: Source) -> None:
        self._remote = remote
        self._caller_id = caller_id
        self._source = source

    def check(self, alias: str) -> None:
        """See `RelatedPlace.check`: what is declared, the server knows; here only the form is looked at."""
        check_alias(alias)

    async def kv(self, alias: str, asked: Sequence[Asked]) -> KeyValue:
        """See `RelatedPlace.kv`; the decision is part of every request."""
        return self._entries(alias, Domain.KV)

    def knowledge(self, alias: str) -> RelatedKnowledge:
        """See `RelatedPlace.knowledge`."""

        async def opened(_: Sequence[Asked]) -> Knowledge:
            entries = self._entries(alias, Domain.PERSISTENT_VALUE)
            return RemoteKnowledge(entries, self._remote, f"{self._path(alias)}/knowledge")

        return RelatedKnowledge(alias, opened)

    async def entrypoints(self, alias: str) -> list[dict[str, Any]]:
        """Refuse: a server starts no related project."""
        self._refuse(alias)

    async def run(self, alias: str, entrypoint_id: str, args: Sequence[str]) -> Any:
        """Refuse: a server starts no related project."""
        self._refuse(alias)

    def _refuse(self, alias: str) -> NoReturn:
        raise StorageForbidden(
            f"entrypoints of the related project {alias!r} are not run through a server",
            hint="on one machine: ctx.storage.local.related_projects with --related-project",
            location="server",
        )

    def _entries(self, alias: str, domain: Domain) -> KeyValue:
        namespace = Namespace(f"related project {alias}", domain, Scope.PROJECT)
        backend = RelatedBackend(self._remote, f"{self._path(alias)}/kv")
        return KeyValue(backend, namespace, source=self._source, locking=False)

    def _path(self, alias: str) -> str:
        return f"/projects/{self._caller_id}/related/{check_alias(alias)}"


class RelatedBackend(UnavailableBackend):
    """Single entries of a related project at a server; what lists, locks or watches is not there.

    Args:
        remote: the server.
        path: of the related project's KV there.
    """

    def __init__(self, remote: Remote, path: str) -> None:
        super().__init__("server", "a related project opens single entries only", "ask for them by key")
        self._remote = remote
        self._path = path

    async def text(self, ns: Namespace, key: str) -> str | None:
        try:
            found = await self._remote.ask("GET", f"{self._path}/entries/{quoted(key)}", {"as": "text"})
        except EntryNotFound:
            return None
        return str(found["text"])

    async def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        answer = await self._remote.ask("POST", f"{self._path}/read", {"as": "text"}, {"keys": list(keys)})
        return {item["key"]: record_of(item) for item in answer["items"]}

    async def commit(
        self,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        *,
        source: Source = NO_SOURCE,
        lease: Lease | None = None,
    ) -> Committed:
        return committed_of(await self._remote.once(f"{self._path}/commit", {}, commit_body(checks, writes, source)))
