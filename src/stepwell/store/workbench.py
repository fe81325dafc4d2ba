"""The workbench: looking through entries and figures about them, read-only.

No index serves these questions, because it would make every commit dearer. Reading a million rows takes about half a
second, so that is what one question may read; whatever is not covered by that is said in the answer: rows sampled,
or a search that stopped and can go on.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, NamedTuple, overload

from psycopg import errors

from stepwell.errors import StorageUnavailable
from stepwell.identifiers import now_micros
from stepwell.store import workbench_statements as sql
from stepwell.store.entries import Source
from stepwell.store.postgres import PostgresBackend
from stepwell.store.postgres_connections import Connection
from stepwell.store.postgres_lanes import Row
from stepwell.store.workbench_types import (
    Figures,
    Filters,
    HotKey,
    HotKeys,
    Item,
    Page,
    Position,
    Sampled,
    Statistics,
)

PREVIEW_CHARACTERS = 500
HOT_WINDOW_SECONDS = 86_400
_SECONDS = 5.0
_QUESTIONS = 4  # at a time: each may keep a core busy
_ALL_BYTES = 2**62
_EXPORT_ROWS = 1_000
_HOT_NAMESPACES = 1_000
_HOT_SHOWN = 20
_RECENT_SHOWN = 20


class Bounds(NamedTuple):
    """What one question may read.

    Args:
        rows: read for a page in order of time, or for figures.
        sample_rows: of a sample; a third of it where reading everything was tried and took too long.
        seconds: to try to read more than a sample has.
        scan_rows, scan_bytes: whose values are searched, or whose keys are walked, for one page.
        answer_bytes: of whole values in one page.
        commits, keys: of the log, for the hot keys.
    """

    rows: int = 1_000_000
    sample_rows: int = 300_000
    seconds: float = 0.8
    scan_rows: int = 50_000
    scan_bytes: int = 64_000_000
    answer_bytes: int = 16_000_000
    commits: int = 100_000
    keys: int = 300_000


class WorkbenchStore:
    """Questions about the entries of a database.

    Args:
        backend: the database.
        bounds: what a question may read.
    """

    def __init__(self, backend: PostgresBackend, bounds: Bounds | None = None) -> None:
        self._backend = backend
        self._bounds = bounds or Bounds()
        self._turns = asyncio.Semaphore(_QUESTIONS)

    async def newest(self, filters: Filters, *, limit: int, after: Position | None = None, full: bool = False) -> Page:
        """A page of entries, last written first.

        Where there are more rows than may be read, the pages come from the namespaces written last for as long as that
        is exact, and from a sample beyond. So they do when reading takes too long.

        Args:
            filters: which.
            limit: at most so many.
            after: where to go on.
            full: with whole values; then fewer may come.
        """
        bounds = self._bounds
        total = read = sum(entries for *_, entries in await self._scopes(filters))
        floor = None
        if total > bounds.rows:
            floor, read = await self._floor(filters)
            if read == 0 or (after is not None and after[0] <= floor + 1):
                return await self._newest_of_sample(filters, limit, after, full, total, bounds.sample_rows)
        rows = await self._ask(*self._newest(filters, limit, after, full, floor=floor), self._patience(read))
        if rows is None:
            return await self._newest_of_sample(filters, limit, after, full, total, bounds.sample_rows // 3)
        page = _page(rows, limit, timed=True)
        if filters.value_contains is None:
            page = page._replace(scanned=read)
        if floor is not None and page.after is None:
            return page._replace(after=(floor + 1, 0, ""), complete=False)
        return page

    async def _newest_of_sample(
        self, filters: Filters, limit: int, after: Position | None, full: bool, total: int, rows: int
    ) -> Page:
        percent = await self._percentage(total, rows)
        found = await self._ask(*self._newest(filters, limit, after, full, percent=percent))
        scope = sql.joined(sql.of_namespace(filters))
        counting = sql.SAMPLE_ROWS.format(scope=scope.sql, sample=sql.sampled(percent))
        seen = (await self._ask(counting, scope.values))[0][0]
        page = _page(found, limit, timed=True)
        scanned = seen if filters.value_contains is None else page.scanned
        return page._replace(sampled=Sampled(seen, total), scanned=scanned)

    def _newest(
        self, filters: Filters, limit: int, after: Position | None, full: bool, *, floor: int | None = None,
        percent: float | None = None,
    ) -> tuple[str, list[Any]]:  # fmt: skip
        bounds = self._bounds
        searching = filters.value_contains is not None
        # Rows of a sample lie far apart, and looking a value up costs more than taking its row.
        scan = bounds.scan_rows if percent is None else bounds.scan_rows // 5
        conditions = [*sql.of_namespace(filters), *sql.of_row(filters)]
        if floor is not None:
            conditions.append(("e.updated_at > %s AND n.updated_at > %s", (floor, floor)))
        if after is not None:
            conditions.append(("(e.updated_at, e.namespace_id, e.key) < (%s, %s, %s)", after))
        return sql.page(
            sql.joined(conditions), sql.joined(sql.of_value(filters)), order=sql.NEWEST,
            rows=scan if searching else limit + 1,
            scan_bytes=bounds.scan_bytes if searching else _ALL_BYTES, limit=limit + 1, full=full,
            show=bounds.answer_bytes if full else PREVIEW_CHARACTERS + 1, sample=percent,
        )  # fmt: skip

    async def by_key(self, filters: Filters, *, limit: int, after: Position | None = None, full: bool = False) -> Page:
        """A page of entries by namespace and key: goes through everything, however much there is.

        Args:
            filters: which.
            limit: at most so many.
            after: where to go on.
            full: with whole values; then fewer may come.
        """
        matching = sql.joined([*sql.of_row(filters), *sql.of_value(filters)])
        searching = filters.value_contains is not None
        _, namespace, key = after or (0, 0, "")
        items: list[Item] = []
        rows, room, scan = self._bounds.scan_rows, self._bounds.answer_bytes, self._bounds.scan_bytes
        batch = limit + 1 if matching.sql == "true" else max(limit + 1, 2_000)
        while True:
            ids, position = await self._chunk(filters, namespace, key, batch)
            scanned = self._bounds.scan_rows - rows
            if not ids or len(items) == limit:
                return Page(items, (0, namespace, key) if ids else None, True, scanned)
            if rows <= 0 or scan <= 0:
                return Page(items, (0, namespace, key), False, scanned)
            statement, values = sql.page(
                sql.joined([position, *sql.of_prefix(filters)]), matching, order=sql.BY_KEY, rows=min(batch, rows),
                scan_bytes=scan if searching else _ALL_BYTES, limit=limit - len(items) + 1, full=full,
                show=room if full else PREVIEW_CHARACTERS + 1,
            )  # fmt: skip
            found = await self._ask(statement, values)
            page = _page(found, limit - len(items), timed=False)
            items += page.items
            rows -= page.scanned
            if page.after is not None and page.complete:
                return Page(items, page.after, True, self._bounds.scan_rows - rows)
            _, namespace, key = page.after or (0, ids[-1] + 1, "")
            if searching and found:
                scan -= found[0][5]
            if full:
                room = max(room - sum(len(item.shown) for item in page.items), 1)
            batch = min(batch * 4, self._bounds.scan_rows)

    async def every(self, filters: Filters) -> AsyncIterator[Item]:
        """Every entry with its whole value, by namespace and key; read in pages, so memory stays small."""
        page = await self.by_key(filters, limit=_EXPORT_ROWS, full=True)
        while True:
            for item in page.items:
                yield item
            if page.after is None:
                return
            page = await self.by_key(filters, limit=_EXPORT_ROWS, after=page.after, full=True)

    async def statistics(self, filters: Filters, *, window: int = HOT_WINDOW_SECONDS) -> Statistics:
        """Figures about entries.

        Args:
            filters: project, domain, scope and conversation; the others do not count.
            window: seconds that the hot keys are looked for in.
        """
        filters = Filters(filters.project_id, filters.domain, filters.scope, filters.conversation_id)
        scopes = await self._scopes(filters)
        total = sum(entries for *_, entries in scopes)
        (figures, sampled), hot, recent = await asyncio.gather(
            self._figures(filters, total), self._hot(filters, window), self.newest(filters, limit=_RECENT_SHOWN)
        )
        return Statistics(total, scopes, figures, sampled, hot, recent._replace(after=None))

    async def stored_conversations(self, asked: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Of pairs of a project id (or the empty string) and a conversation id, those that are kept here."""
        if not asked:
            return set()
        pairs = sorted(asked)
        rows = await self._ask(sql.CONVERSATIONS, [[each[0] for each in pairs], [each[1] for each in pairs]])
        return {(row[0], row[1]) for row in rows}

    # -- parts -----------------------------------------------------------------------------------------------------

    async def _scopes(self, filters: Filters) -> list[tuple[str, str, int, int]]:
        scope = sql.joined(sql.of_namespace(filters))
        return [
            (row[0], row[1], row[2], row[3]) for row in await self._ask(sql.SCOPE.format(scope=scope.sql), scope.values)
        ]

    async def _floor(self, filters: Filters) -> tuple[int, int]:
        """A time after which all writes are in namespaces small enough to be read, and how many rows those have."""
        scope = sql.joined(sql.of_namespace(filters))
        floor = int((await self._ask(sql.FLOOR.format(scope=scope.sql), [*scope.values, self._bounds.rows]))[0][0])
        newer = sql.joined([*sql.of_namespace(filters), ("n.updated_at > %s", (floor,))])
        rows = await self._ask(sql.SCOPE.format(scope=newer.sql), newer.values)
        return floor, sum(row[3] for row in rows)

    async def _percentage(self, total: int, rows: int) -> float:
        """How much of the table to sample so that so many of `total` rows are seen, and not too many of all."""
        table = max(total, int((await self._ask(sql.TABLE_ROWS, []))[0][0]))
        return min(100 * rows / total, 100 * self._bounds.rows / table)

    async def _chunk(self, filters: Filters, namespace: int, key: str, rows: int) -> tuple[list[int], sql.Part]:
        """Namespaces from an id on that have about so many rows, and the condition for what follows a key in them."""
        scope = sql.joined(sql.of_namespace(filters))
        found = await self._ask(sql.CHUNK.format(scope=scope.sql), [*scope.values, namespace])
        ids: list[int] = []
        for each, entries in found:
            rows -= entries
            if ids and rows < 0:
                break
            ids.append(each)
        if ids and ids[0] != namespace:
            key = ""
        if len(ids) == 1:  # in this form the rows come in the index's order, however many there are
            return ids, ("e.namespace_id = %s AND e.key > %s", (ids[0], key))
        condition = "e.namespace_id = ANY(%s) AND (e.namespace_id, e.key) > (%s, %s)"
        return ids, (condition, (ids, namespace, key))

    async def _figures(self, filters: Filters, total: int) -> tuple[Figures, Sampled | None]:
        scope = sql.joined(sql.of_namespace(filters))
        exact = total <= self._bounds.rows
        rows = None
        if exact:
            statement = sql.FIGURES.format(scope=scope.sql, sample="")
            rows = await self._ask(statement, scope.values, self._patience(total))
        if sampled := rows is None:
            percent = await self._percentage(total, self._bounds.sample_rows // (3 if exact else 1))
            rows = await self._ask(sql.FIGURES.format(scope=scope.sql, sample=sql.sampled(percent)), scope.values)
        whole = next(row for row in rows if row[0] is None)
        types = {row[0]: (row[1], row[2]) for row in rows if row[0] is not None}
        return Figures._make((*whole[1:], types)), Sampled(whole[1], total) if sampled else None

    async def _hot(self, filters: Filters, window: int) -> HotKeys:
        scope = sql.joined(sql.of_namespace(filters))
        since = now_micros() - window * 1_000_000
        bounds = self._bounds
        count = (await self._ask(sql.ACTIVE.format(scope=scope.sql), [*scope.values, since]))[0][0]
        each = max(1, bounds.commits // max(1, min(count, _HOT_NAMESPACES)))
        values = [*scope.values, since, _HOT_NAMESPACES, each, since, bounds.keys, _HOT_SHOWN]
        rows = await self._ask(sql.HOT_KEYS.format(scope=scope.sql), values)
        _, commits, keys, most = rows[0][:4]
        items = [
            HotKey(project_id or None, domain, scope_, workflow or None, talk or None, key, number, at)
            for project_id, domain, scope_, workflow, talk, key, number, at in (row[4:] for row in rows if row[9])
        ]
        return HotKeys(commits, count <= _HOT_NAMESPACES and most < each and keys < bounds.keys, items)

    def _patience(self, rows: int) -> float | None:
        """How long to try to read so many rows before a sample of them is taken; None for as long as it may take."""
        return self._bounds.seconds if rows > self._bounds.sample_rows else None

    @overload
    async def _ask(self, statement: str, values: list[Any]) -> list[Row]: ...
    @overload
    async def _ask(self, statement: str, values: list[Any], seconds: float | None) -> list[Row] | None: ...
    async def _ask(self, statement: str, values: list[Any], seconds: float | None = None) -> list[Row] | None:
        """The rows of one question; None if it took longer than `seconds`.

        Raises:
            StorageUnavailable: it took too long, or the database is not there.
        """
        limit = round((seconds or _SECONDS) * 1_000)

        async def work(connection: Connection) -> list[Row] | None:
            try:
                async with connection.transaction():
                    await connection.execute(sql.SETTINGS.format(milliseconds=limit))
                    # Never prepared: a plan made for other filters may be a bad one for these.
                    return await (await connection.execute(statement, values, prepare=False)).fetchall()
            except errors.QueryCanceled:
                if seconds is not None:
                    return None
                raise StorageUnavailable(
                    f"looking through the entries took over {_SECONDS:g} s",
                    hint="narrow it down by domain, scope, conversation or key_prefix",
                ) from None

        async with self._turns:
            return await self._backend.connections.repeated(work)


def _page(rows: list[tuple[Any, ...]], limit: int, *, timed: bool) -> Page:
    """What the rows of a page statement say."""
    if not rows:
        return Page([], None, True, 0)
    scanned, more, *last = rows[0][:5]
    matched = [row for row in rows if row[6] is not None]
    items = [_item(row[7:]) for row in matched if row[-1] is not None][:limit]
    if len(matched) > len(items):
        end = items[-1]
        return Page(
            items, (end.updated_at if timed else 0, end.namespace_id, end.key), True, matched[len(items) - 1][6]
        )
    if more:
        return Page(items, (last[0] if timed else 0, last[1], last[2]), False, scanned)
    return Page(items, None, True, scanned)


def _item(row: tuple[Any, ...]) -> Item:
    project_id, domain, scope, workflow, talk = row[:5]
    where = (project_id or None, domain, scope, workflow or None, talk or None)
    return Item._make((*where, *row[5:12], Source(*row[12:16]), row[16]))
