"""The workbench: entries by filter, figures, export. Read-only.

The same routes look at one project, and for administrators at all of them and what belongs to none.
"""

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from fastapi.routing import APIRoute
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from stepwell.errors import InvalidArgument, ServerBusy
from stepwell.identifiers import check_prefix, check_project_id, iso_time
from stepwell.jsontext import decode_untrusted, encode
from stepwell.server.access import Role
from stepwell.server.export import csv_header, csv_line, described, ndjson_line
from stepwell.server.routes.addresses import uuid_of
from stepwell.server.routing import api
from stepwell.server.services import services
from stepwell.store.entries import Domain, Scope
from stepwell.store.workbench import PREVIEW_CHARACTERS, WorkbenchStore
from stepwell.store.workbench_types import Filters, HotKeys, Item, Position, Sampled

router = APIRouter(tags=["workbench"])

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_CHUNK_CHARACTERS = 64_000
_ESCAPE_CUT = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z")
_HALF_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\Z")

Text = Annotated[str, Field(min_length=1, max_length=2_000, pattern=r"^[^\x00]*$")]


class ValueType(StrEnum):
    """What a value is."""

    OBJECT = "object"
    ARRAY = "array"
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"


class Order(StrEnum):
    """Last written first, or by namespace and key."""

    UPDATED = "updated"
    KEY = "key"


class Form(StrEnum):
    """How an export is written."""

    CSV = "csv"
    NDJSON = "ndjson"


class _Query(BaseModel):
    """Filters of namespaces. A parameter that is not known is refused: dropped, it would show more than asked for."""

    model_config = ConfigDict(extra="forbid")

    domain: Domain | None = None
    scope: Scope | None = None
    conversation_id: Annotated[Text | None, Field(description="The conversation the entry belongs to.")] = None


class _EntriesQuery(_Query):
    workflow: Annotated[Text | None, Field(description="The entry's own, or that of its last writer.")] = None
    key_prefix: Text | None = None
    key_contains: Text | None = None
    value_contains: Annotated[Text | None, Field(description="In the JSON text of the value; case matters.")] = None
    type: ValueType | None = None
    has_run: Annotated[bool | None, Field(description="Whether a run was the last writer.")] = None
    run_id: Annotated[Text | None, Field(description="The run that wrote last.")] = None
    source_conversation_id: Annotated[Text | None, Field(description="The conversation that wrote last.")] = None
    updated_since: Annotated[AwareDatetime | None, Field(description="From this time.")] = None
    updated_until: Annotated[AwareDatetime | None, Field(description="Before this time.")] = None


class ListQuery(_EntriesQuery):
    """Filters and paging."""

    order: Order = Order.UPDATED
    cursor: Annotated[str | None, Field(max_length=10_000)] = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    full: Annotated[bool, Field(description="Whole values, not their first 500 characters.")] = False


class ExportQuery(_EntriesQuery):
    """Filters and the form."""

    format: Form


class StatisticsQuery(_Query):
    """Filters, and how far back the hot keys are looked for."""

    window_seconds: Annotated[int, Field(ge=1, le=86_400)] = 86_400


class _OfAll(BaseModel):
    project_id: Annotated[Text | None, Field(description="Of this project only.")] = None


class AllListQuery(ListQuery, _OfAll):
    """Filters and paging over all projects."""


class AllExportQuery(ExportQuery, _OfAll):
    """Filters and the form over all projects."""


class AllStatisticsQuery(StatisticsQuery, _OfAll):
    """Filters over all projects."""


ProjectId = Annotated[str, Path(description="The project's UUID.")]


@api(router, "GET", "/projects/{project_id}/workbench/entries", Role.GUEST)
async def workbench_entries(request: Request, project_id: ProjectId, query: Annotated[ListQuery, Query()]) -> Response:
    """A page of a project's entries. `complete` is false if the search stopped before the page was full."""
    return await _entries(request, _filters(request, query, check_project_id(project_id)), query)


@api(router, "GET", "/workbench/entries", Role.ADMIN)
async def workbench_entries_of_all(request: Request, query: Annotated[AllListQuery, Query()]) -> Response:
    """A page of the entries of all projects, and of those that belong to none."""
    return await _entries(request, _filters(request, query, _chosen(query)), query)


