"""A backend that passes everything on to another one."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence

from stepwell.store.backend import Backend, Lease
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


class ForwardingBackend(ABC):
    """Implements `Backend` by another backend; a subclass says which, and does differently what it is there for."""

    @abstractmethod
    def _target(self) -> Backend:
        """The backend behind, for one call."""

    async def text(self, ns: Namespace, key: str) -> str | None:
        return await self._target().text(ns, key)

    async def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        return await self._target().read(ns, keys)

    async def scan(
        self, ns: Namespace, span: Span, *, after: str | None = None, limit: int = 200, reverse: bool = False
    ) -> list[Record]:
        return await self._target().scan(ns, span, after=after, limit=limit, reverse=reverse)

    async def commit(
        self,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        *,
        source: Source = NO_SOURCE,
        lease: Lease | None = None,
    ) -> Committed:
        return await self._target().commit(ns, checks, writes, source=source, lease=lease)

    async def lock(self, ns: Namespace, *, timeout: float, holder: Holder) -> Lease:
        return await self._target().lock(ns, timeout=timeout, holder=holder)

    def watch(self, ns: Namespace, span: Span) -> AsyncGenerator[Change, None]:
        return self._target().watch(ns, span)

    async def namespaces(
        self,
        *,
        project_id: str | None = None,
        domain: Domain | None = None,
        scope: Scope | None = None,
        after: tuple[int, Namespace] | None = None,
        limit: int = 200,
    ) -> list[NamespaceInfo]:
        return await self._target().namespaces(
            project_id=project_id, domain=domain, scope=scope, after=after, limit=limit
        )

    async def clear(self, ns: Namespace, *, source: Source = NO_SOURCE) -> int:
        return await self._target().clear(ns, source=source)

    async def close(self) -> None:  # noqa: B027  (most have nothing to add)
        """Nothing: whoever opened the backend behind closes it."""
