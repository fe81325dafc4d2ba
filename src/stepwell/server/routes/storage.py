"""Entries: read, list, write, commit. The same routes for a project's namespaces and for those of no project.

An entry's ETag is its revision. `as=text` gives and takes values as JSON text in a string, to the character: that is
what other stepwell processes use.
"""

from collections.abc import Awaitable, Callable
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from stepwell.errors import Conflict, EntryNotFound, InvalidArgument
from stepwell.identifiers import check_key, check_project_id, iso_time
from stepwell.jsontext import MAX_VALUE_BYTES, decode_untrusted, encode
from stepwell.server.access import Role
from stepwell.server.keys import ENTRY
from stepwell.server.problem import problem
from stepwell.server.routes.addresses import of_global, of_project, plain_project_address, span_of, uuid_of
from stepwell.server.routes.bodies import (
    ClearBody,
    CommitBody,
    KeysBody,
    checked_text,
    checks_of,
    source_of,
    writes_of,
)
from stepwell.server.routing import api, body_of, is_storable, json_answer, set_operation_ids
from stepwell.server.services import access, services
from stepwell.store.entries import Check, Committed, Domain, Namespace, Record, Scope, Source, Write
from stepwell.store.postgres_lease import LeaseToken

router = APIRouter(tags=["storage"])

MAX_PAGE = 1_000
_PAGE_BYTES = 24_000_000
_ANY = -1


class Form(StrEnum):
    """How values are shown: as JSON, or as JSON text in a string."""

    VALUE = "value"
    TEXT = "text"


