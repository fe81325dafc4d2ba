"""Users, tokens, projects and memberships of a server, in its PostgreSQL database."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from stepwell.errors import AccountConflict, AccountNotFound
from stepwell.identifiers import new_id, now_micros
from stepwell.jsontext import decode, encode
from stepwell.store.postgres import PostgresBackend

_IDENTITY = """
SELECT t.id::text, a.id::text, a.name, a.admin, t.role, t.project_id
FROM stepwell.token AS t JOIN stepwell.account AS a ON a.id = t.account_id
WHERE t.secret_hash = %s AND NOT a.disabled AND (t.expires_at IS NULL OR t.expires_at > %s)"""
_TOUCH = """
UPDATE stepwell.token SET last_used_at = %s WHERE id = %s AND (last_used_at IS NULL OR last_used_at < %s)"""
_ROLES = "SELECT project_id, role FROM stepwell.membership WHERE account_id = %s"

_ACCOUNTS = "SELECT id::text, name, admin, disabled, created_at FROM stepwell.account"
_ADD_ACCOUNT = """
INSERT INTO stepwell.account (id, name, password_hash, admin, created_at) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT DO NOTHING"""
_SET_ACCOUNT = """
UPDATE stepwell.account SET disabled = coalesce(%s, disabled), admin = coalesce(%s, admin),
  password_hash = coalesce(%s, password_hash) WHERE id = %s"""
_DELETE_ACCOUNT = "DELETE FROM stepwell.account WHERE id = %s"
_OTHER_ADMINS = "SELECT count(*) FROM stepwell.account WHERE admin AND NOT disabled AND id <> %s"
_PASSWORD = "SELECT id::text, password_hash FROM stepwell.account WHERE name = %s AND NOT disabled"  # noqa: S105

_TOKENS = """
SELECT t.id::text, a.name, t.label, t.role, t.project_id, t.created_at, t.expires_at, t.last_used_at
FROM stepwell.token AS t JOIN stepwell.account AS a ON a.id = t.account_id"""
_ADD = """
INSERT INTO stepwell.token (id, account_id, label, secret_hash, role, project_id, created_at, expires_at)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"""
_DELETE_TOKEN = "DELETE FROM stepwell.token WHERE id = %s AND (%s OR account_id = %s)"  # noqa: S105

_PROJECTS = "SELECT p.id, p.name, p.created_at FROM stepwell.project AS p"
_ADD_PROJECT = "INSERT INTO stepwell.project (id, name, created_at) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING"
_RENAME_PROJECT = "UPDATE stepwell.project SET name = %s WHERE id = %s"
_RELATIONS = "SELECT relations::text FROM stepwell.project WHERE id = %s"
_SET_RELATIONS = "UPDATE stepwell.project SET relations = %s::json, relations_at = %s WHERE id = %s"
_MEMBERS = """
SELECT a.name, m.role FROM stepwell.membership AS m JOIN stepwell.account AS a ON a.id = m.account_id
WHERE m.project_id = %s ORDER BY a.name"""
_SET_MEMBER = """
INSERT INTO stepwell.membership (project_id, account_id, role) VALUES (%s, %s, %s)
ON CONFLICT (project_id, account_id) DO UPDATE SET role = excluded.role"""
_DELETE_MEMBER = "DELETE FROM stepwell.membership WHERE project_id = %s AND account_id = %s"
_OTHER_OWNERS = """
SELECT count(*) FROM stepwell.membership WHERE project_id = %s AND role = 'owner' AND account_id <> %s"""


class Account(NamedTuple):
    """A user. Times are microseconds since 1970."""

    id: str
    name: str
    admin: bool
    disabled: bool
    created_at: int


class Token(NamedTuple):
    """What is known of a token: never its secret. `role` caps the user's role, `project_id` binds it to one."""

    id: str
    account: str
    label: str
    role: str | None
    project_id: str | None
    created_at: int
    expires_at: int | None
    last_used_at: int | None


