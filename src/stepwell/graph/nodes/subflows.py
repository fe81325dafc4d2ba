"""Workflows inside workflows: another graph, once or for every item of a list."""

import asyncio
import inspect
import json
from time import monotonic
from typing import Annotated, Any

from pydantic import BaseModel

from stepwell.authoring.calls import NodeSpec, call, describe_error
from stepwell.errors import InvalidArgument, NodeTimeout, ReplayMismatch, RunClosed, StepwellError, SubflowNesting
from stepwell.graph.contexts import last_text
from stepwell.graph.diagnostics import quoted
from stepwell.graph.execution import Outcome, Start
from stepwell.graph.node_context import MAX_NESTING, NodeContext
from stepwell.graph.paths import at_path
from stepwell.graph.ports import MISSING, AgentContext, AgentContextOrNone, without_effect
from stepwell.graph.registry import node_type

MAX_BATCH = 10_000
_SAME_RUN = "a subflow belongs to the run, and to its conversation"
_NO_CONTEXTS = "the items of a batch have results and no contexts"


class _Limits(BaseModel):
    call_stack: Annotated[list[Any], without_effect("the run itself knows which workflows called this one")] = []
    child_context_max_bytes: int = 100_000
    max_parallelism: int = 10
    return_child_context: bool = True
    return_node_outputs: bool = True
    timeout_seconds: float = 300


@node_type("tools/subflow", title="Subflow", is_tool=True)
class Subflow:
    """Runs another workflow of the project, by key, id or path, and waits for it."""

    class Inputs(_Limits):
        workflow_path: str
        input_data: Any = None
        agent_context: AgentContextOrNone = None
        child_context: Any = None
        async_execution: bool = False
        child_session_id: Annotated[str | None, without_effect(_SAME_RUN)] = None
        context_path: str | None = None
        conversation_id: Annotated[str | None, without_effect(_SAME_RUN)] = None
        response_path: str | None = None

    class Outputs(BaseModel):
        agent_context: AgentContext
        elapsed_ms: int
        error: str
        outputs: dict[str, Any]
        response: Any
        status: str
        summary: str

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        began = monotonic()
        if inputs.async_execution:
            raise InvalidArgument(
                "a subflow does not outlive its node", argument="async_execution",
                hint="leave async_execution off: other nodes run meanwhile anyway",
            )  # fmt: skip
        context = _child_context(inputs)
        outcome = await call_workflow(
            inputs.workflow_path, Start(_input_of(inputs.input_data, context)), ctx, inputs.timeout_seconds,
            inputs.max_parallelism,
        )  # fmt: skip
        outcome.raise_if_failed()
        response = _response(outcome, inputs.response_path)
        emitted: dict[str, Any] = {
            "status": "completed", "elapsed_ms": round((monotonic() - began) * 1_000), "response": response,
            "summary": _summary(inputs.workflow_path, outcome),
        }  # fmt: skip
        if inputs.return_node_outputs:
            emitted["outputs"] = outcome.outputs
        if inputs.return_child_context:
            text = response if isinstance(response, str) else json.dumps(response, ensure_ascii=False)
            emitted["agent_context"] = _bounded(
                {"messages": [*(context or {}).get("messages", []), {"role": "assistant", "content": text}]},
                inputs.child_context_max_bytes,
            )
        return emitted


@node_type("tools/batch_subflow", title="Subflow for every item", is_tool=True)
class BatchSubflow:
    """Runs a workflow for every item of a list, several at once; the results keep the order of the items."""

    class Inputs(_Limits):
        items: list[Any]
        workflow_path: str
        max_concurrency: int = 5
        child_context_max_bytes: Annotated[int, without_effect(_NO_CONTEXTS)] = 100_000
        return_child_context: Annotated[bool, without_effect(_NO_CONTEXTS)] = True
        response_path: str | None = None

    class Outputs(BaseModel):
        elapsed_ms: int
        failed: int
        results: list[Any]
        responses: list[Any]
        status: str
        succeeded: int
        summary: str
        total: int

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        began = monotonic()
        if len(inputs.items) > MAX_BATCH:
            raise InvalidArgument(f"{len(inputs.items):,} items; at most {MAX_BATCH:,}", argument="items")
        gate = asyncio.Semaphore(max(1, min(inputs.max_concurrency, 100)))

        async def one(number: int, item: Any) -> dict[str, Any]:
            async def execute(item: Any) -> dict[str, Any]:
                outcome = await call_workflow(
                    inputs.workflow_path, Start(MISSING if item is None else item), ctx, inputs.timeout_seconds,
                    inputs.max_parallelism,
                )  # fmt: skip
                outcome.raise_if_failed()
                made: dict[str, Any] = {"response": _response(outcome, inputs.response_path)}
                return made | ({"outputs": outcome.outputs} if inputs.return_node_outputs else {})

            async with gate:
                try:
                    spec = NodeSpec(f"item-{number}", "code", 0, None, durable=False, replay=True, returns=None)
                    result = await call(spec, execute, inspect.signature(execute), (item,), {})
                except (ReplayMismatch, RunClosed):
                    raise
                except StepwellError as error:
                    return {"index": number, "status": "failed", "error": describe_error(error)}
            return {"index": number, "status": "completed", **result}

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(number, item)) for number, item in enumerate(inputs.items)]
        results = [task.result() for task in tasks]
        succeeded = sum(result["status"] == "completed" for result in results)
        failed = len(results) - succeeded
        status = "completed" if not failed else "failed" if not succeeded else "partial_failed"
        return {
            "results": results, "responses": [result.get("response") for result in results], "status": status,
            "succeeded": succeeded, "failed": failed, "total": len(results),
            "summary": f"{succeeded} of {len(results)} items done, {failed} failed",
            "elapsed_ms": round((monotonic() - began) * 1_000),
        }  # fmt: skip


