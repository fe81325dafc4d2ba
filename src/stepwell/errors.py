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
    UNAUTHENTICATED = (5, 401)
    TOO_LARGE = (2, 413)
    TOO_MANY = (6, 429)

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


def error_of(shown: "dict[str, Any]") -> StepwellError:
    """The error that `to_dict` showed, perhaps in another process; a plain one where the code is not known here."""
    data = {name: value for name, value in shown.items() if name not in ("code", "message", "hint")}
    classes = {cls.code: cls for cls in StepwellError.__subclasses__()}
    found = classes.get(str(shown.get("code")), StepwellError)
    return found(str(shown.get("message", "")), hint=shown.get("hint"), **data)


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


class RelationUnknown(StepwellError):
    """The project declares no related project of that alias, or the folder given for it holds another project."""

    code, kind = "relation_unknown", Kind.NOT_FOUND


class RelationPending(StepwellError):
    """Only this side declares the relation: it grants nothing until the related project declares it too."""

    code, kind = "relation_pending", Kind.DENIED


class RelationDenied(StepwellError):
    """The related project does not grant the access; names the alias, the key and the missing grant."""

    code, kind = "relation_denied", Kind.DENIED


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
    """A run that somebody waits for did not complete, or ended before it could be recorded."""

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


# -- graph workflows ------------------------------------------------------------------------------------------------


class NodeTypeInvalid(StepwellError):
    """A node type is declared wrongly, or two have one name."""

    code, kind = "node_type_invalid", Kind.INVALID


class WorkflowNotFound(StepwellError):
    """The project has no graph workflow of that key, id or path."""

    code, kind = "workflow_not_found", Kind.NOT_FOUND


class WorkflowContentInvalid(StepwellError):
    """A workflow file is too large, not UTF-8, or not the JSON it has to be; nothing was written."""

    code, kind = "workflow_content_invalid", Kind.INVALID


class WorkflowInvalid(StepwellError):
    """A graph workflow has errors and does not run; `validation` is the whole report."""

    code, kind = "workflow_invalid", Kind.INVALID
    default_hint = "`stepwell workflows validate KEY` shows every problem"


class MissingRequiredInput(StepwellError):
    """A node of a graph needs an input that no edge, no configuration and no default gave."""

    code, kind = "MISSING_REQUIRED_INPUT", Kind.FAILED


class NodeInputType(StepwellError):
    """A value does not fit the port it came to; names source and target."""

    code, kind = "INPUT_TYPE", Kind.FAILED


class NodeOutputInvalid(StepwellError):
    """A node returned a port it does not have, or a value that is not JSON."""

    code, kind = "OUTPUT_NOT_JSON", Kind.FAILED


class NodeRefused(StepwellError):
    """A node was asked for something its configuration or its limits do not allow."""

    code, kind = "node_refused", Kind.DENIED


class GraphFailed(StepwellError):
    """Nodes of a graph run failed and were not handled; `failed` lists them."""

    code, kind = "graph_failed", Kind.FAILED


class SubflowNesting(StepwellError):
    """A graph calls itself, directly or through others, or nests over 16 levels deep."""

    code, kind = "subflow_nesting", Kind.INVALID


# -- models, tools, approvals ------------------------------------------------------------------------------------


class ProviderInvalid(StepwellError):
    """A model provider is not configured, or a setting of it is missing or wrong."""

    code, kind = "provider_invalid", Kind.INVALID


class ModelUnavailable(StepwellError):
    """A model provider could not be reached, or told to come back later, in every attempt."""

    code, kind = "model_unavailable", Kind.UNAVAILABLE
    default_hint = "try again later"


class ModelRefused(StepwellError):
    """A model provider refused the request: its key, model, size or content."""

    code, kind = "model_refused", Kind.FAILED


class ModelAnswerBroken(StepwellError):
    """A model's answer broke off, or is not what was asked for."""

    code, kind = "model_answer_broken", Kind.FAILED
    default_hint = "try again; `stepwell runs events` shows what came"


