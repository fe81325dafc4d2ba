"""Errors of values, keys and storage."""

from stepwell.errors.base import Kind, StepwellError


class ValueNotSerializable(StepwellError):
    """A value is not JSON; `path` says where."""

    code, kind = "value_not_serializable", Kind.INVALID


class ValueTooLarge(StepwellError):
    """The JSON text of a value is over `max_value_bytes`; nothing was written."""

    code, kind = "value_too_large", Kind.INVALID
    default_hint = "store large content with ctx.files and keep the reference in the value"


class InvalidJson(StepwellError):
    """A text that should be JSON is not, or uses what JSON does not allow (duplicate keys, NaN)."""

    code, kind = "invalid_json", Kind.INVALID


class InvalidKey(StepwellError):
    """A key is empty, too long, or has characters no backend may store."""

    code, kind = "invalid_key", Kind.INVALID


class InvalidId(StepwellError):
    """A project, conversation, run or document id has the wrong form."""

    code, kind = "invalid_id", Kind.INVALID


class InvalidArgument(StepwellError):
    """An argument of a public call has a wrong type or value."""

    code, kind = "invalid_argument", Kind.INVALID


class Conflict(StepwellError):
    """A check of a commit no longer holds; nothing was written."""

    code, kind = "conflict", Kind.CONFLICT
    default_hint = "read the entry again and retry with its current revision"


class UpdateConflict(StepwellError):
    """`update_value` could not land its change in the time it was given."""

    code, kind = "update_conflict", Kind.CONFLICT
    default_hint = "another writer changes this entry all the time: try again, or give a longer timeout"


class LockTimeout(StepwellError):
    """A namespace lock was not free in time; names the holder."""

    code, kind = "lock_timeout", Kind.UNAVAILABLE
    default_hint = "wait for the holder to finish, or end its process; the lock dies with it"


class LockReentry(StepwellError):
    """A task asked for a namespace lock that it (or the task that started it) already holds."""

    code, kind = "lock_reentry", Kind.INVALID
    default_hint = "use the transaction you already have instead of locking again"


class CrossNamespaceAccess(StepwellError):
    """Another namespace was touched while a namespace lock (or an updater) was active."""

    code, kind = "cross_namespace_access", Kind.INVALID
    default_hint = "a lock covers one namespace: do the other work before taking it or after releasing it"


class TransactionClosed(StepwellError):
    """A transaction was used after its `lock()` block ended."""

    code, kind = "transaction_closed", Kind.INVALID


class StorageForbidden(StepwellError):
    """The project's `data-storage` declaration does not allow this location."""

    code, kind = "storage_forbidden", Kind.DENIED


class StorageUnavailable(StepwellError):
    """A storage location cannot be reached or written now (no connection, disk full, read-only)."""

    code, kind = "storage_unavailable", Kind.UNAVAILABLE


class StorageCorrupt(StepwellError):
    """A database file is damaged or is not one of ours; nothing was changed."""

    code, kind = "storage_corrupt", Kind.UNAVAILABLE
    default_hint = "stop writing, keep a copy of the file, and run `stepwell doctor`"


class SchemaTooNew(StepwellError):
    """A store was written by a newer stepwell; nothing was changed."""

    code, kind = "schema_too_new", Kind.UNAVAILABLE
    default_hint = "upgrade stepwell, or point it at another data folder"


class ScopeUnavailable(StepwellError):
    """A storage scope does not exist under the project's `scope-model`."""

    code, kind = "scope_unavailable", Kind.INVALID


class ConversationRequired(StepwellError):
    """A conversation scope or call was used where there is no conversation."""

    code, kind = "conversation_required", Kind.INVALID
    default_hint = 'pass --conversation-id, or declare Executor(project_type="conversation")'


class RelationUnknown(StepwellError):
    """The project declares no related project of that alias, or the folder given for it holds another project."""

    code, kind = "relation_unknown", Kind.NOT_FOUND


class RelationPending(StepwellError):
    """Only this side declares the relation: it grants nothing until the related project declares it too."""

    code, kind = "relation_pending", Kind.DENIED


class RelationDenied(StepwellError):
    """The related project does not grant the access; names the alias, the key and the missing grant."""

    code, kind = "relation_denied", Kind.DENIED


class EntryNotFound(StepwellError):
    """No entry of that key is stored there."""

    code, kind = "entry_not_found", Kind.NOT_FOUND
