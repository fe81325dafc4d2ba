"""The entry a caller sees, and the sentinel for "nothing there"."""

from enum import Enum
from typing import Any, Final, NamedTuple

from stepwell.identifiers import iso_time
from stepwell.jsontext import decode
from stepwell.store.entries import Record, Source


class _Missing(Enum):
    MISSING = "MISSING"

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False


MISSING: Final = _Missing.MISSING
"""Pass as `default` to tell an absent entry from a stored null."""


class Entry(NamedTuple):
    """One stored entry. Times are ISO-8601 UTC with microseconds; `source` says who wrote it last."""

    key: str
    value: Any
    revision: int
    created_at: str
    updated_at: str
    source: Source

    @classmethod
    def of(cls, record: Record) -> "Entry":
        """The entry of a stored record, its value decoded (a fresh copy)."""
        return cls(
            record.key,
            decode(record.text),
            record.revision,
            iso_time(record.created_at),
            iso_time(record.updated_at),
            record.source,
        )

    def to_dict(self) -> dict[str, Any]:
        """The entry as JSON, as `kv get --json` and the API show it."""
        shown = self._asdict()
        shown["source"] = {name: part for name, part in self.source._asdict().items() if part is not None}
        return shown
