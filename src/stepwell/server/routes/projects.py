"""Projects the server knows, and their members."""

from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from stepwell.errors import ProjectNotFound
from stepwell.identifiers import check_project_id, iso_time
from stepwell.server.access import Role
from stepwell.server.routing import STORABLE, Body, api, body_of, json_answer
from stepwell.server.services import access, services

router = APIRouter(tags=["projects"])

ProjectId = Annotated[str, Path(description="The project's UUID.")]


class ProjectBody(Body):
    """A project to make known."""

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f]*$"), STORABLE]


class MemberBody(Body):
    """A member's role."""

    role: Annotated[str, Field(pattern="^(guest|developer|maintainer|owner)$")]


@api(router, "GET", "/projects", Role.USER)
async def list_projects(request: Request) -> Response:
    """The projects you are a member of; for administrators, all."""
    held, asking = services(request), access(request)
    found = await held.accounts.projects(None if asking.identity.admin else asking.identity.account_id)
    items = [
        {"id": each.id, "name": each.name, "created_at": iso_time(each.created_at), "role": role.value}
        for each in found
        if (role := asking.role_in(each.id)) is not None
    ]
    return json_answer({"items": items, "next_cursor": None})


@api(router, "PUT", "/projects/{id}", Role.USER, body=ProjectBody, status=200, answers={201: "It is known now."})
async def register_project(request: Request, id: ProjectId) -> Response:  # noqa: A002
    """Make a project known; whoever does it first owns it. Repeating it changes nothing."""
    held, asking = services(request), access(request)
    project_id = check_project_id(id)
    name = (await body_of(request, ProjectBody)).name
    if asking.identity.project_only is not None or asking.identity.role_cap not in (None, Role.OWNER.value):
        made = False
        role = None if await held.accounts.project(project_id) is None else asking.role_in(project_id)
    else:
        made = await held.accounts.add_project(project_id, name, asking.identity.account_id)
        held.gate.forget()
        role = Role.OWNER if made else asking.role_in(project_id)
    if role is None:
        raise ProjectNotFound(f"there is no project {project_id} for you here", hint="ask its owner to add you")
    return json_answer({"id": project_id, "role": role.value}, 201 if made else 200)


@api(router, "GET", "/projects/{project_id}", Role.GUEST)
async def get_project(request: Request, project_id: ProjectId) -> Response:
    """A project and your role in it."""
    held, asking = services(request), access(request)
    found = await held.accounts.project(check_project_id(project_id))
    if found is None:
        raise ProjectNotFound(f"there is no project {project_id} for you here")
    shown = {"id": found.id, "name": found.name, "created_at": iso_time(found.created_at), "role": asking.role.value}
    return json_answer(shown)


@api(router, "GET", "/projects/{project_id}/members", Role.GUEST)
async def list_members(request: Request, project_id: ProjectId) -> Response:
    """Who may do what in the project."""
    found = await services(request).accounts.members(check_project_id(project_id))
    return json_answer({"items": [{"name": name, "role": role} for name, role in found], "next_cursor": None})


@api(router, "PUT", "/projects/{project_id}/members/{name}", Role.OWNER, body=MemberBody, answers={409: "Last owner."})
async def set_member(request: Request, project_id: ProjectId, name: str) -> Response:
    """Give a user a role in the project."""
    held = services(request)
    role = (await body_of(request, MemberBody)).role
    await held.accounts.set_member(check_project_id(project_id), await held.accounts.account(name), role)
    held.gate.forget()
    return json_answer({"name": name, "role": role})


@api(router, "DELETE", "/projects/{project_id}/members/{name}", Role.OWNER, status=204, answers={409: "Last owner."})
async def remove_member(request: Request, project_id: ProjectId, name: str) -> Response:
    """Take a user's role in the project away."""
    held = services(request)
    await held.accounts.set_member(check_project_id(project_id), await held.accounts.account(name), None)
    held.gate.forget()
    return Response(status_code=204)
