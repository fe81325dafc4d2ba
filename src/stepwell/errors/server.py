"""Errors of the server."""

from stepwell.errors.base import Kind, StepwellError


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
