"""Measuring: sides in turn, medians, and rows that say whether a target is met."""

import gc
import json
import random
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from environment import Peers

Side = Callable[[], float]


class Row(NamedTuple):
    """One line of the result.

    `ours` and `reference` are medians in `unit`. `ratio` is what the target speaks of: how many times as fast as the
    reference we are (`at_least`), or how many times its time or size we take (not `at_least`). Without a target the
    row is there to be read.
    """

    work: str
    against: str
    ours: float
    reference: float
    unit: str
    ratio: float
    target: float | None
    at_least: bool
    note: str = ""

    @property
    def verdict(self) -> str:
        """`OK`, `MISS`, or nothing where there is no target."""
        if self.target is None:
            return ""
        met = self.ratio >= self.target if self.at_least else self.ratio <= self.target
        return "OK" if met else "MISS"

    def to_dict(self) -> dict[str, Any]:
        """The row for results.json."""
        return self._asdict() | {"verdict": self.verdict}


class Options(NamedTuple):
    """What a benchmark is given. `quick` is for smoke tests: small sizes, figures that mean nothing."""

    folder: Path
    quick: bool
    peers: Peers | None

    def size(self, full: int, quick: int) -> int:
        """A number of things to do."""
        return quick if self.quick else full

    def rounds(self, full: int) -> int:
        """A number of rounds."""
        return 2 if self.quick else full


def speed(
    work: str, against: str, ours: float, reference: float, target: float | None, *, per: int = 1, note: str = ""
) -> Row:
    """A row about being fast: `ratio` is the reference's time over ours, and the target is a minimum.

    Args:
        ours, reference: seconds.
        per: how many operations took that long.
    """
    return Row(
        work, against, ours / per * 1e6, reference / per * 1e6, "µs", reference / ours, target, at_least=True, note=note
    )


def cost(
    work: str, against: str, ours: float, reference: float, target: float | None, *, per: int = 1, note: str = ""
) -> Row:
    """A row about not costing more: `ratio` is our time over the reference's, and the target is a maximum."""
    return Row(
        work, against, ours / per * 1e6, reference / per * 1e6, "µs", ours / reference, target, at_least=False,
        note=note,
    )  # fmt: skip


def in_turn(rounds: int, sides: Mapping[str, Side]) -> dict[str, float]:
    """The median seconds of every side.

    One unmeasured round first; then the sides take turns, in both orders, so that whatever else the machine does
    hits all of them. A side returns the seconds its work took, without its preparation.
    """
    names = list(sides)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        sides[name]()
    for number in range(rounds):
        for name in names if number % 2 else reversed(names):
            gc.collect()
            taken[name].append(sides[name]())
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


class Values:
    """JSON texts of about 200 bytes that differ from write to write, as SQLite skips pages that stay the same."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._count = 0

    def next(self) -> dict[str, Any]:
        """A new value."""
        self._count += 1
        return {
            "number": self._count,
            "name": f"item {self._random.getrandbits(48):012x}",
            "tags": ["alpha", "beta", "伽马"],
            "score": self._random.random(),
            "text": f"{self._random.getrandbits(256):064x} 状态 {self._count}",
        }

    def text(self) -> str:
        """A new value as JSON text."""
        return json.dumps(self.next(), ensure_ascii=False, separators=(",", ":"))
