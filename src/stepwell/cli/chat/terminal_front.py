"""What a chat looks like at a terminal."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stepwell.cli.chat.commands import described
from stepwell.cli.chat.editor import Editor
from stepwell.cli.chat.engine import Ask, Chat
from stepwell.cli.chat.markdown import Blocks, rendered
from stepwell.cli.chat.screen import MENU_ROWS, Region, Screen
from stepwell.cli.render import dumps, safe
from stepwell.conversation.messages import content_text
from stepwell.errors import StepwellError
from stepwell.runtime.events import Event
from stepwell.runtime.report import Report

PROMPT = "> "
_TEXT_FIELDS = ("answer", "text", "message", "reply", "output")


class TerminalFront:
    """Prints what is finished above the input, and shows what is not in the region with it."""

    def __init__(self, screen: Screen) -> None:
        self.prompt = PROMPT
        self.ask: Ask | None = None
        self.is_question_new = False
        self._screen = screen
        self._chat: Chat | None = None
        self._on_change: Callable[[], None] = lambda: None
        self._items: dict[str, Blocks | None] = {}
        self._tail = ""
        self._status = ""
        self._tokens = 0
        self._note = ""
        self._has_output = False

    def begin(self, chat: Chat, on_change: Callable[[], None]) -> None:
        """Show this chat; `on_change` is called when there is something else to draw."""
        self._chat = chat
        self._on_change = on_change

    # -- a chat's front ----------------------------------------------------------------------------------------------

    def event(self, event: Event) -> None:
        """Show an event of a run."""
        data = event.data
        if event.type in ("output.started", "output.restarted"):
            self._items[data["item"]] = Blocks() if data["media_type"] == "text/markdown" else None
            self._tail, self._has_output = "", True
            if event.type == "output.restarted":
                self._screen.print(self.dimmed(f"({data['name']} starts over)"))
        elif event.type == "output.chunk":
            self._chunk(data["item"], data["text"])
        elif event.type == "output.completed":
            blocks = self._items.pop(data["item"], None)
            self._print_block(blocks.finish() if blocks is not None else self._tail)
            self._tail = ""
        elif event.type == "node.started":
            self._status = data["node"]
        elif event.type == "progress":
            total = f"/{data['total']:g}" if data["total"] is not None else ""
            self._status = f"{data['done']:g}{total} {data['text']}"
        elif event.type == "token_usage.reported":
            self._tokens = data["total"]["total"]
        elif event.type == "log" and data["level"] in ("warning", "error") and data["message"] != "the run failed":
            self._screen.print(self.dimmed(f"{data['level']}: {data['message']}"))
        elif event.type == "tool.denied":
            reason = f": {data['reason']}" if data["reason"] else ""
            self._screen.print(self.dimmed(f"✗ {data['tool']} {data.get('status', 'denied')}{reason}"))
        elif event.type == "tool.approved":
            self._screen.print(self.dimmed(f"✓ {data['tool']} {dumps(data['arguments'])}"))
        elif event.type == "title.changed" and data["title"]:
            self._screen.print(self.dimmed(f"title: {data['title']}"))
        self._changed()

    def asks(self, ask: Ask) -> None:
        """Ask the person, one question at a time."""
        self._changed()

    def news(self, name: str, text: str, **data: Any) -> None:
        """Print what there is to say."""
        if name == "started":
            self._status, self._tokens, self._has_output, self._note = "working", 0, False, ""
        elif name == "idle":
            self._status = ""
        if text:
            self._screen.print(self.dimmed(text))
        self._changed()

    def problem(self, error: StepwellError) -> None:
        """Print an error with its hint."""
        red, off = ("\033[31m", "\033[0m") if self._screen.colors else ("", "")
        hint = f"\n{self.dimmed(f'hint: {error.hint}')}" if error.hint else ""
        self._screen.print(f"{red}error:{off} {safe(error.message)}{hint}")
        self._changed()

    def ended(self, report: Report) -> None:
        """Print what the run left unsaid: its output, its error, its tokens."""
        self._items.clear()
        self._tail = self._status = ""
        if not self._has_output and report.output is not None and report.status == "completed":
            self._print_block(_readable(report.output))
        if report.error is not None:
            red, off = ("\033[31m", "\033[0m") if self._screen.colors else ("", "")
            self._screen.print(f"{red}{report.error['type']}:{off} {safe(report.error['message'])}")
        parts = [] if report.status == "completed" else [report.status]
        if report.tokens and report.tokens["calls"] and self._shows_tokens(report):
            parts.append(token_line(report.tokens))
        if report.duration_ms is not None:
            parts.append(f"{report.duration_ms / 1000:.1f} s")
        self._screen.print(self.dimmed(" · ".join(parts)) + "\n")
        self._changed()

    # -- what a session needs ----------------------------------------------------------------------------------------

    def said(self, text: str) -> None:
        """Print what the person sent."""
        self._note = ""
        self._screen.print(self._bold(f"{PROMPT}{text}"))

    def note(self, text: str) -> None:
        """A short remark beside the input, until something else happens."""
        self._note = text
        self._changed()

    def reask(self) -> None:
        """Ask the question from the start."""
        self.prompt = _question_prompt()
        self._changed()

    def messages(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Print what was said before."""
        for message in messages:
            text = content_text(message.get("content"))
            if message["role"] == "user" and text:
                self._screen.print(self._bold(f"{PROMPT}{text}"))
            elif message["role"] == "assistant" and text:
                self._print_block(text)

    def draw(self, editor: Editor) -> None:
        """Show the region as it is now."""
        chat = self._chat
        assert chat is not None  # noqa: S101  (set when the session begins)
        above = []
        if self.ask is not None:
            above.append(f"approve {self.ask.tool} {json.dumps(self.ask.arguments, ensure_ascii=False)} ?")
        elif self._status and chat.busy:
            above.append(" · ".join([f"{self._status} …", *([f"{self._tokens:,} tokens"] if self._tokens else [])]))
        if chat.attachments:
            above.append("attached: " + ", ".join(described(file) for file in chat.attachments))
        below, marked = self._menu(editor)
        if not below:
            below = [*([self._note] if self._note else []), *chat.footer]
        self._screen.show(
            Region(self._tail, above, self.prompt, editor.text, editor.cursor, below, marked)
        )  # fmt: skip

    def dimmed(self, text: str) -> str:
        """Harmless text, less bright where there are colours."""
        return f"\033[2m{safe(text)}\033[0m" if self._screen.colors else safe(text)

    def _bold(self, text: str) -> str:
        return f"\033[1m{safe(text)}\033[0m" if self._screen.colors else safe(text)

    def _changed(self) -> None:
        """Find out whether there is another question, and draw."""
        chat = self._chat
        if chat is None:
            return
        first = next(iter(chat.asked.values()), None)
        if first != self.ask:
            self.ask, self.is_question_new = first, first is not None
            self.prompt = PROMPT if first is None else _question_prompt()
        self._on_change()

    def _chunk(self, item: str, text: str) -> None:
        blocks = self._items.get(item)
        if blocks is not None:
            for block in blocks.add(text):
                self._print_block(block)
            self._tail = blocks.rest
        else:
            *lines, self._tail = (self._tail + text).split("\n")
            if lines:
                self._screen.print(safe("\n".join(lines)) + "\n")

    def _print_block(self, block: str) -> None:
        if block.strip():
            self._tail = ""
            self._screen.print(
                rendered(safe(block), self._screen.width, colors=self._screen.colors) + "\n\n", is_tail=True
            )

    def _menu(self, editor: Editor) -> tuple[list[str], int | None]:
        choices = editor.choices
        if not choices:
            return [], None
        first = max(0, min(editor.selected - MENU_ROWS // 2, len(choices) - MENU_ROWS))
        page = choices[first : first + MENU_ROWS]
        rows = [f"{f'{choice.text} {choice.takes}'.strip():<26}  {choice.title}" for choice in page]
        return rows, editor.selected - first

    def _shows_tokens(self, report: Report) -> bool:
        point = self._chat.project.executor.entrypoints.get(report.entrypoint) if self._chat is not None else None
        return point is None or point.token_usage.display


def token_line(tokens: Mapping[str, int]) -> str:
    """A run's tokens in one line."""
    details = [
        f"{tokens[name]:,} {label}"
        for name, label in (("cache_read", "cached"), ("cache_write", "cache written"), ("reasoning", "reasoning"))
        if tokens.get(name)
    ]
    behind = f" ({', '.join(details)})" if details else ""
    calls = f", {tokens['calls']} calls" if tokens.get("calls", 0) > 1 else ""
    return f"{tokens['total']:,} tokens: {tokens['input']:,} in, {tokens['output']:,} out{behind}{calls}"


def _question_prompt() -> str:
    return "y, n REASON, e (edit)> "


def _readable(output: Any) -> str:
    if isinstance(output, str):
        return output
    if isinstance(output, dict):
        for name in _TEXT_FIELDS:
            if isinstance(output.get(name), str):
                return str(output[name])
    return f"```json\n{json.dumps(output, ensure_ascii=False, indent=2)}\n```"
