"""The older scope model: `ctx.kv` and `ctx.persistent_value` with the scopes global, workflow and conversation."""

import re
from typing import NamedTuple

from stepwell.errors import ConversationRequired
from stepwell.storage.kv import KeyValue
from stepwell.store.backend import Backend
from stepwell.store.entries import Domain, Namespace, Scope, Source

MAX_PLACE_BYTES = 512


def own_place(above: str | None, *names: str) -> str:
    """The name of a workflow's own KV, below another one: different chains of names never give the same.

    >>> own_place(None, "a/b"), own_place(own_place(None, "a"), "b")
    ('a%002Fb', 'a/b')
    """
    escaped = (re.sub("[%/#\\x00\\ud800-\\udfff]", lambda found: f"%{ord(found[0]):04X}", name) for name in names)
    place = "/".join(escaped if above is None else (above, *escaped))
    if len(place.encode()) <= MAX_PLACE_BYTES:
        return place
    import hashlib

    return "#" + hashlib.blake2b(place.encode(), digest_size=32).hexdigest()


class OwnKeyValue(NamedTuple):
    """Where the KV of an isolated workflow lives instead: in the project, under a name of its own."""

    backend: Backend
    project_id: str
    name: str

    def open(self, scope: Scope, conversation_id: str | None, source: Source) -> KeyValue:
        """One of its scopes."""
        return KeyValue(
            self.backend, Namespace(self.project_id, Domain.KV, scope, self.name, conversation_id), source=source
        )


class ScopedKeyValue(KeyValue):
    """The global scope of the workflow scope model; `workflow` and `conversation` are the other two."""

    def __init__(
        self,
        backend: Backend,
        domain: Domain,
        workflow: str,
        conversation_id: str | None,
        source: Source,
        own: OwnKeyValue | None = None,
    ) -> None:
        super().__init__(backend, Namespace(None, domain, Scope.GLOBAL), source=source)
        self._own = own
        self._workflow = workflow
        self._conversation_id = conversation_id

    @property
    def workflow(self) -> KeyValue:
        """By workflow name."""
        if self._own is not None:
            return self._own.open(Scope.PROJECT, None, self.source)
        namespace = Namespace(None, self.namespace.domain, Scope.WORKFLOW, self._workflow)
        return KeyValue(self.backend, namespace, source=self.source)

    @property
    def conversation(self) -> KeyValue:
        """By workflow name and conversation id.

        Raises:
            ConversationRequired: this run has no conversation.
        """
        if self._conversation_id is None:
            raise ConversationRequired(f"{self.namespace.domain}.conversation needs a conversation id")
        if self._own is not None:
            return self._own.open(Scope.CONVERSATION, self._conversation_id, self.source)
        namespace = Namespace(None, self.namespace.domain, Scope.CONVERSATION, self._workflow, self._conversation_id)
        return KeyValue(self.backend, namespace, source=self.source)


class WorkflowScopes:
    """The workflow scope model's surface.

    Args:
        kv: the host location's backend for namespaces without a project.
        persistent_value: the server's, and nothing else.
        own: where an isolated workflow keeps its KV.
    """

    def __init__(
        self,
        kv: Backend,
        persistent_value: Backend,
        workflow: str,
        conversation_id: str | None,
        source: Source,
        own: OwnKeyValue | None = None,
    ) -> None:
        self.kv = ScopedKeyValue(kv, Domain.KV, workflow, conversation_id, source, own)
        self.persistent_value = ScopedKeyValue(
            persistent_value, Domain.PERSISTENT_VALUE, workflow, conversation_id, source
        )
