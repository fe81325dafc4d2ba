"""Showing a run while it goes on: output on stdout, nodes and progress on stderr."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from stepwell.cli.place import Place
from stepwell.cli.render import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_TIMEOUT, EXIT_WAITING, Output, dumps, safe
from stepwell.runtime.events import Event
from stepwell.runtime.host import Host
from stepwell.runtime.report import Report

if TYPE_CHECKING:
    from stepwell.project.loader import Project
    from stepwell.runtime.runner import RunHandle

_NODE_MARKS = {
    "node.started": "▸", "node.completed": "✓", "node.failed": "✗", "node.cancelled": "■", "node.skipped": "·"
}  # fmt: skip


class Live:
    """Shows events of one run.

    Args:
        output: where to.
        jsonl: print every event as a JSON line instead.
    """

    def __init__(self, output: Output, *, jsonl: bool = False) -> None:
        self._output = output
        self._jsonl = jsonl
        self._status_shown = False
        self._at_line_start = True
        self._item: str | None = None
        self._open: str | None = None
        self._held: dict[str, str] = {}
        self._ended: set[str] = set()
        self._lost: OSError | None = None
        self._titles: dict[str, str] = {}
        self._on_terminal = sys.stderr.isatty() and not output.quiet and not output.json and not jsonl

    def show(self, event: Event) -> None:
        """Show one event.

        This is called from inside the run, which must not fail because nobody reads any more: the run goes on
        without an audience, and `end` says what happened to the output.
        """
        if self._lost is None:
            try:
                self._show(event)
            except OSError as error:
                self._lost = error

    def _show(self, event: Event) -> None:
        if self._jsonl:
            self._output.line(dumps(event.to_dict()))
            self._output.flush()
            return
        if self._output.json:
            return
        if event.type in ("output.started", "output.restarted"):
            self._begin_item(event)
        elif event.type == "output.chunk":
            self._chunk(event.data["item"], event.data["text"])
        elif event.type == "output.completed":
            self._end_item(event.data["item"])
        elif event.type == "log" and event.data["node"] + event.data["message"] != "the run failed":
            self._say(f"{event.data['level']}: {event.data['message']}")
        elif event.type == "progress":
            total = f"/{event.data['total']:g}" if event.data["total"] is not None else ""
            self._status(f"{event.data['done']:g}{total} {event.data['text']}")
        elif event.type == "tool.requested" and event.data["request_id"] is not None:
            self._clear_status()
            self._end_line()
            self._output.talk(f"waiting for approval of {event.data['tool']} {dumps(event.data['arguments'])}")
            self._output.talk(f"  `stepwell approvals approve {event.data['request_id']}` (or deny)")
        elif event.type in _NODE_MARKS:
            self._node(event)

    def end(self, report: Report) -> None:
        """Show how the run ended.

        Raises:
            OSError: an earlier event could not be written.
        """
        if self._lost is not None:
            raise self._lost
        while self._open is not None:
            self._end_item(self._open)
        self._clear_status()
        self._end_line()
        if self._jsonl:
            return
        if self._output.json:
            self._output.line(dumps(report.to_dict()))
            return
        if report.output is not None and (self._item is None or _is_unsaid(report)):
            shown = report.output if isinstance(report.output, str) else dumps(report.output)
            self._output.text(shown)
        if report.error is not None:
            node = f" in {report.error['node']}" if report.error.get("node") else ""
            self._output.talk(f"error{node}: {report.error['type']}: {report.error['message']}")
            self._output.talk(f"hint: `stepwell runs events {report.run_id}` shows what happened")
        seconds = "" if report.duration_ms is None else f" in {report.duration_ms / 1000:.2f} s"
        tokens = f", {report.tokens['total']} tokens" if report.tokens else ""
        where = f", conversation {report.conversation_id}" if report.conversation_id else ""
        self._output.talk(f"run {report.run_id} {report.status}{seconds}{tokens}{where}")

    def _begin_item(self, event: Event) -> None:
        self._item = item = event.data["item"]
        self._ended.discard(item)
        if self._open not in (None, item):
            # Nodes that work side by side would tear each other's texts to pieces: one follows the other.
            self._held[item] = ""
            return
        self._open = item
        self._clear_status()
        self._end_line()
        if event.type == "output.restarted":
            self._output.talk(f"({event.data['name']} starts over)")

    def _chunk(self, item: str, text: str) -> None:
        if item in self._held:
            self._held[item] += text
            return
        self._clear_status()
        self._output.stream(text)
        self._at_line_start = text.endswith("\n")

    def _end_item(self, item: str) -> None:
        if item in self._held:
            self._ended.add(item)
            return
        self._end_line()
        self._open = None
        while self._held and self._open is None:
            following = next(iter(self._held))
            text = self._held.pop(following)
            if text:
                self._chunk(following, text)
            if following in self._ended:
                self._end_line()
            else:
                self._open = following

    def _end_line(self) -> None:
        if not self._at_line_start:
            self._output.stream("\n")
            self._at_line_start = True

    def _node(self, event: Event) -> None:
        node = event.data["node"]
        if "title" in event.data:  # the nodes of a graph: their paths are of ids, which say nothing to a person
            self._titles[node] = event.data["title"]
        name = "/".join(self._titles.get("/".join(parts), parts[-1]) for parts in _beginnings(node))
        if self._output.verbose:
            took = f" {event.data['duration_ms']:.0f} ms" if "duration_ms" in event.data else ""
            why = f" ({event.data['reason'].replace('_', ' ')})" if event.type == "node.skipped" else ""
            self._say(f"{_NODE_MARKS[event.type]} {name}{took}{why}")
        elif event.type == "node.started":
            self._status(name)

    def _say(self, text: str) -> None:
        self._clear_status()
        if self._at_line_start:
            self._output.talk(text)

    def _status(self, text: str) -> None:
        # Only between lines of output: a status must not tear an answer apart.
        if self._on_terminal and self._at_line_start:
            width = max((os.get_terminal_size(sys.stderr.fileno()).columns or 80) - 2, 0)
            dim, off = ("\033[2m", "\033[0m") if self._output.colors(sys.stderr) else ("", "")
            sys.stderr.write(f"\r\033[K{dim}{safe(' '.join(text.split()))[:width]}{off}")
            sys.stderr.flush()
            self._status_shown = True

    def _clear_status(self) -> None:
        if self._status_shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()
            self._status_shown = False


def _is_unsaid(report: Report) -> bool:
    """True for a graph without a reply: what its models said on the way is not what came out of it."""
    output = report.output
    return report.entrypoint.startswith("workflow:") and isinstance(output, dict) and "reply" not in output


def _beginnings(path: str) -> list[list[str]]:
    """The parts of a node's path: the first, the first two, …"""
    parts = path.split("/")
    return [parts[:end] for end in range(1, len(parts) + 1)]


