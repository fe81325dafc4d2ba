"""Which project an alias means, for whoever asks."""

from collections.abc import Iterable

from starlette.requests import Request

from stepwell.errors import AccessDenied
from stepwell.server.access import Role, allows
from stepwell.server.services import access, services
from stepwell.storage.relations import Asked, Relation, decide, parse_relations


async def declared_relations(request: Request, project_id: str) -> tuple[Relation, ...]:
    """What a project declares on this server, as it is now."""
    return parse_relations(await services(request).accounts.relations(project_id))


async def related_project(request: Request, caller_id: str, alias: str, role: Role, asked: Iterable[Asked]) -> str:
    """The id of a related project, if both projects declare each other, and it grants what is asked for.

    A project in which the user has no role is as good as one that is not there.

    Args:
        caller_id: the project of the address; the route has checked the user's role in it.
        role: what the access needs in the related project too.

    Raises:
        RelationUnknown, RelationPending, RelationDenied, AccessDenied
    """
    declared = await declared_relations(request, caller_id)
    target = next((relation.project_id for relation in declared if relation.alias == alias), None)
    known = None if target is None else access(request).role_in(target)
    theirs = None if known is None or target is None else await declared_relations(request, target)
    relation = decide(alias, caller_id, declared, theirs, asked)
    if known is None or not allows(known, role):
        raise AccessDenied(
            f"this needs the role {role} in the related project {alias!r} too; yours is {known}", needed=role.value
        )
    return relation.project_id