async def call_workflow(
    reference: str, start: Start, ctx: NodeContext, timeout_seconds: float, max_parallelism: int
) -> Outcome:
    """Run another workflow of the project inside the current node.

    Raises:
        SubflowNesting: it is already running above this node, or nests too deep.
        NodeTimeout: it did not finish in time. WorkflowNotFound, WorkflowInvalid: it does not run.
    """
    from stepwell.graph.entrypoint import run_stored

    stored = ctx.services.folder.get(reference)
    stack = ctx.services.stack
    own = stored.key  # not the id: a folder that was copied by hand has that of another
    if own in stack or len(stack) >= MAX_NESTING:
        chain = " → ".join((*stack[-4:], own))
        why = "calls itself" if own in stack else f"nests over {MAX_NESTING} levels deep"
        raise SubflowNesting(f"the workflow {quoted(stored.key)} {why}: {chain}", call_stack=[*stack, own])
    services = ctx.services._replace(max_parallelism=max(1, min(max_parallelism, 1_000)))
    try:
        async with asyncio.timeout(timeout_seconds if timeout_seconds > 0 else None) as limit:
            return await run_stored(stored.key, start, ctx.run, services)
    except TimeoutError:
        if limit.expired():
            raise NodeTimeout(
                f"the workflow {quoted(stored.key)} did not finish within {timeout_seconds:g} s", node=ctx.node.id
            ) from None
        raise


def _child_context(inputs: Any) -> dict[str, Any] | None:
    """The context that the child sees: child_context, else agent_context, else the one inside input_data."""
    given = _read(inputs.child_context)
    if isinstance(given, dict):
        return given
    if inputs.agent_context is not None:
        return dict(inputs.agent_context)
    data = _read(inputs.input_data)
    if isinstance(data, dict):
        found = at_path(data, inputs.context_path or "context")
        return found if isinstance(found, dict) else None
    return None


def _read(value: Any) -> Any:
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        from stepwell.errors import InvalidJson
        from stepwell.jsontext import decode_untrusted

        try:
            return decode_untrusted(value)
        except InvalidJson:
            return value
    return value


def _input_of(data: Any, context: dict[str, Any] | None) -> Any:
    if data is not None and data != "":
        return _read(data)
    return last_text(context, "user") if context is not None else MISSING


def _response(outcome: Outcome, path: str | None) -> Any:
    """What a workflow answers: its reply, else what its one last node answers, else what each of them does.

    Where that is a workflow again, its answer counts, not all that it emits: that holds the same values several times,
    and would double with every level.
    """
    whole: Any = outcome.outputs
    if path:
        found = at_path(whole, path)
        return None if found is MISSING else found
    if outcome.reply is not None:
        return outcome.reply
    answers = {name: _answer(ports) for name, ports in whole.items()}
    return next(iter(answers.values())) if len(answers) == 1 else answers


def _answer(ports: dict[str, Any]) -> Any:
    if "response" in ports:
        return ports["response"]
    return next(iter(ports.values())) if len(ports) == 1 else ports


def _summary(reference: str, outcome: Outcome) -> str:
    counts = ", ".join(f"{count} {status}" for status, count in outcome.counts.items() if count)
    return f"{reference}: {counts}"


def _bounded(context: dict[str, Any], max_bytes: int) -> dict[str, Any]:
    """The context with its oldest messages dropped until it is small enough; of the last one the beginning stays."""
    messages = list(context["messages"])
    sizes = [len(json.dumps(part, ensure_ascii=False).encode()) for part in messages]
    while len(messages) > 1 and sum(sizes) > max_bytes:
        messages.pop(0)
        sizes.pop(0)
    if sum(sizes) > max_bytes and isinstance(text := messages[0].get("content"), str):
        kept = text.encode("utf-8", "replace")[: max(0, max_bytes)].decode("utf-8", "ignore")
        messages[0] = messages[0] | {"content": kept}
    return context | {"messages": messages}