class Identity(NamedTuple):
    """Whom a token speaks for, and that user's roles by project."""

    token_id: str
    account_id: str
    name: str
    admin: bool
    role_cap: str | None
    project_only: str | None
    roles: Mapping[str, str]


class Project(NamedTuple):
    """A project known to the server."""

    id: str
    name: str
    created_at: int


class AccountStore:
    """The server's own tables.

    Args:
        backend: the database they are in.
    """

    def __init__(self, backend: PostgresBackend) -> None:
        self._backend = backend

    # -- who is asking ---------------------------------------------------------------------------------------------

    async def identity(self, secret_hash: bytes) -> Identity | None:
        """Whom the token with this hash speaks for; None if it is unknown, expired or of a disabled user."""
        now = now_micros()
        rows = await self._backend.connections.fetch(_IDENTITY, (secret_hash, now))
        if not rows:
            return None
        token_id, account_id, name, admin, role_cap, project_only = rows[0]
        roles = await self._backend.connections.fetch(_ROLES, (account_id,))
        await self._backend.connections.change(_TOUCH, (now, token_id, now - 60_000_000))
        return Identity(token_id, account_id, name, admin, role_cap, project_only, dict(roles))

    async def password(self, name: str) -> tuple[str, str | None] | None:
        """Id and password hash of a user who may log in."""
        rows = await self._backend.connections.fetch(_PASSWORD, (name,))
        return (rows[0][0], rows[0][1]) if rows else None

    # -- users -----------------------------------------------------------------------------------------------------

    async def accounts(self) -> list[Account]:
        """Every user, by name."""
        rows = await self._backend.connections.fetch(f"{_ACCOUNTS} ORDER BY name")
        return [Account(*row) for row in rows]

    async def account(self, name: str) -> Account:
        """A user by name.

        Raises:
            AccountNotFound
        """
        rows = await self._backend.connections.fetch(f"{_ACCOUNTS} WHERE name = %s", (name,))
        if not rows:
            raise AccountNotFound(f"there is no user {name!r:.80}")
        return Account(*rows[0])

    async def add_account(self, name: str, *, admin: bool = False, password_hash: str | None = None) -> Account:
        """A new user.

        Raises:
            AccountConflict: the name is taken.
        """
        values = (new_id(), name, password_hash, admin, now_micros())
        if not await self._backend.connections.change(_ADD_ACCOUNT, values):
            raise AccountConflict(f"there is a user {name!r:.80} already", hint="take another name")
        return await self.account(name)

    async def set_account(
        self, account: Account, *, disabled: bool | None = None, admin: bool | None = None, password: str | None = None
    ) -> None:
        """Change a user; None leaves a thing as it is.

        Raises:
            AccountConflict: the last administrator would be gone.
        """
        if account.admin and (disabled or admin is False):
            await self._keep_an_admin(account)
        await self._backend.connections.change(_SET_ACCOUNT, (disabled, admin, password, account.id))

    async def delete_account(self, account: Account) -> None:
        """Remove a user with all tokens and memberships.

        Raises:
            AccountConflict: it is the last administrator.
        """
        if account.admin:
            await self._keep_an_admin(account)
        await self._backend.connections.change(_DELETE_ACCOUNT, (account.id,))

    async def _keep_an_admin(self, account: Account) -> None:
        if (await self._backend.connections.fetch(_OTHER_ADMINS, (account.id,)))[0][0] == 0:
            raise AccountConflict(f"{account.name} is the last administrator", hint="make another user one first")

    # -- tokens ----------------------------------------------------------------------------------------------------

    async def tokens(self, account_id: str | None) -> list[Token]:
        """The tokens of a user, or of all; newest first."""
        condition, values = (" WHERE t.account_id = %s", (account_id,)) if account_id else ("", ())
        rows = await self._backend.connections.fetch(f"{_TOKENS}{condition} ORDER BY t.id DESC", values)
        return [Token(*row) for row in rows]

    async def add_token(
        self,
        account_id: str,
        label: str,
        secret_hash: bytes,
        *,
        role: str | None = None,
        project_id: str | None = None,
        expires_at: int | None = None,
    ) -> str:
        """Store a new token under the hash of its secret; returns its id."""
        token_id = new_id()
        values = (token_id, account_id, label, secret_hash, role, project_id, now_micros(), expires_at)
        await self._backend.connections.change(_ADD, values)
        return token_id

    async def delete_token(self, token_id: str, account_id: str, *, anyones: bool) -> None:
        """Revoke a token: one's own, or anyone's.

        Raises:
            AccountNotFound
        """
        if not await self._backend.connections.change(_DELETE_TOKEN, (token_id, anyones, account_id)):
            raise AccountNotFound(f"there is no token {token_id}")

    # -- projects and members --------------------------------------------------------------------------------------

    async def projects(self, account_id: str | None) -> list[Project]:
        """The projects a user is a member of, or all; by name."""
        if account_id is None:
            rows = await self._backend.connections.fetch(f"{_PROJECTS} ORDER BY p.name, p.id")
        else:
            statement = f"{_PROJECTS} JOIN stepwell.membership AS m ON m.project_id = p.id WHERE m.account_id = %s"
            rows = await self._backend.connections.fetch(f"{statement} ORDER BY p.name, p.id", (account_id,))
        return [Project(*row) for row in rows]

    async def project(self, project_id: str) -> Project | None:
        """A project by id."""
        rows = await self._backend.connections.fetch(f"{_PROJECTS} WHERE p.id = %s", (project_id,))
        return Project(*rows[0]) if rows else None

    async def add_project(self, project_id: str, name: str, owner_id: str) -> bool:
        """Make a project known, owned by a user; False if it was known before (nothing is changed then)."""
        if not await self._backend.connections.change(_ADD_PROJECT, (project_id, name, now_micros())):
            return False
        await self._backend.connections.change(_SET_MEMBER, (project_id, owner_id, "owner"))
        return True

    async def rename_project(self, project_id: str, name: str) -> None:
        """Give a project another display name."""
        await self._backend.connections.change(_RENAME_PROJECT, (name, project_id))

    async def members(self, project_id: str) -> list[tuple[str, str]]:
        """Names and roles of a project's members."""
        return [(row[0], row[1]) for row in await self._backend.connections.fetch(_MEMBERS, (project_id,))]

    async def set_member(self, project_id: str, account: Account, role: str | None) -> None:
        """Give a user a role in a project; None takes it away.

        Raises:
            AccountConflict: the project would have no owner.
            AccountNotFound: there is no membership to take away.
        """
        if role != "owner":
            current = dict(await self.members(project_id)).get(account.name)
            if current is None and role is None:
                raise AccountNotFound(f"{account.name} is no member of the project")
            others = (await self._backend.connections.fetch(_OTHER_OWNERS, (project_id, account.id)))[0][0]
            if current == "owner" and others == 0:
                raise AccountConflict(
                    f"{account.name} is the project's last owner", hint="make another one owner first"
                )
        if role is None:
            await self._backend.connections.change(_DELETE_MEMBER, (project_id, account.id))
        else:
            await self._backend.connections.change(_SET_MEMBER, (project_id, account.id, role))

    # -- relations -------------------------------------------------------------------------------------------------

    async def relations(self, project_id: str) -> list[dict[str, Any]]:
        """A project's declarations of related projects, as its manifest has them."""
        rows = await self._backend.connections.fetch(_RELATIONS, (project_id,))
        found: list[dict[str, Any]] = decode(rows[0][0]) if rows else []
        return found

    async def set_relations(self, project_id: str, relations: list[dict[str, Any]]) -> None:
        """Replace a project's declarations."""
        await self._backend.connections.change(_SET_RELATIONS, (encode(relations), now_micros(), project_id))
