"""What every error has: a stable code, a kind, a hint, one rendering.

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
