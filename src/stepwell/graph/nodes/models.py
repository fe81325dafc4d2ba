"""Language models and agents in a graph, through the run's own providers."""

import json
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from stepwell.errors import InvalidArgument
from stepwell.graph.contexts import message, messages_of, rendered, text_of, with_messages
from stepwell.graph.node_context import NodeContext
from stepwell.graph.ports import AgentContext, AgentContextOrNone, dynamic
from stepwell.graph.registry import node_type
from stepwell.tools.declaration import tool_of

LLM_ROUNDS = 8
MAX_ROUNDS = 200
_SENT = ("temperature", "top_p", "max_tokens", "frequency_penalty", "presence_penalty")


@node_type("ai/llm_config", title="Model")
class LlmConfig:
    """Which model, and how it is asked: `model` is a provider of the project, or `type:model`."""

    class Inputs(BaseModel):
        model: str
        model_override: str | None = None
        temperature: float | None = None
        top_p: float | None = None
        max_tokens: int | None = None
        frequency_penalty: float | None = None
        presence_penalty: float | None = None
        json_mode: bool = False
        stream: bool = True
        timeout_secs: float = 60
        compatibility_profile: str | None = None
        ephemeral: bool = False

    class Outputs(BaseModel):
        llm_config: dict[str, Any]

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        config = {"model": inputs.model_override or inputs.model, "json_mode": inputs.json_mode}
        settings = {name: value for name in _SENT if (value := getattr(inputs, name)) is not None}
        return {"llm_config": config | settings | {"timeout_secs": inputs.timeout_secs}}


class _Talk(NamedTuple):
    """How a conversation with a model went: what was added to it, the last answer, and what it cost."""

    added: list[dict[str, Any]]
    text: str
    finish: str
    rounds: int
    prompt_tokens: int
    completion_tokens: int
    calls: list[dict[str, Any]]
    results: list[dict[str, Any]]
    done: bool


async def _talk(ctx: NodeContext, config: dict[str, Any], messages: list[dict[str, Any]], rounds: int) -> _Talk:
    """Model, tools, model, … until it answers without calling a tool, or the rounds are used up."""
    if not isinstance(config.get("model"), str) or not config["model"]:
        raise InvalidArgument("llm_config names no model", hint="connect an ai/llm_config node", argument="llm_config")
    llm = ctx.run.llm(config["model"])
    settings = {name: config[name] for name in _SENT if config.get(name) is not None}
    if config.get("timeout_secs"):
        settings["timeout"] = config["timeout_secs"]
    tools = {tool.name: tool_of(tool) for tool in ctx.tools}
    if len(tools) != len(ctx.tools):
        raise InvalidArgument("two tools have the same name", hint="give the tool nodes different names")
    added: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    prompt = completion = 0
    for number in range(1, max(1, min(rounds, MAX_ROUNDS)) + 1):
        answer = await llm.chat([*messages, *added], tools=list(tools.values()), **settings)
        added.append(answer.message)
        prompt += answer.usage.input
        completion += answer.usage.output
        if not answer.tool_calls:
            finish = answer.finish or "stop"
            return _Talk(added, answer.text, finish, number, prompt, completion, calls, results, done=True)
        for made in answer.tool_calls:
            outcome = await ctx.run.tools.attempt(tools.get(made.name), made.name, made.arguments, made.id)
            calls.append(made.to_dict())
            results.append({"id": made.id, "name": made.name, "content": outcome.content, "is_error": outcome.is_error})
            added.append({
                "role": "tool", "tool_call_id": made.id, "name": made.name, "content": outcome.content,
                "is_error": outcome.is_error,
            })  # fmt: skip
    text = answer.text or "The task was not finished within the allowed number of rounds."
    return _Talk(added, text, "max_iterations", number, prompt, completion, calls, results, done=False)


def _asked(
    context: dict[str, Any] | None,
    instruction: str | None,
    said: str | None,
    rich: Any = None,
    image: str | None = None,
) -> list[dict[str, Any]]:
    """The messages to send: instruction first, then the context, then what is said now."""
    messages = messages_of(context)
    if instruction:
        messages = [message("system", instruction), *(m for m in messages if m.get("role") != "system")]
    if not said and isinstance(rich, dict):
        said = text_of(rich.get("text"))
    if said and not (messages and messages[-1].get("role") == "user" and text_of(messages[-1].get("content")) == said):
        messages.append(message("user", said))
    if image:
        raise InvalidArgument(
            "image_base64 is not taken", hint="store the image and send its reference in the message",
            argument="image_base64",
        )  # fmt: skip
    if not messages:
        raise InvalidArgument("there is nothing to say", hint="connect context or user_message", argument="context")
    return messages


