"""Who asks, and what their role allows.

A role is the least that a route needs. For routes about one project it is the role there; for the others the highest
the user has anywhere. Whoever has no role in a project is told the same as if the project did not exist.
"""

import hashlib
import secrets
from enum import StrEnum
from time import monotonic
from typing import NamedTuple

from stepwell.errors import AccessDenied, ProjectNotFound, Unauthenticated
from stepwell.identifiers import check_project_id
from stepwell.store.accounts import AccountStore, Identity

TOKEN_PREFIX = "sw_"  # noqa: S105  (so that scanners recognise a leaked token)
_FRESH_SECONDS = 2.0
_REMEMBERED = 10_000


class Role(StrEnum):
    """Each may do what those before it may."""

    PUBLIC = "public"
    USER = "user"
    GUEST = "guest"
    DEVELOPER = "developer"
    MAINTAINER = "maintainer"
    OWNER = "owner"
    ADMIN = "admin"


_ORDER = list(Role)
PROJECT_ROLES = (Role.GUEST, Role.DEVELOPER, Role.MAINTAINER, Role.OWNER)


class Access(NamedTuple):
    """An admitted request: who, with what role, in which project."""

    identity: Identity
    role: Role
    project_id: str | None

    def role_in(self, project_id: str) -> Role | None:
        """The role in a project; None without one."""
        return role_in(self.identity, project_id)


def new_secret() -> str:
    """A new token's secret: 256 random bits."""
    return TOKEN_PREFIX + secrets.token_urlsafe(32)


def hashed(secret: str) -> bytes:
    """What is stored of a secret. A random token needs no slow hash."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()


def role_in(identity: Identity, project_id: str) -> Role | None:
    """An identity's role in a project; None without one."""
    if identity.project_only is not None and identity.project_only != project_id:
        return None
    if identity.admin:
        return _capped(identity, Role.ADMIN)
    role = identity.roles.get(project_id)
    return None if role is None else _capped(identity, Role(role))


def _anywhere(identity: Identity) -> Role:
    if identity.project_only is not None:
        return Role.USER  # a token of one project says nothing about what is outside of it
    if identity.admin:
        return _capped(identity, Role.ADMIN)
    roles = [Role.USER, *(_capped(identity, Role(role)) for role in identity.roles.values())]
    return max(roles, key=_ORDER.index)


def _capped(identity: Identity, role: Role) -> Role:
    return role if identity.role_cap is None else min(role, Role(identity.role_cap), key=_ORDER.index)


def allows(role: Role, needed: Role) -> bool:
    """True if `role` may do what needs `needed`."""
    return _ORDER.index(role) >= _ORDER.index(needed)


class Gate:
    """Admits requests. What a token may do is remembered for two seconds.

    Args:
        accounts: users and their roles.
    """

    def __init__(self, accounts: AccountStore) -> None:
        self._accounts = accounts
        self._known: dict[bytes, tuple[float, Identity]] = {}
        self._projects: set[str] = set()

    async def admit(self, authorization: str | None, needed: Role, project_id: str | None) -> Access:
        """Admit a request, or say why not.

        Args:
            authorization: the header.
            needed: the route's role.
            project_id: the project in its path, if there is one.

        Raises:
            Unauthenticated, ProjectNotFound, AccessDenied
        """
        identity = await self._identify(authorization)
        if project_id is None:
            role = _anywhere(identity)
        else:
            project_id = check_project_id(project_id)
            known = role_in(identity, project_id)
            if known is None or (identity.admin and not await self._exists(project_id)):
                raise ProjectNotFound(
                    f"there is no project {project_id} for you here",
                    hint="`stepwell login` and a run of the project make it known to the server",
                )
            role = known
        if not allows(role, needed):
            raise AccessDenied(f"this needs the role {needed}; yours is {role}", needed=needed.value, role=role.value)
        return Access(identity, role, project_id)

    def forget(self) -> None:
        """Roles or tokens were changed: ask anew."""
        self._known.clear()
        self._projects.clear()

    async def _exists(self, project_id: str) -> bool:
        if project_id not in self._projects and await self._accounts.project(project_id) is not None:
            self._projects.add(project_id)
        return project_id in self._projects

    async def _identify(self, authorization: str | None) -> Identity:
        scheme, _, secret = (authorization or "").partition(" ")
        if scheme.lower() != "bearer" or not secret.strip():
            raise Unauthenticated("the request carries no key")
        digest = hashed(secret.strip())
        known = self._known.get(digest)
        if known is not None and known[0] > monotonic():
            return known[1]
        identity = await self._accounts.identity(digest)
        if identity is None:
            self._known.pop(digest, None)
            raise Unauthenticated("the key is unknown, expired or revoked")
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[digest] = (monotonic() + _FRESH_SECONDS, identity)
        return identity
