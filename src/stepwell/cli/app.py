"""The command table, the options every command has, and the one place where errors become exit codes."""

import errno
import sys
from collections.abc import Callable

import click

from stepwell.cli.render import EXIT_INTERRUPTED, Output
from stepwell.errors import Kind, StepwellError, StorageUnavailable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# name: (module, attribute, one line for --help). Help needs none of the modules.
COMMANDS = {
    "init": ("init", "init", "Make a new project."),
    "run": ("run", "run", "Run a project and show its output as it comes."),
    "chat": ("chat", "chat", "Hold a conversation with a project."),
    "describe": ("describe", "describe", "Show a project's entrypoints and their schemas."),
    "workflows": ("workflows", "workflows", "List, check, import, run and explain workflows that are JSON graphs."),
    "runs": ("runs", "runs", "List, show, follow, resume, cancel and delete runs."),
    "kv": ("kv", "kv", "Read and write stored entries."),
    "knowledge": ("knowledge", "knowledge", "List, search, edit and import Knowledge documents."),
    "conversations": ("conversations", "conversations", "List, show, export, rename and delete conversations."),
    "relations": ("relations", "relations", "Declare related projects and what they may do."),
    "tools": ("tools", "tools", "List tools and set whether their calls need approval."),
    "approvals": ("approvals", "approvals", "List, show, approve and deny calls that wait for a person."),
    "usage": ("usage", "usage", "Show token totals."),
    "db": ("db", "db", "Look after the server's PostgreSQL database."),
    "server": ("server", "server", "Serve storage, Knowledge and accounts to other machines."),
    "login": ("login", "login", "Log in to a server."),
    "logout": ("login", "logout", "Forget the key for a server."),
    "whoami": ("login", "whoami", "Show the connected server and your roles there."),
    "users": ("accounts", "users", "List, add, change and remove the server's users."),
    "members": ("accounts", "members", "List, set and remove a project's members at the server."),
    "tokens": ("accounts", "tokens", "List, create and revoke keys for the server."),
    "doctor": ("doctor", "doctor", "Check this machine and the project's data."),
    "config": ("config", "config", "Show the settings and where each comes from."),
    "schema": ("schema", "schema", "Print the JSON Schema of an output or of the manifest."),
    "help": ("help", "help_", "Explain a topic (exit-codes) or a command."),
    "completion": ("completion", "completion", "Print the shell completion script."),
}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module_name, attribute, _ = COMMANDS[cmd_name]
        module = __import__(f"stepwell.cli.commands.{module_name}", fromlist=[attribute])
        command: click.Command = getattr(module, attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            from difflib import get_close_matches

            close = get_close_matches(name, COMMANDS, 1)
            ctx.fail(f"there is no command {name!r}." + (f" Did you mean {close[0]}?" if close else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, _, line) in COMMANDS.items()])


def _set(name: str) -> "Callable[[click.Context, click.Parameter, Any], None]":
    def callback(ctx: click.Context, parameter: click.Parameter, value: "Any") -> None:
        if value not in (None, False):
            setattr(ctx.ensure_object(Output), name, value)

    return callback


def _set_project(ctx: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        if not value:
            raise click.BadParameter("the folder's name is empty", ctx, parameter)
        ctx.ensure_object(Output).project = value


def _print_version(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        from stepwell import __version__

        click.echo(f"stepwell {__version__}")
        ctx.exit()


def common(command: "Callable[..., Any]") -> "Callable[..., Any]":
    """Add the options that every command has, before and after the subcommand alike."""
    for option in (
        click.option("--debug", is_flag=True, expose_value=False, callback=_set("debug"), help="Show tracebacks."),
        click.option("--no-color", is_flag=True, expose_value=False, callback=_set("no_color"), help="No colours."),
        click.option("-v", "--verbose", is_flag=True, expose_value=False, callback=_set("verbose"), help="Say more."),
        click.option("-q", "--quiet", is_flag=True, expose_value=False, callback=_set("quiet"), help="Say less."),
        click.option("--json", is_flag=True, expose_value=False, callback=_set("json"), help="Print JSON."),
        click.option(
            "--project", metavar="DIR", expose_value=False, callback=_set_project, help="The project's folder."
        ),
    ):
        command = option(command)
    return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@common
@click.option(
    "-V", "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
    help="Show the version and exit.",
)  # fmt: skip
def app() -> None:
    """stepwell: run workflows and agents whose state lasts."""


pass_output = click.make_pass_decorator(Output, ensure=True)


def run(arguments: list[str]) -> int:
    """Run a command; every error comes out as one clear message and an exit code."""
    output, streams = Output(), (sys.stdout, sys.stderr)
    options = arguments[: arguments.index("--") if "--" in arguments else None]
    output.json = "--json" in options
    output.json_errors = output.json or "--jsonl" in options
    try:
        result = app.main(args=arguments, prog_name="stepwell", standalone_mode=False, obj=output)
    except StepwellError as error:
        return output.error(error)
    except (click.exceptions.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        return output.error(UsageProblem(error.format_message(), hint=_usage_hint(error)))
    except BrokenPipeError:
        return 0  # the reader has gone: leave without complaint
    except SystemExit as error:
        # Shell completion ends this way, and so does click when it meets a broken pipe, having wrapped the streams.
        gone, (sys.stdout, sys.stderr) = sys.stdout is not streams[0], streams
        return 0 if gone or not isinstance(error.code, int) else error.code
    except Exception as error:  # noqa: BLE001  (the one place where anything becomes a message)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EIO, getattr(errno, "EDQUOT", None)):
            return output.error(StorageUnavailable(f"writing failed: {error.strerror}", hint="free some disk space"))
        return output.error(
            InternalError(
                f"internal error: {type(error).__name__}: {error}",
                hint="run it again with --debug and report what it prints",
            )
        )
    return result if isinstance(result, int) else 0


class UsageProblem(StepwellError):
    """A command line that click refuses."""

    code, kind = "usage", Kind.INVALID


class InternalError(StepwellError):
    """A bug of ours."""

    code, kind = "internal_error", Kind.FAILED


def _usage_hint(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path} --help` shows how to use it" if context is not None else None