class ToolInvalid(StepwellError):
    """A tool is declared wrongly."""

    code, kind = "tool_invalid", Kind.INVALID


class ToolNotFound(StepwellError):
    """There is no tool of that name."""

    code, kind = "tool_not_found", Kind.NOT_FOUND


class ToolDisabled(StepwellError):
    """The project does not allow calls of this tool."""

    code, kind = "tool_disabled", Kind.DENIED
    default_hint = "`stepwell tools set NAME auto` (or manual) allows it again"


class ToolArgumentsInvalid(StepwellError):
    """A tool was called with arguments that do not fit its schema."""

    code, kind = "tool_arguments_invalid", Kind.INVALID


class ToolDenied(StepwellError):
    """A call of a tool was denied by a person, or nobody answered in time."""

    code, kind = "tool_denied", Kind.DENIED


class ApprovalNotFound(StepwellError):
    """There is no request for approval of that id."""

    code, kind = "approval_not_found", Kind.NOT_FOUND
    default_hint = "`stepwell approvals list` shows what waits for an answer"


class ApprovalConflict(StepwellError):
    """A request for approval was answered, has expired, or belongs to a run that has ended; nothing was changed."""

    code, kind = "approval_conflict", Kind.CONFLICT
    default_hint = "`stepwell approvals show` says how it stands"


class AgentLimit(StepwellError):
    """An agent reached its limit of turns or tokens before it was done."""

    code, kind = "agent_limit", Kind.FAILED
    default_hint = "raise max_turns or max_tokens of ctx.agent, or give it a smaller task"


# -- the server -----------------------------------------------------------------------------------------------------


class Unauthenticated(StepwellError):
    """A request carries no key, or one that is unknown, expired or revoked."""

    code, kind = "unauthenticated", Kind.UNAUTHENTICATED
    default_hint = "run `stepwell login URL`, or set STEPWELL_SERVER_KEY"


class AccessDenied(StepwellError):
    """The user's role does not allow this; `needed` is the least role that does."""

    code, kind = "access_denied", Kind.DENIED
    default_hint = "ask an owner of the project for the role"


class RouteNotFound(StepwellError):
    """The server has no such address, or not for this method."""

    code, kind = "route_not_found", Kind.NOT_FOUND
    default_hint = "see /api/openapi.json for what there is"


class EntryNotFound(StepwellError):
    """No entry of that key is stored there."""

    code, kind = "entry_not_found", Kind.NOT_FOUND


class AccountNotFound(StepwellError):
    """No user, token or member of that name or id."""

    code, kind = "account_not_found", Kind.NOT_FOUND


class AccountConflict(StepwellError):
    """A name is taken, or the change would leave nobody in charge."""

    code, kind = "account_conflict", Kind.CONFLICT


class RequestTooLarge(StepwellError):
    """The body of a request is over the server's limit; nothing was read of it."""

    code, kind = "request_too_large", Kind.TOO_LARGE


class TooManyRequests(StepwellError):
    """A token sent more requests than its rate allows; `retry_after` says when to try again, in seconds."""

    code, kind = "too_many_requests", Kind.TOO_MANY


class ServerBusy(StepwellError):
    """The server has as many open streams as it allows, or is shutting down."""

    code, kind = "server_busy", Kind.UNAVAILABLE
    default_hint = "try again in a moment"


class OriginRefused(StepwellError):
    """A request names a foreign host, or comes from a web page that is not allowed to call the server."""

    code, kind = "origin_refused", Kind.DENIED


class ReaderRefused(StepwellError):
    """A PostgreSQL role cannot be made one that reads the views and nothing else; nothing was changed."""

    code, kind = "reader_refused", Kind.INVALID


class InternalError(StepwellError):
    """Something went wrong that is not the caller's fault; the server's log has it under the request id."""

    code = "internal_error"
    default_hint = "look for the request id in the server's log"
