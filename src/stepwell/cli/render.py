"""What commands print: data on stdout, talk on stderr; JSON for programs, text for people."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stepwell.errors import StepwellError

EXIT_CODES = (
    (0, "ok"),
    (1, "the run failed, or an internal error"),
    (2, "usage or bad input"),
    (3, "not found"),
    (4, "conflict"),
    (5, "denied"),
    (6, "unavailable, try again"),
    (7, "waiting for input or approval"),
    (124, "stopped by --timeout"),
    (130, "interrupted"),
)


class Output:
    """Where a command writes, and in which form."""

    def __init__(self) -> None:
        self.json = False
        self.quiet = False
        self.verbose = False
        self.debug = False
        self.no_color = False
        self.project = "."
        for stream in (sys.stdout, sys.stderr):
            if hasattr(stream, "reconfigure"):
                stream.reconfigure(errors="backslashreplace")

    @property
    def on_terminal(self) -> bool:
        """True if stdout is a terminal that a person reads."""
        return sys.stdout.isatty()

    @property
    def colors(self) -> bool:
        """True if stderr and stdout may be coloured."""
        if self.no_color or "NO_COLOR" in os.environ:
            return False
        return "FORCE_COLOR" in os.environ or sys.stdout.isatty()

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
        sys.stdout.write(line if line.endswith("\n") else f"{line}\n")

    def stream(self, chunk: str) -> None:
        """Print a piece of text at once."""
        sys.stdout.write(safe(chunk) if self.on_terminal else chunk)
        sys.stdout.flush()

    def stream_raw(self, chunk: str) -> None:
        """Print a piece of data as it is."""
        sys.stdout.write(chunk)

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

        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
        for name in names:
            table.add_column(name, overflow="fold")
        for row in rows:
            table.add_row(*[_plain(cell) for cell in row])
        Console(no_color=not self.colors, highlight=False).print(table)

    def talk(self, text: str) -> None:
        """Tell the person something that is not data."""
        if not self.quiet:
            sys.stderr.write(f"{safe(text) if sys.stderr.isatty() else text}\n")

    def error(self, error: "StepwellError") -> int:
        """Print an error and return its exit code."""
        if self.json:
            sys.stderr.write(dumps({"error": error.to_dict()}) + "\n")
        else:
            red, off = ("\033[31m", "\033[0m") if self.colors and sys.stderr.isatty() else ("", "")
            sys.stderr.write(f"{red}error:{off} {safe(error.message)}\n")
            if error.hint:
                sys.stderr.write(f"hint: {safe(error.hint)}\n")
        return error.kind.exit_code


def dumps(value: "Any") -> str:
    """JSON for stdout: readable characters where the stream can carry them."""
    encoding = (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "")
    text = json.dumps(value, ensure_ascii=encoding != "utf8", separators=(", ", ": "))
    try:
        text.encode()
    except UnicodeEncodeError:
        text = json.dumps(value, separators=(", ", ": "))
    return text


def safe(text: str) -> str:
    """Text that a terminal only shows: control and bidirectional characters as escapes; tabs and line feeds stay."""
    if text.isascii() and text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in "\n\t" or (character.isprintable() and character not in _BIDI):
        return character
    if character == "\u200d" or "\ufe00" <= character <= "\ufe0f" or (character.isspace() and character > "\x7f"):
        return character
    return character.encode("unicode_escape").decode()


_BIDI = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def _cell(value: "Any") -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split("\n"))
    return safe(text.replace("\t", " ") if len(text) <= 200 else f"{text[:199]}…")


def _plain(cell: str) -> str:
    return cell.replace("[", "\\[")


def joined(lines: Iterable[str]) -> str:
    """Lines as one text."""
    return "\n".join(lines)
