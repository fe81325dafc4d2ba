"""`stepwell config`: the settings and where each comes from."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.render import Output


@click.group()
def config() -> None:
    """Show the settings and where each comes from."""


@config.command("show")
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
@common
@pass_output
def show(output: Output, origin: bool) -> None:
    """Print every setting; secrets are masked."""
    from stepwell.errors import ProjectNotFound
    from stepwell.project.manifest import load_manifest
    from stepwell.settings import load_settings

    try:
        manifest = load_manifest(output.project)
        settings = load_settings(project=manifest.settings, project_folder=manifest.folder)
    except ProjectNotFound:
        settings = load_settings()
    items = [{"name": setting.name, "value": setting.shown, "origin": setting.origin} for setting in settings.all()]
    columns = [("setting", lambda s: s["name"]), ("value", lambda s: s["value"])]
    output.items(items, [*columns, ("origin", lambda s: s["origin"])] if origin or output.json else columns)
