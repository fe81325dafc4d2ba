"""`stepwell users`, `members`, `tokens`: who may do what at the connected server."""

import sys
from urllib.parse import quote

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.confirm import confirm
from stepwell.cli.remote import server_of
from stepwell.cli.render import Output
from stepwell.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stepwell.cli.remote import Server

ROLES = click.Choice(["guest", "developer", "maintainer", "owner"])


@click.group()
def users() -> None:
    """The server's users (for administrators)."""


@users.command("list")
@common
@pass_output
def list_users(output: Output) -> None:
    """List the users."""
    output.items(
        server_of(output).ask("GET", "/users")["items"],
        [("name", lambda u: u["name"]), ("administrator", lambda u: "yes" if u["admin"] else ""),
         ("disabled", lambda u: "yes" if u["disabled"] else ""), ("since", lambda u: u["created_at"][:19])],
        empty="no users",
    )  # fmt: skip


@users.command("add")
@click.argument("name")
@click.option("--admin", is_flag=True, help="Make an administrator.")
@click.option("--password", is_flag=True, help="Read a password of at least 10 characters: asked for, or from stdin.")
@common
@pass_output
def add_user(output: Output, name: str, admin: bool, password: bool) -> None:
    """Add a user; without a password they work with tokens made by `stepwell tokens create --user NAME`."""
    body = {"name": name, "admin": admin} | ({"password": _password()} if password else {})
    output.data(server_of(output).ask("POST", "/users", body), f"added {name}")


@users.command("set")
@click.argument("name")
@click.option("--admin/--no-admin", default=None, help="Whether they administer the server.")
@click.option("--enabled/--disabled", default=None, help="Disabled users cannot do anything.")
@click.option("--password", is_flag=True, help="Read a new password: asked for, or from stdin.")
@common
@pass_output
def set_user(output: Output, name: str, admin: bool | None, enabled: bool | None, password: bool) -> None:
    """Change a user."""
    body: dict[str, Any] = {}
    if admin is not None:
        body["admin"] = admin
    if enabled is not None:
        body["disabled"] = not enabled
    if password:
        body["password"] = _password()
    if not body:
        raise InvalidArgument("nothing to change", hint="`stepwell users set --help` shows what there is")
    output.data(server_of(output).ask("PATCH", f"/users/{quote(name, safe='')}", body), f"changed {name}")


@users.command("remove")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
@pass_output
def remove_user(output: Output, name: str, yes: bool) -> None:
    """Remove a user with all tokens and memberships."""
    confirm(yes, f"remove the user {name} with all tokens and memberships?")
    server_of(output).ask("DELETE", f"/users/{quote(name, safe='')}")
    output.data({"name": name, "removed": True}, f"removed {name}")


@click.group()
def members() -> None:
    """A project's members at the server."""


@members.command("list")
@click.option("--project-id", help="Default: the project of the current folder.")
@common
@pass_output
def list_members(output: Output, project_id: str | None) -> None:
    """List the members and their roles."""
    server, path = _members(output, project_id)
    output.items(
        server.ask("GET", path)["items"],
        [("name", lambda m: m["name"]), ("role", lambda m: m["role"])], empty="no members",
    )  # fmt: skip


@members.command("set")
@click.argument("name")
@click.argument("role", type=ROLES)
@click.option("--project-id", help="Default: the project of the current folder.")
@common
@pass_output
def set_member(output: Output, name: str, role: str, project_id: str | None) -> None:
    """Give the user NAME a role in the project."""
    server, path = _members(output, project_id)
    output.data(server.ask("PUT", f"{path}/{quote(name, safe='')}", {"role": role}), f"{name} is {role}")


@members.command("remove")
@click.argument("name")
@click.option("--project-id", help="Default: the project of the current folder.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@common
@pass_output
def remove_member(output: Output, name: str, project_id: str | None, yes: bool) -> None:
    """Take the role of the user NAME away."""
    server, path = _members(output, project_id)
    confirm(yes, f"remove {name} from the project?")
    server.ask("DELETE", f"{path}/{quote(name, safe='')}")
    output.data({"name": name, "removed": True}, f"removed {name}")


@click.group()
def tokens() -> None:
    """Keys for the server: yours, and as administrator everyone's."""


@tokens.command("list")
@click.option("--everyone", is_flag=True, help="Those of all users (for administrators).")
@common
@pass_output
def list_tokens(output: Output, everyone: bool) -> None:
    """List tokens; their secrets are stored nowhere."""
    found = server_of(output).ask("GET", "/tokens", query={"everyone": "true"} if everyone else None)
    output.items(
        found["items"],
        [("id", lambda t: t["id"]), ("user", lambda t: t["user"]), ("label", lambda t: t["label"]),
         ("role", lambda t: t["role"] or ""), ("project", lambda t: t["project_id"] or ""),
         ("expires", lambda t: (t["expires_at"] or "")[:19]), ("last used", lambda t: (t["last_used_at"] or "")[:19])],
        empty="no tokens",
    )  # fmt: skip


@tokens.command("create")
@click.argument("label")
@click.option("--user", metavar="NAME", help="For another user (for administrators).")
@click.option("--role", type=ROLES, help="At most this role.")
@click.option("--project-id", help="For this project only.")
@click.option("--days", type=click.IntRange(1, 3650), help="Valid for so long; without, until it is revoked.")
@common
@pass_output
def create_token(
    output: Output, label: str, user: str | None, role: str | None, project_id: str | None, days: int | None
) -> None:
    """Make a token; it is printed this once."""
    given = {"label": label, "user": user, "role": role, "project_id": project_id, "days": days}
    body = {name: value for name, value in given.items() if value is not None}
    made = server_of(output).ask("POST", "/tokens", body)
    output.data(made, made["token"])
    output.talk("keep it: it is not shown again")


@tokens.command("revoke")
@click.argument("token_id")
@common
@pass_output
def revoke_token(output: Output, token_id: str) -> None:
    """Revoke a token; whoever uses it is out within seconds."""
    server_of(output).ask("DELETE", f"/tokens/{quote(token_id, safe='')}")
    output.data({"id": token_id, "revoked": True}, f"revoked {token_id}")


def _members(output: Output, project_id: str | None) -> "tuple[Server, str]":
    """The project's server (the one its manifest names, unless the environment does), and the members' path there."""
    from stepwell.identifiers import check_project_id
    from stepwell.project.manifest import load_manifest
    from stepwell.settings import load_settings

    if project_id is not None:
        return server_of(output), f"/projects/{check_project_id(project_id)}/members"
    manifest = load_manifest(output.project)
    settings = load_settings(project=manifest.settings)
    url = settings.server_url if settings.origin("server_url") == "project manifest" else None
    return server_of(output, url), f"/projects/{manifest.project_id}/members"


def _password() -> str:
    if sys.stdin.isatty():
        text: str = click.prompt("password", hide_input=True, confirmation_prompt=True, err=True)
        return text
    return sys.stdin.readline().strip("\r\n")
