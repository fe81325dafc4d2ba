"""DBOS Transact as it comes, on SQLite: a workflow of steps that do nothing."""

import asyncio
import sys
from pathlib import Path
from time import perf_counter

from dbos import DBOS
from serve import serve


@DBOS.step()
async def nothing(number: int) -> int:
    """Do nothing."""
    return number


@DBOS.workflow()
async def chain(nodes: int) -> int:
    """One step after the other."""
    for number in range(nodes):
        await nothing(number)
    return nodes


def main(folder: Path) -> None:
    """Launch once, then answer."""
    url = f"sqlite:///{folder / 'dbos.sqlite'}"
    DBOS(config={"name": "bench", "system_database_url": url, "log_level": "WARNING"})
    DBOS.launch()
    loop = asyncio.new_event_loop()

    def run(nodes: int) -> float:
        started = perf_counter()
        assert loop.run_until_complete(chain(nodes)) == nodes
        return perf_counter() - started

    serve({"chain": run})
    DBOS.destroy()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
