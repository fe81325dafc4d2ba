"""The other end of a pipe: a JSON object a line comes in and names an operation, its seconds go out."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any


def serve(operations: Mapping[str, Callable[..., float]]) -> None:
    """Answer until stdin ends. Whatever the peer itself prints goes to stderr."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request: dict[str, Any] = json.loads(line)
        seconds = operations[request.pop("operation")](**request)
        answers.write(json.dumps({"seconds": seconds}) + "\n")
        answers.flush()
