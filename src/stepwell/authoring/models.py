"""`ctx.llm()`: calls of models as nodes of the run: traced, counted, and not made again by a resume."""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from stepwell.authoring.calls import NodeSpec, call, current_frame
from stepwell.authoring.schema import json_schema, validate
from stepwell.errors import InvalidArgument, ModelAnswerBroken, StepwellError
from stepwell.llm.answer import Answer
from stepwell.llm.connection import Connection, Piece
from stepwell.llm.exchange import OUTPUT_TOOL, Exchange, ToolSpec, given_messages
from stepwell.llm.pool import ModelPool, spec_of
from stepwell.llm.providers import provider_spec
from stepwell.tools.declaration import tool_of
from stepwell.usage.report import TokenReport
from stepwell.usage.totals import NoTokenUsage, TokenUsage

OUTPUT_ATTEMPTS = 2
"""How often a model is asked for an output: once more where the first does not fit, with what is wrong with it."""


class ModelServices(Protocol):
    """What calls of models need from their run."""

    def background(self, coroutine: Any, name: str | None) -> "asyncio.Task[Any]":
        """Start a task that the run waits for."""
        ...

    def emit(self, event: str, /, **data: Any) -> None:
        """Add an event to the run's stream."""
        ...


class Models(NamedTuple):
    """Where a run's models come from: the pool, the manifest's providers, and how attachments are read."""

    pool: ModelPool
    providers: Mapping[str, Any]
    read: Callable[[str], Awaitable[bytes]] | None = None

    def connection(self, name: Any) -> Connection:
        """A provider by name, as `type:model`, the default one for None; or a model of pydantic-ai itself.

        Raises:
            ProviderInvalid: it is not configured; the message names the missing setting.
        """
        if name is None or isinstance(name, str):
            return Connection(self.pool, provider_spec(name, self.providers), read=self.read)
        return Connection(self.pool, spec_of(name), name, read=self.read)


class Llm:
    """One provider within a run."""

    def __init__(self, connection: Connection, services: ModelServices, usage: TokenUsage | NoTokenUsage) -> None:
        self._connection = connection
        self._services = services
        self._usage = usage

    @property
    def provider(self) -> str:
        """The provider's name."""
        return self._connection.spec.name

    @property
    def model(self) -> str:
        """The model's name."""
        return self._connection.spec.model

    async def chat(
        self,
        messages: str | Iterable[Mapping[str, Any]],
        *,
        tools: "Iterable[Any]" = (),
        output: Any = None,
        name: str = "chat",
        **settings: Any,
    ) -> Answer:
        """Ask, and wait for the whole answer.

        Args:
            messages: a text, or messages as a conversation stores them (`role`, `content`, `tool_calls`, …).
            tools: tools the model may ask for; `answer.tool_calls` has what it wants called. Nothing is called here.
            output: a type; the answer's `output` is then a value of it, validated.
            name: the node's name in the trace.
            **settings: for this call, such as `temperature` and `max_tokens`.

        Raises:
            ProviderInvalid, ModelUnavailable, ModelRefused: what the provider, or its configuration, made impossible.
            ModelAnswerBroken: the answer cannot be read, or does not fit `output`.
        """
        given = given_messages(messages)
        schema = json_schema(output) or {"title": "value"} if output is not None else None
        for attempt in range(1, OUTPUT_ATTEMPTS + 1):
            answer = await self._ask(name, Exchange(given, _specs(tools), schema, settings))
            if output is None:
                return answer
            fitted, problem, feedback = _fit(answer, output, schema or {})
            if problem is None and fitted is not None:
                return fitted
            if problem is None:
                return answer  # it wants tools called first
            if attempt < OUTPUT_ATTEMPTS:
                given = [*given, answer.message, *feedback]
        raise ModelAnswerBroken(
            f"the model {self.model!r} gave no output that fits, in {OUTPUT_ATTEMPTS} attempts: {problem}",
            hint="make the output's type simpler, or the prompt clearer",
        )

    def stream(
        self,
        messages: str | Iterable[Mapping[str, Any]],
        *,
        tools: "Iterable[Any]" = (),
        name: str = "stream",
        **settings: Any,
    ) -> "AnswerStream":
        """Ask, and read the answer as it comes: `async for text in ctx.llm().stream(prompt)`.

        A consumer that stops early closes the connection; what came until then is counted and recorded.

        Raises:
            The same as `chat`, while it is read.
        """
        exchange = Exchange(given_messages(messages), _specs(tools), None, settings)

        async def start(on_piece: Callable[[Piece], None], stop: asyncio.Event) -> Answer:
            return await self._ask(name, exchange, on_piece, stop)

        return AnswerStream(start, self._services)

    async def _ask(
        self,
        name: str,
        exchange: Exchange,
        on_piece: Callable[[Piece], None] | None = None,
        stop: asyncio.Event | None = None,
    ) -> Answer:
        counting = _Counting(self._usage, self._services, self.provider)

        async def ask(messages: Any, tools: Any, output: Any, settings: Any) -> dict[str, Any]:
            if on_piece is None or stop is None:
                answer = await self._connection.chat(exchange, counting)
            else:
                answer = await self._connection.stream(exchange, counting, on_piece, stop)
            return answer.to_dict()

        details = {"provider": self.provider, "model": self.model}
        spec = NodeSpec(name, "llm", 0, None, durable=True, replay=True, returns=None, details=details)
        tools = [tool.name for tool in exchange.tools]
        shown = (list(exchange.messages), tools, exchange.output_schema, dict(exchange.settings))
        return Answer.of(await call(spec, ask, inspect.signature(ask), shown, {}))


