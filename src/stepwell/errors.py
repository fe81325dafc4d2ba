"""Every error stepwell raises on purpose: one hierarchy, stable codes, one rendering.

The command line, HTTP and MCP derive what they show from `StepwellError.to_dict` and `StepwellError.kind`;
nothing else decides on exit codes or status numbers. A class exists where a caller can act on it.
"""

from enum import Enum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar


class Kind(Enum):
    """What sort of failure an error is; decides the exit code and the HTTP status.

    The value is `(exit code of the command line, HTTP status)`.
    """

    FAILED = (1, 500)
    INVALID = (2, 400)
    NOT_FOUND = (3, 404)
    CONFLICT = (4, 409)
    DENIED = (5, 403)
    UNAVAILABLE = (6, 503)
    WAITING = (7, 409)

    @property
    def exit_code(self) -> int:
        """Exit code of the command line for this kind of error."""
        return self.value[0]

    @property
    def http_status(self) -> int:
        """HTTP status for this kind of error."""
        return self.value[1]


class StepwellError(Exception):
    """Base of all errors raised on purpose.

    Args:
        message: what happened, with the values that matter.
        hint: the next action of whoever reads it; defaults to the class's own.
        **data: further JSON values a program may want (ids, paths, limits).
    """

    code: "ClassVar[str]" = "error"
    kind: "ClassVar[Kind]" = Kind.FAILED
    default_hint: "ClassVar[str | None]" = None

    def __init__(self, message: str, *, hint: str | None = None, **data: "Any") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint if hint is not None else self.default_hint
        self.data = data

    def __reduce__(self) -> "tuple[Any, ...]":
        return (_rebuild, (type(self), self.message, self.hint, self.data))

    def to_dict(self) -> "dict[str, Any]":
        """The error as JSON: `code`, `message`, `hint` where there is one, and the data."""
        shown: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.hint is not None:
            shown["hint"] = self.hint
        for name, value in self.data.items():
            shown.setdefault(name, value)
        return shown


def _rebuild(cls: "type[StepwellError]", message: str, hint: str | None, data: "dict[str, Any]") -> StepwellError:
    return cls(message, hint=hint, **data)


# -- values, keys, ids -------------------------------------------------------------------------------------------


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


# -- storage ----------------------------------------------------------------------------------------------------


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


# -- projects and runs --------------------------------------------------------------------------------------------


class ProjectNotFound(StepwellError):
    """A folder holds no stepwell project."""

    code, kind = "project_not_found", Kind.NOT_FOUND
    default_hint = "run `stepwell init` there, or pass --project DIR"


class ManifestInvalid(StepwellError):
    """The manifest has problems; `problems` lists every one, a line each."""

    code, kind = "manifest_invalid", Kind.INVALID


class ExecutorInvalid(StepwellError):
    """The project's code cannot be imported, or its executor is declared wrongly."""

    code, kind = "executor_invalid", Kind.INVALID


class EntrypointNotFound(StepwellError):
    """The executor has no entrypoint of that id."""

    code, kind = "entrypoint_not_found", Kind.NOT_FOUND


class InputInvalid(StepwellError):
    """A run's arguments or input do not fit the entrypoint."""

    code, kind = "input_invalid", Kind.INVALID


class OutputInvalid(StepwellError):
    """A workflow or node returned what its annotation does not allow, or what is not JSON."""

    code, kind = "output_invalid", Kind.FAILED


class RunNotFound(StepwellError):
    """No run of that id is stored here."""

    code, kind = "run_not_found", Kind.NOT_FOUND


class RunStateConflict(StepwellError):
    """The run is not in a state that allows this (resume a finished run, delete a running one)."""

    code, kind = "run_state_conflict", Kind.CONFLICT


class ReplayMismatch(StepwellError):
    """A resumed run took another path through the code than its journal recorded."""

    code, kind = "replay_mismatch", Kind.CONFLICT
    default_hint = "the code or its inputs changed since the run was cut off: start a new run"


class RunClosed(StepwellError):
    """A context was used after its run ended."""

    code, kind = "run_closed", Kind.INVALID


class RunFailed(StepwellError):
    """A run that was started in the background ended before it could be recorded."""

    code, kind = "run_failed", Kind.FAILED


class ExitInRun(StepwellError):
    """The code of a run called `sys.exit()` or raised KeyboardInterrupt; the run fails, the process goes on."""

    code, kind = "exit_in_run", Kind.FAILED
    default_hint = "return, or raise an error, to end a run"


class NodeTimeout(StepwellError):
    """A node did not finish within its timeout."""

    code, kind = "node_timeout", Kind.FAILED


class FileRejected(StepwellError):
    """A file's name, size or media type is not allowed, or its path leaves its folder."""

    code, kind = "file_rejected", Kind.INVALID


class FileMissing(StepwellError):
    """A file reference points at nothing stored here."""

    code, kind = "file_missing", Kind.NOT_FOUND


# -- conversations and Knowledge -------------------------------------------------------------------------------------


class ConversationNotFound(StepwellError):
    """No conversation of that id is stored here."""

    code, kind = "conversation_not_found", Kind.NOT_FOUND


class MessageInvalid(StepwellError):
    """A message lacks a role or content, or has fields of the wrong type."""

    code, kind = "message_invalid", Kind.INVALID


class MessageConflict(StepwellError):
    """A message id is already taken by another message of the conversation."""

    code, kind = "message_conflict", Kind.CONFLICT


class DocumentExists(StepwellError):
    """A Knowledge document of that id exists already."""

    code, kind = "document_exists", Kind.CONFLICT


class DocumentNotFound(StepwellError):
    """No Knowledge document of that id, or it was deleted."""

    code, kind = "document_not_found", Kind.NOT_FOUND


class DocumentChanged(StepwellError):
    """A Knowledge document has another version than its editor expected; nothing was written."""

    code, kind = "document_changed", Kind.CONFLICT
    default_hint = "read the document again and make the change to what it says now"


class InvalidCursor(StepwellError):
    """A cursor is damaged, belongs to another query, or to another Knowledge base."""

    code, kind = "invalid_cursor", Kind.INVALID
    default_hint = "start again without a cursor"


class UsageInvalid(StepwellError):
    """A token report has negative, fractional or contradictory counts."""

    code, kind = "usage_invalid", Kind.INVALID