@node_type("ai/llm", title="Language model")
class Llm:
    """Asks a model. Tools wired to it are called until it answers."""

    class Inputs(BaseModel):
        llm_config: dict[str, Any]
        context: AgentContextOrNone = None
        instruction_prompt: str | None = None
        user_message: str | None = None
        user_message_rich: dict[str, Any] | None = None
        image_base64: str | None = None
        tools: str | None = None

    class Outputs(BaseModel):
        response: str
        context: AgentContext
        llm_config: dict[str, Any]
        finish_reason: str
        prompt_tokens: int
        completion_tokens: int
        total_tokens: int
        tool_calls: list[Any]
        tool_results: list[Any]

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        instruction = inputs.instruction_prompt
        if inputs.llm_config.get("json_mode"):
            instruction = f"{instruction or ''}\n\nAnswer with one JSON value and nothing else.".strip()
        messages = _asked(
            inputs.context, instruction, inputs.user_message, inputs.user_message_rich, inputs.image_base64
        )  # fmt: skip
        talk = await _talk(ctx, inputs.llm_config, messages, LLM_ROUNDS)
        return {
            "response": talk.text,
            "context": with_messages({**(inputs.context or {}), "messages": messages}, *talk.added),
            "llm_config": inputs.llm_config, "finish_reason": talk.finish, "prompt_tokens": talk.prompt_tokens,
            "completion_tokens": talk.completion_tokens, "total_tokens": talk.prompt_tokens + talk.completion_tokens,
            "tool_calls": talk.calls, "tool_results": talk.results,
        }  # fmt: skip


@node_type("agent/react_agent", title="Agent")
class ReactAgent:
    """Works on a task with the tools wired to tool_0, tool_1, …: model and tools take turns until it has an answer."""

    class Inputs(BaseModel):
        llm_config: dict[str, Any]
        context: AgentContextOrNone = None
        task: str | None = None
        user_message: str | None = None
        instruction_prompt: str | None = None
        max_iterations: int = 40
        tools: dynamic("tool_")  # type: ignore[valid-type]
        execution_mode: str = "light"
        max_tool_calls_per_turn: int | None = None
        # Files of other editors carry these; the loop here has no use for them, and they change nothing.
        long_task_safety_policy: dict[str, Any] | None = None
        max_checkpoints: int = 3
        max_review_rounds: int = 1
        min_tool_calls_for_skill: int = 3
        reminder_policy: dict[str, Any] | None = None
        reviewer_llm_config: dict[str, Any] | None = None
        reviewer_prompt: str | None = None
        short_task_budget_chunk: int = 40
        task_run_mode: Literal["short", "long"] | None = None
        transparent_agent_streaming: bool = True
        use_function_calling: bool = True
        use_llm_evaluation: bool = False

    class Outputs(BaseModel):
        final_answer: str
        context: AgentContext
        success: bool
        status: str
        iterations_used: int
        total_tokens: int
        trace: str
        pause_reason: str
        session_id: str
        artifacts: list[Any]
        suggested_next_action: str
        continuation_policy: dict[str, Any]
        interim_report: str
        requires_review: bool
        skill_summary: AgentContext

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        messages = _asked(inputs.context, inputs.instruction_prompt, inputs.task or inputs.user_message)
        talk = await _talk(ctx, inputs.llm_config, messages, inputs.max_iterations)
        emitted: dict[str, Any] = {
            "final_answer": talk.text, "success": talk.done, "status": "completed" if talk.done else "max_iterations",
            "context": with_messages({**(inputs.context or {}), "messages": messages}, *talk.added),
            "iterations_used": talk.rounds, "total_tokens": talk.prompt_tokens + talk.completion_tokens,
            "trace": _trace(talk), "session_id": ctx.run.run_id, "artifacts": [], "requires_review": False,
        }  # fmt: skip
        if not talk.done:
            emitted |= {
                "pause_reason": "max_iterations", "suggested_next_action": "raise max_iterations",
                "interim_report": talk.text,
            }  # fmt: skip
        return emitted


def _trace(talk: _Talk) -> str:
    lines = [
        f"{call['name']} {json.dumps(call['arguments'], ensure_ascii=False)[:200]} -> "
        f"{'error' if result['is_error'] else 'ok'} {result['content'][:200]}"
        for call, result in zip(talk.calls, talk.results, strict=True)
    ]
    return "\n".join(lines) or rendered({"messages": talk.added[-1:]})
