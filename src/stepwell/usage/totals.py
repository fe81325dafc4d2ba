"""`ctx.token_usage`: reports counted once, totals that lose nothing.

Totals are entries at the host location: `tokenUsage.total` of the project and of the conversation (and of all
projects under the workflow scope model), in the project one `tokenUsage.day.<date>` a day, and in the conversation one
`tokenUsage.entry.<runId>.<sequence>` a report.
Beside each total stands `tokenUsage.run.<runId>`, the report counted last and its sequence, in the same commit. The
next one is counted when the run's events have the last one: so a process that dies in between leaves at most one that
not every total and not the events have, and a resumed run completes it. The mark is removed when the run ends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from stepwell.identifiers import iso_time, now_micros
from stepwell.storage.kv import KeyValue
from stepwell.storage.transaction import Transaction
from stepwell.usage.days import DAY, with_report
from stepwell.usage.report import EMPTY_TOTAL, TokenReport, add

TOTAL = "tokenUsage.total"

OnReport = Callable[[TokenReport, int, str], None]


class TokenUsage:
    """Counts a run's tokens.

    Args:
        run_id: the run.
        totals: the namespaces that keep a total, in the order they are written.
        conversation: the conversation's namespace, which also keeps every report.
        on_report: called with each report, its sequence and its node.
        settled: awaited before a report: the one before is durable where `on_report` put it.
        node: the path of the node that reports now.
        already_reported: asked before counting; True for a report that a resumed run merely makes again.
        sequence, total: the last sequence and the sum of a resumed run so far.
    """

    enabled = True

    def __init__(
        self,
        run_id: str,
        totals: list[KeyValue],
        conversation: KeyValue | None = None,
        *,
        on_report: OnReport = lambda *_: None,
        settled: Callable[[], Awaitable[None]] | None = None,
        node: Callable[[], str] = str,
        already_reported: Callable[[], bool] | None = None,
        sequence: int = 0,
        total: dict[str, int] | None = None,
    ) -> None:
        self._run_id = run_id
        self._totals = totals
        self._conversation = conversation
        self._on_report = on_report
        self._settled = settled
        self._node = node
        self._already_reported = already_reported
        self._sequence = sequence
        self._mark = f"tokenUsage.run.{run_id}"
        self._order = asyncio.Lock()
        self.total = total or dict(EMPTY_TOTAL)

    async def report(self, report: TokenReport | None = None, **fields: Any) -> None:
        """Count one provider call: a `TokenReport`, or its fields as keyword arguments.

        Raises:
            UsageInvalid: a count is negative, fractional or contradicts another; nothing is counted.
        """
        checked = (report if report is not None else TokenReport.of(**fields)).checked()
        if self._already_reported is not None and self._already_reported():
            return
        counting = asyncio.ensure_future(self._in_order(checked, self._node()))
        try:
            await asyncio.shield(counting)
        except asyncio.CancelledError:  # what was used has to be paid for, and half a report would hide the next one
            await asyncio.wait({counting})
            raise

    async def complete(self) -> str | None:
        """Count a report to its end that a process died over, before a resumed run goes on; returns its node."""
        mark = await self._totals[0].get_value(self._mark)  # written first
        if mark is None or mark["sequence"] != self._sequence + 1:
            return None
        await self._in_order(TokenReport.of(**mark["report"]), mark["node"])
        return str(mark["node"])

    async def _in_order(self, report: TokenReport, node: str) -> None:
        async with self._order:
            if self._settled is not None:
                await self._settled()
            await self._count(report, node)

    async def _count(self, report: TokenReport, node: str) -> None:
        sequence, amounts = self._sequence + 1, report.amounts()
        mark = {"sequence": sequence, "node": node, "report": report.fields()}
        for number, namespace in enumerate(self._totals):
            await namespace.transact(self._counting(mark, amounts, day=report if number == 0 else None))
        if self._conversation is not None:
            await self._conversation.transact(self._counting(mark, amounts, entry=report))
        self._sequence = sequence
        self.total = add(self.total, amounts)
        self._on_report(report, sequence, node)

    def _counting(
        self,
        mark: dict[str, Any],
        amounts: dict[str, int],
        *,
        entry: TokenReport | None = None,
        day: TokenReport | None = None,
    ) -> Callable[[Transaction], Awaitable[None]]:
        async def body(tx: Transaction) -> None:
            counted = await tx.get_value(self._mark)
            if counted is not None and mark["sequence"] <= counted["sequence"]:
                return
            await tx.set_value(self._mark, mark)
            await tx.set_value(TOTAL, add(await tx.get_value(TOTAL), amounts))
            if day is not None:
                key = f"{DAY}{iso_time(now_micros())[:10]}"
                await tx.set_value(key, with_report(await tx.get_value(key), day))
            if entry is not None:
                await tx.set_value(f"tokenUsage.entry.{self._run_id}.{mark['sequence']}", entry.fields())

        return body

    async def close(self) -> None:
        """The run ended: drop the marks that only a resumed run would need."""
        async with self._order:
            if self._sequence:
                for namespace in filter(None, (*self._totals, self._conversation)):
                    await namespace.delete_value(self._mark)


class NoTokenUsage:
    """`ctx.token_usage` where counting is off: reports are checked and dropped."""

    enabled = False

    def __init__(self) -> None:
        self.total = dict(EMPTY_TOTAL)

    async def report(self, report: TokenReport | None = None, **fields: Any) -> None:
        """Do nothing."""

    async def complete(self) -> None:
        """Nothing was counted."""

    async def close(self) -> None:
        """Nothing is open."""
