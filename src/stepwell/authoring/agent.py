"""`ctx.agent()`: model, tools, model, … until there is an answer.

Every turn of the model and every call of a tool is a node within the agent's own, so a resumed run goes on where it
was. In a conversation a turn's calls and their results are appended together: a process that dies between them leaves
neither.
"""

import asyncio
import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwell.authoring.calls import NodeSpec, call, current_frame
from stepwell.conversation.compact import context_messages
from stepwell.conversation.messages import paired_messages
from stepwell.conversation.state import Conversation
from stepwell.errors import AgentLimit, InvalidArgument, MessageConflict
from stepwell.llm.answer import Answer, ToolCall
from stepwell.tools.declaration import Tool

if TYPE_CHECKING:
    from stepwell.authoring.context import Context
    from stepwell.authoring.models import Llm
    from stepwell.authoring.toolbox import ToolOutcome

HISTORY_MESSAGES = 100
MAX_REPEATS = 1_000
_KEPT = ("role", "content", "tool_calls", "tool_call_id", "name", "is_error", "attachments", "provider_parts")


class Limits(NamedTuple):
    """What an agent may use: turns of the model, and tokens of all of them together."""

    turns: int
    tokens: int | None

    def checked(self) -> "Limits":
        """The same limits, if they are limits."""
        for what, limit in (("max_turns", self.turns), ("max_tokens", self.tokens)):
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
                raise InvalidArgument(f"{what} is {limit!r:.40}: it must be a whole number from 1", argument=what)
        return self


class AgentResult(NamedTuple):
    """What an agent came to. `messages` are those of this run, the question first; `tokens` of all turns together."""

    text: str
    messages: list[dict[str, Any]]
    turns: int
    tokens: int
    output: Any = None


class AgentParts(NamedTuple):
    """What an agent is made of; see `Context.agent`."""

    context: "Context"
    llm: "Llm"
    tools: Mapping[str, Tool]
    system: str | None
    limits: Limits
    output: Any
    name: str
    settings: Mapping[str, Any]


class Agent:
    """A loop of model and tools; see `Context.agent`."""

    def __init__(self, parts: AgentParts) -> None:
        parts.limits.checked()
        self._parts = parts

    async def run(
        self,
        messages: str | Iterable[Mapping[str, Any]] = (),
        *,
        conversation: bool | None = None,
        history: int = HISTORY_MESSAGES,
    ) -> AgentResult:
        """Work until the model answers without wanting a tool. Its text is streamed to an output item a turn.

        Args:
            messages: the question, or several messages; none where the conversation ends with the question already.
            conversation: go on from the run's conversation and append to it; by default where there is one.
            history: how many of its newest messages the model sees.

        Raises:
            AgentLimit: turns or tokens were used up. What the model's provider raises.
        """
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else [dict(m) for m in messages]
        parts = self._parts
        kept = parts.context.conversation
        follows = isinstance(kept, Conversation) if conversation is None else conversation

        async def work(messages: list[dict[str, Any]]) -> dict[str, Any]:
            return await _Loop(parts, kept if follows else None, history).run(messages)

        spec = NodeSpec(parts.name, "code", 0, None, True, True, None, {"agent": True, "tools": list(parts.tools)})
        done = await call(spec, work, inspect.signature(work), (given,), {})
        output = None
        if parts.output is not None:
            from stepwell.authoring.schema import validate

            output = validate(parts.output, done["output"], "the agent's output")
        return AgentResult(done["text"], done["messages"], done["turns"], done["tokens"], output)


