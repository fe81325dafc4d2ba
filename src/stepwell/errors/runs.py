"""Errors of projects, runs, conversations and Knowledge."""

from stepwell.errors.base import Kind, StepwellError


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


class WorkflowNesting(StepwellError):
    """A workflow calls workflows that call workflows, too deeply; `chain` has their names."""

    code, kind = "workflow_nesting", Kind.FAILED
    default_hint = "a workflow that calls itself needs an end; a loop needs no nesting"


class OutputBridgeFailed(StepwellError):
    """A handler of `ctx.run_workflow(on_output=…, on_output_chunk=…)` raised; the call failed at once."""

    code, kind = "output_bridge_failed", Kind.FAILED
    output_bridge_failed = True


class NodeTimeout(StepwellError):
    """A node did not finish within its timeout."""

    code, kind = "node_timeout", Kind.FAILED


class FileRejected(StepwellError):
    """A file's name, size or media type is not allowed, or its path leaves its folder."""

    code, kind = "file_rejected", Kind.INVALID


class FileMissing(StepwellError):
    """A file reference points at nothing stored here."""

    code, kind = "file_missing", Kind.NOT_FOUND


class ConversationNotFound(StepwellError):
    """No conversation of that id is stored here."""

    code, kind = "conversation_not_found", Kind.NOT_FOUND


class MessageInvalid(StepwellError):
    """A message lacks a role or content, or has fields of the wrong type."""

    code, kind = "message_invalid", Kind.INVALID


class MessageConflict(StepwellError):
    """A message id is already taken by another message of the conversation."""

    code, kind = "message_conflict", Kind.CONFLICT


class ConversationBusy(StepwellError):
    """Another chat sends this conversation's inputs; a conversation has one at a time."""

    code, kind = "conversation_busy", Kind.CONFLICT
    default_hint = "use that chat, end it, or begin another conversation"


class InputQueueFull(StepwellError):
    """As many inputs as may wait are waiting; the new one was not accepted."""

    code, kind = "input_queue_full", Kind.CONFLICT
    default_hint = "wait until some have run, or remove one"


class QueuedInputNotFound(StepwellError):
    """No such input waits: it was never sent, has been taken, or was removed."""

    code, kind = "queued_input_not_found", Kind.NOT_FOUND


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
