"""Arguments of the tools as models give them: `50.0` and `"50"` are 50, unknown names are named, not obeyed."""

from typing import Any

from stepwell.errors import InvalidArgument
from stepwell.graph.diagnostics import quoted
from stepwell.graph.ports import Misfit, fit
from stepwell.graph.registry import NodeType
from stepwell.graph.similar import closest

MAX_NAMED = 10


def tool_arguments(node_type: NodeType, given: Any) -> tuple[dict[str, Any], list[str]]:
    """The arguments of a tool call, made to fit, and what was ignored. A null stands for leaving an argument out.

    Raises:
        InvalidArgument: a value does not fit; shows what is accepted.
    """
    if not isinstance(given, dict):
        raise InvalidArgument("the arguments are not a JSON object", argument="arguments")
    values: dict[str, Any] = {}
    warnings: list[str] = []
    unknown = 0
    for name, value in given.items():
        port = node_type.inputs.get(name)
        if port is None:
            unknown += 1
            if unknown > MAX_NAMED:
                continue
            close = closest(str(name), node_type.inputs, limit=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            warnings.append(f"unknown argument {quoted(str(name))} ignored{meant}")
            continue
        if value is None or (value == "" and port.enum):
            continue
        try:
            values[name] = fit(value, port.type, nullable=port.nullable, enum=port.enum)
        except Misfit as misfit:
            close = closest(str(value), [str(allowed) for allowed in port.enum], limit=1, least=0.4)
            raise InvalidArgument(
                f"{name}: {misfit}", argument=name, candidates=close,
                hint=f"did you mean {close[0]}?" if close else f"{name} takes {port.type}",
            ) from None  # fmt: skip
    if unknown > MAX_NAMED:
        warnings.append(f"{unknown - MAX_NAMED} more unknown arguments ignored")
    return values, warnings
