"""A copy of a conversation as it is now, for somebody who may write into it what nobody else shall see.

Messages are never changed once they are written, so those there are need no copying: they are read where they are, up
to the sequence of now. Only the head and the values are taken along. What is written is told to `on_commit`, and a copy
can be had again from that: a run that is resumed has a past, and its copy too.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from stepwell.conversation.state import HEAD, MESSAGE, MESSAGE_ID, VALUE, Conversation, message_key
from stepwell.jsontext import decode
from stepwell.store.backend import Backend, Lease
from stepwell.store.entries import NO_SOURCE, Check, Committed, Namespace, Record, Source, Span, Write
from stepwell.store.memory import MemoryBackend

PAGE = 200


OnCommit = Callable[[int, list[list[str | None]]], None]


async def snapshot_of(
    conversation: Conversation, on_commit: OnCommit, recorded: Sequence[Mapping[str, Any]] = ()
) -> Conversation:
    """A copy that reads as the conversation does now and keeps what is written to it to itself, in memory.

    Args:
        on_commit: called with the sequence of the first message that is no part of the copy, and with keys and texts.
        recorded: what it was called with before, as `following` and `writes`: the copy begins with that.
    """
    entries = conversation.entries
    records = list((await entries.backend.read(entries.namespace, (HEAD,))).values())
    after: str | None = None
    while True:
        page = await entries.records(VALUE, after=after, limit=PAGE)
        records += page
        if len(page) < PAGE:
            break
        after = page[-1].key
    following = decode(records[0].text)["next"] if records and records[0].key == HEAD else 1
    if recorded:
        following = recorded[0]["following"]
    copy = SnapshotBackend(entries.backend, following, on_commit)
    copy.load(entries.namespace, records)
    for written in recorded:
        writes = [Write(key, text) for key, text in written["writes"]]
        await MemoryBackend.commit(copy, entries.namespace, (), writes, source=entries.source)
    return conversation.at(copy)


class SnapshotBackend(MemoryBackend):
    """What was copied, what was written since, and below it the messages that there were.

    Args:
        below: where the messages are.
        following: the sequence of the first message that is not part of the copy.
        on_commit: see `snapshot_of`.
    """

    def __init__(self, below: Backend, following: int, on_commit: OnCommit) -> None:
        super().__init__()
        self._on_commit = on_commit
        self._below = below
        self._following = following

    async def text(self, ns: Namespace, key: str) -> str | None:
        found = (await self.read(ns, (key,))).get(key)
        return None if found is None else found.text

    async def read(self, ns: Namespace, keys: Sequence[str]) -> dict[str, Record]:
        await self._take(ns, keys)
        return await super().read(ns, keys)

    async def scan(
        self, ns: Namespace, span: Span, *, after: str | None = None, limit: int = 200, reverse: bool = False
    ) -> list[Record]:
        found = {record.key: record for record in await self._earlier(ns, span, after, limit, reverse=reverse)}
        found |= {r.key: r for r in await super().scan(ns, span, after=after, limit=limit, reverse=reverse)}
        return [found[key] for key in sorted(found, reverse=reverse)[:limit]]

    async def commit(
        self,
        ns: Namespace,
        checks: Sequence[Check],
        writes: Sequence[Write],
        *,
        source: Source = NO_SOURCE,
        lease: Lease | None = None,
    ) -> Committed:
        await self._take(ns, [check.key for check in checks] + [write.key for write in writes])
        committed = await super().commit(ns, checks, writes, source=source, lease=lease)
        self._on_commit(self._following, [[write.key, write.text] for write in writes])
        return committed

    async def _take(self, ns: Namespace, keys: Sequence[str]) -> None:
        """Copy those of the keys that are messages of before."""
        missing = [key for key in keys if key.startswith((MESSAGE, MESSAGE_ID)) and not self.is_known(ns, key)]
        if missing:
            found = await self._below.read(ns, missing)
            self.load(ns, [record for record in found.values() if self._is_part(record)])

    async def _earlier(
        self, ns: Namespace, span: Span, after: str | None, limit: int, *, reverse: bool
    ) -> list[Record]:
        parts = [Span(MESSAGE, message_key(self._following)), Span.prefix(MESSAGE_ID)]
        found: list[Record] = []
        for part in reversed(parts) if reverse else parts:
            both = Span(max(span.start, part.start), min(span.stop or part.stop or "", part.stop or ""))
            position = after
            while both.start < (both.stop or "") and len(found) < limit:
                page = await self._below.scan(ns, both, after=position, limit=limit, reverse=reverse)
                found += [record for record in page if self._is_part(record) and not self.is_known(ns, record.key)]
                if len(page) < limit:
                    break
                position = page[-1].key
        return found[:limit]

    def _is_part(self, record: Record) -> bool:
        if record.key.startswith(MESSAGE_ID):
            return int(decode(record.text)) < self._following
        return record.key < message_key(self._following)
