"""`stepwell login`, `logout`, `whoami`: which server this user works with, and as whom."""

import sys

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.remote import Server, server_of
from stepwell.cli.render import Output
from stepwell.errors import InvalidArgument, StepwellError

_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")


@click.command()
@click.argument("url")
@click.option("--user", metavar="NAME", help="Log in with a name and a password instead of a key.")
@common
@pass_output
def login(output: Output, url: str, user: str | None) -> None:
    """Log in to the server at URL and keep the key in the login file, readable by you only.

    The key (or with --user the password) is asked for, or read from stdin, or taken from STEPWELL_SERVER_KEY.
    """
    import socket

    from stepwell.settings import load_settings
    from stepwell.storage.logins import Login, Logins, normal_url

    url = normal_url(url)
    if url.startswith("http://") and not url.removeprefix("http://").startswith(_LOOPBACK):
        output.talk("warning: http:// sends the key unencrypted; use https:// beyond this machine")
    made = False
    if user is None:
        key = load_settings().server_key or _secret("key")
    else:
        body = {"name": user, "password": _secret("password"), "label": f"login from {socket.gethostname()}"[:100]}
        key, made = Server(url, "none").ask("POST", "/login", body)["token"], True
    me = Server(url, key).ask("GET", "/me")
    logins = Logins()
    logins.add(Login(url, key, me["name"], made))
    output.data(
        {"url": url, "user": me["name"], "admin": me["admin"], "file": str(logins.path)},
        f"logged in to {url} as {me['name']}{' (administrator)' if me['admin'] else ''}",
    )


@click.command()
@click.argument("url", required=False)
@common
@pass_output
def logout(output: Output, url: str | None) -> None:
    """Forget the key for the server at URL, or for the current one; a key made by `login --user` is revoked, too."""
    from stepwell.storage.logins import Logins

    logins = Logins()
    login = logins.find(url)
    if login is None:
        raise InvalidArgument("you are not logged in" + (f" to {url}" if url else ""), hint="`stepwell login URL`")
    revoked = False
    if login.made:
        try:
            Server(login.url, login.key).ask("DELETE", "/tokens/self")
            revoked = True
        except StepwellError as error:
            output.talk(f"the key could not be revoked ({error.message}); it is forgotten here")
    logins.remove(login.url)
    output.data({"url": login.url, "revoked": revoked}, f"logged out from {login.url}")


@click.command()
@common
@pass_output
def whoami(output: Output) -> None:
    """Show the connected server, the user, and the roles there."""
    server = server_of(output)
    me = server.ask("GET", "/me")
    lines = [f"{me['name']} at {server.url}" + (" (administrator)" if me["admin"] else "")]
    if me["role_cap"] or me["project_only"]:
        lines.append(f"this key: at most {me['role_cap'] or 'your role'}, {me['project_only'] or 'every project'}")
    lines += [f"{role:<12} {project}" for project, role in me["projects"].items()]
    output.data({"url": server.url, **me}, "\n".join(lines))


def _secret(what: str) -> str:
    if sys.stdin.isatty():
        text: str = click.prompt(what, hide_input=True, err=True)
    else:
        text = sys.stdin.readline()
    if not text.strip():
        raise InvalidArgument(f"no {what} was given", hint="type it, or pipe it in: echo $KEY | stepwell login URL")
    return text.strip("\r\n") if what == "password" else text.strip()