class _Loop:
    """One run of an agent."""

    def __init__(self, agent: AgentParts, conversation: Conversation | None, history: int) -> None:
        self._agent = agent
        self._conversation = conversation
        self._history = history
        frame = current_frame()
        self._place = f"{agent.context.run_id}/{frame.path if frame is not None else agent.name}"
        self._appended = 0

    async def run(self, given: list[dict[str, Any]]) -> dict[str, Any]:
        agent = self._agent
        earlier = await self._earlier() if self._conversation is not None else []
        system = [{"role": "system", "content": agent.system}] if agent.system else []
        await self._append(given)
        said = list(given)
        tokens = 0
        limits = agent.limits
        for turn in range(1, limits.turns + 1):
            answer = await self._turn([*system, *paired_messages([*earlier, *said])])
            tokens += answer.usage.total
            results = await self._results(answer.tool_calls)
            await self._append([answer.message, *results])
            said += [answer.message, *results]
            if not answer.tool_calls:
                output = _as_json(answer.output) if agent.output is not None else None
                return {"text": answer.text, "messages": said, "turns": turn, "tokens": tokens, "output": output}
            if limits.tokens is not None and tokens >= limits.tokens:
                raise AgentLimit(
                    f"the agent {agent.name!r} used {tokens} of {limits.tokens} tokens in {turn} turns",
                    turns=turn, tokens=tokens,
                )  # fmt: skip
        raise AgentLimit(
            f"the agent {agent.name!r} had no answer after {limits.turns} turns",
            turns=limits.turns, tokens=tokens,
        )  # fmt: skip

    async def _turn(self, messages: Sequence[Mapping[str, Any]]) -> Answer:
        """Ask the model once, its text shown as it comes."""
        agent = self._agent
        tools = list(agent.tools.values())
        llm, settings = agent.llm, agent.settings
        if agent.output is not None:
            return await llm.chat(messages, tools=tools, output=agent.output, **settings)
        stream = llm.stream(messages, tools=tools, **settings)
        texts = stream.__aiter__()
        first = await anext(texts, None)
        if first is not None:
            async with agent.context.output(agent.name) as out:
                await out.write(first)
                async for text in texts:
                    await out.write(text)
        return stream.answer

    async def _results(self, calls: Iterable[ToolCall]) -> list[dict[str, Any]]:
        """Make a turn's calls, side by side; their results in the order of the calls."""
        calls = list(calls)
        if not calls:
            return []
        agent = self._agent
        toolbox = agent.context.tools
        outcomes: list[ToolOutcome] = await asyncio.gather(
            *(toolbox.attempt(agent.tools.get(made.name), made.name, made.arguments, made.id) for made in calls)
        )
        return [
            {
                "role": "tool", "tool_call_id": made.id, "name": made.name, "content": outcome.content,
                **({"is_error": True} if outcome.is_error else {}),
            }
            for made, outcome in zip(calls, outcomes, strict=True)
        ]  # fmt: skip

    async def _earlier(self) -> list[dict[str, Any]]:
        """The conversation as it was when the agent began, also when a resumed run comes here again."""
        conversation = self._conversation
        assert conversation is not None  # noqa: S101

        async def history() -> list[dict[str, Any]]:
            found = await context_messages(conversation, self._history)
            shown = [{name: message[name] for name in _KEPT if name in message} for message in found]
            return [message for message in shown if not message.get("damaged")]

        spec = NodeSpec("history", "code", 0, None, True, True, None)
        read: list[dict[str, Any]] = await call(spec, history, inspect.signature(history), (), {})
        return read

    async def _append(self, messages: Sequence[Mapping[str, Any]]) -> None:
        """Append to the conversation, together and once: a resumed run appends the same again."""
        if self._conversation is None or not messages:
            return
        first, self._appended = self._appended + 1, self._appended + len(messages)
        # Where the node around the agent is tried again, other messages may stand there already: those stay.
        for attempt in range(1, MAX_REPEATS):
            place = self._place if attempt == 1 else f"{self._place}~{attempt}"
            marked = [{**message, "id": _short(f"{place}/{first + n}")} for n, message in enumerate(messages)]
            try:
                await self._conversation.append_messages(marked)
            except MessageConflict:
                continue
            return
        raise MessageConflict(f"the messages of {self._place!r:.200} stand in the conversation {MAX_REPEATS} times")


def _short(message_id: str) -> str:
    """An id that fits: of a deep node its path is replaced by a hash of it."""
    if len(message_id) <= 200:
        return message_id
    import hashlib

    return f"{message_id[:36]}/{hashlib.blake2b(message_id.encode(), digest_size=16).hexdigest()}"


def _as_json(output: Any) -> Any:
    from stepwell.authoring.schema import to_json

    return to_json(output, "the agent's output")
