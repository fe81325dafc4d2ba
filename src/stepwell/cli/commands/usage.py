"""`stepwell usage`: token totals."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.place import Place
from stepwell.cli.render import Output

_NAMES = ("total", "input", "output", "reasoning", "cache_read", "cache_write", "calls")


@click.command()
@click.option("--conversation-id", help="The total of this conversation instead of the project's.")
@click.option("--location", type=click.Choice(["local", "server"]), help="Default: where the project keeps state.")
@common
@pass_output
def usage(output: Output, conversation_id: str | None, location: str | None) -> None:
    """Show token totals of the project or of a conversation."""
    import asyncio

    from stepwell.identifiers import check_conversation_id
    from stepwell.usage.report import EMPTY_TOTAL
    from stepwell.usage.totals import TOTAL

    place = Place(output)
    if conversation_id is not None:
        check_conversation_id(conversation_id)

    async def read() -> dict[str, int] | None:
        try:
            kv = place.location(location, conversation_id).kv
            total: dict[str, int] | None = await (kv.conversation if conversation_id else kv).get_value(TOTAL)
            return total
        finally:
            await place.close()

    total = asyncio.run(read())
    shown = {
        "project_id": place.manifest.project_id,
        "conversation_id": conversation_id,
        "tokens": total or EMPTY_TOTAL,
    }
    if total is None:
        output.talk("no tokens were reported (accounting is on where an entrypoint has TokenUsage(enabled=True))")
    output.data(shown, "  ".join(f"{name.replace('_', ' ')} {(total or EMPTY_TOTAL)[name]:,}" for name in _NAMES))
