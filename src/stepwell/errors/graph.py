"""Errors of graph workflows."""

from stepwell.errors.base import Kind, StepwellError


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