Begin = Callable[[Host, Callable[[Event], None]], Awaitable["RunHandle"]]


def execute(output: Output, project: "Project", live: Live, begin: Begin, *, timeout: float | None = None) -> int:
    """Start (or resume) a run, show it to its end, and return the exit code.

    The first Ctrl-C cancels the run, a second one ends the process at once.
    """
    place = Place(output, str(project.folder))
    with output.user_prints():
        return asyncio.run(_execute(place, live, begin, timeout))


async def _execute(place: Place, live: Live, begin: Begin, timeout: float | None) -> int:
    async with Host(place.settings) as host:
        return await show_to_end(place, live, await begin(host, live.show), timeout)


async def show_to_end(place: Place, live: Live, handle: "RunHandle", timeout: float | None = None) -> int:
    """Wait for a run of this process, show how it ended, and return the exit code."""
    stopped: list[int] = []

    def interrupt() -> None:
        if stopped:
            os._exit(EXIT_INTERRUPTED)
        stopped.append(EXIT_INTERRUPTED)
        place.output.talk("stopping; Ctrl-C again ends it at once")
        handle.cancel("interrupted")

    def expire() -> None:
        stopped.append(EXIT_TIMEOUT)
        handle.cancel(f"over --timeout {timeout:g} s")

    on_signals(interrupt)
    timer = asyncio.get_running_loop().call_later(timeout, expire) if timeout is not None else None
    report = await handle.report()
    if timer is not None:
        timer.cancel()
    with contextlib.suppress(BrokenPipeError):  # the exit code still tells how the run went
        live.end(report)
    if stopped and report.status == "cancelled":
        return stopped[0]
    return exit_code_of(report)


def exit_code_of(report: Report) -> int:
    """The exit code that tells a run's status."""
    return {"completed": 0, "waiting_input": EXIT_WAITING}.get(report.status, EXIT_FAILED)


def on_signals(handler: Callable[[], Any]) -> None:
    """Call a handler on the event loop for Ctrl-C and for being asked to end."""
    loop = asyncio.get_running_loop()
    for name in ("SIGINT", "SIGTERM"):
        number = getattr(signal, name)
        try:
            loop.add_signal_handler(number, handler)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(handler))