def _declare(base: str, place: Callable[..., Awaitable[Namespace]], ending: str) -> None:
    """The routes of one kind of namespace."""
    root = f"{base}/{{domain:domain}}/{{scope}}"
    At = Annotated[Namespace, Depends(place)]  # noqa: N806  (a type)
    Key = Annotated[str, Path(description="The key, percent-encoded.")]  # noqa: N806
    stale = {412: "The entry is at another revision."}
    unchanged = {304: "Still at that revision."}

    async def get_plainly(request: Request) -> Response | None:
        plain = plain_project_address(request) if place is of_project else None
        if plain is None or plain[1].keys() - {"as", "conversation_id"} or plain[1].get("as", "value") not in set(Form):
            return None
        form = Form(plain[1].get("as", "value"))
        return await get_entry(
            request, plain[0], request.path_params["key"], form, request.headers.get("if-none-match")
        )

    @api(router, "GET", f"{root}/{ENTRY}", Role.GUEST, answers=unchanged, quick=get_plainly)
    async def get_entry(
        request: Request,
        at: At,
        key: Key,
        form: Annotated[Form, Query(alias="as")] = Form.VALUE,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """One entry."""
        found = (await services(request).backend.read(at, [check_key(key)])).get(key)
        if found is None:
            raise EntryNotFound(f"there is no entry {key!r:.80}", hint="keys are exact; list the entries", key=key)
        tag = {"ETag": f'"{found.revision}"'}
        if if_none_match is not None and _revisions(if_none_match) & {found.revision, _ANY}:
            return Response(status_code=304, headers=tag)
        return Response(shown(found, form), 200, tag, "application/json")

    async def put_plainly(request: Request) -> Response | None:
        plain = plain_project_address(request) if place is of_project else None
        if plain is None or plain[1].keys() - {"conversation_id"}:
            return None
        match, none_match = request.headers.get("if-match"), request.headers.get("if-none-match")
        return await put_entry(request, plain[0], request.path_params["key"], match, none_match)

    @api(
        router, "PUT", f"{root}/{ENTRY}", Role.DEVELOPER, answers=stale, quick=put_plainly,
        raw_body={"application/json": {"schema": {}}},
    )  # fmt: skip
    async def put_entry(
        request: Request,
        at: At,
        key: Key,
        if_match: Annotated[str | None, Header()] = None,
        if_none_match: Annotated[str | None, Header()] = None,
    ) -> Response:
        """Store a value: the body is the JSON value itself."""
        text = checked_text(await request.body())
        return await conditional(
            request, at, Write(check_key(key), text), if_match, if_none_match, Source(at.project_id)
        )

    @api(router, "DELETE", f"{root}/{ENTRY}", Role.DEVELOPER, answers=stale)
    async def delete_entry(
        request: Request, at: At, key: Key, if_match: Annotated[str | None, Header()] = None
    ) -> Response:
        """Remove an entry; `removed` says whether it was there."""
        return await conditional(request, at, Write(check_key(key), None), if_match, None, Source(at.project_id))

    @api(router, "GET", f"{root}/entries", Role.GUEST)
    async def list_entries(
        request: Request,
        at: At,
        prefix: str = "",
        start: str = "",
        stop: str | None = None,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 200,
        reverse: bool = False,
        form: Annotated[Form, Query(alias="as")] = Form.VALUE,
    ) -> Response:
        """Entries in key order, a page at a time: those that begin with `prefix`, or those from `start` to `stop`."""
        span = span_of(prefix, start, stop)
        after = None if after is None else check_key(after)
        found = await services(request).backend.scan(at, span, after=after, limit=limit, reverse=reverse)
        fitting = _fitting(found)
        following = (
            encode(found[fitting - 1].key) if found and (fitting < len(found) or len(found) == limit) else "null"
        )
        items = ",".join(shown(record, form) for record in found[:fitting])
        return Response(f'{{"items":[{items}],"next_cursor":{following}}}', media_type="application/json")

    @api(router, "POST", f"{root}/read", Role.GUEST, body=KeysBody)
    async def read_entries(request: Request, at: At, form: Annotated[Form, Query(alias="as")] = Form.VALUE) -> Response:
        """The entries of some keys that exist, all as of one moment."""
        keys = [check_key(key) for key in (await body_of(request, KeysBody)).keys]
        found = await services(request).backend.read(at, keys)
        items = ",".join(shown(record, form) for record in found.values())
        return Response(f'{{"items":[{items}]}}', media_type="application/json")

    @api(router, "POST", f"{root}/commit", Role.DEVELOPER, body=CommitBody, answers={409: "A check does not hold."})
    async def commit(request: Request, at: At) -> Response:
        """Several writes at once, if several checks hold."""
        body = await body_of(request, CommitBody)
        committed = await services(request).backend.commit(
            at,
            checks_of(body.checks),
            writes_of(body.writes),
            source=source_of(at.project_id, body.source),
            lease=None if body.lease is None else LeaseToken(at, uuid_of(body.lease)),
            commit_id=body.chosen_id(),
            repeat=body.repeat,
            wait=body.wait,
        )
        return json_answer(done(committed))

    @api(router, "POST", f"{root}/clear", Role.DEVELOPER, body=ClearBody)
    async def clear(request: Request, at: At) -> Response:
        """Delete every entry of the namespace in one commit."""
        body = await body_of(request, ClearBody)
        source = source_of(at.project_id, body.source)
        count = await services(request).backend.clear(
            at, source=source, commit_id=body.chosen_id(), repeat=body.repeat, wait=body.wait
        )
        return json_answer({"removed": count})

    handlers = (get_entry, put_entry, delete_entry, list_entries, read_entries, commit, clear)
    set_operation_ids(router, handlers, ending)


async def conditional(
    request: Request, at: Namespace, write: Write, if_match: str | None, if_none_match: str | None, source: Source
) -> Response:
    """One write, under the conditions of the request's headers."""
    backend = services(request).backend
    checks = []
    if if_match is not None:
        allowed = _revisions(if_match)
        found = (await backend.read(at, [write.key])).get(write.key)
        current = 0 if found is None else found.revision
        if not current or (allowed != {_ANY} and current not in allowed):
            return _stale(request, write.key, current)
        checks = [Check(write.key, current)]
    elif if_none_match is not None:
        if if_none_match.strip() != "*":
            raise InvalidArgument("If-None-Match must be * for a write", argument="If-None-Match")
        checks = [Check(write.key, 0)]
    try:
        committed = await backend.commit(at, checks, [write], source=source)
    except Conflict as error:
        return _stale(request, write.key, error.data["current"].get(write.key, 0))
    if write.text is None:
        return json_answer(
            {"key": write.key, "removed": write.key in committed.removed, "revision": committed.revision}
        )
    written = {
        "key": write.key,
        "revision": committed.revision,
        "created_at": iso_time(committed.created[write.key]),
        "updated_at": iso_time(committed.at),
    }
    return json_answer(written, headers={"ETag": f'"{committed.revision}"'})


def _stale(request: Request, key: str, current: int) -> Response:
    error = Conflict(f"the entry {key!r:.80} is at revision {current}", keys=[key], current={key: current})
    return problem(error, request, status=412)


def _revisions(header: str) -> set[int]:
    """The revisions an If-Match or If-None-Match header names; `*` is any."""
    if header.strip() == "*":
        return {_ANY}
    parts = [part.strip().removeprefix("W/").strip('"') for part in header.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise InvalidArgument("the condition is no ETag of an entry", hint='an ETag is the revision: "12"')
    return {int(part) for part in parts}


def _fitting(records: list[Record]) -> int:
    """How many records an answer has room for: at least one."""
    room = _PAGE_BYTES
    for number, record in enumerate(records):
        room -= len(record.text)
        if room < 0:
            return max(number, 1)
    return len(records)


def shown(record: Record, form: Form) -> str:
    """An entry as JSON text, its value to the character."""
    source = {name: part for name, part in record.source._asdict().items() if part is not None}
    if form is Form.TEXT:
        times = {"created": record.created_at, "updated": record.updated_at}
        item = {"key": record.key, "text": record.text, "revision": record.revision, **times, "source": source}
        return encode(item, max_bytes=2 * MAX_VALUE_BYTES + 10_000)
    rest = encode(
        {
            "revision": record.revision,
            "created_at": iso_time(record.created_at),
            "updated_at": iso_time(record.updated_at),
            "source": source,
        }
    )
    return f'{{"key":{encode(record.key)},"value":{record.text},{rest[1:]}'


def done(committed: Committed) -> dict[str, Any]:
    """A commit as answers show it."""
    return {
        "revision": committed.revision,
        "at": committed.at,
        "created": dict(committed.created),
        "removed": sorted(committed.removed),
    }


_declare("/projects/{project_id}", of_project, "")
_declare("/global", of_global, "_global")


@api(router, "GET", "/namespaces", Role.USER)
async def list_namespaces(
    request: Request,
    project_id: str | None = None,
    domain: Domain | None = None,
    scope: Scope | None = None,
    after: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 200,
) -> Response:
    """Namespaces that have entries, last written first: of one project, or for administrators of all."""
    asking = access(request)
    project = None if project_id is None else check_project_id(project_id)
    if project is None and asking.role is not Role.ADMIN:
        raise InvalidArgument("give a project_id", argument="project_id")
    if project is not None:
        await services(request).gate.admit(request.headers.get("authorization"), Role.GUEST, project)
    resume = None if after is None else _resume(after)
    found = await services(request).backend.namespaces(
        project_id=project, domain=domain, scope=scope, after=resume, limit=limit
    )
    items = [[*each.namespace.plain(), each.revision, each.updated_at, each.entries] for each in found]
    last = encode([found[-1].updated_at, *found[-1].namespace.plain()]) if len(found) == limit else None
    return json_answer({"items": items, "next_cursor": last})


def _resume(cursor: str) -> tuple[int, Namespace]:
    value = decode_untrusted(cursor, what="the cursor")
    match value:
        case [
            int(at),
            str() | None as project,
            str(domain),
            str(scope),
            str() | None as workflow,
            str() | None as talk,
        ]:
            known = domain in set(Domain) and scope in set(Scope) and not isinstance(at, bool) and 0 <= at < 2**63
            if known and all(is_storable(text or "") for text in (project, workflow, talk)):
                return at, Namespace(project, Domain(domain), Scope(scope), workflow, talk)
    raise InvalidArgument("the cursor is not one of ours", argument="after")
