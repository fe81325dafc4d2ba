"""OpenAI Agents' SQLiteSession as it comes, on a file."""

import asyncio
import sys
from pathlib import Path
from time import perf_counter

from agents import SQLiteSession
from serve import serve


def main(path: Path) -> None:
    """Answer on one session."""
    loop = asyncio.new_event_loop()
    session = SQLiteSession("long", path)
    written = 0

    def items(count: int) -> list[dict[str, str]]:
        nonlocal written
        written += count
        return [
            {
                "role": ("user", "assistant")[number % 2],
                "content": f"message {number}: " + f"lorem ipsum 文字 {number * 7919 % 9973} " * 6,
            }
            for number in range(written - count, written)
        ]

    def append(count: int) -> float:
        each = items(count)

        async def work() -> float:
            started = perf_counter()
            for item in each:
                await session.add_items([item])
            return perf_counter() - started

        return loop.run_until_complete(work())

    def fill(count: int) -> float:
        started = perf_counter()
        for _ in range(0, count, 1_000):
            loop.run_until_complete(session.add_items(items(1_000)))
        return perf_counter() - started

    def newest(count: int, times: int) -> float:
        started = perf_counter()
        for _ in range(times):
            loop.run_until_complete(session.get_items(limit=count))
        return perf_counter() - started

    serve({"append": append, "fill": fill, "newest": newest})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
