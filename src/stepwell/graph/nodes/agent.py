"""An agent in a graph: model and tools take turns, within limits, and a reviewer may judge what comes out."""

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from stepwell.errors import InvalidArgument
from stepwell.graph.contexts import message, rendered, text_of, with_messages
from stepwell.graph.node_context import NodeContext
from stepwell.graph.nodes.reviewing import review
from stepwell.graph.nodes.talking import Talk, asked
from stepwell.graph.ports import AgentContext, AgentContextOrNone, dynamic, without_effect
from stepwell.graph.registry import node_type

MAX_ROUNDS = 200
_REMINDER_FIELDS = ("every_iterations", "message")
_NEXT = {
    "max_iterations": "raise max_iterations",
    "short_task_budget": "connect context to another agent, which goes on from here, or raise short_task_budget_chunk",
    "max_checkpoints": "connect context to another agent, which goes on from here, or raise max_checkpoints",
}


@node_type("agent/react_agent", title="Agent")
class ReactAgent:
    """Works on a task with the tools wired to tool_0, tool_1, …: model and tools take turns until it has an answer.

    A reviewer may judge the answer, and what it remarks goes back to the agent.
    """

    class Inputs(BaseModel):
        llm_config: dict[str, Any]
        context: AgentContextOrNone = None
        task: str | None = None
        user_message: str | None = None
        instruction_prompt: str | None = None
        max_iterations: int = 40
        tools: dynamic("tool_")  # type: ignore[valid-type]
        max_tool_calls_per_turn: Annotated[int | None, Field(description="0 is no limit")] = None
        use_function_calling: bool = True
        transparent_agent_streaming: bool = True
        task_run_mode: Annotated[
            Literal["short", "long"] | None,
            Field(
                description="short pauses after short_task_budget_chunk turns; long tells the agent after each such "
                "chunk how far it is, and pauses after max_checkpoints of these"
            ),
        ] = None
        short_task_budget_chunk: int = 40
        max_checkpoints: int = 3
        reminder_policy: Annotated[
            dict[str, Any] | None,
            Field(description='{"every_iterations": 10, "message": "…"}; without a message it repeats the task'),
        ] = None
        use_llm_evaluation: bool = False
        reviewer_llm_config: dict[str, Any] | None = None
        reviewer_prompt: str | None = None
        max_review_rounds: Annotated[int, Field(description="how often a remark goes back to the agent")] = 1
        min_tool_calls_for_skill: int = 3
        execution_mode: Annotated[str, without_effect("there is one way to work; task_run_mode sets the limits")] = (
            "light"
        )
        long_task_safety_policy: Annotated[
            dict[str, Any] | None, without_effect("max_iterations and the node's timeout set the limits")
        ] = None

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

    @staticmethod
    def idle_inputs(config: dict[str, Any], wired: frozenset[str]) -> dict[str, str]:
        """Inputs that change nothing because of how others are set, with the reason."""
        idle: dict[str, str] = {}
        if not config.get("use_llm_evaluation") and "use_llm_evaluation" not in wired:
            names = ("reviewer_llm_config", "reviewer_prompt", "max_review_rounds")
            idle |= dict.fromkeys(names, "there is no review unless use_llm_evaluation is true")
        mode = config.get("task_run_mode")
        if "task_run_mode" not in wired:
            if mode not in ("short", "long"):
                idle["short_task_budget_chunk"] = "there are no chunks unless task_run_mode is short or long"
            if mode != "long":
                idle["max_checkpoints"] = "there are no checkpoints unless task_run_mode is long"
        policy = config.get("reminder_policy")
        unknown = [name for name in policy if name not in _REMINDER_FIELDS] if isinstance(policy, dict) else []
        if unknown:
            idle["reminder_policy"] = f"of a policy {' and '.join(_REMINDER_FIELDS)} are known, not {unknown[0]!r:.60}"
        if config.get("tools"):
            idle["tools"] = "an agent has the tools that are connected to tool_0, tool_1, …"
        return idle

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        return await _Work(inputs, ctx).run()


