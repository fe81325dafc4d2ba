"""Namespaces, records and commits: the nouns of the store."""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple


class Domain(StrEnum):
    """Strictly separate datasets."""

    KV = "kv"
    PERSISTENT_VALUE = "persistent_value"
    CONVERSATION = "conversation"

    __hash__ = str.__hash__  # Enum's own is Python code, and namespaces are looked up on every call


class Scope(StrEnum):
    """What a namespace belongs to. `GLOBAL` and `WORKFLOW` exist only under the workflow scope model."""

    PROJECT = "project"
    CONVERSATION = "conversation"
    GLOBAL = "global"
    WORKFLOW = "workflow"

    __hash__ = str.__hash__


class Namespace(NamedTuple):
    """One set of entries. The parts are separate columns everywhere, never joined into one string.

    `project_id` is None only for the workflow scope model's namespaces. `workflow` is set there, and for the KV that a
    workflow within a run has for itself.
    """

    project_id: str | None
    domain: Domain
    scope: Scope
    workflow: str | None = None
    conversation_id: str | None = None

    def plain(self) -> tuple[str | None, ...]:
        """The parts as JSON has them."""
        return (self.project_id, self.domain.value, self.scope.value, self.workflow, self.conversation_id)

    def __str__(self) -> str:
        parts = [self.domain.value, self.scope.value]
        parts += [
            f"{name}={value}" for name, value in zip(self._fields, self, strict=True) if value and name not in _SHOWN
        ]
        return " ".join(parts)


_SHOWN = frozenset({"domain", "scope"})


class Source(NamedTuple):
    """Who wrote: each part optional."""

    project_id: str | None = None
    entrypoint: str | None = None
    run_id: str | None = None
    conversation_id: str | None = None


NO_SOURCE = Source()


class Record(NamedTuple):
    """One entry as a backend keeps it.

    `text` is the JSON text of the value, times are microseconds since 1970 UTC, `revision` is the number of the
    commit within the namespace that wrote it.
    """

    key: str
    text: str
    revision: int
    created_at: int
    updated_at: int
    source: Source


class Check(NamedTuple):
    """A commit's condition: `key` is still at `revision`; 0 means it is absent."""

    key: str
    revision: int


class Write(NamedTuple):
    """One write of a commit: the JSON text to store, or None to delete the key."""

    key: str
    text: str | None


class Committed(NamedTuple):
    """What a commit did.

    `revision` is the namespace's revision now: every entry written carries it. `at` is the time written, in
    microseconds. `created` maps the keys that were put to their creation time. `removed` holds the deleted keys
    that had been there. A commit that changes nothing keeps the revision.
    """

    revision: int
    at: int
    created: Mapping[str, int]
    removed: frozenset[str]


class Change(NamedTuple):
    """What `watch` yields: never the value."""

    key: str
    revision: int
    deleted: bool


class NamespaceInfo(NamedTuple):
    """A namespace that has been written: its commit count, last write (microseconds) and number of entries."""

    namespace: Namespace
    revision: int
    updated_at: int
    entries: int


class Span(NamedTuple):
    """A half-open range of keys in UTF-8 byte order: `start <= key < stop`; None is unbounded."""

    start: str = ""
    stop: str | None = None

    @classmethod
    def prefix(cls, prefix: str) -> "Span":
        """Every key that starts with `prefix`."""
        stop = prefix
        while stop:
            last = ord(stop[-1])
            if last < 0x10FFFF:
                # Surrogates are not in keys: the character after U+D7FF is U+E000.
                return cls(prefix, stop[:-1] + chr(0xE000 if last == 0xD7FF else last + 1))
            stop = stop[:-1]
        return cls(prefix, None)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.start <= key and (self.stop is None or key < self.stop)


class Holder(NamedTuple):
    """Who holds a namespace lock, for the message of whoever waits in vain."""

    pid: int
    host: str
    run_id: str | None = None

    def __str__(self) -> str:
        run = f", run {self.run_id}" if self.run_id else ""
        return f"process {self.pid} on {self.host}{run}"
