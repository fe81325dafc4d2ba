"""Node hooks: code around every node call of a run, that of its child workflows too."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple


class NodeCall(NamedTuple):
    """What a hook is told of a call.

    Attributes:
        path: the node's path in the run.
        name: its name.
        kind: code, llm, tool, output or workflow.
        arguments: what it is called with, by parameter name, without the context.
    """

    path: str
    name: str
    kind: str
    arguments: Mapping[str, Any]


Proceed = Callable[[], Awaitable[Any]]

NodeHook = Callable[[NodeCall, Proceed], Awaitable[Any]]
"""`async def hook(call, proceed): ...`: `await proceed()` runs the node with all its attempts and gives its result.

What the hook returns is the result, what it raises is the node's failure. A node whose result is given back from the
record of a resumed run is not run: no hook sees it.
"""


async def hooked(hooks: tuple[NodeHook, ...], made: NodeCall, run: Proceed) -> Any:
    """Run a node within hooks, the first one outermost."""
    if not hooks:
        return await run()
    return await hooks[0](made, lambda: hooked(hooks[1:], made, run))
