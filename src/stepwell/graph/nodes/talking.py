"""Talking with a model in turns: what is sent, the tools it calls, the text it shows while it comes."""

from collections.abc import Sequence
from typing import Any

from stepwell.authoring.calls import current_frame
from stepwell.errors import InvalidArgument
from stepwell.graph.contexts import message, messages_of, text_of
from stepwell.graph.node_context import NodeContext
from stepwell.graph.nodes.text_tools import described, read_calls, told_results
from stepwell.llm.answer import Answer, ToolCall
from stepwell.tools.declaration import Tool, tool_of

SENT_SETTINGS = ("temperature", "top_p", "max_tokens", "frequency_penalty", "presence_penalty")


def model_of(config: dict[str, Any], argument: str = "llm_config") -> str:
    """The model that a config names.

    Raises:
        InvalidArgument: it names none.
    """
    model = config.get("model")
    if not isinstance(model, str) or not model:
        raise InvalidArgument(f"{argument} names no model", hint="connect an ai/llm_config node", argument=argument)
    return model


def settings_of(config: dict[str, Any]) -> dict[str, Any]:
    """What of a config is sent with each call."""
    settings = {name: config[name] for name in SENT_SETTINGS if config.get(name) is not None}
    return settings | ({"timeout": config["timeout_secs"]} if config.get("timeout_secs") else {})


class Talk:
    """A conversation with a model.

    Args:
        config: of an `ai/llm_config` node.
        messages: what it begins with.
        streams: show the model's text while it comes; false also where the config says so.
        calls_per_turn: how many tool calls of one answer are made; None for all.
        by_text: the model is told of the tools in words and calls them in words, for models without function calling.

    Attributes:
        added: the messages behind those it began with.
        rounds: how often the model was asked.
    """

    def __init__(
        self,
        ctx: NodeContext,
        config: dict[str, Any],
        messages: Sequence[dict[str, Any]],
        *,
        streams: bool = True,
        calls_per_turn: int | None = None,
        by_text: bool = False,
    ) -> None:
        self._ctx = ctx
        self._llm = ctx.run.llm(model_of(config))
        self._settings = settings_of(config)
        # JSON is for the next node, and a call in words for us: neither is for people.
        self._streams = streams and config.get("stream") is not False and not config.get("json_mode") and not by_text
        self._messages = list(messages)
        self._calls_per_turn = calls_per_turn or None
        self._tools: dict[str, Tool] = {tool.name: tool_of(tool) for tool in ctx.tools}
        if len(self._tools) != len(ctx.tools):
            raise InvalidArgument("two tools have the same name", hint="give the tool nodes different names")
        self._by_text = by_text and bool(self._tools)
        if self._by_text:
            self._messages.insert(0, message("system", described(self._tools.values())))
        self.added: list[dict[str, Any]] = []
        self.calls: list[dict[str, Any]] = []
        self.results: list[dict[str, Any]] = []
        self.prompt_tokens = self.completion_tokens = self.rounds = 0
        self.text, self.finish = "", "stop"

    def say(self, text: str) -> None:
        """Tell the model something before it is asked again."""
        self.added.append(message("user", text))

    async def round(self) -> bool:
        """Ask the model once and make the calls it wants; true if it wanted none: then `text` is its answer."""
        answer = await self._ask()
        self.rounds += 1
        self.added.append(answer.message)
        self.prompt_tokens += answer.usage.input
        self.completion_tokens += answer.usage.output
        self.text, self.finish = answer.text, answer.finish or "stop"
        wanted = read_calls(answer.text, self.rounds) if self._by_text else list(answer.tool_calls)
        results = [await self._call(made, number) for number, made in enumerate(wanted)]
        self.calls += [made.to_dict() for made in wanted]
        self.results += results
        if self._by_text and results:
            self.say(told_results(results))
        elif results:
            self.added += [{"role": "tool", "tool_call_id": result["id"], **_without_id(result)} for result in results]
        return not wanted

    async def _call(self, made: ToolCall, number: int) -> dict[str, Any]:
        limit = self._calls_per_turn
        if limit is not None and number >= limit:
            told = f"Not called: at most {limit} calls are made per turn. Ask for it again if it is still needed."
            return {"id": made.id, "name": made.name, "content": told, "is_error": True}
        outcome = await self._ctx.run.tools.attempt(self._tools.get(made.name), made.name, made.arguments, made.id)
        return {"id": made.id, "name": made.name, "content": outcome.content, "is_error": outcome.is_error}

    async def _ask(self) -> Answer:
        messages = [*self._messages, *self.added]
        tools = [] if self._by_text else list(self._tools.values())
        if not self._streams:
            return await self._llm.chat(messages, tools=tools, **self._settings)
        # The same name either way: a run that is resumed finds its calls whether or not they were streamed.
        stream = self._llm.stream(messages, tools=tools, name="chat", **self._settings)
        texts = stream.__aiter__()
        first = await anext(texts, None)
        if first is not None:
            async with self._ctx.run.output(self._ctx.node.label) as out:
                await out.write(first)
                async for text in texts:
                    await out.write(text)
            self._ctx.services.shown.append(out.text)
        return stream.answer


def _without_id(result: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "id"}


def asked(
    context: dict[str, Any] | None,
    instruction: str | None,
    said: str | None,
    attachments: Sequence[Any] = (),
) -> list[dict[str, Any]]:
    """The messages to send: instruction first, then the context, then what is said now.

    Raises:
        InvalidArgument: there is nothing to say.
    """
    messages = messages_of(context)
    if instruction:
        messages = [message("system", instruction), *(m for m in messages if m.get("role") != "system")]
    is_last = bool(messages) and messages[-1].get("role") == "user" and text_of(messages[-1].get("content")) == said
    if attachments and is_last:
        messages[-1] |= {"attachments": messages[-1].get("attachments") or list(attachments)}
    elif attachments or (said and not is_last):
        messages.append(message("user", said or "") | ({"attachments": list(attachments)} if attachments else {}))
    if not messages:
        raise InvalidArgument("there is nothing to say", hint="connect context or user_message", argument="context")
    return messages


def unshown(ctx: NodeContext, text: str) -> str:
    """What of a text the models of this run have not shown already, while they wrote it.

    A text that a node put something behind is shown from there on; only whole sentences count, because a single
    word that a model said (a label to branch on) begins many texts by chance.
    """
    frame = current_frame()
    assert frame is not None  # noqa: S101  (only called inside a run)
    known = [*ctx.services.shown, *frame.session.shown_texts(frame.path)]
    if text in known:
        return ""
    begun = [
        shown for shown in known if " " in shown.strip() and text.startswith(shown) and not text[len(shown)].isalnum()
    ]
    return text[len(max(begun, key=len)) :].lstrip() if begun else text
