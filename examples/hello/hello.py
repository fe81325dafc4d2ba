"""The smallest useful project: one workflow, two nodes, a counter that never loses a visit."""

from dataclasses import dataclass

from stepwell import Context, Entrypoint, Executor, node, workflow


@dataclass
class Input:
    """What the run is given: `stepwell run . -- --name Ada`."""

    name: str = "world"


@dataclass
class Output:
    """What the run returns."""

    greeting: str
    visits: int


@node
async def count_visit(name: str, ctx: Context) -> int:
    """Count this visit; concurrent runs are all counted."""
    visits = await ctx.storage.local.kv.update_value(f"visits:{name}", lambda count: count + 1, default=0)
    return int(visits)


@node
def greet(name: str, visits: int) -> str:
    """A synchronous node: it runs in a worker thread."""
    return f"Hello, {name}!" if visits == 1 else f"Hello again, {name}: visit number {visits}."


@workflow
async def hello(data: Input, ctx: Context) -> Output:
    """Count the visit, then greet."""
    visits = await count_visit(data.name, ctx)
    greeting = await greet(data.name, visits)
    async with ctx.output("greeting") as out:
        await out.write(greeting)
    return Output(greeting, visits)


executor = Executor(
    project_type="workflow",
    default_entrypoint="main",
    entrypoints=[Entrypoint(id="main", title="Say hello", workflow=hello)],
)
