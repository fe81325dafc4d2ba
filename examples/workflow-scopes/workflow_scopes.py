"""The workflow scope model: six places for a value, each with readers and writers of its own.

| surface | shared by |
|---|---|
| `ctx.kv`, `ctx.persistent_value` | every workflow of every project that uses this scope model |
| `.workflow` | every run of the workflow of that name |
| `.conversation` | every run of that workflow in that conversation |
"""

import argparse
from dataclasses import dataclass
from typing import Any

from stepwell import Context, Entrypoint, Executor, node, workflow
from stepwell.errors import StepwellError

SCOPES = ("global", "workflow", "conversation")
DOMAINS = ("kv", "persistent_value")


@dataclass
class Input:
    """What to remember, under which key. Without a value the places are read only."""

    key: str = "note"
    value: str | None = None
    conversation_id: str | None = None


@dataclass
class Place:
    """What one place holds, or the code of the error that asking for it gave."""

    surface: str
    value: Any = None
    error: str | None = None


def scoped(ctx: Context, domain: str, scope: str) -> Any:
    """The handle of a place."""
    everyone = ctx.kv if domain == "kv" else ctx.persistent_value
    return everyone if scope == "global" else getattr(everyone, scope)


@node
async def visit(domain: str, scope: str, key: str, value: str | None, ctx: Context) -> Place:
    """Write a place if there is something to write, then read it back."""
    surface = f"ctx.{domain}" if scope == "global" else f"ctx.{domain}.{scope}"
    try:
        place = scoped(ctx, domain, scope)
        if value is not None:
            await place.set_value(key, f"{value} in {surface}")
        return Place(surface, await place.get_value(key))
    except StepwellError as error:
        return Place(surface, error=error.code)


async def visit_all(data: Input, ctx: Context) -> list[Place]:
    """Visit the six places in order."""
    return [await visit(domain, scope, data.key, data.value, ctx) for domain in DOMAINS for scope in SCOPES]


@workflow
async def diary(data: Input, ctx: Context) -> list[Place]:
    """Write and read all six places."""
    return await visit_all(data, ctx)


@workflow
async def reader(data: Input, ctx: Context) -> list[Place]:
    """Another workflow: it shares what is global, and has its own of the rest."""
    return await visit_all(data, ctx)


def arguments(args: list[str]) -> Input:
    """`[--key KEY] [--value TEXT]`."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("--key", default="note")
    parser.add_argument("--value")
    return Input(**vars(parser.parse_args(args)))


executor = Executor(
    default_entrypoint="diary",
    entrypoints=[
        Entrypoint(id="diary", title="Write and read every scope", workflow=diary, create_input=arguments),
        Entrypoint(id="reader", title="Look at them from another workflow", workflow=reader, create_input=arguments),
    ],
)
