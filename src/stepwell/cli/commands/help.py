"""`stepwell help`: topics, and the help of commands."""

import click

from stepwell.cli.app import app, common, pass_output
from stepwell.cli.render import EXIT_CODES, Output


@click.command("help")
@click.argument("topic", nargs=-1)
@common
@pass_output
@click.pass_context
def help_(ctx: click.Context, output: Output, topic: tuple[str, ...]) -> None:
    """Explain TOPIC (exit-codes), or show the help of a command."""
    if topic == ("exit-codes",):
        items = [{"code": code, "meaning": meaning} for code, meaning in EXIT_CODES]
        output.items(items, [("code", lambda i: i["code"]), ("meaning", lambda i: i["meaning"])])
        return
    command: click.Command = app
    found = click.Context(app, info_name="stepwell")
    for name in topic:
        inner = command.get_command(found, name) if isinstance(command, click.Group) else None
        if inner is None:
            raise click.UsageError(f"there is no topic or command {' '.join(topic)!r}; topics: exit-codes")
        command = inner
        found = click.Context(command, info_name=name, parent=found)
    output.text(command.get_help(found))
