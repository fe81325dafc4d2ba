"""`tools/workflow_inspect`: what workflows, node types and executions there are, read-only, in small exact answers."""

from collections.abc import Callable
from typing import Any

from stepwell.errors import FileMissing, RunNotFound, StepwellError, WorkflowNotFound
from stepwell.graph.answers import Answer, Sources, failed_answer, within_budget
from stepwell.graph.inspect_executions import get_execution, list_executions
from stepwell.graph.inspect_types import find_replacements, get_node_schema, list_node_types, list_ports
from stepwell.graph.inspect_workflows import find_workflows, get_workflow, list_workflows, validate_workflow
from stepwell.graph.similar import closest


def workflow_inspect(sources: Sources, arguments: dict[str, Any]) -> Answer:
    """Answer a question; every failure is an answer too (`status: error` or `not_found`).

    Args:
        arguments: `action` and what it needs, as checked by `tool_arguments`.
    """
    action = arguments.get("action") or ""
    asked = ACTIONS.get(action)
    if asked is None:
        close = closest(action, ACTIONS, limit=3, least=0.5)
        hint = (
            f'did you mean {close[0]}? e.g. {{"action": "{close[0]}"}}' if close else f"actions: {', '.join(ACTIONS)}"
        )
        return failed_answer(f"there is no action {action!r:.60}", hint, candidates=close)
    try:
        return within_budget(asked(sources, arguments))
    except (WorkflowNotFound, RunNotFound, FileMissing) as error:
        candidates = error.data.get("candidates")
        return failed_answer(error.message, error.hint, status="not_found", candidates=candidates)
    except StepwellError as error:
        return failed_answer(error.message, error.hint, candidates=error.data.get("candidates"))


ACTIONS: dict[str, Callable[[Sources, dict[str, Any]], Answer]] = {
    "list_workflows": list_workflows,
    "find_workflows_by_node_type": find_workflows,
    "get_workflow": get_workflow,
    "list_node_types": list_node_types,
    "get_node_schema": get_node_schema,
    "describe_node_type": get_node_schema,
    "list_ports": list_ports,
    "find_replacements": find_replacements,
    "validate_workflow": validate_workflow,
    "get_execution": get_execution,
    "list_executions": list_executions,
}
