"""A model server for tests: real HTTP on loopback, the wire formats of OpenAI, Anthropic and Google, scripted answers.

Speaks Chat Completions (`…/chat/completions`), Responses (`…/responses`), Anthropic Messages (`…/messages`) and Gemini
(`…:generateContent`, `…:streamGenerateContent?alt=sse`), streamed and not. Every request takes the next step of the script, the last one again and again. A step is a dictionary:

    text        the answer, in chunks of 8 characters; `{last}` is the last message's text
    tool_calls  [{"name", "arguments": a dict, or text as it is}]
    reasoning   thinking, where the format has it
    usage       {"input", "output", "reasoning", "cache_read", "cache_write"}, canonical and inclusive; None: not told
    when        answers only requests whose body has this text; such steps go first and are not used up
    status      an HTTP error instead, with `headers` and `message`
    fault       after `after` (1) events: drop (the connection), truncate (a proper end without closing events),
                malformed (a chunk that is no JSON), hang (nothing more, until the client goes)
    repeat      the final usage is told so many times
    delay       seconds before the answer
    events      the raw events of a stream, [[name or None, data], …], instead of all of the above

As a program: `python scripted_model_server.py SCRIPT.json` prints its address and serves until it is killed.
"""

import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

Json = dict[str, Any]


class ScriptedServer:
    """`with ScriptedServer([{"text": "hi"}]) as server: … server.url …`

    `requests` holds what came: path, headers, body. `gone` counts clients that left in the middle of an answer.
    """

    def __init__(self, script: list[Json]) -> None:
        self.script = script
        self.requests: list[Json] = []
        self.gone = 0
        self._used = 0
        self._mutex = threading.Lock()
        outer = self

        class Handler(_Handler):
            server_state = outer

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def serve_forever(self) -> None:
        """Serve in this thread."""
        self._server.serve_forever()

    def step(self, request: Json) -> Json:
        """The step that answers a request."""
        with self._mutex:
            self.requests.append(request)
            for step in self.script:
                if "when" in step and step["when"] in json.dumps(request["body"], ensure_ascii=False):
                    return step
            steps = [step for step in self.script if "when" not in step] or [{"text": "ok"}]
            step = steps[min(self._used, len(steps) - 1)]
            self._used += 1
            return step


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is nothing to print; anything else is."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_state: ScriptedServer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        step = self.server_state.step({"path": self.path, "headers": headers, "body": body})
        time.sleep(step.get("delay", 0))
        if "status" in step:
            told = {"error": {"message": step.get("message", "scripted error"), "type": "scripted"}}
            self._whole(told, step["status"], step.get("headers", {}))
            return
        step = {**step, "text": str(step.get("text", "")).replace("{last}", _last_text(body))}
        make = next(make for end, make in _FORMATS.items() if self.path.endswith(end))
        whole, events = make(step, body)
        try:
            if body.get("stream") or ":stream" in self.path:
                self._stream([tuple(event) for event in step.get("events", events)], step)
            else:
                self._whole(whole)
        except (BrokenPipeError, ConnectionResetError):
            self.server_state.gone += 1
            self.close_connection = True

    def _whole(self, body: Any, status: int = 200, headers: Json | None = None) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, str(value))
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _stream(self, events: list[tuple[str | None, Any]], step: Json) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        fault, after = step.get("fault"), step.get("after", 1)
        for number, (name, data) in enumerate(events):
            if fault is not None and number == after:
                if fault == "drop":
                    self.close_connection = True
                    self.connection.close()
                    return
                if fault == "truncate":
                    break
                if fault == "hang":
                    if not self.connection.recv(1):  # a client that still waits sends nothing
                        raise ConnectionResetError
                    raise AssertionError("the client sent something in the middle of an answer")
                self._chunk((f"event: {name}\n" if name else "") + "data: {this is no JSON\n\n")
            text = data if isinstance(data, str) else json.dumps(data)
            self._chunk((f"event: {name}\n" if name else "") + f"data: {text}\n\n")
            time.sleep(step.get("pause", 0))
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, text: str) -> None:
        raw = text.encode()
        self.wfile.write(f"{len(raw):x}\r\n".encode() + raw + b"\r\n")
        self.wfile.flush()


