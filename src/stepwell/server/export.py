"""Entries as CSV or NDJSON, a line at a time."""

import csv
import io
import re
from typing import Any

from stepwell.identifiers import iso_time
from stepwell.jsontext import encode
from stepwell.store.workbench_types import Item

COLUMNS = (
    "project_id", "domain", "scope", "workflow", "conversation_id", "key", "type", "bytes", "value", "revision",
    "created_at", "updated_at", "source_project_id", "source_workflow", "run_id", "source_conversation_id",
)  # fmt: skip
_FORMULA = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
_NUMBER = re.compile(r"-?[0-9][0-9.eE+\-]*\Z")


def described(item: Item) -> dict[str, Any]:
    """What is known of an entry besides its value, as JSON."""
    source = item.source
    return {
        "project_id": item.project_id,
        "domain": item.domain,
        "scope": item.scope,
        "workflow": item.workflow,
        "conversation_id": item.conversation_id,
        "key": item.key,
        "type": item.type,
        "bytes": item.bytes,
        "revision": item.revision,
        "created_at": iso_time(item.created_at),
        "updated_at": iso_time(item.updated_at),
        "source": {
            "project_id": source.project_id,
            "workflow": source.entrypoint,
            "run_id": source.run_id,
            "conversation_id": source.conversation_id,
        },
    }


def ndjson_line(item: Item) -> str:
    """An entry as one line of JSON, its value to the character.

    White space between the parts of a value may hold line breaks: those become spaces, which means the same.
    """
    value = item.shown.replace("\n", " ").replace("\r", " ")
    return f'{encode(described(item))[:-1]},"value":{value}}}\n'


def csv_header() -> str:
    """The names of the columns."""
    return _line(COLUMNS)


def csv_line(item: Item) -> str:
    """An entry as one line of CSV; no cell is taken for a formula by a spreadsheet."""
    source = item.source
    cells = (
        item.project_id, item.domain, item.scope, item.workflow, item.conversation_id, item.key, item.type, item.bytes,
        item.shown, item.revision, iso_time(item.created_at), iso_time(item.updated_at),
        source.project_id, source.entrypoint, source.run_id, source.conversation_id,
    )  # fmt: skip
    return _line(["" if cell is None else _harmless(str(cell)) for cell in cells])


def _harmless(cell: str) -> str:
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.match(cell) else cell


def _line(cells: Any) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue()
