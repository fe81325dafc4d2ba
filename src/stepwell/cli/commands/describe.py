"""`stepwell describe`: a project's entrypoints and their schemas."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.render import Output, joined

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@click.command()
@click.argument("folder", metavar="[PROJECT]", required=False)
@common
@pass_output
def describe(output: Output, folder: str | None) -> None:
    """Show what PROJECT offers: entrypoints, inputs, outputs."""
    from stepwell.project.loader import load_project

    with output.user_prints():
        project = load_project(folder or output.project)
    manifest = project.manifest
    described = {
        "project_id": manifest.project_id,
        "name": manifest.name,
        "folder": manifest.folder,
        "data_storage": manifest.data_storage.value,
        "scope_model": manifest.scope_model.value,
        **project.executor.describe(),
    }
    output.data(described, lambda: joined(_text(described)))


def _text(described: "dict[str, Any]") -> "list[str]":
    lines = [f"{described['name']} ({described['project_type']}, {described['data_storage']} data)"]
    for point in described["entrypoints"]:
        default = " (default)" if point["id"] == described["default_entrypoint"] else ""
        lines += ["", f"{point['id']}{default}: {point['title']}"]
        lines += [f"  in   {line}" for line in _fields(point["input_schema"])]
        lines += [f"  out  {line}" for line in _fields(point["output_schema"])]
    return lines


def _fields(schema: "dict[str, Any]") -> "list[str]":
    if "properties" not in schema:
        return [schema.get("type", "any")]
    required = schema.get("required", ())
    lines = []
    for name, field in schema["properties"].items():
        default = "" if name in required else f" = {field.get('default')!r}"
        lines.append(f"{name}: {field.get('type', 'any')}{default}")
    return lines
