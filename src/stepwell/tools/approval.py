"""What a run asks a person for, and what it is answered."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class ApprovalAsk(NamedTuple):
    """A question for a person. Times are seconds.

    `item` identifies the place in the run, `node` is the node that waits. Nobody's answer within `timeout` counts as a
    denial; None waits for ever. `hold` is how long the process stays although nothing else goes on in the run.
    """

    item: str
    node: str
    tool: str
    arguments: Mapping[str, Any]
    timeout: float | None = None
    hold: float = 0.0


class Decision(NamedTuple):
    """An answer. `arguments` are those to use: the edited ones where the person changed them.

    `request_id` is None where nobody had to be asked.
    """

    approved: bool
    arguments: dict[str, Any]
    reason: str | None = None
    edited: bool = False
    request_id: str | None = None
