"""`ctx.llm()` over real HTTP: answers, streams, failures, attempts, and one usage report for each call."""

import asyncio
import time
from pathlib import Path

import pytest
from pydantic import BaseModel

from stepwell import Context, workflow
from stepwell.errors import ModelRefused
from tests.agents import CANARY, TELLS_EARLY, TYPES, USAGE, providers_at

REPORTED = {"input_tokens": 100, "output_tokens": 20, "reasoning_tokens": 5, "cached_input_tokens": 30}


def reports(bench) -> list[dict]:
    return [data["report"] for data in bench.of("token_usage.reported")]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("streamed", [False, True])
async def test_every_family_answers_and_is_counted_once_in_canonical_figures(bench, serve, kind, streamed):
    server = serve({"text": "Hello there, friend.", "usage": USAGE, "repeat": 3})
    bench.providers = providers_at(server)

    @workflow
    async def main(data: dict, ctx: Context) -> list:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
        if not streamed:
            return [(await ctx.llm(kind).chat(messages)).text]
        return [text async for text in ctx.llm(kind).stream(messages)]

    report = await bench.run(main)
    assert "".join(report.output) == "Hello there, friend."
    assert len(report.output) == (3 if streamed else 1)
    (counted,) = reports(bench)
    expected = REPORTED if kind != "anthropic" else REPORTED | {"reasoning_tokens": 0}
    assert {name: counted[name] for name in expected} == expected
    assert (counted["provider_name"], counted["model_id"]) == (kind, "scripted")
    assert report.tokens["total"] == 120
    assert report.tokens["calls"] == 1
    assert await bench.totals() == report.tokens
    started = bench.of("node.started")[0]
    assert (started["kind"], started["provider"], started["model"]) == ("llm", kind, "scripted")


async def test_vendors_that_split_their_prompt_figures_over_two_events_are_not_counted_double(bench, serve):
    head = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "stop_reason": None,
            "stop_sequence": None, "usage": {"input_tokens": 8834, "output_tokens": 0}}  # fmt: skip
    end = {"input_tokens": 18, "cache_read_input_tokens": 8831, "output_tokens": 426}
    events = [
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": end},
        {"type": "message_stop"},
    ]
    bench.providers = providers_at(serve({"events": [[event["type"], event] for event in events]}))

    @workflow
    async def main(data: dict, ctx: Context) -> str:
        return "".join([text async for text in ctx.llm("anthropic").stream("hi")])

    report = await bench.run(main)
    assert report.output == "hi"
    (counted,) = reports(bench)
    assert (counted["input_tokens"], counted["cached_input_tokens"], counted["output_tokens"]) == (8849, 8831, 426)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    ("fault", "code"), [("drop", "model_unavailable"), ("truncate", "model_answer_broken"),
                        ("malformed", "model_answer_broken")],
)  # fmt: skip
async def test_a_stream_that_breaks_is_an_error_and_is_reported_once_as_partial(bench, serve, kind, fault, code):
    bench.providers = providers_at(serve({"text": "Hello there, friend.", "usage": USAGE, "fault": fault, "after": 4}))
    seen: list[str] = []

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        async for text in ctx.llm(kind).stream("hi"):
            seen.append(text)

    report = await bench.run(main)
    assert report.status == "failed"
    assert report.error["code"] == code
    assert "".join(seen) == "Hello there, friend."[: len("".join(seen))]
    assert seen
    (counted,) = reports(bench)
    assert counted["partial"] is True
    assert counted["input_tokens"] == (100 if kind in TELLS_EARLY else 0)


@pytest.mark.parametrize("kind", TYPES)
async def test_a_consumer_that_stops_early_closes_the_connection_and_is_counted(bench, serve, kind):
    server = serve({"text": "one two three four five six", "usage": USAGE, "fault": "hang", "after": 5})
    bench.providers = providers_at(server)

    @workflow
    async def main(data: dict, ctx: Context) -> str:
        stream = ctx.llm(kind).stream("hi")
        async for text in stream:
            return text
        return ""

    report = await bench.run(main)
    assert report.output == "one two "
    (counted,) = reports(bench)
    assert (counted["partial"], counted["input_tokens"]) == (True, 100 if kind in TELLS_EARLY else 0)
    assert bench.of("node.completed")[0]["output"]["finish"] == "stopped"
    await _until(lambda: server.gone == 1)


