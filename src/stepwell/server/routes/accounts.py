"""Users and tokens; logging in with a password."""

import asyncio
from typing import Annotated

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from stepwell.errors import AccessDenied, Unauthenticated
from stepwell.identifiers import check_project_id, iso_time, now_micros
from stepwell.server import passwords
from stepwell.server.access import Role, allows, hashed, new_secret
from stepwell.server.routing import STORABLE, Body, api, body_of, json_answer
from stepwell.server.services import access, services
from stepwell.store.accounts import Account, Token

router = APIRouter(tags=["accounts"])

_NAME = r"^[A-Za-z0-9][A-Za-z0-9._@-]{0,99}$"
_MICROS_A_DAY = 86_400_000_000
_LOGIN_BYTES = 20_000  # anybody may send one: it must not take the memory of a commit


class UserBody(Body):
    """A new user."""

    name: Annotated[str, Field(pattern=_NAME), STORABLE]
    admin: bool = False
    password: Annotated[str, Field(min_length=10, max_length=1_000), STORABLE] | None = None


class UserChange(Body):
    """What to change of a user."""

    admin: bool | None = None
    disabled: bool | None = None
    password: Annotated[str, Field(min_length=10, max_length=1_000), STORABLE] | None = None


class TokenBody(Body):
    """A new token: of oneself, or for administrators of anyone; perhaps less than its user may do."""

    label: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f]*$"), STORABLE]
    user: Annotated[str, Field(pattern=_NAME), STORABLE] | None = None
    role: Annotated[str, Field(pattern="^(guest|developer|maintainer|owner)$"), STORABLE] | None = None
    project_id: Annotated[str, STORABLE] | None = None
    days: Annotated[int, Field(ge=1, le=3_650)] | None = None


class LoginBody(Body):
    """Name and password."""

    name: Annotated[str, Field(max_length=100), STORABLE]
    password: Annotated[str, Field(max_length=1_000), STORABLE]
    label: Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f]*$"), STORABLE] = "login"


@api(router, "GET", "/me", Role.USER)
async def whoami(request: Request) -> Response:
    """Whom the key speaks for, and what it may do."""
    identity = access(request).identity
    return json_answer(
        {
            "name": identity.name,
            "admin": identity.admin,
            "token_id": identity.token_id,
            "role_cap": identity.role_cap,
            "project_only": identity.project_only,
            "projects": dict(identity.roles),
        }
    )


@api(router, "POST", "/login", Role.PUBLIC, body=LoginBody, answers={401: "Wrong name or password.", 429: "Too often."})
async def login(request: Request) -> Response:
    """A token for a name and a password."""
    held = services(request)
    body = await body_of(request, LoginBody, most=_LOGIN_BYTES)
    held.logins.spend(body.name)
    found = await held.accounts.password(body.name)
    # As slow for an unknown name as for a wrong password.
    right = await held.passwords.verify(None if found is None else found[1], body.password)
    if found is None or not right:
        raise Unauthenticated("the name or the password is wrong", hint="try again, or ask an administrator")
    secret = new_secret()
    token_id = await held.accounts.add_token(found[0], body.label, hashed(secret))
    return json_answer({"id": token_id, "token": secret})


@api(router, "GET", "/users", Role.ADMIN)
async def list_users(request: Request) -> Response:
    """Every user."""
    found = await services(request).accounts.accounts()
    return json_answer({"items": [_user(each) for each in found], "next_cursor": None})


@api(router, "POST", "/users", Role.ADMIN, body=UserBody, status=201, answers={409: "The name is taken."})
async def add_user(request: Request) -> Response:
    """Add a user."""
    body = await body_of(request, UserBody)
    secret = None if body.password is None else await asyncio.to_thread(passwords.hash_of, body.password)
    return json_answer(
        _user(await services(request).accounts.add_account(body.name, admin=body.admin, password_hash=secret)), 201
    )


@api(router, "PATCH", "/users/{name}", Role.ADMIN, body=UserChange, answers={409: "The last administrator."})
async def change_user(request: Request, name: str) -> Response:
    """Change a user: disabled ones cannot do anything, and keep their memberships."""
    held = services(request)
    body = await body_of(request, UserChange)
    account = await held.accounts.account(name)
    secret = None if body.password is None else await asyncio.to_thread(passwords.hash_of, body.password)
    await held.accounts.set_account(account, disabled=body.disabled, admin=body.admin, password=secret)
    held.gate.forget()
    return json_answer(_user(await held.accounts.account(name)))


@api(router, "DELETE", "/users/{name}", Role.ADMIN, status=204, answers={409: "The last administrator."})
async def remove_user(request: Request, name: str) -> Response:
    """Remove a user with all tokens and memberships."""
    held = services(request)
    await held.accounts.delete_account(await held.accounts.account(name))
    held.gate.forget()
    return Response(status_code=204)


@api(router, "GET", "/tokens", Role.USER)
async def list_tokens(request: Request, everyone: bool = False) -> Response:
    """Your tokens; with `everyone`, for administrators, those of all."""
    held, asking = services(request), access(request)
    if everyone and not allows(asking.role, Role.ADMIN):
        raise AccessDenied("only administrators see everyone's tokens", needed="admin")
    found = await held.accounts.tokens(None if everyone else asking.identity.account_id)
    return json_answer({"items": [_token(each) for each in found], "next_cursor": None})


@api(router, "POST", "/tokens", Role.USER, body=TokenBody, status=201)
async def add_token(request: Request) -> Response:
    """Make a token. Its secret is in this answer and nowhere else."""
    held, asking = services(request), access(request)
    body = await body_of(request, TokenBody)
    identity = asking.identity
    if identity.role_cap is not None or identity.project_only is not None:
        raise AccessDenied("a restricted token makes no other tokens", hint="use an unrestricted one")
    account_id = identity.account_id
    if body.user is not None and body.user != identity.name:
        if not allows(asking.role, Role.ADMIN):
            raise AccessDenied("only administrators make tokens for others", needed="admin")
        account_id = (await held.accounts.account(body.user)).id
    secret = new_secret()
    token_id = await held.accounts.add_token(
        account_id,
        body.label,
        hashed(secret),
        role=body.role,
        project_id=None if body.project_id is None else check_project_id(body.project_id),
        expires_at=None if body.days is None else now_micros() + body.days * _MICROS_A_DAY,
    )
    return json_answer({"id": token_id, "token": secret}, 201)


@api(router, "DELETE", "/tokens/{token_id}", Role.USER, status=204)
async def revoke_token(request: Request, token_id: str) -> Response:
    """Revoke a token: `self` is the one you use, and the only one that a restricted token may revoke."""
    held, asking = services(request), access(request)
    identity = asking.identity
    chosen = identity.token_id if token_id == "self" else check_project_id(token_id)  # noqa: S105
    if chosen != identity.token_id and (identity.role_cap is not None or identity.project_only is not None):
        raise AccessDenied("a restricted token revokes no other tokens", hint="use an unrestricted one")
    anyones = allows(asking.role, Role.ADMIN)
    await held.accounts.delete_token(chosen, asking.identity.account_id, anyones=anyones)
    held.gate.forget()
    return Response(status_code=204)


def _user(account: Account) -> dict[str, object]:
    return {
        "name": account.name,
        "admin": account.admin,
        "disabled": account.disabled,
        "created_at": iso_time(account.created_at),
    }


def _token(token: Token) -> dict[str, object]:
    shown = token._asdict()
    shown["user"] = shown.pop("account")
    for name in ("created_at", "expires_at", "last_used_at"):
        shown[name] = None if shown[name] is None else iso_time(shown[name])
    return shown