class _Work:
    """One call of an agent."""

    def __init__(self, inputs: Any, ctx: NodeContext) -> None:
        self._inputs = inputs
        self._ctx = ctx
        said = list(dict.fromkeys(filter(None, (inputs.task, inputs.user_message))))
        self._messages = asked(inputs.context, inputs.instruction_prompt, "\n\n".join(said))
        users = [text_of(known.get("content")) for known in self._messages if known.get("role") == "user"]
        self._task = users[-1] if users else ""
        self._talk = Talk(
            ctx, inputs.llm_config, self._messages, streams=inputs.transparent_agent_streaming,
            calls_per_turn=inputs.max_tool_calls_per_turn, by_text=not inputs.use_function_calling,
        )  # fmt: skip
        self._limit = max(1, min(inputs.max_iterations, MAX_ROUNDS))
        self._chunk = max(1, inputs.short_task_budget_chunk) if inputs.task_run_mode else None
        self._checkpoints = 0
        self._remind_every, self._reminder = _reminder(inputs.reminder_policy, self._task)
        self._remarks: list[str] = []
        self._review_tokens = 0

    async def run(self) -> dict[str, Any]:
        paused = await self._go_on()
        agreed = True
        if not paused and self._inputs.use_llm_evaluation:
            agreed, paused = await self._review()
        talk, tokens = self._talk, self._talk.prompt_tokens + self._talk.completion_tokens + self._review_tokens
        status = "paused" if paused else "completed" if agreed else "requires_review"
        if paused == "max_iterations":
            status = paused
        emitted: dict[str, Any] = {
            "final_answer": talk.text or "The task was not finished within the allowed number of rounds.",
            "success": not paused and agreed, "status": status, "requires_review": not agreed,
            "context": with_messages({**(self._inputs.context or {}), "messages": self._messages}, *talk.added),
            "iterations_used": talk.rounds, "total_tokens": tokens, "trace": self._trace(),
            "session_id": self._ctx.run.run_id, "artifacts": [],
        }  # fmt: skip
        if paused:
            emitted |= {
                "pause_reason": paused, "suggested_next_action": _NEXT[paused],
                "interim_report": f"{self._progress()}\n{self._trace()}",
                "continuation_policy": {
                    "can_continue": True, "reason": paused, "iterations_used": talk.rounds,
                    "max_iterations": self._limit, "checkpoints": self._checkpoints,
                },
            }  # fmt: skip
        elif agreed and talk.calls and len(talk.calls) >= self._inputs.min_tool_calls_for_skill:
            emitted["skill_summary"] = self._skill()
        return emitted

    async def _go_on(self) -> str:
        """Model and tools take turns until there is an answer; why it paused, or an empty text."""
        talk = self._talk
        while talk.rounds < self._limit:
            if await talk.round():
                return ""
            if talk.rounds == self._limit:
                break
            if self._remind_every and talk.rounds % self._remind_every == 0:
                talk.say(self._reminder)
            if self._chunk is not None and talk.rounds % self._chunk == 0:
                if self._inputs.task_run_mode == "short":
                    return "short_task_budget"
                if self._checkpoints >= self._inputs.max_checkpoints:
                    return "max_checkpoints"
                self._checkpoint()
        return "max_iterations"

    def _checkpoint(self) -> None:
        self._checkpoints += 1
        told = f"Checkpoint {self._checkpoints}: {self._progress()}"
        self._ctx.run.progress(self._talk.rounds, self._limit, told)
        self._talk.say(f"{told} Check what is still missing, and go on.")

    def _progress(self) -> str:
        talk = self._talk
        return f"{talk.rounds} of {self._limit} turns are used, and {len(talk.calls)} tool calls were made."

    async def _review(self) -> tuple[bool, str]:
        """Have the answer judged, and corrected; whether the reviewer agreed, and why the agent paused."""
        inputs, talk = self._inputs, self._talk
        for number in range(max(0, inputs.max_review_rounds) + 1):
            verdict = await review(
                self._ctx, inputs.reviewer_llm_config or inputs.llm_config, inputs.reviewer_prompt, self._task,
                self._calls(), talk.text,
            )  # fmt: skip
            self._review_tokens += verdict.tokens
            self._remarks.append("accepted" if verdict.approved else f"not accepted: {verdict.remark[:500]}")
            if verdict.approved:
                return True, ""
            if number == inputs.max_review_rounds or talk.rounds >= self._limit:
                break
            talk.say(
                f"A reviewer did not accept this answer: {verdict.remark or '(no remark)'}\n"
                "Correct it, and give the whole answer again."
            )
            if paused := await self._go_on():
                return False, paused
        return False, ""

    def _calls(self) -> str:
        return "\n".join(
            f"{call['name']} {json.dumps(call['arguments'], ensure_ascii=False)[:200]} -> "
            f"{'error' if result['is_error'] else 'ok'} {result['content'][:200]}"
            for call, result in zip(self._talk.calls, self._talk.results, strict=True)
        )

    def _trace(self) -> str:
        reviews = [f"review {remark}" for remark in self._remarks]
        return "\n".join(filter(None, [self._calls(), *reviews])) or rendered({"messages": self._talk.added[-1:]})

    def _skill(self) -> dict[str, Any]:
        """How the task was done, for an agent that has such a task again."""
        done = f"A task like this was done before.\nTask: {self._task}\nTool calls:\n{self._calls()}"
        return {"messages": [message("system", done)]}


def _reminder(policy: dict[str, Any] | None, task: str) -> tuple[int | None, str]:
    """After how many turns the agent is reminded, and of what."""
    every = (policy or {}).get("every_iterations")
    if every is None:
        return None, ""
    if isinstance(every, bool) or not isinstance(every, int) or every < 1:
        raise InvalidArgument(
            f"reminder_policy.every_iterations is {every!r:.40}: it must be a whole number from 1",
            argument="reminder_policy",
        )  # fmt: skip
    told = (policy or {}).get("message")
    return every, told if isinstance(told, str) and told else f"Remember your task: {task}"
