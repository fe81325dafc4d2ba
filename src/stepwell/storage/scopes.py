"""The older scope model: `ctx.kv` and `ctx.persistent_value` with the scopes global, workflow and conversation."""

from stepwell.errors import ConversationRequired
from stepwell.storage.kv import KeyValue
from stepwell.store.backend import Backend
from stepwell.store.entries import Domain, Namespace, Scope, Source


class ScopedKeyValue(KeyValue):
    """The global scope of the workflow scope model; `workflow` and `conversation` are the other two."""

    def __init__(
        self, backend: Backend, domain: Domain, workflow: str, conversation_id: str | None, source: Source
    ) -> None:
        super().__init__(backend, Namespace(None, domain, Scope.GLOBAL), source=source)
        self._workflow = workflow
        self._conversation_id = conversation_id

    @property
    def workflow(self) -> KeyValue:
        """By workflow name."""
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
        namespace = Namespace(None, self.namespace.domain, Scope.CONVERSATION, self._workflow, self._conversation_id)
        return KeyValue(self.backend, namespace, source=self.source)


class WorkflowScopes:
    """The workflow scope model's surface.

    Args:
        kv: the host location's backend for namespaces without a project.
        persistent_value: the server's, and nothing else.
    """

    def __init__(
        self, kv: Backend, persistent_value: Backend, workflow: str, conversation_id: str | None, source: Source
    ) -> None:
        self.kv = ScopedKeyValue(kv, Domain.KV, workflow, conversation_id, source)
        self.persistent_value = ScopedKeyValue(
            persistent_value, Domain.PERSISTENT_VALUE, workflow, conversation_id, source
        )
