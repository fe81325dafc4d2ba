"""Usage by day, provider and model, kept beside the project's total in the same commit.

One entry a day (`tokenUsage.day.2026-01-31`, by UTC): what each model used, and what it cost in billionths of a US
dollar, whole numbers because sums of them are exact. Calls of models without a known price are counted as such.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from stepwell.usage.report import EMPTY_TOTAL, TokenReport, add

DAY = "tokenUsage.day."
NANO = 1_000_000_000
_COST = "cost_nano_usd"
_UNPRICED = "unpriced_calls"
_EMPTY = EMPTY_TOTAL | {_COST: 0, _UNPRICED: 0}


class Part(NamedTuple):
    """What one day, model or conversation used. `cost_usd` is None where no price is known.

    With `unpriced_calls` over 0 the cost is what is known of it, and not all.
    """

    name: str
    tokens: dict[str, int]
    cost_usd: float | None
    unpriced_calls: int

    def to_dict(self) -> dict[str, Any]:
        """The part as JSON."""
        return self._asdict()


def with_report(day: Mapping[str, Any] | None, report: TokenReport) -> dict[str, Any]:
    """A day's entry with one more report."""
    models = dict(day or {})
    name = f"{report.provider_name or ''}/{report.model_id or ''}".strip("/") or "(not named)"
    cost = 0 if report.cost_usd is None else round(report.cost_usd * NANO)
    amounts = report.amounts() | {_COST: cost, _UNPRICED: int(report.cost_usd is None)}
    models[name] = add(models.get(name, _EMPTY), amounts)
    return models


def by_day(days: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Part]:
    """A part a day, from the entries of days."""
    return [_part(day, _summed(models.values())) for day, models in days]


def by_model(days: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Part]:
    """A part a model, the most used first."""
    found: dict[str, list[dict[str, int]]] = {}
    for _, models in days:
        for name, used in models.items():
            found.setdefault(name, []).append(used)
    parts = [_part(name, _summed(used)) for name, used in found.items()]
    return sorted(parts, key=lambda part: (-part.tokens["total"], part.name))


def of_reports(name: str, total: Mapping[str, int], reports: Iterable[Mapping[str, Any]]) -> Part:
    """A part with a known total, its cost from the single reports."""
    costs = [report.get("cost_usd") for report in reports]
    known = [cost for cost in costs if cost is not None]
    tokens = {field: total.get(field, 0) for field in EMPTY_TOTAL}
    unpriced = max(tokens["calls"] - len(known), 0)
    return Part(name, tokens, round(sum(known), 9) if known else None, unpriced)


def _summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total = dict(_EMPTY)
    for part in parts:
        total = add(total, dict(part))
    return total


def _part(name: str, summed: Mapping[str, int]) -> Part:
    is_priced = summed["calls"] > summed[_UNPRICED]
    tokens = {field: summed[field] for field in EMPTY_TOTAL}
    return Part(name, tokens, summed[_COST] / NANO if is_priced else None, summed[_UNPRICED])
