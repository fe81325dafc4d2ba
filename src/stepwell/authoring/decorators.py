"""`@node` and `@workflow`."""

import functools
import inspect
import typing
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar, overload

from stepwell.authoring.calls import NodeSpec, call
from stepwell.errors import ExecutorInvalid

F = TypeVar("F", bound=Callable[..., Any])

KINDS = ("code", "llm", "tool", "output")


@overload
def node(function: F) -> F: ...
@overload
def node(
    *,
    kind: Literal["code", "llm", "tool", "output"] = ...,
    name: str | None = ...,
    retries: int = ...,
    timeout: float | None = ...,
    durable: bool = ...,
    replay: bool = ...,
) -> Callable[[F], F]: ...
def node(
    function: Any = None,
    *,
    kind: str = "code",
    name: str | None = None,
    retries: int = 0,
    timeout: float | None = None,
    durable: bool = False,
    replay: bool = True,
) -> Any:
    """Declare a function as a node: inside a run its calls are recorded, retried and replayed.

    Async functions run on the event loop, others in a worker thread. Inside a run the call is awaited; outside a
    run it is the plain function.

    Args:
        kind: `code`, or `llm`, `tool`, `output`: after those the run waits until their record is durable.
        name: shown and recorded; the function's name by default.
        retries: further attempts after a failure, with growing, jittered pauses.
        timeout: seconds for one attempt.
        durable: wait until the record is durable, whatever the kind.
        replay: False runs the node again when a run is resumed, also where its result is recorded.

    Raises:
        ExecutorInvalid: an argument is wrong.

    >>> @node(retries=2)
    ... async def look_up(city: str) -> dict: ...
    """
    if function is None:
        return functools.partial(
            node, kind=kind, name=name, retries=retries, timeout=timeout, durable=durable, replay=replay
        )
    own_name = name or function.__name__
    if kind not in KINDS:
        raise ExecutorInvalid(f"@node {own_name}: kind {kind!r:.40} is not one of {', '.join(KINDS)}")
    if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
        raise ExecutorInvalid(f"@node {own_name}: retries is {retries!r:.40}: it must be a whole number from 0")
    if timeout is not None and (not isinstance(timeout, (int, float)) or timeout <= 0):
        raise ExecutorInvalid(f"@node {own_name}: timeout is {timeout!r:.40}: it must be seconds over 0")
    if "/" in own_name or "#" in own_name:
        raise ExecutorInvalid(f"@node {own_name!r}: a node name has no / and no #")
    _check_not_generator(function, f"@node {own_name}")
    signature = inspect.signature(function)
    spec: NodeSpec | None = None

    def invoke(args: Any, kwargs: Any) -> Any:
        nonlocal spec
        if spec is None:  # at the first call, when every name in the annotations is defined
            spec = NodeSpec(own_name, kind, retries, timeout, durable, replay, hints(function).get("return"))
        return call(spec, function, signature, args, kwargs)

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await invoke(args, kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return invoke(args, kwargs)

    return wrapper


class Workflow(NamedTuple):
    """A declared workflow: calling it calls the function."""

    function: Callable[..., Any]
    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The plain function."""
        return self.function(*args, **kwargs)

    @property
    def input_type(self) -> Any:
        """The annotation of the input; None where there is none."""
        parameters = _positional(self.function)
        return hints(self.function).get(parameters[0].name) if parameters else None

    @property
    def output_type(self) -> Any:
        """The annotation of what it returns; None where there is none."""
        return hints(self.function).get("return")

    def arguments(self, value: Any, context: Any) -> tuple[Any, ...]:
        """As many of input and context as the function takes."""
        parameters = inspect.signature(self.function).parameters.values()
        takes_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters)
        return (value, context) if takes_any else (value, context)[: len(_positional(self.function))]


@overload
def workflow(function: Callable[..., Any]) -> Workflow: ...
@overload
def workflow(*, name: str | None = ...) -> Callable[[Callable[..., Any]], Workflow]: ...
def workflow(function: Any = None, *, name: str | None = None) -> Any:
    """Declare a function `(input, ctx)` as a workflow. Its annotations give the input and output schemas.

    Args:
        name: the function's name by default.

    Raises:
        ExecutorInvalid: the function cannot be called with an input and a context.
    """
    if function is None:
        return functools.partial(workflow, name=name)
    own_name = name or function.__name__
    _check_not_generator(function, f"@workflow {own_name}")
    needed = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    known = [parameter.name for parameter in _positional(function)[:2]]
    if not set(needed) <= set(known):
        raise ExecutorInvalid(f"@workflow {own_name}: it is called with (input, ctx), but needs {', '.join(needed)}")
    return Workflow(function, own_name)


def _positional(function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = inspect.signature(function).parameters.values()
    return [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def _check_not_generator(function: Callable[..., Any], what: str) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ExecutorInvalid(
            f"{what}: a generator has no result to record", hint="return a list, or write to `ctx.output(...)`"
        )


def hints(function: Callable[..., Any]) -> dict[str, Any]:
    """The resolved annotations of a function; those that cannot be resolved are left out."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001  (a forward reference that only type checkers can see is not an error)
        return {
            name: annotation
            for name, annotation in getattr(function, "__annotations__", {}).items()
            if not isinstance(annotation, str)
        }
