"""`stepwell completion`: shell completion."""

import click

from stepwell.cli.app import app, common, pass_output
from stepwell.cli.render import Output


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
@pass_output
def completion(output: Output, shell: str) -> None:
    """Print the completion script of SHELL: eval "$(stepwell completion bash)"."""
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101  (the three shells are click's own)
    output.line(kind(app, {}, "stepwell", "_STEPWELL_COMPLETE").source())
