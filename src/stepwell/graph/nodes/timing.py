"""Waiting."""

import asyncio
import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from stepwell.errors import InvalidArgument
from stepwell.graph.cron import zone_of
from stepwell.graph.node_context import NodeContext
from stepwell.graph.ports import AgentContext, Anything
from stepwell.graph.registry import node_type

MAX_SECONDS = 366 * 24 * 3_600
_UNITS = {
    "ms": 0.001, "millisecond": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60, "h": 3_600,
    "hour": 3_600, "d": 86_400, "day": 86_400,
}  # fmt: skip
_TYPES = (
    "fixed", "random range", "until timestamp", "until time of day", "fixed+jitter", "exponential backoff"
)  # fmt: skip


@node_type("utils/delay", title="Delay")
class Delay:
    """Waits, then hands its input on unchanged. Cancelling the run ends the wait."""

    class Inputs(BaseModel):
        passthrough: Anything = None
        delay_type: str = "fixed"
        delay_unit: str = "seconds"
        delay_value: float = 0
        initial_delay_value: float | None = None
        max_delay_value: float | None = None
        max_backoff_value: float | None = None
        multiplier: float = 2.0
        attempt: int = 1
        jitter_percent: float = 10
        log_message: str | None = None
        target_timestamp: str | None = None
        time_of_day: str | None = None
        timezone: str = "UTC"

    class Outputs(BaseModel):
        actual_delay_ms: int
        completed: bool
        context: AgentContext
        info: str
        log_message: str
        passthrough: Anything

    async def run(self, inputs: Any, ctx: NodeContext) -> dict[str, Any]:
        seconds = seconds_of(inputs, datetime.now(UTC))
        if not math.isfinite(seconds) or seconds > MAX_SECONDS:
            raise InvalidArgument(f"the delay of {seconds:g} s is over a year", argument="delay_value")
        if inputs.log_message:
            ctx.run.log(inputs.log_message, seconds=seconds)
        await asyncio.sleep(max(0.0, seconds))
        emitted = {
            "actual_delay_ms": round(max(0.0, seconds) * 1_000), "completed": True,
            "info": f"waited {max(0.0, seconds):g} s", "log_message": inputs.log_message or "",
            "passthrough": inputs.passthrough,
        }  # fmt: skip
        if isinstance(inputs.passthrough, dict) and "messages" in inputs.passthrough:
            emitted["context"] = inputs.passthrough
        return emitted


def seconds_of(inputs: Any, now: datetime) -> float:
    """How long to wait, in seconds.

    Raises:
        InvalidArgument: the kind, unit, time or zone is not known.
    """
    kind = inputs.delay_type.lower().replace("_", " ").replace(" + ", "+").replace("fixed jitter", "fixed+jitter")
    named = inputs.delay_unit.lower()
    unit = _UNITS.get(named) or _UNITS.get(named.removesuffix("s"))
    if kind not in _TYPES or unit is None:
        what, value = ("delay_type", inputs.delay_type) if kind not in _TYPES else ("delay_unit", inputs.delay_unit)
        known = _TYPES if kind not in _TYPES else ("ms", "seconds", "minutes", "hours", "days")
        raise InvalidArgument(f"{what} {value!r:.60} is not one of {', '.join(known)}", argument=what)
    if kind == "until timestamp":
        return (_moment(inputs.target_timestamp or "", inputs.timezone) - now).total_seconds()
    if kind == "until time of day":
        return (_next(inputs.time_of_day or "", zone_of(inputs.timezone), now) - now).total_seconds()
    value = float(inputs.delay_value)
    if kind == "random range":
        low, high = sorted((value, inputs.max_delay_value if inputs.max_delay_value is not None else value))
        value = random.uniform(low, high)
    elif kind == "fixed+jitter":
        value *= 1 + random.uniform(-1, 1) * inputs.jitter_percent / 100
    elif kind == "exponential backoff":
        first = inputs.initial_delay_value if inputs.initial_delay_value is not None else value
        value = first * inputs.multiplier ** max(0, min(inputs.attempt, 64) - 1)
        value = value if inputs.max_backoff_value is None else min(value, inputs.max_backoff_value)
    return float(value * unit)


def _moment(text: str, zone_name: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidArgument(
            f"{text!r:.60} is not an ISO-8601 time", hint="write it like 2030-01-31T08:00:00+01:00",
            argument="target_timestamp",
        ) from None  # fmt: skip
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=zone_of(zone_name))


def _next(text: str, tz: ZoneInfo, now: datetime) -> datetime:
    try:
        at = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M").time()  # noqa: DTZ007
    except ValueError:
        raise InvalidArgument(f"{text!r:.40} is not a time like 08:30", argument="time_of_day") from None
    local = now.astimezone(tz)
    moment = local.replace(hour=at.hour, minute=at.minute, second=at.second, microsecond=0)
    return moment if moment > local else moment + timedelta(days=1)
