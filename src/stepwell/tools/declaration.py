"""`@tool`: a function that a model may call, with a JSON Schema made from its annotations."""

import functools
import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

from stepwell.errors import ToolArgumentsInvalid, ToolInvalid

MODES = ("auto", "manual", "disabled")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")


class Tool:
    """A declared tool. Calling it calls the plain function.

    Args:
        function: sync or async. A parameter annotated `Context` gets the run's context and is not shown to the model.
        name: shown to the model and in the trace; the function's name by default.
        description: what the model is told; the docstring by default.
        mode: `auto` runs at once, `manual` waits for a person's approval, `disabled` is not offered.
        approval_timeout: seconds after which a call that nobody answered counts as denied; None waits for ever.
        timeout: seconds for one execution.

    Raises:
        ToolInvalid: an argument, or the function's signature, is wrong.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        mode: str = "auto",
        approval_timeout: float | None = None,
        timeout: float | None = None,
    ) -> None:
        self.function = function
        self.name: str = name or str(getattr(function, "__name__", ""))
        self.description = inspect.cleandoc(description or function.__doc__ or "")
        self.mode = mode
        self.approval_timeout = approval_timeout
        self.timeout = timeout
        if not _NAME.match(self.name):
            raise ToolInvalid(f"@tool: the name {self.name!r:.80} is not 1 to 64 letters, digits, _ and -")
        if mode not in MODES:
            raise ToolInvalid(f"@tool {self.name}: mode {mode!r:.40} is not one of {', '.join(MODES)}")
        for what, seconds in (("approval_timeout", approval_timeout), ("timeout", timeout)):
            if seconds is not None and (not isinstance(seconds, (int, float)) or seconds <= 0):
                raise ToolInvalid(f"@tool {self.name}: {what} is {seconds!r:.40}: it must be seconds over 0")
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
                raise ToolInvalid(
                    f"@tool {self.name}: the parameter {parameter.name!r} cannot be given by name",
                    hint="a tool's parameters are named one by one",
                )
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The plain function."""
        return self.function(*args, **kwargs)

    @functools.cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments."""
        from pydantic.errors import PydanticInvalidForJsonSchema

        try:
            made = self._model.model_json_schema()
        except PydanticInvalidForJsonSchema as error:
            raise ToolInvalid(f"@tool {self.name}: an argument has no JSON Schema: {error}") from None
        return {name: value for name, value in made.items() if name not in ("title", "description")}

    @functools.cached_property
    def context_parameter(self) -> str | None:
        """The name of the parameter that takes the run's context."""
        for name, annotation in self._hints.items():
            if getattr(annotation, "__module__", "") == "stepwell.authoring.context":
                return name
        return "ctx" if "ctx" in self._parameters and "ctx" not in self._hints else None

    def checked(self, arguments: Any) -> dict[str, Any]:
        """The arguments as the function takes them.

        Raises:
            ToolArgumentsInvalid: every problem with its place, in words that help a model to correct them.
        """
        from pydantic import ValidationError

        if not isinstance(arguments, Mapping):
            raise ToolArgumentsInvalid(f"the arguments of {self.name} are no JSON object: {arguments!r:.200}")
        try:
            made = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, part['loc'])) or '(whole)'}: {part['msg']}" for part in error.errors()]
            raise ToolArgumentsInvalid(
                f"the arguments of {self.name} do not fit: {'; '.join(problems)}", problems=problems
            ) from None
        return {name: getattr(made, field) for name, field in self._fields.items() if field in made.model_fields_set}

    def bind(self, checked: Mapping[str, Any], context: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments of the function, for checked ones."""
        own = {} if self.context_parameter is None else {self.context_parameter: context}
        return (), {**checked, **own}

    @property
    def returns(self) -> Any:
        """The annotation of the result; None where there is none."""
        return self._hints.get("return")

    def to_dict(self) -> dict[str, Any]:
        """The tool as JSON."""
        return {
            "name": self.name, "description": self.description, "default_mode": self.mode,
            "approval_timeout": self.approval_timeout, "schema": self.schema,
        }  # fmt: skip

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self.function, include_extras=True)
        except NameError as error:
            raise ToolInvalid(f"@tool {self.name}: an annotation cannot be resolved: {error}") from None

    @property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.function).parameters

    @functools.cached_property
    def _fields(self) -> dict[str, str]:
        """The model's field of each parameter: pydantic keeps some names for itself, so the fields have their own."""
        names = [name for name in self._parameters if name != self.context_parameter]
        return {name: f"argument_{number}" for number, name in enumerate(names)}

    @functools.cached_property
    def _model(self) -> Any:
        from pydantic import ConfigDict, Field, create_model

        fields: dict[str, Any] = {}
        for name, field in self._fields.items():
            parameter = self._parameters[name]
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[field] = (self._hints.get(name, Any), Field(default, alias=name, title=name))
        return create_model(self.name, __config__=ConfigDict(extra="forbid", strict=False), **fields)


@typing.overload
def tool(function: Callable[..., Any]) -> Tool: ...
@typing.overload
def tool(
    *,
    name: str | None = ...,
    description: str | None = ...,
    mode: str = ...,
    approval_timeout: float | None = ...,
    timeout: float | None = ...,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Any = None, **options: Any) -> Any:
    """Declare a function as a tool; see `Tool` for the options.

    >>> @tool(mode="manual")
    ... def delete_file(path: str) -> str:
    ...     '''Delete a file.'''
    ...     return f"deleted {path}"
    >>> delete_file.schema["required"]
    ['path']
    """
    return functools.partial(tool, **options) if function is None else Tool(function, **options)


class BoundTool(Tool):
    """Something that has its own schema and takes its arguments as one object: a node of a graph, a tool of a server.

    Args:
        name, description, schema: as the model is told.
        function: called with the arguments.
    """

    def __init__(
        self, name: str, description: str, schema: Mapping[str, Any], function: Callable[..., Any], **options: Any
    ) -> None:
        super().__init__(_bound(function), name=name, description=description or name, **options)
        self.__dict__["schema"] = dict(schema)

    def checked(self, arguments: Any) -> dict[str, Any]:
        """The arguments, which the thing itself checks."""
        if not isinstance(arguments, Mapping):
            raise ToolArgumentsInvalid(f"the arguments of {self.name} are no JSON object: {arguments!r:.200}")
        return dict(arguments)

    def bind(self, checked: Mapping[str, Any], context: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """One positional argument."""
        return (dict(checked),), {}

    @property
    def returns(self) -> Any:
        """Not known."""
        return None


def _bound(function: Callable[..., Any]) -> Callable[..., Any]:
    async def call(arguments: dict[str, Any]) -> Any:
        made = function(arguments)
        return await made if inspect.isawaitable(made) else made

    return call


def tool_of(given: Any) -> Tool:
    """The tool that was given: one already, something with a schema and a `call`, or a function with annotations.

    Raises:
        ToolInvalid: it is neither.
    """
    if isinstance(given, Tool):
        return given
    if hasattr(given, "call") and hasattr(given, "parameters"):
        return BoundTool(given.name, given.description, given.parameters, given.call)
    if not callable(given):
        raise ToolInvalid(f"a tool is a function, not {type(given).__name__}", hint="decorate it with @tool")
    return Tool(given)
