"""The lower end of a terminal as a region that is redrawn; what is printed scrolls away above it."""

import shutil
from collections.abc import Sequence
from typing import Any, NamedTuple

from stepwell.cli.render import Output, safe

_PASTE_ON, _PASTE_OFF = "\033[?2004h", "\033[?2004l"
_HIDE, _SHOW = "\033[?25l", "\033[?25h"
MENU_ROWS = 8


class Region(NamedTuple):
    """What the region shows, from above: text that is still growing, rows, the input, rows under it.

    `cursor` is an index into `text`. Rows are plain text; those `above` and `below` are dimmed, `marked` counts from
    the first of `below` and is shown inverted.
    """

    tail: str = ""
    above: Sequence[str] = ()
    prompt: str = "> "
    text: str = ""
    cursor: int = 0
    below: Sequence[str] = ()
    marked: int | None = None


class Screen:
    """Draws on a terminal in raw mode. `start()`, then `show` and `print`, then `stop()`.

    Args:
        output: where to; its colour rules are kept.
        descriptor: of the terminal's input.
    """

    def __init__(self, output: Output, descriptor: int) -> None:
        self._output = output
        self._descriptor = descriptor
        self._before: Any = None
        self._region = Region()
        self._row = 0
        self._is_drawn = False

    @property
    def width(self) -> int:
        """Columns that text may take; the last one stays free, because terminals differ in what they do there."""
        return max(shutil.get_terminal_size().columns - 1, 20)

    @property
    def colors(self) -> bool:
        """True if what is printed may be coloured."""
        import sys

        return self._output.colors(sys.__stdout__ or sys.stdout)

    def start(self) -> None:
        """Take the terminal: keys come one by one and are not shown by it."""
        import termios

        self._before = termios.tcgetattr(self._descriptor)
        raw = termios.tcgetattr(self._descriptor)
        raw[0] &= ~(termios.ICRNL | termios.INLCR | termios.IGNCR | termios.IXON | termios.BRKINT)
        raw[3] &= ~(termios.ICANON | termios.ECHO | termios.ISIG | termios.IEXTEN)
        raw[6][termios.VMIN], raw[6][termios.VTIME] = 1, 0
        termios.tcsetattr(self._descriptor, termios.TCSADRAIN, raw)
        self._write(_PASTE_ON)
        self.draw()

    def stop(self) -> None:
        """Give the terminal back as it was, without the region."""
        import termios

        if self._before is not None:
            self._write(self._erased() + _PASTE_OFF + _SHOW)
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
            self._before = None

    def show(self, region: Region) -> None:
        """Draw another region."""
        if region != self._region:
            self._region = region
            self.draw()

    def print(self, text: str, *, is_tail: bool = False) -> None:
        """Print lines above the region. The text is printed as it is: it may have colours, and must be harmless.

        Args:
            is_tail: the text is what the region showed as its tail until now.
        """
        if text:
            if is_tail:
                self._region = self._region._replace(tail="")
            self._write(self._erased() + (text if text.endswith("\n") else f"{text}\n"))
            self.draw()

    def draw(self) -> None:
        """Draw the region again."""
        if self._before is None:
            return
        rows, row, column = self._rows()
        height = max(shutil.get_terminal_size().lines - 1, 3)
        if len(rows) > height:
            first = min(len(rows) - height, row)  # the cursor is always seen, else the lower end
            rows, row = rows[first : first + height], row - first
        up = f"\033[{len(rows) - 1 - row}A" if len(rows) - 1 > row else ""
        right = f"\033[{column}C" if column else ""
        self._write(_HIDE + self._erased() + "\n".join(rows) + f"\r{up}{right}" + _SHOW)
        self._row, self._is_drawn = row, True

    def clear(self) -> None:
        """Clear the whole screen."""
        self._write("\033[2J\033[H")
        self._is_drawn = False
        self.draw()

    def _erased(self) -> str:
        if not self._is_drawn:
            return "\r\033[J"
        self._is_drawn = False
        return (f"\033[{self._row}A" if self._row else "") + "\r\033[J"

    def _rows(self) -> tuple[list[str], int, int]:
        region, width = self._region, self.width
        rows = [row for line in safe(region.tail).split("\n") for row in wrapped(line, width)] if region.tail else []
        rows = rows[-max(shutil.get_terminal_size().lines - 12, 3) :]
        rows += [self._dim(row) for line in region.above for row in wrapped(safe(line), width)[:4]]
        top = len(rows)
        typed, row, column = laid_out(region.prompt, region.text, region.cursor, width)
        rows += typed
        for number, line in enumerate(region.below):
            shown = wrapped(safe(line), width)[0]
            rows.append(f"\033[7m{shown}\033[0m" if number == region.marked else self._dim(shown))
        return rows, top + row, column

    def _dim(self, text: str) -> str:
        return f"\033[2m{text}\033[0m" if self.colors else text

    def _write(self, text: str) -> None:
        self._output.stream_raw(text)
        self._output.flush()


def wrapped(line: str, width: int) -> list[str]:
    """A line in rows of at most `width` cells."""
    rows, row, used = [], "", 0
    for character in line.replace("\t", "    "):
        cells = cells_of(character)
        if used + cells > width:
            rows.append(row)
            row, used = "", 0
        row += character
        used += cells
    return [*rows, row]


def laid_out(prompt: str, text: str, cursor: int, width: int) -> tuple[list[str], int, int]:
    """The input's rows, and where the cursor is: row and column, both from 0."""
    rows: list[str] = []
    margin = " " * len(prompt)
    place, at = (0, len(prompt)), 0
    for number, line in enumerate(text.split("\n")):
        row, used = (prompt if number == 0 else margin), len(prompt)
        for character in line:
            shown = "    " if character == "\t" else safe(character)
            cells = sum(map(cells_of, shown))
            if used + cells > width:
                rows.append(row)
                row, used = margin, len(prompt)
            if at == cursor:
                place = (len(rows), used)
            row += shown
            used += cells
            at += 1
        if at == cursor:
            place = (len(rows), used)
        rows.append(row)
        at += 1
    return rows, *place


def cells_of(character: str) -> int:
    """How many cells of a terminal a character takes."""
    if " " <= character <= "~":
        return 1
    from rich.cells import cell_len

    return cell_len(character)