@api(router, "GET", "/projects/{project_id}/workbench/statistics", Role.GUEST)
async def workbench_statistics(
    request: Request, project_id: ProjectId, query: Annotated[StatisticsQuery, Query()]
) -> Response:
    """Figures of a project's entries; `sampled` says how many were looked at if not all were."""
    return await _statistics(request, _filters(request, query, check_project_id(project_id)), query.window_seconds)


@api(router, "GET", "/workbench/statistics", Role.ADMIN)
async def workbench_statistics_of_all(request: Request, query: Annotated[AllStatisticsQuery, Query()]) -> Response:
    """Figures of the entries of all projects, and of those that belong to none."""
    return await _statistics(request, _filters(request, query, _chosen(query)), query.window_seconds)


@api(router, "GET", "/projects/{project_id}/workbench/export", Role.GUEST, media="application/x-ndjson")
async def workbench_export(request: Request, project_id: ProjectId, query: Annotated[ExportQuery, Query()]) -> Response:
    """A project's entries with their whole values, as CSV or NDJSON. An answer that breaks off is not complete."""
    return await _export(request, _filters(request, query, check_project_id(project_id)), query.format)


@api(router, "GET", "/workbench/export", Role.ADMIN, media="application/x-ndjson")
async def workbench_export_of_all(request: Request, query: Annotated[AllExportQuery, Query()]) -> Response:
    """The entries of all projects and of none, as CSV or NDJSON. An answer that breaks off is not complete."""
    return await _export(request, _filters(request, query, _chosen(query)), query.format)


for _route in router.routes:
    if isinstance(_route, APIRoute) and _route.path.endswith("/export"):
        _route.responses[200]["content"]["text/csv"] = {"schema": {}}


async def _entries(request: Request, filters: Filters, query: ListQuery) -> Response:
    store = _store(request)
    after = None if query.cursor is None else _position(query.cursor, query.order)
    ask = store.newest if query.order is Order.UPDATED else store.by_key
    page = await ask(filters, limit=query.limit, after=after, full=query.full)
    items = await _shown(store, request, page.items, full=query.full)
    rest = encode(
        {
            "next_cursor": None if page.after is None else encode([query.order.value, *page.after]),
            "complete": page.complete,
            "scanned": page.scanned,
            "sampled": _sampled(page.sampled),
        }
    )
    return Response(f'{{"items":[{",".join(items)}],{rest[1:]}', media_type="application/json")


async def _statistics(request: Request, filters: Filters, window: int) -> Response:
    store = _store(request)
    found = await store.statistics(filters, window=window)
    figures = found.figures
    recent = await _shown(store, request, found.recent.items, full=False)

    def share(part: int) -> float | None:
        return round(part / figures.rows, 4) if figures.rows else None

    shown: dict[str, Any] = {
        "entries": found.entries,
        "sampled": _sampled(found.sampled),
        "association": {
            "run": share(figures.with_run),
            "conversation": share(figures.with_conversation),
            "workflow": share(figures.with_workflow),
        },
        "payload": {
            "total_bytes": figures.total_bytes,
            "mean_bytes": round(figures.total_bytes / figures.rows, 1) if figures.rows else None,
            "p50_bytes": figures.p50_bytes,
            "p95_bytes": figures.p95_bytes,
            "max_bytes": figures.max_bytes,
        },
        "scopes": [
            {"domain": domain, "scope": scope, "namespaces": namespaces, "entries": entries}
            for domain, scope, namespaces, entries in found.scopes
        ],
        "types": [
            {"type": name, "entries": rows, "bytes": size}
            for name, (rows, size) in sorted(figures.types.items(), key=lambda each: (-each[1][0], each[0]))
        ],
        "hot_keys": _hot(found.hot, window),
    }
    tail = encode({"complete": found.recent.complete, "sampled": _sampled(found.recent.sampled)})
    text = f'{encode(shown)[:-1]},"recent":{{"items":[{",".join(recent)}],{tail[1:]}}}'
    return Response(text, media_type="application/json")


def _hot(hot: HotKeys, window: int) -> dict[str, Any]:
    items = [{**each._asdict(), "at": iso_time(each.at)} for each in hot.items]
    return {"window_seconds": window, "commits": hot.commits, "complete": hot.complete, "items": items}


def _sampled(sampled: Sampled | None) -> dict[str, int] | None:
    return None if sampled is None else sampled._asdict()


