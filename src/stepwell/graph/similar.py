"""Names that may have been meant."""

from collections.abc import Iterable
from difflib import SequenceMatcher

MAX_CANDIDATES = 5
MAX_QUERY_CHARS = 200
MAX_COMPARED = 5_000
_ENOUGH = 0.6


def closest(wanted: str, names: Iterable[str], *, limit: int = MAX_CANDIDATES, least: float = _ENOUGH) -> list[str]:
    """The names most like `wanted`, best first; never `wanted` itself.

    Args:
        wanted: cut to 200 characters, so that hostile lengths cost nothing.
        names: what there is; the last part behind a slash counts as a name of its own.
        limit: how many at most.
        least: how alike they have to be, from 0 to 1.
    """
    ranked = [(score(wanted, name), name) for name in names if name != wanted]
    ranked = sorted((pair for pair in ranked if pair[0] >= least), key=lambda pair: (-pair[0], pair[1]))
    return [name for _, name in ranked[:limit]]


class Candidates:
    """Finds names that may have been meant for one whole file, which may be wrong in thousands of places.

    Comparing takes some 100 µs a name: after `left` of them nothing more is suggested.
    """

    def __init__(self, left: int = MAX_COMPARED) -> None:
        self._left = left

    def closest(
        self, wanted: str, names: Iterable[str], *, limit: int = MAX_CANDIDATES, least: float = _ENOUGH
    ) -> list[str]:
        """The same as the function; nothing once too much was compared."""
        names = list(names)
        if len(names) > self._left:
            return []
        self._left -= len(names)
        return closest(wanted, names, limit=limit, least=least)


def score(wanted: str, name: str) -> float:
    """How alike two names are, from 0 to 1. Case and the marks `_ - / space` do not count."""
    left, right = _plain(wanted[:MAX_QUERY_CHARS]), _plain(name[:MAX_QUERY_CHARS])
    if not left or not right:
        return 0.0
    last = _plain(name.rpartition("/")[2][:MAX_QUERY_CHARS])
    wanted_last = _plain(wanted[:MAX_QUERY_CHARS].rpartition("/")[2])
    if left in (right, last) or (wanted_last and wanted_last == last):
        return 0.99
    best = max(_ratio(left, right), _ratio(wanted_last, last) * 0.95 if wanted_last and last else 0.0)
    contains = len(left) >= 3 and (left in right or (len(right) >= 3 and right in left))
    return max(best, 0.8) if contains else best


def _ratio(left: str, right: str) -> float:
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    return 0.0 if matcher.real_quick_ratio() < 0.5 else matcher.ratio()


def _plain(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())
