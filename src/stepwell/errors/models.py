"""Errors of models, tools and approvals."""

from stepwell.errors.base import Kind, StepwellError


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
