"""Conversations at length: appending, the newest page, the size on disk; OpenAI Agents' SQLiteSession beside."""

import asyncio
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import raw
from harness import Options, Row, cost, in_turn

from stepwell.conversation.state import Conversation, message_key
from stepwell.jsontext import encode
from stepwell.store.entries import Write
from stepwell.store.sqlite_backend import SqliteBackend

MESSAGES = 100_000
LAST = 20
APPENDS = 200
NEWEST = "SELECT value FROM entry WHERE namespace_id = 1 AND key >= 'message:' AND key < 'message;' ORDER BY key DESC LIMIT ?"


def rows(options: Options) -> Iterator[Row]:
    """Append no. 100,000 against no. 1, the last 20 of 100,000, the database against its JSON."""
    count = options.size(MESSAGES, 2_000)
    loop = asyncio.new_event_loop()
    long_path, short_path = options.folder / "long.sqlite", options.folder / "short.sqlite"
    long_backend, short_backend = SqliteBackend(long_path), SqliteBackend(short_path)
    long = Conversation(long_backend, raw.PROJECT, "bench", "long")
    weight = loop.run_until_complete(_fill(long, count))
    shorts = iter(range(1_000_000))

    async def append(conversation: Conversation, times: int) -> float:
        messages = [_message(number) for number in range(times)]
        started = perf_counter()
        for message in messages:
            await conversation.append_message(message)
        return perf_counter() - started

    def to_long() -> float:
        return loop.run_until_complete(append(long, APPENDS))

    def to_new() -> float:
        # Every conversation is fresh, so these are appends no. 1 to 5 of each.
        started = 0.0
        for _ in range(APPENDS // 5):
            fresh = Conversation(short_backend, raw.PROJECT, "bench", f"short {next(shorts)}")
            started += loop.run_until_complete(append(fresh, 5))
        return started

    taken = in_turn(options.rounds(7), {"long": to_long, "new": to_new})
    yield cost(f"append no. {count:,}", "append no. 1 to 5", taken["long"], taken["new"], 1.5, per=APPENDS)

    connection = sqlite3.connect(long_path, isolation_level=None)

    async def newest() -> float:
        started = perf_counter()
        for _ in range(50):
            await long.messages(LAST)
        return perf_counter() - started

    def ours() -> float:
        return loop.run_until_complete(newest())

    def reference() -> float:
        started = perf_counter()
        for _ in range(50):
            [json.loads(text) for (text,) in connection.execute(NEWEST, (LAST,)).fetchall()]
        return perf_counter() - started

    taken = in_turn(options.rounds(9), {"ours": ours, "raw": reference})
    yield cost(f"last {LAST} of {count:,} messages", "raw query", taken["ours"], taken["raw"], 3, per=50)
    connection.close()
    loop.run_until_complete(long_backend.close())
    loop.run_until_complete(short_backend.close())
    weight += sum(len(encode(_message(number)).encode()) for number in range(APPENDS)) * (options.rounds(7) + 1)
    size = os.path.getsize(long_path)
    yield Row(
        f"database of {count:,} messages",
        "their JSON",
        size / 1e6,
        weight / 1e6,
        "MB",
        size / weight,
        1.6,
        at_least=False,
    )
    loop.close()
    if options.peers is not None:
        yield from _beside(options, count, options.folder / "session.sqlite")


def _beside(options: Options, count: int, path: Path) -> Iterator[Row]:
    """What the same costs there: without a target, to be read."""
    assert options.peers is not None
    with options.peers.start("openai_session.py", path) as peer:
        first = peer.call("append", count=APPENDS)
        peer.call("fill", count=count)
        late = peer.call("append", count=APPENDS)
        yield cost(
            f"OpenAI SQLiteSession: append no. {count:,}", "its own append no. 1", late, first, None, per=APPENDS
        )
        newest = peer.call("newest", count=LAST, times=50)
        yield cost(
            f"OpenAI SQLiteSession: last {LAST} of {count:,}",
            "its own append no. 1",
            newest / 50,
            first / APPENDS,
            None,
        )


async def _fill(conversation: Conversation, count: int) -> int:
    """Write messages the way `append_message` leaves them, many to a commit; returns the JSON's size in bytes."""
    await conversation.append_message(_message(0))
    head = (await conversation.entries.get_value("head")) | {"next": count, "count": count - 1}
    weight = 0
    for start in range(2, count, 1_000):
        texts = [(message_key(number), encode(_message(number))) for number in range(start, min(start + 1_000, count))]
        weight += sum(len(text.encode()) for _, text in texts)
        writes = [Write(key, text) for key, text in texts]
        await conversation.entries.backend.commit(conversation.entries.namespace, (), writes)
    await conversation.entries.set_value("head", head)
    return weight


def _message(number: int) -> dict[str, str]:
    return {
        "role": ("user", "assistant")[number % 2],
        "content": f"message {number}: " + f"lorem ipsum 文字 {number * 7919 % 9973} " * 6,
    }
