"""`stepwell schema`: the JSON Schemas of what commands print, and of the manifest."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.render import Output, dumps
from stepwell.errors import InvalidArgument


@click.command()
@click.argument("name", required=False)
@common
@pass_output
def schema(output: Output, name: str | None) -> None:
    """Print the JSON Schema NAME; without it, the names there are."""
    from stepwell.cli.schemas import SCHEMAS

    if name is None:
        output.items([{"name": known} for known in SCHEMAS], [("name", lambda s: s["name"])])
        return
    if name not in SCHEMAS:
        raise InvalidArgument(f"there is no schema {name!r:.60}", hint=f"there are: {', '.join(SCHEMAS)}")
    output.line(dumps({"$schema": "https://json-schema.org/draft/2020-12/schema", **SCHEMAS[name]}))
