"""The chat at a terminal: keys in, Markdown out, the input always at the lower end."""

import asyncio
import codecs
import contextlib
import io
import json
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwell.cli.chat.commands import send_line
from stepwell.cli.chat.completion import completions
from stepwell.cli.chat.editor import MAX_HISTORY, Editor
from stepwell.cli.chat.engine import Chat
from stepwell.cli.chat.keys import Key, Keys
from stepwell.cli.chat.screen import Screen
from stepwell.cli.chat.terminal_front import TerminalFront
from stepwell.cli.render import EXIT_INTERRUPTED, Output
from stepwell.conversation.state import Conversation
from stepwell.errors import InputInvalid, StepwellError
from stepwell.jsontext import decode_untrusted

if TYPE_CHECKING:
    from stepwell.project.loader import Project
    from stepwell.runtime.host import Host

SHOWN_MESSAGES = 6


async def converse_at_terminal(
    host: "Host", project: "Project", conversation: Conversation, output: Output, entrypoint: str | None
) -> int:
    """Chat until the person leaves; returns the exit code.

    Raises:
        ConversationBusy: another chat has the conversation open.
    """
    descriptor = sys.stdin.fileno()
    screen = Screen(output, descriptor)
    front = TerminalFront(screen)
    chat = Chat(host, project, conversation, front, entrypoint)
    history = _History(Path(host.settings.home) / "chat-history" / f"{chat.project_id}.jsonl")
    screen.start()  # first: what is typed from here on comes as keys
    try:
        await chat.open()
        session = _Session(chat, front, screen, history)
        summary = await conversation.summary()
        screen.print(front.dimmed(f"{project.manifest.name} · {summary.to_dict()['shown_title']} · / for commands"))
        front.messages(await conversation.messages(SHOWN_MESSAGES))
        writer = _Prints(screen)
        with contextlib.redirect_stdout(writer), contextlib.redirect_stderr(writer):
            return await session.run(descriptor)
    finally:
        screen.stop()
        await chat.close()


