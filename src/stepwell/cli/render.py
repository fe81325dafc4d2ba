"""What commands print: data on stdout, talk on stderr; JSON for programs, text for people."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from typing import Any, Literal, TextIO

    from stepwell.errors import StepwellError

EXIT_FAILED = 1
EXIT_WAITING = 7
EXIT_TIMEOUT = 124
EXIT_INTERRUPTED = 130
EXIT_CODES = (
    (0, "ok"),
    (EXIT_FAILED, "the run failed, or an internal error"),
    (2, "usage or bad input"),
    (3, "not found"),
    (4, "conflict"),
    (5, "denied"),
    (6, "unavailable, try again"),
    (EXIT_WAITING, "waiting for input or approval"),
    (EXIT_TIMEOUT, "stopped by --timeout"),
    (EXIT_INTERRUPTED, "interrupted"),
)


class Output:
    """Where a command writes, and in which form."""

    def __init__(self) -> None:
        self.json = False
        self.json_errors = False
        self.quiet = False
        self.verbose = False
        self.debug = False
        self.no_color = False
        self.project = "."
        # User code may print, or put something else in sys.stdout's place: data goes to what was there at the start.
        self._out = sys.stdout
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")

    @property
    def on_terminal(self) -> bool:
        """True if stdout is a terminal that a person reads."""
        return self._out.isatty()

    def colors(self, stream: "TextIO") -> bool:
        """True if what is written to a stream may be coloured."""
        if self.no_color or os.environ.get("NO_COLOR"):
            return False
        if os.environ.get("FORCE_COLOR", "0") not in ("", "0", "false"):
            return True
        return stream.isatty() and os.environ.get("TERM") != "dumb"

    def data(self, value: "Any", text: "Callable[[], str] | str") -> None:
        """Print one object: JSON under --json, else its text."""
        if self.json:
            self.line(dumps(value))
        else:
            self.text(text if isinstance(text, str) else text())

    def text(self, text: str) -> None:
        """Print text, with control characters escaped where a terminal would obey them."""
        self.line(safe(text) if self.on_terminal else text)

    def line(self, line: str) -> None:
        """Print a line as it is."""
        self._out.write(line if line.endswith("\n") else f"{line}\n")

    def stream(self, chunk: str) -> None:
        """Print a piece of text at once."""
        self._out.write(safe(chunk) if self.on_terminal else chunk)
        self._out.flush()

    def stream_raw(self, chunk: str) -> None:
        """Print a piece of data as it is."""
        self._out.write(chunk)

    def flush(self) -> None:
        """Hand over what was printed."""
        self._out.flush()

    def user_prints(self) -> "AbstractContextManager[Any]":
        """While user code runs: its `print` goes to stderr where stdout has to be JSON."""
        from contextlib import nullcontext, redirect_stdout

        return redirect_stdout(sys.stderr) if self.json_errors else nullcontext()

    def items(
        self,
        items: "Sequence[dict[str, Any]]",
        columns: "Sequence[tuple[str, Callable[[dict[str, Any]], Any]]]",
        *,
        next_cursor: str | None = None,
        empty: str = "nothing there",
    ) -> None:
        """Print a list: `{"items": […], "next_cursor": …}` under --json, a table on a terminal, tabs elsewhere."""
        if self.json:
            self.line(dumps({"items": list(items), "next_cursor": next_cursor}))
            return
        if not items:
            self.talk(empty)
            return
        rows = [[_cell(value(item)) for _, value in columns] for item in items]
        if self.on_terminal:
            self._table([name for name, _ in columns], rows)
        else:
            for row in rows:
                self.line("\t".join(row))
        if next_cursor is not None:
            self.talk(f"more: --cursor {next_cursor}")

    def _table(self, names: list[str], rows: list[list[str]]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for name in names:
            # The first column names the row: it is copied into the next command, so it stays whole.
            table.add_column(name, overflow="fold", no_wrap=not table.columns)
        for row in rows:
            table.add_row(*[Text(cell) for cell in row])
        colors: Literal["auto"] | None = "auto" if self.colors(self._out) else None
        Console(file=self._out, color_system=colors, highlight=False).print(table)

    def talk(self, text: str) -> None:
        """Tell the person something that is not data."""
        if not self.quiet:
            sys.stderr.write(f"{safe(text) if sys.stderr.isatty() else text}\n")

    def error(self, error: "StepwellError") -> int:
        """Print an error and return its exit code."""
        if self.debug:
            import traceback

            traceback.print_exc()
        if self.json_errors or self.json:
            sys.stderr.write(dumps({"error": error.to_dict()}, sys.stderr) + "\n")
        else:
            red, off = ("\033[31m", "\033[0m") if self.colors(sys.stderr) else ("", "")
            sys.stderr.write(f"{red}error:{off} {safe(error.message)}\n")
            if error.hint:
                sys.stderr.write(f"hint: {safe(error.hint)}\n")
        return error.kind.exit_code


def dumps(value: "Any", stream: "TextIO | None" = None) -> str:
    """JSON for a stream (stdout): readable characters where it can carry them, escapes where a terminal would obey."""
    stream = stream or sys.stdout
    encoding = (getattr(stream, "encoding", "") or "").lower().replace("-", "")
    text = json.dumps(value, ensure_ascii=encoding != "utf8", separators=(", ", ": "))
    if text.isascii() and "\x7f" not in text:
        return text
    if stream.isatty():
        return "".join(c if _is_harmless(c) else json.dumps(c)[1:-1] for c in text).replace("\x7f", "\\u007f")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, separators=(", ", ": "))
    return text


def safe(text: str) -> str:
    """Text that a terminal only shows: control and bidirectional characters as escapes; tabs and line feeds stay."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(c if _is_harmless(c) else c.encode("unicode_escape").decode() for c in text)


def _is_harmless(character: str) -> bool:
    return character.isprintable() or character in _KEPT


# What Python does not call printable and a terminal does not obey: spaces of all widths only show as spaces, and the
# two joiners belong to emoji and to Persian words.
_KEPT = frozenset(
    "\n\t\u200c\u200d\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)


def _cell(value: "Any") -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split("\n"))
    return safe(text.replace("\t", " ") if len(text) <= 200 else f"{text[:199]}…")


def joined(lines: Iterable[str]) -> str:
    """Lines as one text."""
    return "\n".join(lines)