def _last_text(body: Json) -> str:
    given = (body.get("messages") or body.get("input") or body.get("contents") or [{}])[-1]
    content = given.get("content", given.get("output", given.get("parts", "")))
    if isinstance(content, list):
        said = [part.get("text", part.get("content", part.get("functionResponse", ""))) for part in content]
        content = " ".join(str(part) for part in said)
    return str(content)


def _parts(text: str) -> list[str]:
    return [text[start : start + 8] for start in range(0, len(text), 8)]


def _calls(step: Json, prefix: str) -> list[tuple[str, str, str]]:
    calls = []
    for number, call in enumerate(step.get("tool_calls", ())):
        given = call["arguments"]
        text = given if isinstance(given, str) else json.dumps(given)
        calls.append((call.get("id", f"{prefix}_{id(step) % 99991}_{number}"), call["name"], text))
    return calls


def _chat(step: Json, body: Json) -> tuple[Any, list[tuple[str | None, Any]]]:
    usage = step.get("usage", {"input": 5, "output": 2})
    told = usage and {
        "prompt_tokens": usage["input"], "completion_tokens": usage["output"],
        "total_tokens": usage["input"] + usage["output"],
        "prompt_tokens_details": {"cached_tokens": usage.get("cache_read", 0)},
        "completion_tokens_details": {"reasoning_tokens": usage.get("reasoning", 0)},
    }  # fmt: skip
    calls = [
        {"index": n, "id": i, "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (i, name, arguments) in enumerate(_calls(step, "call"))
    ]
    head = {"id": "chatcmpl-1", "created": 1_700_000_000, "model": body["model"]}
    finish = "tool_calls" if calls else "stop"
    message = {"role": "assistant", "content": step["text"] or None, **({"tool_calls": calls} if calls else {})}
    whole = head | {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": finish}]}

    def chunk(delta: Json, reason: str | None = None) -> tuple[None, Json]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return None, head | {"object": "chat.completion.chunk", "choices": [choice]}

    events = [chunk({"role": "assistant", "content": ""}), *(chunk({"content": part}) for part in _parts(step["text"]))]
    events += [chunk({"tool_calls": [call]}) for call in calls]
    events.append(chunk({}, finish))
    final = (None, head | {"object": "chat.completion.chunk", "choices": [], "usage": told})
    return whole | {"usage": told}, [*events, *([final] * step.get("repeat", 1) if told else []), (None, "[DONE]")]


def _responses(step: Json, body: Json) -> tuple[Any, list[tuple[str | None, Any]]]:
    usage = step.get("usage", {"input": 5, "output": 2})
    told = usage and {
        "input_tokens": usage["input"], "output_tokens": usage["output"],
        "total_tokens": usage["input"] + usage["output"],
        "input_tokens_details": {"cached_tokens": usage.get("cache_read", 0)},
        "output_tokens_details": {"reasoning_tokens": usage.get("reasoning", 0)},
    }  # fmt: skip
    output: list[Json] = []
    if step["text"]:
        content = [{"type": "output_text", "text": step["text"], "annotations": []}]
        output.append(
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": content}
        )
    for number, (call_id, name, arguments) in enumerate(_calls(step, "call")):
        output.append(
            {"type": "function_call", "id": f"fc_{number}", "call_id": call_id, "name": name, "arguments": arguments,
             "status": "completed"}
        )  # fmt: skip
    whole = {
        "id": "resp_1", "object": "response", "created_at": 1_700_000_000, "status": "completed",
        "model": body["model"], "output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [],
        "usage": told,
    }  # fmt: skip
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(output):
        empty_part = {"content": []} if item["type"] == "message" else {"arguments": ""}
        open_item = {**item, "status": "in_progress", **empty_part}
        events.append({"type": "response.output_item.added", "output_index": index, "item": open_item})
        if item["type"] == "message":
            place = {"item_id": item["id"], "output_index": index, "content_index": 0}
            empty = {"type": "output_text", "text": "", "annotations": []}
            events.append({"type": "response.content_part.added", **place, "part": empty})
            for part in _parts(step["text"]):
                events.append({"type": "response.output_text.delta", **place, "delta": part, "logprobs": []})
        else:
            place = {"item_id": item["id"], "output_index": index}
            events.append({"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return whole, [(event["type"], event | {"sequence_number": n}) for n, event in enumerate(events)]


def _anthropic(step: Json, body: Json) -> tuple[Any, list[tuple[str | None, Any]]]:
    usage = step.get("usage", {"input": 5, "output": 2}) or {"input": 0, "output": 0}
    read, write = usage.get("cache_read", 0), usage.get("cache_write", 0)
    told = {
        "input_tokens": usage["input"] - read - write, "cache_read_input_tokens": read,
        "cache_creation_input_tokens": write, "output_tokens": usage["output"],
    }  # fmt: skip
    blocks: list[tuple[Json, Json, list[Json]]] = []  # the empty block, the whole one, its deltas
    if step.get("reasoning"):
        thought, signed = step["reasoning"], {"type": "signature_delta", "signature": "signed-by-the-server"}
        whole_block = {"type": "thinking", "thinking": thought, "signature": "signed-by-the-server"}
        deltas = [{"type": "thinking_delta", "thinking": thought}, signed]
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, whole_block, deltas))
    if step["text"]:
        deltas = [{"type": "text_delta", "text": part} for part in _parts(step["text"])]
        blocks.append(({"type": "text", "text": ""}, {"type": "text", "text": step["text"]}, deltas))
    for call_id, name, arguments in _calls(step, "toolu"):
        empty = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        whole_block = empty | {"input": json.loads(arguments) if arguments.startswith("{") else {}}
        blocks.append((empty, whole_block, [{"type": "input_json_delta", "partial_json": arguments}]))
    stop = "tool_use" if step.get("tool_calls") else "end_turn"
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "stop_sequence": None}
    begun = head | {"content": [], "stop_reason": None, "usage": told | {"output_tokens": 1}}
    events: list[Json] = [{"type": "message_start", "message": begun}]
    for index, (empty, _, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    # Cumulative figures that repeat those of the start: who adds them up counts twice.
    delta = {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": told}
    events += [delta] * step.get("repeat", 1) + [{"type": "message_stop"}]
    whole = head | {"content": [block for _, block, _ in blocks], "stop_reason": stop, "usage": told}
    return whole, [(event["type"], event) for event in events]


def _google(step: Json, body: Json) -> tuple[Any, list[tuple[str | None, Any]]]:
    usage = step.get("usage", {"input": 5, "output": 2})
    reasoning = usage.get("reasoning", 0) if usage else 0

    def told(written: int, thought: int) -> Json:
        # Thoughts are not among the candidates' tokens, what was cached is among the prompt's; every event has the
        # figures so far: who adds them up counts several times.
        if not usage:
            return {}
        return {"usageMetadata": {
            "promptTokenCount": usage["input"], "cachedContentTokenCount": usage.get("cache_read", 0),
            "candidatesTokenCount": written, "thoughtsTokenCount": thought,
            "totalTokenCount": usage["input"] + written + thought,
        }}  # fmt: skip

    parts: list[Json] = [{"text": part} for part in _parts(step["text"])]
    if step.get("reasoning"):
        parts.insert(0, {"text": step["reasoning"], "thought": True})
        if len(parts) > 1:
            parts[1]["thoughtSignature"] = _SIGNED
    for call_id, name, arguments in _calls(step, "fc"):
        made = json.loads(arguments) if arguments.startswith("{") else {}
        parts.append({"functionCall": {"id": call_id, "name": name, "args": made}})
    head = {"responseId": "resp_1", "modelVersion": "scripted"}

    def candidate(given: list[Json], **more: str) -> Json:
        return head | {"candidates": [{"index": 0, "content": {"role": "model", "parts": given}, **more}]}

    final = told(usage["output"] - reasoning if usage else 0, reasoning)
    whole = candidate(parts, finishReason="STOP") | final
    events = [candidate([part]) | told(1, 0) for part in [{"text": ""}, *parts]]
    events += [candidate([{"text": ""}], finishReason="STOP") | final] * step.get("repeat", 1)
    return whole, [(None, event) for event in events]


_SIGNED = "c2lnbmVkLWJ5LXRoZS1zZXJ2ZXI="  # "signed-by-the-server", which Google sends as bytes
_FORMATS = {
    "/chat/completions": _chat,
    "/responses": _responses,
    "/messages": _anthropic,
    "/messages?beta=true": _anthropic,
    ":generateContent": _google,
    ":streamGenerateContent?alt=sse": _google,
}


if __name__ == "__main__":
    served = ScriptedServer(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    print(served.url, flush=True)
    served.serve_forever()