class AnswerStream:
    """An answer that is being made. Iterating it gives its text; `pieces()` gives reasoning and tool calls too."""

    def __init__(
        self, start: Callable[[Callable[[Piece], None], asyncio.Event], Awaitable[Answer]], services: ModelServices
    ) -> None:
        self._start = start
        self._services = services
        self._begun = False
        self._answer: Answer | None = None
        self._error: BaseException | None = None

    @property
    def answer(self) -> Answer:
        """The whole answer, once the stream has ended.

        Raises:
            InvalidArgument: it has not.
        """
        if self._answer is None:
            raise InvalidArgument("the answer is not complete yet", hint="read the stream to its end first")
        return self._answer

    async def __aiter__(self) -> AsyncIterator[str]:
        async for piece in self.pieces():
            if piece.kind == "text":
                yield piece.text

    async def pieces(self) -> AsyncIterator[Piece]:
        """The answer piece by piece, in the order in which it comes."""
        if self._begun:
            raise InvalidArgument("a stream is read once", hint="keep what it gave, or use its `answer`")
        self._begun = True
        queue: asyncio.Queue[Piece | None] = asyncio.Queue()
        stop = asyncio.Event()
        work = self._services.background(self._work(queue, stop), "llm stream")
        is_shown = False
        try:
            while (piece := await queue.get()) is not None:
                is_shown = is_shown or piece.kind == "text"
                yield piece
        except asyncio.CancelledError:
            work.cancel()
            raise
        finally:
            stop.set()
            await asyncio.wait({work})
        if self._error is not None:
            raise self._error
        if not is_shown and self.answer.text:  # given back from the record of a resumed run
            yield Piece("text", self.answer.text)

    async def _work(self, queue: "asyncio.Queue[Piece | None]", stop: asyncio.Event) -> None:
        try:
            self._answer = await self._start(queue.put_nowait, stop)
        except Exception as error:  # noqa: BLE001  (raised again where the stream is read)
            self._error = error
        finally:
            queue.put_nowait(None)


class _Counting:
    """Reports what a call used, and shows its further attempts."""

    def __init__(self, usage: TokenUsage | NoTokenUsage, services: ModelServices, provider: str) -> None:
        self._usage = usage
        self._services = services
        self._provider = provider

    async def used(self, answer: Answer) -> None:
        figures = answer.usage
        frame = current_frame()
        await self._usage.report(
            TokenReport(
                input_tokens=figures.input, output_tokens=figures.output, total_tokens=figures.total,
                reasoning_tokens=figures.reasoning, cached_input_tokens=figures.cache_read,
                cache_creation_tokens=figures.cache_write, node_name=frame.path if frame is not None else None,
                provider_name=self._provider, model_id=answer.model, cost_usd=figures.cost_usd,
                partial=answer.partial or None,
            )
        )  # fmt: skip

    def retrying(self, attempt: int, pause: float, error: StepwellError) -> None:
        frame = current_frame()
        self._services.emit(
            "log", node=frame.path if frame is not None else "", level="warning",
            message=f"attempt {attempt}: {error.message}; again in {pause:.1f} s",
            fields={"attempt": attempt, "delay_ms": round(pause * 1000), "error": error.to_dict()},
        )  # fmt: skip


def _specs(tools: Iterable[Any]) -> tuple[ToolSpec, ...]:
    declared = [tool_of(tool) for tool in tools]
    return tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in declared)


def _fit(
    answer: Answer, output: Any, schema: Mapping[str, Any]
) -> tuple[Answer | None, str | None, Sequence[dict[str, Any]]]:
    """The answer with its output, or what is wrong with it and what to tell the model; neither where it wants tools."""
    final = [made for made in answer.tool_calls if made.name == OUTPUT_TOOL]
    if not final and answer.tool_calls:
        return None, None, ()
    given: Any = final[0].arguments if final else answer.text
    try:
        if isinstance(given, str):
            given = json.loads(_bare(given))
        if final and schema.get("type") != "object" and isinstance(given, dict) and set(given) == {"value"}:
            given = given["value"]
        fitted = validate(output, given, "the model's output")
    except (ValueError, StepwellError) as error:
        problem = error.message if isinstance(error, StepwellError) else f"it is no JSON: {error}"
        told = f"This does not fit: {problem}. Give the whole answer again."
        if not final:
            return None, problem, [{"role": "user", "content": told}]
        results = [
            {"role": "tool", "tool_call_id": made.id, "name": made.name, "content": told, "is_error": True}
            for made in answer.tool_calls
        ]
        return None, problem, results
    message = {"role": "assistant", "content": json.dumps(given, ensure_ascii=False)}
    return answer._replace(output=fitted, tool_calls=(), message=message), None, ()


def _bare(text: str) -> str:
    """The text without the fence that models like to put around JSON."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```") and "\n" in stripped:
        return stripped[stripped.index("\n") : -3]
    return stripped
