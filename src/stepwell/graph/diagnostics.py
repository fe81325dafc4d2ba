"""What is wrong with a workflow: every finding at once, each with a stable code, a place and the fix."""

from typing import Any, NamedTuple

ERROR_CODES = frozenset({
    "UNKNOWN_NODE_TYPE", "INVALID_SOURCE_PORT", "INVALID_TARGET_PORT", "MISSING_EDGE_ENDPOINT", "DUPLICATE_NODE_ID",
    "DUPLICATE_EDGE_ID", "CYCLE_DETECTED", "CONTAINER_ENDPOINT_UNSUPPORTED", "INVALID_CONFIG",
    "MULTIPLE_EDGES_INTO_INPUT", "INVALID_ID", "DYNAMIC_PORT_RANGE", "MISSING_FIELD", "INVALID_FIELD",
    "UNSUPPORTED_SHAPE", "TOO_MANY_NODES",
})  # fmt: skip
WARNING_CODES = frozenset({
    "PORT_TYPE_MISMATCH", "REQUIRED_INPUT_UNSATISFIED", "UNUSED_NODE", "DANGLING_SUBFLOW", "LEGACY_PORTS",
    "COUNT_MISMATCH", "MISSING_NAME", "DUPLICATE_NODE_NAME", "DUPLICATE_EDGE", "SECRET_IN_DEFINITION", "UNKNOWN_FIELD",
    "INPUT_WITHOUT_EFFECT",
})  # fmt: skip


class Diagnostic(NamedTuple):
    """One finding.

    `message` is one sentence that says the fix; `path` is the place in the definition (`nodes[3].nodeType`);
    `candidates` are names that may have been meant, best first, never more than five.
    """

    code: str
    message: str
    path: str
    node_id: str | None = None
    edge_id: str | None = None
    candidates: tuple[str, ...] = ()
    data: dict[str, Any] | None = None

    @property
    def is_error(self) -> bool:
        """True if a workflow with this finding must not run."""
        return self.code in ERROR_CODES

    def to_dict(self) -> dict[str, Any]:
        """The finding as JSON; fields without a value are left out."""
        shown: dict[str, Any] = {"code": self.code, "message": self.message, "path": self.path}
        if self.node_id is not None:
            shown["node_id"] = self.node_id
        if self.edge_id is not None:
            shown["edge_id"] = self.edge_id
        if self.candidates:
            shown["candidates"] = list(self.candidates)
        return shown | (self.data or {})


class Report(NamedTuple):
    """The outcome of a validation, in the order of the file."""

    errors: tuple[Diagnostic, ...]
    warnings: tuple[Diagnostic, ...]

    @classmethod
    def of(cls, findings: "list[Diagnostic]") -> "Report":
        """A report of findings that may come in any order."""
        ordered = sorted(findings, key=_place)
        return cls(
            tuple(finding for finding in ordered if finding.is_error),
            tuple(finding for finding in ordered if not finding.is_error),
        )

    @property
    def valid(self) -> bool:
        """True if the workflow can run: there may be warnings."""
        return not self.errors

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "valid": self.valid,
            "errors": [finding.to_dict() for finding in self.errors],
            "warnings": [finding.to_dict() for finding in self.warnings],
        }


def _place(finding: Diagnostic) -> tuple[int, int]:
    """The order of the file: the envelope, then nodes, then edges."""
    for rank, group in enumerate(("nodes[", "edges["), start=1):
        if finding.path.startswith(group):
            number = finding.path[len(group) :].partition("]")[0]
            return rank, int(number) if number.isdecimal() else 0
    return (3, 0) if finding.path in ("nodes", "edges") else (0, 0)


def quoted(text: Any, limit: int = 80) -> str:
    """Text of a workflow inside one of our sentences: as a JSON string, escaped to ASCII controls, cut short."""
    import json

    shown = text if isinstance(text, str) else json.dumps(text, default=str)
    cut = shown if len(shown) <= limit else f"{shown[: limit - 1]}…"
    return '"' + escaped(cut).replace('"', '\\"') + '"'


def escaped(text: str) -> str:
    """Text with control, bidirectional and invisible characters as escapes; nothing in it can act on a terminal."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
