"""The chat without a terminal: a line is a message or a command; text or JSON lines come out."""

import asyncio
import os
import sys
import threading
from typing import Any

from stepwell.cli.chat.commands import send_line
from stepwell.cli.chat.engine import Ask, Chat
from stepwell.cli.live import Live, exit_code_of, on_signals
from stepwell.cli.render import EXIT_INTERRUPTED, EXIT_WAITING, Output, dumps
from stepwell.errors import InputInvalid, StepwellError
from stepwell.jsontext import decode_untrusted
from stepwell.runtime.events import Event
from stepwell.runtime.report import Report

_AFTER_RUNS = ("/export", "/compact", "/resume")
_FIELDS = {"message": str, "request_id": str, "attachments": list, "parameters": dict, "command": str}


class PlainFront:
    """Output on stdout, everything else on stderr."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._live: Live | None = None

    def event(self, event: Event) -> None:
        """Show an event as `stepwell run` does."""
        self._live = self._live or Live(self._output)
        if event.type != "tool.requested":
            self._live.show(event)

    def asks(self, ask: Ask) -> None:
        """Say what waits, and what to write."""
        self._output.talk(f"waiting for approval of {ask.tool} {dumps(ask.arguments)}: /approve or /deny REASON")

    def news(self, name: str, text: str, **data: Any) -> None:
        """Say it, where there is anything to say."""
        if text:
            self._output.talk(text)

    def problem(self, error: StepwellError) -> None:
        """Print the error."""
        self._output.error(error)

    def ended(self, report: Report) -> None:
        """Print how the run ended."""
        live, self._live = self._live or Live(self._output), None
        live.end(report)


class JsonFront:
    """Everything as JSON lines on stdout: the events of the runs, and the chat's own as `chat.…`."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def event(self, event: Event) -> None:
        """An event as `run --jsonl` prints it."""
        self._line(event.to_dict())

    def asks(self, ask: Ask) -> None:
        """The request as an event."""
        self._line({"type": "chat.asks", **ask._asdict()})

    def news(self, name: str, text: str, **data: Any) -> None:
        """The news as an event."""
        self._line({"type": f"chat.{name}", **data})

    def problem(self, error: StepwellError) -> None:
        """The error as an event."""
        self._line({"type": "chat.error", "error": error.to_dict()})

    def ended(self, report: Report) -> None:
        """The report as an event."""
        self._line({"type": "chat.ended", "report": report.to_dict()})

    def _line(self, value: dict[str, Any]) -> None:
        self._output.line(dumps(value))
        self._output.flush()


class Lines:
    """The lines of stdin, read in a thread only when one is asked for: what is not read stays with the sender."""

    def __init__(self) -> None:
        self._descriptor = sys.stdin.fileno()
        self._rest = b""
        self._ended = False

    async def next(self) -> str | None:
        """The next line without its end; None when there are no more."""
        loop = asyncio.get_running_loop()
        found: asyncio.Future[str | None] = loop.create_future()

        def work() -> None:
            line = self._read()
            if not loop.is_closed():
                loop.call_soon_threadsafe(hand_over, line)

        def hand_over(line: str | None) -> None:
            if not found.done():
                found.set_result(line)

        # A daemon: a read that nothing ends must not keep the program from leaving.
        threading.Thread(target=work, name="stdin", daemon=True).start()
        return await found

    def _read(self) -> str | None:
        while b"\n" not in self._rest and not self._ended:
            try:
                part = os.read(self._descriptor, 65_536)
            except OSError:
                part = b""
            self._ended = not part
            self._rest += part
        line, newline, self._rest = self._rest.partition(b"\n")
        if not line and not newline:
            return None
        return line.decode("utf-8", "replace").removesuffix("\r")


async def converse_plainly(chat: Chat, output: Output, *, json_input: bool) -> int:
    """Send what stdin says to its end, and wait for the runs; returns the exit code.

    Args:
        json_input: lines are JSON objects with `message`, and optionally `request_id`, `attachments` (paths) and
            `parameters`; or with `command` alone.
    """
    leave = asyncio.Event()
    stopped: list[int] = []

    def interrupt() -> None:
        if stopped or not chat.busy:
            stopped.append(EXIT_INTERRUPTED)
            leave.set()
            return
        stopped.append(EXIT_INTERRUPTED)
        output.talk("stopping; Ctrl-C again leaves")
        asyncio.ensure_future(_guarded(chat, chat.stop()))  # noqa: RUF006  (the worker sees the run's end)

    on_signals(interrupt)
    work = asyncio.ensure_future(_send_lines(chat, json_input))
    leaving = asyncio.ensure_future(leave.wait())
    assert chat.worker is not None  # noqa: S101  (the chat is open)
    await asyncio.wait({work, leaving, chat.worker}, return_when=asyncio.FIRST_COMPLETED)
    if chat.worker.done():
        await chat.worker  # it ends by an error only
    for task in (work, leaving):
        if task.done():
            task.result()
        task.cancel()
    if leave.is_set():
        return EXIT_INTERRUPTED
    if chat.only_waits:
        return EXIT_WAITING
    return exit_code_of(chat.last) if chat.last is not None else 0


async def _send_lines(chat: Chat, json_input: bool) -> None:
    lines = Lines()
    while True:
        while not chat.declared.input_queue and chat.busy and not chat.asked:
            await chat.change()
        line = await lines.next()
        if line is None:
            break
        while line.startswith(_AFTER_RUNS) and chat.busy and not chat.only_waits:
            await chat.change()  # a script means these after what it sent before
        if line.strip() and not await _guarded(chat, _send_json(chat, line) if json_input else send_line(chat, line)):
            return
    while chat.busy and not chat.only_waits:
        await chat.change()


async def _guarded(chat: Chat, sending: Any) -> bool:
    """Do it; an error is shown, and the chat goes on."""
    try:
        return await sending is not False
    except StepwellError as error:
        chat.front.problem(error)
        return True


async def _send_json(chat: Chat, line: str) -> bool:
    given = decode_untrusted(line, what="the line")
    if not isinstance(given, dict) or not ("message" in given) ^ ("command" in given):
        raise InputInvalid("a line is a JSON object with either message or command")
    for name, value in given.items():
        if name not in _FIELDS or not isinstance(value, _FIELDS[name]):
            raise InputInvalid(f"{name!r:.60} is not a field of an input, or has a wrong type", field=name)
    if "command" in given:
        command = given["command"]
        return await send_line(chat, command if command.startswith("/") else f"/{command}")
    known = {parameter.name: parameter for parameter in chat.declared.parameters}
    for name, value in given.get("parameters", {}).items():
        if name not in known:
            raise InputInvalid(f"there is no parameter {name!r:.60}", hint=f"there are: {', '.join(known) or 'none'}")
        chat.parameters[name] = known[name].parse(value if isinstance(value, str) else "on" if value else "off")
    for path in given.get("attachments", ()):
        await chat.attach(str(path))
    await chat.send(given["message"], request_id=given.get("request_id"))
    return True
