"""`stepwell init`: make a new project."""

import shlex

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.render import Output


@click.command()
@click.argument("folder", default=".")
@click.option("--template", type=click.Choice(["workflow", "conversation"]), default="workflow", show_default=True)
@click.option("--name", help="The project's name; the folder's name without.")
@click.option("--force", is_flag=True, help="Overwrite files that are there.")
@common
@pass_output
def init(output: Output, folder: str, template: str, name: str | None, force: bool) -> None:
    """Make a project in FOLDER: manifest, code, a test and AGENTS.md. It runs at once."""
    from stepwell.project.scaffold import scaffold

    made = scaffold(folder, template=template, name=name, force=force)
    shown = {"folder": made.folder, "project_id": made.project_id, "name": made.name, "files": made.files}
    lines = [f"made {made.name} in {made.folder}", *(f"  {file}" for file in made.files)]
    output.data(shown, "\n".join(lines))
    output.talk(f"next: stepwell run {shlex.quote(folder)} -- {made.first_arguments}")
