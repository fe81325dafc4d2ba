"""LangGraph as it comes: a graph whose nodes do nothing, checkpointed in SQLite."""

import asyncio
import json
import operator
import sys
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import Annotated, TypedDict
from uuid import uuid4

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, StateGraph
from serve import serve


class State(TypedDict):
    """What the nodes hand on: how many there were."""

    done: Annotated[int, operator.add]


async def nothing(state: State) -> dict[str, int]:
    """Do nothing."""
    return {"done": 1}


def main(folder: Path) -> None:
    """Answer: each shape is read from a file, compiled once, and run."""
    loop = asyncio.new_event_loop()
    context = AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.sqlite"))
    saver = loop.run_until_complete(context.__aenter__())
    compiled = {}

    def prepared(shape: str):
        if shape not in compiled:
            count, edges = json.loads((folder / f"{shape}.json").read_text())
            graph = StateGraph(State)
            sources = defaultdict(list)
            for node in range(count):
                graph.add_node(str(node), nothing)
            for source, target in edges:
                sources[target].append(str(source))
            graph.add_edge(START, "0")
            for target, names in sources.items():
                graph.add_edge(names if len(names) > 1 else names[0], str(target))
            compiled[shape] = count, graph.compile(checkpointer=saver)
        return compiled[shape]

    def run(shape: str) -> float:
        count, graph = prepared(shape)

        async def once() -> int:
            config = {"configurable": {"thread_id": str(uuid4())}, "recursion_limit": count + 10}
            return (await graph.ainvoke({"done": 0}, config))["done"]

        started = perf_counter()
        done = loop.run_until_complete(once())
        seconds = perf_counter() - started
        assert done == count, done
        return seconds

    serve({"run": run})
    loop.run_until_complete(context.__aexit__(None, None, None))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