@pytest.mark.parametrize("streamed", [False, True])
async def test_cancelling_a_run_closes_the_connection_within_a_second(bench, serve, streamed):
    server = serve({"text": "one two three four", "delay": 0 if streamed else 30, "fault": "hang", "after": 4})
    bench.providers = providers_at(server)

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        if streamed:
            async for _ in ctx.llm("anthropic").stream("hi"):
                pass
        else:
            await ctx.llm("anthropic").chat("hi")

    handle = await bench.start(main)
    await _until(lambda: server.requests and (not streamed or bench.of("node.started")))
    await asyncio.sleep(0.2)
    begun = time.monotonic()
    handle.cancel()
    report = await handle.report()
    assert (report.status, time.monotonic() - begun < 1) == ("cancelled", True)
    assert len(reports(bench)) == streamed
    if streamed:
        await _until(lambda: server.gone == 1)


@pytest.mark.parametrize("kind", TYPES)
async def test_attempts_follow_retry_after_and_count_the_call_once(bench, serve, kind):
    refused = {"status": 429, "headers": {"retry-after": "1"}}
    server = serve(refused, {"status": 503, "headers": {"retry-after": "0"}}, {"text": "ok", "usage": USAGE})
    bench.providers = providers_at(server)

    @workflow
    async def main(data: dict, ctx: Context) -> str:
        return (await ctx.llm(kind).chat("hi")).text

    report = await bench.run(main)
    assert (report.output, len(server.requests), len(reports(bench))) == ("ok", 3, 1)
    shown = [data["fields"]["delay_ms"] for data in bench.of("log")]
    assert shown == [1000, 0]


async def test_a_provider_that_asks_for_a_long_pause_is_not_waited_for(bench, serve):
    server = serve({"status": 429, "headers": {"retry-after": "3600"}})
    bench.providers = providers_at(server)

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        await ctx.llm().chat("hi")

    report = await bench.run(main)
    assert (report.error["code"], report.error["retry_after"]) == ("model_unavailable", 3600)
    assert len(server.requests) == 1


async def test_a_refusal_is_not_tried_again_and_names_the_key_without_showing_it(bench, serve):
    server = serve({"status": 401, "message": f"Incorrect API key provided: {CANARY}"})
    bench.providers = providers_at(server)

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        with pytest.raises(ModelRefused) as refused:
            await ctx.llm("openai-chat").chat("hi")
        assert CANARY not in str(refused.value)
        raise refused.value

    report = await bench.run(main)
    assert (report.error["code"], report.error["status"], len(server.requests)) == ("model_refused", 401, 1)
    assert "OPENAI_API_KEY" in report.error["hint"]


async def test_a_dead_server_and_a_slow_one_are_unavailable(bench, serve):
    server = serve({"text": "late", "delay": 3})
    bench.providers = providers_at(server, timeout=0.3) | {
        "dead": {"type": "openai-compatible", "model": "m", "base-url": "http://127.0.0.1:9/v1"}
    }
    bench.providers = {name: table | {"max-retries": 0} for name, table in bench.providers.items()}

    @workflow
    async def main(data: dict, ctx: Context) -> list:
        codes = []
        for name in ("dead", "default", "anthropic"):
            try:
                await ctx.llm(name).chat("hi")
            except Exception as error:  # noqa: BLE001
                codes.append(error.code)
        return codes

    assert (await bench.run(main)).output == ["model_unavailable"] * 3


async def test_fifty_calls_at_once_leave_exact_totals(bench, serve):
    bench.providers = providers_at(serve({"text": "ok", "usage": USAGE}))

    @workflow
    async def main(data: dict, ctx: Context) -> int:
        async def one(number: int) -> None:
            if number % 2:
                await ctx.llm(TYPES[number % 5]).chat("hi")
            else:
                assert [text async for text in ctx.llm(TYPES[number % 5]).stream("hi")] == ["ok"]

        await asyncio.gather(*(one(number) for number in range(50)))
        return ctx.token_usage.total["calls"]

    report = await bench.run(main)
    assert report.output == 50
    assert report.tokens == await bench.totals()
    assert {name: report.tokens[name] for name in ("input", "output", "cache_read", "total", "calls")} == {
        "input": 5000, "output": 1000, "cache_read": 1500, "total": 6000, "calls": 50
    }  # fmt: skip


class City(BaseModel):
    name: str
    people: int


@pytest.mark.parametrize("kind", TYPES)
async def test_an_output_is_validated_and_asked_for_again_once(bench, serve, kind):
    server = serve(
        {"tool_calls": [{"name": "final_result", "arguments": {"name": "Bern", "people": "many"}}], "usage": USAGE},
        {"tool_calls": [{"name": "final_result", "arguments": {"name": "Bern", "people": 134000}}], "usage": USAGE},
    )
    bench.providers = providers_at(server)

    @workflow
    async def main(data: dict, ctx: Context) -> dict:
        answer = await ctx.llm(kind).chat("Which city?", output=City)
        assert isinstance(answer.output, City)
        assert answer.tool_calls == ()
        return answer.output.model_dump() | {"message": answer.message["content"]}

    report = await bench.run(main)
    assert report.output == {"name": "Bern", "people": 134000, "message": '{"name": "Bern", "people": 134000}'}
    assert report.tokens["calls"] == 2
    assert "people" in str(server.requests[1]["body"])


