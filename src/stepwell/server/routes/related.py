"""Relations, and single entries of related projects: a request names the caller and an alias, never a target."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from stepwell.errors import EntryNotFound, InvalidArgument
from stepwell.identifiers import check_key, check_project_id
from stepwell.server.access import Role
from stepwell.server.keys import ENTRY
from stepwell.server.routes.bodies import (
    ChangeBody,
    KeysBody,
    SourceBody,
    checked_text,
    checks_of,
    source_of,
    writes_of,
)
from stepwell.server.routes.storage import Form, conditional, done, shown
from stepwell.server.routing import Body, api, body_of, json_answer
from stepwell.server.services import access, services
from stepwell.server.targets import declared_relations, related_project
from stepwell.storage.relations import MAX_RELATIONS, Asked, Need, Relation, relation_problems
from stepwell.store.entries import Domain, Namespace, Scope, Write

router = APIRouter(tags=["relations"])

_ENTRY = f"/projects/{{project_id}}/related/{{alias}}/kv/{ENTRY}"
_STALE = {412: "The entry is at another revision."}
ProjectId = Annotated[str, Path(description="The calling project's UUID.")]
Alias = Annotated[str, Path(description="The related project's name in the calling one.")]
Key = Annotated[str, Path(description="The key, percent-encoded.")]


class RelationsBody(Body):
    """A project's declarations, as its manifest has them."""

    relations: Annotated[list[dict[str, Any]], Field(max_length=MAX_RELATIONS)]


@api(router, "GET", "/projects/{project_id}/relations", Role.GUEST)
async def list_relations(request: Request, project_id: ProjectId) -> Response:
    """What the project declares, and whether the other side declares it too: `active` or `pending`."""
    return await _listing(request, check_project_id(project_id))


async def _listing(request: Request, own: str) -> Response:
    items = []
    for relation in await declared_relations(request, own):
        items.append(relation.to_dict() | {"state": await _state(request, own, relation)})
    return json_answer({"items": items, "next_cursor": None})


@api(router, "PUT", "/projects/{project_id}/relations", Role.MAINTAINER, body=RelationsBody)
async def set_relations(request: Request, project_id: ProjectId) -> Response:
    """Replace what the project declares. It is in force from the next access on."""
    own = check_project_id(project_id)
    declared = (await body_of(request, RelationsBody)).relations
    problems = relation_problems(declared, own)
    if problems:
        raise InvalidArgument(f"the relations are wrong: {'; '.join(problems)}"[:2_000], problems=problems[:20])
    await services(request).accounts.set_relations(own, declared)
    return await _listing(request, own)


async def _state(request: Request, own: str, relation: Relation) -> str:
    if access(request).role_in(relation.project_id) is None:
        return "pending"
    theirs = await declared_relations(request, relation.project_id)
    return "active" if any(other.project_id == own for other in theirs) else "pending"


async def _place(request: Request, project_id: str, alias: str, role: Role, *asked: Asked) -> Namespace:
    target = await related_project(request, check_project_id(project_id), alias, role, asked)
    return Namespace(target, Domain.KV, Scope.PROJECT)


@api(router, "GET", _ENTRY, Role.GUEST)
async def get_related_entry(
    request: Request,
    project_id: ProjectId,
    alias: Alias,
    key: Key,
    form: Annotated[Form, Query(alias="as")] = Form.VALUE,
) -> Response:
    """One entry of a related project. Needs its grant `read`, and a guest's role in both projects."""
    at = await _place(request, project_id, alias, Role.GUEST, Asked(Need.READ, check_key(key)))
    found = (await services(request).backend.read(at, [key])).get(key)
    if found is None:
        raise EntryNotFound(f"there is no entry {key!r:.80}", hint="keys are exact", key=key)
    return Response(shown(found, form), 200, {"ETag": f'"{found.revision}"'}, "application/json")


@api(
    router, "PUT", _ENTRY, Role.DEVELOPER, answers=_STALE, raw_body={"application/json": {"schema": {}}},
)  # fmt: skip
async def put_related_entry(
    request: Request,
    project_id: ProjectId,
    alias: Alias,
    key: Key,
    if_match: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Store a value in a related project. Needs its grant `write` (conditions: `read` too), a developer in both."""
    asked = _writing(key, reads=if_match is not None or if_none_match is not None)
    at = await _place(request, project_id, alias, Role.DEVELOPER, *asked)
    write = Write(key, checked_text(await request.body()))
    source = source_of(check_project_id(project_id), SourceBody())
    return await conditional(request, at, write, if_match, if_none_match, source)


@api(router, "DELETE", _ENTRY, Role.DEVELOPER, answers=_STALE)
async def delete_related_entry(
    request: Request,
    project_id: ProjectId,
    alias: Alias,
    key: Key,
    if_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Remove an entry of a related project; `removed` says whether it was there. Needs its grant `write`."""
    at = await _place(request, project_id, alias, Role.DEVELOPER, *_writing(key, reads=if_match is not None))
    source = source_of(check_project_id(project_id), SourceBody())
    return await conditional(request, at, Write(key, None), if_match, None, source)


@api(router, "POST", "/projects/{project_id}/related/{alias}/kv/read", Role.GUEST, body=KeysBody)
async def read_related_entries(
    request: Request,
    project_id: ProjectId,
    alias: Alias,
    form: Annotated[Form, Query(alias="as")] = Form.VALUE,
) -> Response:
    """The entries of some keys of a related project that exist. Needs its grant `read` on each."""
    keys = [check_key(key) for key in (await body_of(request, KeysBody)).keys]
    at = await _place(request, project_id, alias, Role.GUEST, *(Asked(Need.READ, key) for key in keys))
    found = await services(request).backend.read(at, keys)
    items = ",".join(shown(record, form) for record in found.values())
    return Response(f'{{"items":[{items}]}}', media_type="application/json")


@api(
    router, "POST", "/projects/{project_id}/related/{alias}/kv/commit", Role.DEVELOPER, body=ChangeBody,
    answers={409: "A check does not hold."},
)  # fmt: skip
async def commit_related(request: Request, project_id: ProjectId, alias: Alias) -> Response:
    """Several writes at once, if several checks hold. Needs the grants `write` on each write, `read` on each check."""
    body = await body_of(request, ChangeBody)
    asked = [Asked(Need.READ, check_key(each.key)) for each in body.checks]
    asked += [Asked(Need.WRITE, check_key(each.key)) for each in body.writes]
    at = await _place(request, project_id, alias, Role.DEVELOPER, *asked)
    committed = await services(request).backend.commit(
        at,
        checks_of(body.checks),
        writes_of(body.writes),
        source=source_of(check_project_id(project_id), body.source),
        commit_id=body.chosen_id(),
        repeat=body.repeat,
        wait=body.wait,
    )
    return json_answer(done(committed))


def _writing(key: str, *, reads: bool) -> list[Asked]:
    asked = [Asked(Need.WRITE, check_key(key))]
    return [*asked, Asked(Need.READ, key)] if reads else asked
