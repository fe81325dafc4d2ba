"""`stepwell tools`: which tools a project has, and whether their calls need approval."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.place import Place
from stepwell.cli.render import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from stepwell.runtime.approvals import Approvals


@click.group()
def tools() -> None:
    """List tools and set whether their calls need approval."""


def with_approvals(place: Place, operation: "Callable[[Approvals], Awaitable[Any]]") -> "Any":
    """Do something with the requests and modes of a project."""
    import asyncio

    from stepwell.runtime.host import Host

    async def session() -> "Any":
        async with Host(place.settings) as host:
            return await operation(host.approvals(place.manifest.project_id))

    return asyncio.run(session())


@tools.command("list")
@common
@pass_output
def list_(output: Output) -> None:
    """List the executor's tools with their modes."""
    from stepwell.project.loader import load_project

    with output.user_prints():
        project = load_project(output.project)

    async def read(approvals: "Approvals") -> "Any":
        return approvals.modes()

    modes = with_approvals(Place(output), read)
    shown = [tool.to_dict() | {"mode": modes.get(tool.name, tool.mode)} for tool in project.executor.tools.values()]
    # A mode may be set for a tool that only an agent SDK knows.
    shown += [
        {"name": name, "description": "", "default_mode": None, "approval_timeout": None, "schema": {}, "mode": mode}
        for name, mode in sorted(modes.items())
        if name not in project.executor.tools
    ]
    output.items(
        shown,
        [("tool", lambda t: t["name"]), ("mode", lambda t: t["mode"]), ("default", lambda t: t["default_mode"] or ""),
         ("does", lambda t: t["description"].partition("\n")[0])],
        empty="the executor declares no tools",
    )  # fmt: skip


@tools.command("set")
@click.argument("name")
@click.argument("mode", type=click.Choice(["auto", "manual", "disabled", "default"]))
@common
@pass_output
def set_(output: Output, name: str, mode: str) -> None:
    """Set how calls of a tool are treated in this project: auto, manual (somebody approves), disabled, or default."""
    from stepwell.errors import ToolNotFound
    from stepwell.project.loader import load_project

    with output.user_prints():
        declared = load_project(output.project).executor.tools
    chosen = None if mode == "default" else mode

    async def write(approvals: "Approvals") -> None:
        if name not in declared and name not in approvals.modes():
            from stepwell.settings import suggest

            known = suggest(name, list(declared)).removeprefix("; ") if declared else "the executor declares none"
            raise ToolNotFound(f"there is no tool {name!r:.80}", hint=known, tool=name)
        await approvals.set_mode(name, chosen)

    with_approvals(Place(output), write)
    now = chosen or (declared[name].mode if name in declared else None)
    output.data({"name": name, "mode": now, "set": chosen is not None}, f"{name}: {now or 'no mode set'}")
