"""One call of a model: its attempts, its answer, and exactly one usage report for every answer that began."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from stepwell.errors import StepwellError
from stepwell.llm.answer import Answer
from stepwell.llm.exchange import Exchange, ReadFile
from stepwell.llm.pool import ModelPool
from stepwell.llm.providers import ProviderSpec

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse
    from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
    from pydantic_ai.settings import ModelSettings

FIRST_PAUSE_SECONDS = 0.5


class Piece(NamedTuple):
    """A piece of a stream: `kind` is text, reasoning, or tool_call (`text` is then the tool's name)."""

    kind: str
    text: str


class Listener(Protocol):
    """Who wants to know what a call did."""

    async def used(self, answer: Answer) -> None:
        """An answer came, or broke off (`partial`): count it."""
        ...

    def retrying(self, attempt: int, pause: float, error: StepwellError) -> None:
        """An attempt failed; the next one comes in `pause` seconds."""
        ...


class Connection:
    """A provider that can be called.

    Args:
        pool: where its model is kept.
        spec: the provider.
        model: a model of one's own instead, for programs that bring one (and for tests).
        read: reads attachments.
    """

    def __init__(
        self, pool: ModelPool, spec: ProviderSpec, model: "Model | None" = None, read: ReadFile | None = None
    ) -> None:
        self.spec = spec
        self._pool = pool
        self._model = model
        self._read = read

    async def chat(self, exchange: Exchange, listener: Listener) -> Answer:
        """Send and wait for the whole answer.

        Raises:
            ProviderInvalid, ModelUnavailable, ModelRefused, ModelAnswerBroken
        """
        from pydantic_ai.direct import model_request

        prepared = await self._prepare(exchange)

        async def once() -> Answer:
            response = await model_request(
                prepared.model, prepared.messages, model_settings=prepared.settings,
                model_request_parameters=prepared.parameters,
            )  # fmt: skip
            answer = self._answer(response, prepared, partial=False)
            await listener.used(answer)
            return answer

        return await self._attempts(once, listener, lambda: False)

    async def stream(
        self, exchange: Exchange, listener: Listener, on_piece: Callable[[Piece], None], stop: asyncio.Event
    ) -> Answer:
        """Send and hand over the answer piece by piece.

        Args:
            on_piece: called with each piece, in order.
            stop: set by a consumer that has enough: the connection is closed, and what came is the answer.

        Raises:
            ProviderInvalid, ModelUnavailable, ModelRefused, ModelAnswerBroken: also in the middle of the stream.
        """
        prepared = await self._prepare(exchange)
        shown = False

        def hand_over(piece: Piece) -> None:
            nonlocal shown
            shown = True
            on_piece(piece)

        return await self._attempts(
            lambda: self._stream_once(prepared, listener, hand_over, stop), listener, lambda: shown or stop.is_set()
        )

    async def _stream_once(
        self, prepared: "_Prepared", listener: Listener, on_piece: Callable[[Piece], None], stop: asyncio.Event
    ) -> Answer:
        from pydantic_ai.direct import model_request_stream

        from stepwell.llm.failures import truncated

        opened: StreamedResponse | None = None
        try:
            try:
                async with model_request_stream(
                    prepared.model, prepared.messages, model_settings=prepared.settings,
                    model_request_parameters=prepared.parameters,
                ) as opened:  # fmt: skip
                    await _hand_over(opened, on_piece, stop)
            except Exception:
                # A connection that we closed ourselves fails in as many ways as there are vendors.
                if opened is None or not stop.is_set():
                    raise
            response = opened.get()
            stopped = stop.is_set() and response.state != "complete"
            if not stopped and self._is_truncated(response):
                raise truncated(self.spec)  # noqa: TRY301  (it is reported and raised like what the provider raises)
        except BaseException:
            if opened is not None:
                await listener.used(self._answer(opened.get(), prepared, partial=True))
            raise
        answer = self._answer(response, prepared, partial=stopped)
        await listener.used(answer)
        return answer

    def _is_truncated(self, response: "ModelResponse") -> bool:
        """True if the end never came. Every provider tells why it ended; models of one's own need not."""
        own = self._model is not None or self.spec.type == "test"
        return response.state != "complete" or (response.finish_reason is None and not own)

    async def _attempts(self, once: "Callable[[], Any]", listener: Listener, is_underway: Callable[[], bool]) -> Answer:
        from stepwell.llm.failures import failure_of, is_transient, retry_after

        for attempt in range(1, self.spec.max_retries + 2):
            try:
                answer: Answer = await once()
            except Exception as error:  # noqa: BLE001  (whatever a vendor's package raises becomes one of our errors)
                failure = failure_of(error, self.spec, self._pool.redactor, attempt)
                asked = retry_after(error)
                again = is_transient(error) and attempt <= self.spec.max_retries and not is_underway()
                if not again or (asked or 0) > self.spec.max_wait:
                    raise failure from None if isinstance(error, StepwellError) else error
                pause = FIRST_PAUSE_SECONDS * 2 ** (attempt - 1) * (0.5 + random.random())
                pause = min(asked if asked is not None else pause, self.spec.max_wait)
                listener.retrying(attempt, pause, failure)
                await asyncio.sleep(pause)
            else:
                return answer
        raise AssertionError("unreachable")

    async def _prepare(self, exchange: Exchange) -> "_Prepared":
        from stepwell.llm.translation import parameters_of, to_model

        model = self._model if self._model is not None else await self._pool.model(self.spec)
        settings: dict[str, Any] = dict(self.spec.settings) | dict(exchange.settings)
        if self._model is None and self.spec.type != "test":
            settings = {"timeout": self.spec.timeout} | settings | {"max_retries": 0}
        messages = await to_model(exchange.messages, model.system, self._read)
        parameters = parameters_of(exchange.tools, exchange.output_schema, self.spec.output)
        return _Prepared(model, messages, settings, parameters)  # type: ignore[arg-type]

    def _answer(self, response: "ModelResponse", prepared: "_Prepared", *, partial: bool) -> Answer:
        from stepwell.llm.translation import answer_of

        return answer_of(response, prepared.model.system, prepared.model.base_url, partial=partial)


class _Prepared(NamedTuple):
    model: "Model"
    messages: "list[ModelMessage]"
    settings: "ModelSettings"
    parameters: "ModelRequestParameters"


async def _hand_over(opened: "StreamedResponse", on_piece: Callable[[Piece], None], stop: asyncio.Event) -> None:
    """Hand over the pieces until the end, or until `stop` is set, also while nothing comes.

    Reading is a task of its own that is cancelled where it waits for the network: so every vendor's layers close from
    within. To leave the loop, or to close what is being read, keeps the connection open with some of them.
    """

    async def read() -> None:
        async for piece in _pieces(opened):
            on_piece(piece)

    reading, stopping = asyncio.create_task(read()), asyncio.create_task(stop.wait())
    try:
        await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        reading.cancel()
        await asyncio.wait({reading, stopping})
    if not reading.cancelled():
        reading.result()


async def _pieces(opened: "StreamedResponse") -> AsyncIterator[Piece]:
    from pydantic_ai import messages as ai

    async for event in opened:
        if isinstance(event, ai.PartStartEvent):
            part = event.part
            if isinstance(part, ai.TextPart) and part.content:
                yield Piece("text", part.content)
            elif isinstance(part, ai.ThinkingPart) and part.content:
                yield Piece("reasoning", part.content)
            elif isinstance(part, ai.ToolCallPart):
                yield Piece("tool_call", part.tool_name)
        elif isinstance(event, ai.PartDeltaEvent):
            delta = event.delta
            if isinstance(delta, ai.TextPartDelta) and delta.content_delta:
                yield Piece("text", delta.content_delta)
            elif isinstance(delta, ai.ThinkingPartDelta) and delta.content_delta:
                yield Piece("reasoning", delta.content_delta)
