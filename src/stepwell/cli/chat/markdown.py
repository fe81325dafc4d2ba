"""Markdown that is still growing: what is finished is rendered once, what is not is shown as it is."""

import io
import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class Blocks:
    """Splits a growing text at the ends of its paragraphs and code blocks."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial = ""
        self._fence = ""

    @property
    def rest(self) -> str:
        """What belongs to no finished block yet."""
        return "".join(self._lines) + self._partial

    def add(self, text: str) -> list[str]:
        """Add text; returns the blocks that it finished."""
        *lines, self._partial = (self._partial + text).split("\n")
        done = []
        for line in lines:
            self._lines.append(f"{line}\n")
            found = _FENCE.match(line)
            if self._fence:
                is_end = found is not None and found[1].startswith(self._fence) and not line.strip("`~ ")
                if is_end:
                    self._fence = ""
            else:
                self._fence = found[1] if found is not None else ""
                is_end = not line.strip()
            if is_end:
                done.append(self._take())
        return [block for block in done if block.strip()]

    def finish(self) -> str:
        """The rest, as the last block."""
        self._lines.append(self._partial)
        self._partial, self._fence = "", ""
        return self._take()

    def _take(self) -> str:
        block, self._lines = "".join(self._lines), []
        return block


def rendered(block: str, width: int, *, colors: bool) -> str:
    """A block of Markdown for a terminal.

    Args:
        block: harmless text: control characters have been escaped.
        width: columns.
        colors: whether escape sequences may be used.
    """
    from rich.console import Console
    from rich.markdown import Markdown

    out = io.StringIO()
    console = Console(
        file=out, width=max(width, 20), force_terminal=colors, no_color=not colors, highlight=False,
        color_system="256" if colors else None, legacy_windows=False,
    )  # fmt: skip
    console.print(Markdown(block, hyperlinks=False, code_theme="ansi_dark"))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())
