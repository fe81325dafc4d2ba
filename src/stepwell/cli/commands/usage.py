"""`stepwell usage`: token totals, and what they cost."""

import click

from stepwell.cli.app import common, pass_output
from stepwell.cli.place import Place
from stepwell.cli.render import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stepwell.storage.kv import KeyValue
    from stepwell.storage.location import StorageLocation
    from stepwell.usage.days import Part

_NAMES = ("total", "input", "output", "reasoning", "cache_read", "cache_write", "calls")


@click.command()
@click.option("--conversation-id", help="The total of this conversation instead of the project's.")
@click.option("--by", type=click.Choice(["day", "model", "conversation"]), help="A line for each day, model, …")
@click.option("--since", metavar="DATE", help="Only from this day (YYYY-MM-DD, UTC), with --by day or model.")
@click.option("--until", metavar="DATE", help="Only to this day.")
@click.option("--location", type=click.Choice(["local", "server"]), help="Default: where the project keeps state.")
@common
@pass_output
def usage(
    output: Output, conversation_id: str | None, by: str | None, since: str | None, until: str | None,
    location: str | None,
) -> None:  # fmt: skip
    """Show token totals of the project or of a conversation, and their cost where prices are known."""
    import asyncio

    from stepwell.errors import InvalidArgument
    from stepwell.identifiers import check_conversation_id

    place = Place(output)
    if conversation_id is not None:
        check_conversation_id(conversation_id)
    _check_days(since, until)
    if by is not None and conversation_id is not None:
        raise InvalidArgument("--by and --conversation-id exclude each other", argument="--by")
    if (since or until) and by not in ("day", "model"):
        raise InvalidArgument("--since and --until need --by day or --by model", argument="--since")

    async def read() -> "Any":
        try:
            data = place.location(location, conversation_id)
            if by == "conversation":
                return await _conversations(data, place.manifest.project_id)
            if by is not None:
                return await _days(data.kv, by, since or "", until or "~")
            if conversation_id is not None:
                return await _conversation(data.kv.conversation, conversation_id)
            return await _project(data.kv)
        finally:
            await place.close()

    found = asyncio.run(read())
    if by is not None:
        _print_parts(output, by, found)
        return
    if found.tokens["calls"] == 0:
        output.talk("no tokens were reported (accounting is on where an entrypoint has TokenUsage(enabled=True))")
    shown = {"project_id": place.manifest.project_id, "conversation_id": conversation_id, "tokens": found.tokens}
    shown |= {"cost_usd": found.cost_usd, "unpriced_calls": found.unpriced_calls}
    text = "  ".join(f"{name.replace('_', ' ')} {found.tokens[name]:,}" for name in _NAMES)
    output.data(shown, text if found.cost_usd is None else f"{text}  cost {_cost(found.to_dict())}")


def _check_days(*days: str | None) -> None:
    import re

    from stepwell.errors import InvalidArgument

    for day in days:
        if day is not None and re.fullmatch(r"\d{4}-[01]\d-[0-3]\d", day) is None:
            raise InvalidArgument(f"{day!r:.40} is not a day of the form 2026-01-31", argument="--since")


async def _project(kv: "KeyValue") -> "Part":
    from stepwell.usage.days import DAY, by_day, of_reports
    from stepwell.usage.totals import TOTAL

    days = by_day([(entry.key, entry.value) async for entry in kv.scan(DAY)])
    costs = [{"cost_usd": day.cost_usd} for day in days]
    total = of_reports("", await kv.get_value(TOTAL) or {}, costs)
    return total._replace(unpriced_calls=sum(day.unpriced_calls for day in days))


async def _conversation(kv: "KeyValue", conversation_id: str) -> "Part":
    from stepwell.usage.days import of_reports
    from stepwell.usage.totals import TOTAL

    reports = [entry.value async for entry in kv.scan("tokenUsage.entry.")]
    return of_reports(conversation_id, await kv.get_value(TOTAL) or {}, reports)


async def _days(kv: "KeyValue", by: str, since: str, until: str) -> "list[Part]":
    from stepwell.usage.days import DAY, by_day, by_model

    days = [(entry.key.removeprefix(DAY), entry.value) async for entry in kv.scan(DAY)]
    chosen = [(day, models) for day, models in days if since <= day <= until]
    return by_day(chosen) if by == "day" else by_model(chosen)


async def _conversations(data: "StorageLocation", project_id: str) -> "list[Part]":
    from stepwell.storage.kv import KeyValue
    from stepwell.store.entries import Domain, Scope

    backend = data.backend(Domain.KV)
    parts: list[Part] = []
    after = None
    while page := await backend.namespaces(
        project_id=project_id, domain=Domain.KV, scope=Scope.CONVERSATION, after=after
    ):
        for info in page:
            part = await _conversation(KeyValue(backend, info.namespace), info.namespace.conversation_id or "")
            if part.tokens["calls"]:
                parts.append(part)
        after = (page[-1].updated_at, page[-1].namespace)
    return sorted(parts, key=lambda part: (-part.tokens["total"], part.name))


def _print_parts(output: Output, by: str, parts: "list[Part]") -> None:
    columns = [(name.replace("_", " "), lambda part, name=name: part["tokens"][name]) for name in _NAMES]
    output.items(
        [part.to_dict() for part in parts], [(by, lambda part: part["name"]), *columns, ("cost", _cost)],
        empty="no tokens were reported",
    )  # fmt: skip


def _cost(part: "dict[str, Any]") -> str:
    if part["cost_usd"] is None:
        return ""
    return f"${part['cost_usd']:.4f}" + ("+" if part["unpriced_calls"] else "")