async def test_an_output_that_never_fits_is_an_error_and_text_in_a_fence_is_taken(bench, serve):
    server = serve({"when": "fence", "text": "```json\n[1, 2]\n```"}, {"text": "I would rather talk."})
    bench.providers = providers_at(server)

    @workflow
    async def main(data: dict, ctx: Context) -> list:
        taken = await ctx.llm().chat("fence", output=list[int])
        assert taken.output == [1, 2]
        await ctx.llm().chat("other", output=list[int])
        return []

    report = await bench.run(main)
    assert report.error["code"] == "model_answer_broken"
    assert report.tokens["calls"] == 3


@pytest.mark.parametrize(
    ("kind", "signed"), [("anthropic", "signed-by-the-server"), ("google", "c2lnbmVkLWJ5LXRoZS1zZXJ2ZXI=")]
)
async def test_signed_reasoning_goes_back_to_its_provider_and_to_no_other(bench, serve, kind, signed):
    server = serve({"reasoning": "let me see", "text": "Four.", "usage": USAGE})
    bench.providers = providers_at(server)

    @workflow
    async def main(data: dict, ctx: Context) -> list:
        answer = await ctx.llm(kind).chat("2+2?")
        assert answer.reasoning == "let me see"
        following = [{"role": "user", "content": "2+2?"}, answer.message, {"role": "user", "content": "sure?"}]
        await ctx.llm(kind).chat(following)
        await ctx.llm("openai-chat").chat(following)
        return following

    assert (await bench.run(main)).status == "completed"
    assert signed in str(server.requests[1]["body"])
    assert signed not in str(server.requests[2]["body"])
    assert "Four." in str(server.requests[2]["body"])


async def test_a_resumed_run_does_not_call_again_what_was_answered(bench, serve):
    server = serve({"text": "first"}, {"text": "second"}, {"text": "third"})
    bench.providers = providers_at(server)
    broken = True

    @workflow
    async def main(data: dict, ctx: Context) -> list:
        one = (await ctx.llm().chat("1")).text
        two = "".join([text async for text in ctx.llm().stream("2")])
        if broken:
            from stepwell.errors import StorageUnavailable

            ctx._parts.services.break_off(StorageUnavailable("as if the process had died"))
            await asyncio.sleep(10)
        return [one, two, (await ctx.llm().chat("3")).text]

    handle = await bench.start(main)
    with pytest.raises(Exception, match="as if"):
        await handle.report()
    broken = False
    report = await bench.resume(main, handle.run_id)
    assert report.output == ["first", "second", "third"]
    assert len(server.requests) == 3
    assert report.tokens["calls"] == 3


async def test_the_key_appears_nowhere(bench, serve, tmp_path: Path):
    server = serve({"text": f"your key is {CANARY}", "usage": USAGE}, {"status": 400, "message": f"bad {CANARY}"})
    bench.providers = providers_at(server)

    @workflow
    async def main(data: dict, ctx: Context) -> None:
        answer = await ctx.llm("openai-chat").chat("hi")
        ctx.log(answer.text, key=answer.text)
        await ctx.llm("openai-chat").chat("again")

    report = await bench.run(main)
    assert report.status == "failed"
    assert server.requests[0]["headers"]["authorization"] == f"Bearer {CANARY}"
    assert CANARY not in str([event.to_dict() for event in bench.events]) + str(report.to_dict())
    await bench.host.close()
    for file in (tmp_path / "home").rglob("*"):
        if file.is_file():
            assert CANARY.encode() not in file.read_bytes(), file


async def test_an_offline_test_model_and_models_of_ones_own(bench):
    from pydantic_ai.messages import ModelResponse, TextPart
    from pydantic_ai.models.function import FunctionModel

    bench.providers = {"fake": {"type": "test", "text": "offline"}}

    @workflow
    async def main(data: dict, ctx: Context) -> list:
        own = FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart("mine")]), model_name="own")
        return [
            (await ctx.llm().chat("hi")).text,
            "".join([text async for text in ctx.llm("fake").stream("hi")]),
            (await ctx.llm(own).chat("hi")).text,
            (await ctx.llm("test:any").chat("hi")).text,
        ]

    report = await bench.run(main)
    assert report.output == ["offline", "offline", "mine", "success (no tool calls)"]
    assert report.tokens["calls"] == 4


async def _until(condition) -> None:
    for _ in range(200):
        if condition():
            return
        await asyncio.sleep(0.02)
    raise AssertionError("it did not happen within 4 s")
