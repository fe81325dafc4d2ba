"""Write docs/reference/errors.md from the error classes; with --check, fail if it is out of date."""

import sys
from pathlib import Path

from stepwell import errors

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "errors.md"
INTRO = """# Errors

Every error stepwell raises on purpose has a class, a stable `code`, a message with the values, and mostly a hint with
the next action. The exit code of the command line and the HTTP status follow from its kind. (This page is written by
`scripts/write_error_reference.py`.)

| class | code | exit | HTTP | when |
|---|---|---|---|---|
"""


def page() -> str:
    """The page's text."""
    rows = [
        f"| `{found.__name__}` | `{found.code}` | {found.kind.exit_code} | {found.kind.http_status} "
        f"| {' '.join((found.__doc__ or '').split())} |"
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, errors.StepwellError) and found is not errors.StepwellError
    ]
    return INTRO + "\n".join(rows) + "\n"


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit(0 if PAGE.read_text(encoding="utf-8") == page() else f"{PAGE} is out of date: run {__file__}")
    PAGE.write_text(page(), encoding="utf-8")
