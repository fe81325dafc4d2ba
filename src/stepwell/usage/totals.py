"""`ctx.token_usage`: reports counted once, totals that lose nothing.

Totals are entries at the host location: `tokenUsage.total` of the project and of the conversation (and of all
projects under the workflow scope model), in the project one `tokenUsage.day.<date>` a day, and in the conversation one
`tokenUsage.entry.<runId>.<sequence>` a report.
Beside each total stands `tokenUsage.run.<runId>`, the sequence counted last, in the same commit: a report that a
resumed run makes again is recognised and not counted twice. It is removed when the run ends.
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

OnReport = Callable[[TokenReport, int], Awaitable[None]]


class TokenUsage:
    """Counts a run's tokens.

    Args:
        run_id: the run.
        totals: the namespaces that keep a total, in the order they are written.
        conversation: the conversation's namespace, which also keeps every report.
        on_report: awaited with each report and its sequence.
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
        on_report: OnReport | None = None,
        already_reported: Callable[[], bool] | None = None,
        sequence: int = 0,
        total: dict[str, int] | None = None,
    ) -> None:
        self._run_id = run_id
        self._totals = totals
        self._conversation = conversation
        self._on_report = on_report
        self._already_reported = already_reported
        self._sequence = sequence
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
        amounts = checked.amounts()
        async with self._order:
            sequence = self._sequence + 1
            for number, namespace in enumerate(self._totals):
                await namespace.transact(self._counting(sequence, amounts, day=checked if number == 0 else None))
            if self._conversation is not None:
                await self._conversation.transact(self._counting(sequence, amounts, entry=checked))
            self._sequence = sequence
            self.total = add(self.total, amounts)
            if self._on_report is not None:
                await self._on_report(checked, sequence)

    def _counting(
        self,
        sequence: int,
        amounts: dict[str, int],
        *,
        entry: TokenReport | None = None,
        day: TokenReport | None = None,
    ) -> Callable[[Transaction], Awaitable[None]]:
        marker = f"tokenUsage.run.{self._run_id}"

        async def body(tx: Transaction) -> None:
            if sequence <= (await tx.get_value(marker) or 0):
                return
            await tx.set_value(marker, sequence)
            await tx.set_value(TOTAL, add(await tx.get_value(TOTAL), amounts))
            if day is not None:
                key = f"{DAY}{iso_time(now_micros())[:10]}"
                await tx.set_value(key, with_report(await tx.get_value(key), day))
            if entry is not None:
                fields = {name: value for name, value in entry._asdict().items() if value is not None}
                await tx.set_value(f"tokenUsage.entry.{self._run_id}.{sequence}", fields)

        return body

    async def close(self) -> None:
        """The run ended: drop the marks that only a resumed run would need."""
        if self._sequence:
            for namespace in filter(None, (*self._totals, self._conversation)):
                await namespace.delete_value(f"tokenUsage.run.{self._run_id}")


class NoTokenUsage:
    """`ctx.token_usage` where counting is off: reports are checked and dropped."""

    enabled = False

    def __init__(self) -> None:
        self.total = dict(EMPTY_TOTAL)

    async def report(self, report: TokenReport | None = None, **fields: Any) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Nothing is open."""