async def _export(request: Request, filters: Filters, form: Form) -> Response:
    media = "text/csv; charset=utf-8" if form is Form.CSV else "application/x-ndjson"
    lines = _lines(request, filters, form)
    first = await anext(lines)  # so that what is wrong at the start is an error, not an answer that breaks off
    named = {"Content-Disposition": f'attachment; filename="entries.{form}"'}
    return StreamingResponse(_joined(first, lines), media_type=media, headers=named)


async def _joined(first: str, rest: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for text in rest:
        yield text


async def _lines(request: Request, filters: Filters, form: Form) -> AsyncIterator[str]:
    line = csv_line if form is Form.CSV else ndjson_line
    streams = services(request).streams
    with streams.one():
        waiting = [csv_header()] if form is Form.CSV else []
        size = 0
        async for item in _store(request).every(filters):
            waiting.append(line(item))
            size += len(waiting[-1])
            if size >= _CHUNK_CHARACTERS:
                yield "".join(waiting)
                waiting, size = [], 0
                if streams.closing.is_set():
                    raise ServerBusy("the server is stopping")
        yield "".join(waiting)


# -- arguments -------------------------------------------------------------------------------------------------------


def _chosen(query: _OfAll) -> str | None:
    return None if query.project_id is None else uuid_of(query.project_id)


def _filters(request: Request, query: _Query, project_id: str | None) -> Filters:
    given = [name for name, _ in request.query_params.multi_items()]
    if len(given) > len(set(given)):
        raise InvalidArgument("a filter is given twice", hint="ask for each in a request of its own")
    parts: dict[str, Any] = {name: getattr(query, name, None) for name in Filters._fields}
    parts["project_id"] = project_id
    parts["since"] = _micros(getattr(query, "updated_since", None))
    parts["until"] = _micros(getattr(query, "updated_until", None))
    return Filters(**parts)


def _micros(time: datetime | None) -> int | None:
    return None if time is None else (time - _EPOCH) // timedelta(microseconds=1)


def _position(cursor: str, order: Order) -> Position:
    match decode_untrusted(cursor, what="the cursor"):
        case [order.value, int(at), int(namespace), str(key)] if not isinstance(at, bool):
            if not isinstance(namespace, bool) and 0 <= at < 2**63 and 0 <= namespace < 2**63:
                return at, namespace, check_prefix(key)
    raise InvalidArgument("the cursor is not one of ours, or of another order", argument="cursor")


# -- answers ---------------------------------------------------------------------------------------------------------


async def _shown(store: WorkbenchStore, request: Request, items: list[Item], *, full: bool) -> list[str]:
    """Entries as JSON text."""
    own = str(request.path_params.get("project_id", "")).lower()
    asked = {pair for item in items if (pair := _talk(item)) is not None and (not own or pair[0] == own)}
    stored = await store.stored_conversations(asked)
    shown = []
    for item in items:
        pair = _talk(item)
        run = item.source.run_id
        parts = described(item)
        # Runs of a server are not kept in the database yet: a run that wrote here ran somewhere else.
        parts["run"] = None if run is None else {"id": run, "stored": False}
        parts["conversation"] = None if pair is None else {"id": pair[1], "stored": pair in stored}
        if full:
            shown.append(f'{encode(parts)[:-1]},"value":{item.shown}}}')
        else:
            parts["preview"] = _preview(item.shown)
            parts["truncated"] = len(item.shown) > PREVIEW_CHARACTERS
            shown.append(encode(parts))
    return shown


def _talk(item: Item) -> tuple[str, str] | None:
    """Project and id of the conversation that wrote an entry, or that it belongs to."""
    talk = item.source.conversation_id or item.conversation_id
    return None if talk is None else ((item.source.project_id or item.project_id or "").lower(), talk)


def _preview(text: str) -> str:
    """The first characters of JSON text, not cut within an escape or a pair of surrogates."""
    if len(text) <= PREVIEW_CHARACTERS:
        return text
    return _whole(_whole(text[:PREVIEW_CHARACTERS], _ESCAPE_CUT), _HALF_PAIR)


def _whole(text: str, part: re.Pattern[str]) -> str:
    """A text without a part of an escape at its end."""
    found = part.search(text)
    if found is None:
        return text
    before = text[: found.start()]
    escaped = (len(before) - len(before.rstrip("\\"))) % 2  # then the backslash itself is what is escaped
    return text if escaped else before


def _store(request: Request) -> WorkbenchStore:
    state = request.app.state
    if not hasattr(state, "workbench"):
        state.workbench = WorkbenchStore(services(request).backend)
    held: WorkbenchStore = state.workbench
    return held
