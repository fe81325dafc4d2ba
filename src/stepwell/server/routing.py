"""How a route is declared: its role and its body are part of the declaration, and enforced by it.

A route without a role cannot be declared. Bodies are read as strict JSON (duplicate keys, NaN and numbers that
overflow are refused) and then checked by their model.
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from fastapi import APIRouter
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from stepwell.errors import InvalidArgument, RequestTooLarge
from stepwell.jsontext import decode_untrusted, encode
from stepwell.server.access import Role
from stepwell.server.problem import MEDIA_TYPE, of_validation
from stepwell.server.services import access, services

Handler = Callable[..., Coroutine[Any, Any, Response]]
B = TypeVar("B", bound="Body")


class Body(BaseModel):
    """A request body: unknown fields are refused, nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True)


Quick = Callable[[Request], Awaitable[Response | None]]
"""Answers a plain request without the framework's reading of arguments, which costs more than the work itself; None
leaves the request to the framework."""


def is_storable(text: str) -> bool:
    """Whether a column of text takes it: no NUL character and no lone surrogate."""
    return "\x00" not in text and not any("\ud800" <= character <= "\udfff" for character in text)


def _storable(text: str) -> str:
    if not is_storable(text):
        raise ValueError("it has a NUL character or a lone surrogate")
    return text


STORABLE = AfterValidator(_storable)
"""Of text of a body that goes into a column of its own: what no value, key or document is."""


class RoledRoute(APIRoute):
    """Admits a request before anything of it is looked at, and refuses arguments that it does not know."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        declared = self.openapi_extra or {}
        role = Role(declared["x-role"])
        quick: Quick | None = getattr(self.endpoint, "quick", None)
        known = frozenset(_arguments(self.dependant))

        async def admitted(request: Request) -> Response:
            if role is not Role.PUBLIC:
                held = services(request)
                project_id = request.path_params.get("project_id")
                header = request.headers.get("authorization")
                request.state.access = await held.gate.admit(header, role, project_id)
                held.rates.spend(access(request).identity.token_id)
            if quick is not None:
                answer = await quick(request)
                if answer is not None:
                    return answer
            if request.scope["query_string"]:
                _check_query(request, known)
            return await handle(request)

        return admitted


def _arguments(dependant: Dependant) -> Iterator[str]:
    """The names of the query arguments that a handler and its dependencies take, one by one or as a model."""
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield from (inner.alias or name for name, inner in model.model_fields.items())
        else:
            yield field.alias
    for inner in dependant.dependencies:
        yield from _arguments(inner)


def _check_query(request: Request, known: frozenset[str]) -> None:
    """Refuse what would otherwise be dropped: a mistyped filter must not show everything."""
    seen: set[str] = set()
    for name, _ in request.query_params.multi_items():
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise InvalidArgument(f"{name!r:.60} is no argument here", hint=f"there are: {there}", argument=name[:60])
        if name in seen:
            raise InvalidArgument(f"{name!r:.60} is given twice", argument=name[:60])
        seen.add(name)


def api(
    router: APIRouter,
    method: str,
    path: str,
    role: Role,
    *,
    body: type[Body] | None = None,
    optional_body: type[Body] | None = None,
    raw_body: Mapping[str, Any] | None = None,
    answer: type[BaseModel] | None = None,
    status: int = 200,
    answers: Mapping[int, str] | None = None,
    media: str = "application/json",
    quick: Quick | None = None,
) -> Callable[[Handler], Handler]:
    """Declare a route.

    Args:
        role: the least role it needs.
        body, optional_body: the model of its JSON body, got by `body_of`.
        raw_body: the content of another body, as OpenAPI has it.
        answer: the model of its JSON answer, for the document.
        status: of success.
        answers: other statuses it may give, with what they mean.
        media: the type of its answer.
        quick: tried first; see `Quick`.
    """
    extra: dict[str, Any] = {"x-role": role.value}
    if body is not None:
        extra["requestBody"] = {"required": True, "content": {"application/json": {"schema": _schema(body)}}}
    if optional_body is not None:
        content_of = {"application/json": {"schema": _schema(optional_body)}}
        extra["requestBody"] = {"required": False, "content": content_of}
    if raw_body is not None:
        extra["requestBody"] = {"required": True, "content": raw_body}
    described: dict[int, str] = {400: "The request is malformed.", 503: "Try again in a moment."}
    if role is not Role.PUBLIC:
        described |= {401: "No key, or one that is not valid.", 429: "Too many requests."}
        described |= {403: "The role does not allow it.", 404: "Not there, or not yours."}
    if body or optional_body or raw_body:
        described[413] = "The body is too large."
    described |= answers or {}
    responses: dict[int | str, dict[str, Any]] = {
        number: {"description": text, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
        if number >= 400
        else {"description": text}
        for number, text in described.items()
    }
    content: dict[str, Any] = {"schema": {} if answer is None else _schema(answer)}
    if status != 204:
        responses[status] = {"description": "Done.", "content": {media: content}}

    def declare(handler: Handler) -> Handler:
        if quick is not None:
            handler.quick = quick  # type: ignore[attr-defined]
        router.add_api_route(
            path,
            handler,
            methods=[method],
            status_code=status,
            response_model=None,
            response_class=Response,
            responses=responses,
            openapi_extra=extra,
            route_class_override=RoledRoute,
            summary=(handler.__doc__ or handler.__name__).strip().partition("\n")[0],
            operation_id=handler.__name__,
        )
        return handler

    return declare


def set_operation_ids(router: APIRouter, handlers: Sequence[Callable[..., Any]], ending: str) -> None:
    """Tell apart the routes of handlers that are declared for several kinds of address."""
    for route in router.routes:
        if isinstance(route, APIRoute) and route.endpoint in handlers:
            route.operation_id = route.unique_id = f"{route.endpoint.__name__}{ending}"


async def body_of(request: Request, model: type[B], *, optional: bool = False, most: int | None = None) -> B:
    """The request's JSON body, checked. An optional one that is missing is an empty object.

    Args:
        most: bytes that are read at all, where that is less than the server's limit.

    Raises:
        InvalidJson, InvalidArgument, RequestTooLarge
    """
    text = await request.body() if most is None else await _read(request, most)
    value = {} if optional and not text else decode_untrusted(text, what="the request's body")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise of_validation([dict(each) for each in error.errors(include_input=False, include_url=False)]) from None


async def _read(request: Request, most: int) -> bytes:
    read = bytearray()
    async for part in request.stream():
        read += part
        if len(read) > most:
            raise RequestTooLarge(f"the request's body is over {most:,} bytes", limit=most)
    return bytes(read)


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON answer."""
    return Response(encode(value, max_bytes=1 << 31), status, headers, "application/json")


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    definitions = schema.pop("$defs", {})
    inlined: dict[str, Any] = _inlined(schema, definitions)
    return inlined


def _inlined(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """A schema without references: models of bodies are small and not recursive."""
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if reference is not None:
            return _inlined(definitions[reference.rpartition("/")[2]], definitions)
        return {name: _inlined(part, definitions) for name, part in schema.items()}
    if isinstance(schema, list):
        return [_inlined(part, definitions) for part in schema]
    return schema