class _Session:
    """Keys become edits, edits become inputs, answers and commands."""

    def __init__(self, chat: Chat, front: TerminalFront, screen: Screen, history: "_History") -> None:
        self._chat = chat
        self._front = front
        self._screen = screen
        self._history = history
        self._editor = Editor(lambda text: [] if front.ask is not None else completions(chat, text), history.load())
        self._editor.put(chat.text)
        self._editor.choices = []
        self._keys = Keys()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._interrupts = 0
        self._kept = ""
        self._is_editing_arguments = False
        self._line = asyncio.Lock()
        front.begin(chat, self._on_change)

    async def run(self, descriptor: int) -> int:
        loop = asyncio.get_running_loop()
        for name, code in (("SIGTERM", 143), ("SIGHUP", 129)):
            loop.add_signal_handler(getattr(signal, name), self._leave, code)
        loop.add_signal_handler(signal.SIGWINCH, self._screen.draw)
        self._on_change()
        loop.add_reader(descriptor, self._readable, descriptor)
        worker = self._chat.worker
        assert worker is not None  # noqa: S101  (the chat is open)
        try:
            ending: set[asyncio.Future[Any]] = {worker, self._left}
            await asyncio.wait(ending, return_when=asyncio.FIRST_COMPLETED)
            if worker.done():
                await worker  # it ends by an error only
            self._chat.text = self._kept if self._front.ask is not None else self._editor.text
            return self._left.result()
        finally:
            loop.remove_reader(descriptor)
            for task in self._tasks:
                task.cancel()

    # -- keys --------------------------------------------------------------------------------------------------------

    def _readable(self, descriptor: int) -> None:
        try:
            raw = os.read(descriptor, 65_536)
        except OSError:
            raw = b""
        if not raw:  # the terminal is gone
            self._leave(129)
            return
        for key in self._keys.feed(self._decoder.decode(raw)):
            self._press(key)
        self._on_change()

    def _press(self, key: Key) -> None:
        wanted = self._editor.press(key)
        if wanted != "interrupt":
            self._interrupts = 0
        if wanted == "submit":
            self._submit()
        elif wanted == "interrupt":
            self._interrupt()
        elif wanted == "eof":
            self._end_of_input()
        elif wanted == "redraw":
            self._screen.clear()
        elif wanted == "suspend":
            self._suspend()

    def _submit(self) -> None:
        if not self._editor.text.strip() and not self._chat.attachments:
            return
        if self._front.ask is not None and not self._editor.text.startswith("/"):
            text = self._editor.text
            self._editor.put("")
            self._do(self._answer(text))
            return
        text = self._editor.take()
        self._history.add(text)
        if not text.startswith("/") or text.startswith("//"):
            self._front.said(text.removeprefix("/"))
        self._do(self._send(text))

    async def _send(self, text: str) -> None:
        async with self._line:  # two lines in quick succession keep their order
            try:
                if not await send_line(self._chat, text):
                    self._leave(0)
            except StepwellError:
                if not text.startswith("/") and not self._editor.text:
                    self._editor.put(text)  # nothing that was written is lost
                raise

    async def _answer(self, text: str) -> None:
        ask = self._front.ask
        if ask is None:
            return
        if self._is_editing_arguments:
            try:
                arguments = decode_untrusted(text, what="the arguments")
                await self._chat.answer(approved=True, request_id=ask.request_id, arguments=arguments)
            except StepwellError:
                self._editor.put(text)
                raise
            return
        word, _, rest = text.strip().partition(" ")
        if word.lower() in ("y", "yes"):
            await self._chat.answer(approved=True, request_id=ask.request_id)
        elif word.lower() in ("n", "no"):
            await self._chat.answer(approved=False, request_id=ask.request_id, reason=rest.strip() or None)
        elif word.lower() in ("e", "edit"):
            self._is_editing_arguments = True
            self._front.prompt = "arguments> "
            self._editor.put(json.dumps(ask.arguments, ensure_ascii=False))
            self._on_change()
        else:
            raise InputInvalid("answer y, n REASON, or e to edit the arguments", hint="/stop ends the run")

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._is_editing_arguments:
            self._is_editing_arguments, self._interrupts = False, 0
            self._editor.put("")
            self._front.reask()
        elif self._interrupts > 1:
            self._leave(EXIT_INTERRUPTED)
        elif self._chat.active is not None:
            self._front.note("stopping; Ctrl-C again leaves")
            self._do(self._stop())
        elif self._editor.text:
            self._editor.put("")
            self._interrupts = 0
        else:
            self._front.note("Ctrl-C again leaves; so does Ctrl-D")

    async def _stop(self) -> None:
        await self._chat.stop()

    def _end_of_input(self) -> None:
        if self._chat.active is not None and not self._chat.only_waits:
            self._front.note("a run is active: Ctrl-C stops it")
        else:
            self._leave(0)

    def _suspend(self) -> None:
        self._screen.stop()
        os.kill(os.getpid(), signal.SIGTSTP)
        self._screen.start()

    # -- the rest ----------------------------------------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        async def guarded() -> None:
            try:
                await work
            except StepwellError as error:
                self._front.problem(error)

        task = asyncio.create_task(guarded())
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None and not self._left.done():
            self._left.set_exception(task.exception() or RuntimeError())

    def _leave(self, code: int) -> None:
        if not self._left.done():
            self._left.set_result(code)

    def _on_change(self) -> None:
        """Draw; also where a question came or went: what was being written waits meanwhile."""
        if self._front.is_question_new:
            self._front.is_question_new = False
            self._kept = self._kept or self._editor.text
            self._is_editing_arguments = False
            self._editor.put("")
        elif self._front.ask is None and self._kept:
            self._editor.put(self._kept + self._editor.text)
            self._editor.choices = []
            self._kept = ""
        if self._front.ask is None:
            self._is_editing_arguments = False
        self._front.draw(self._editor)


class _Prints(io.TextIOBase):
    """What the project's code prints is shown above the input, a line at a time, from any thread."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._loop = asyncio.get_running_loop()
        self._partial = ""

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        from stepwell.cli.render import safe

        *lines, self._partial = (self._partial + text).split("\n")
        if lines:
            shown = safe("\n".join(lines)) + "\n"
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(self._screen.print, shown)
        return len(text)


class _History:
    """What was sent, for the next chat: JSON lines, readable by their owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def load(self) -> list[str]:
        try:
            lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        found = []
        for line in lines[-MAX_HISTORY:]:
            with contextlib.suppress(ValueError):
                found.append(str(json.loads(line)))
        if len(lines) > 2 * MAX_HISTORY:
            with contextlib.suppress(OSError):
                self._path.write_text("".join(f"{json.dumps(text)}\n" for text in found), encoding="utf-8")
        return found

    def add(self, text: str) -> None:
        with contextlib.suppress(OSError):  # a chat works without
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            with os.fdopen(os.open(self._path, flags, 0o600), "a", encoding="utf-8") as file:
                file.write(json.dumps(text) + "\n")
