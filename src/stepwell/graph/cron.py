"""When a task is due: times with an offset, relative times, cron expressions in a time zone."""

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from stepwell.errors import InvalidArgument

FREQUENCIES = {
    "every_minute": "* * * * *", "hourly": "{minute} * * * *", "daily": "{minute} {hour} * * *",
    "weekly": "{minute} {hour} * * {weekday}", "monthly": "{minute} {hour} {day} * *",
}  # fmt: skip
MAX_AHEAD = timedelta(days=366 * 8 + 2)
_RELATIVE = re.compile(r"(\d{1,6})\s*(s|sec|m|min|h|d|w)\Z")
_SECONDS = {"s": 1, "sec": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_NAMES = {
    "jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11,
    "dec": 12, "sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6,
}  # fmt: skip
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))


class Cron(NamedTuple):
    """A parsed cron expression: the allowed values of each field. Weekdays count from Sunday = 0."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    any_weekday: bool

    def next(self, after: datetime, zone: ZoneInfo) -> datetime | None:
        """The first minute behind `after` that matches in the zone, in UTC; None if there is none in eight years.

        A local time that a clock change leaves out is skipped; one that comes twice counts the first time.
        """
        local = after.astimezone(zone).replace(second=0, microsecond=0, tzinfo=None) + timedelta(minutes=1)
        end = local + MAX_AHEAD
        while local < end:
            if local.month not in self.months:
                local = (local.replace(day=1, hour=0, minute=0) + timedelta(days=32)).replace(day=1)
            elif not self._is_day(local):
                local = local.replace(hour=0, minute=0) + timedelta(days=1)
            elif local.hour not in self.hours:
                local = local.replace(minute=0) + timedelta(hours=1)
            elif local.minute not in self.minutes:
                local += timedelta(minutes=1)
            else:
                moment = local.replace(tzinfo=zone).astimezone(UTC)
                if moment > after and moment.astimezone(zone).replace(tzinfo=None) == local:
                    return moment
                local += timedelta(minutes=1)
        return None

    def _is_day(self, local: datetime) -> bool:
        day, weekday = local.day in self.days, (local.weekday() + 1) % 7 in self.weekdays
        # The old rule of cron: where both are restricted, either is enough.
        return (day and weekday) if self.any_day or self.any_weekday else (day or weekday)


def parse_cron(text: str) -> Cron:
    """A cron expression of five fields: minute, hour, day, month, weekday.

    Raises:
        InvalidArgument: a field is wrong; names it.
    """
    parts = text.split()
    if len(parts) != 5:
        raise InvalidArgument(
            f"the cron expression {text!r:.80} has {len(parts)} fields, not 5", argument="custom_cron",
            hint='minute hour day month weekday, e.g. "30 8 * * mon-fri"',
        )  # fmt: skip
    sets = [_field(part, *field) for part, field in zip(parts, _FIELDS, strict=True)]
    weekdays = frozenset(value % 7 for value in sets[4])
    return Cron(sets[0], sets[1], sets[2], sets[3], weekdays, parts[2] == "*", parts[4] == "*")


def _field(text: str, name: str, low: int, high: int) -> frozenset[int]:
    values: set[int] = set()
    for part in text.lower().split(","):
        span, slash, step_text = part.partition("/")
        step = int(step_text) if step_text.isascii() and step_text.isdecimal() else 0
        first, dash, last = span.partition("-")
        begin = low if span == "*" else _value(first)
        end = high if span == "*" or (slash and not dash) else _value(last if dash else first)
        if begin is None or end is None or not low <= begin <= end <= high or (slash and step < 1):
            raise InvalidArgument(
                f"{part!r:.40} is no {name} of a cron expression ({low} to {high})", argument="custom_cron"
            )
        values |= set(range(begin, end + 1, step or 1))
    return frozenset(values)


def _value(text: str) -> int | None:
    if text in _NAMES:
        return _NAMES[text]
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 4 else None


def zone_of(name: str | None) -> ZoneInfo:
    """A time zone by its IANA name; UTC for None.

    Raises:
        InvalidArgument: there is none of that name.
    """
    try:
        return ZoneInfo(name or "UTC")
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidArgument(
            f"there is no time zone {name!r:.60}", hint="use a name like Europe/Berlin", argument="timezone"
        ) from None


def moment_of(text: str, zone: ZoneInfo, now: datetime) -> datetime:
    """A time: ISO-8601 (in `zone` where it has no offset), or relative to now (`30m`, `2h`, `1d`).

    Raises:
        InvalidArgument: it is neither, or it has passed.
    """
    stripped = text.strip()
    relative = _RELATIVE.match(stripped.removeprefix("in ").removeprefix("+"))
    if relative is not None:
        return now + timedelta(seconds=int(relative[1]) * _SECONDS[relative[2]])
    try:
        moment = datetime.fromisoformat(stripped)
    except ValueError:
        raise InvalidArgument(
            f"{text!r:.60} is no time", hint="write it like 2030-01-31T08:00:00+01:00, or 30m", argument="run_at"
        ) from None
    moment = (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)
    if moment <= now:
        raise InvalidArgument(
            f"{moment.isoformat()} has passed: it is {now.isoformat(timespec='seconds')}", argument="run_at"
        )
    return moment


def expression_of(frequency: str, custom: str | None, first: datetime | None, zone: ZoneInfo) -> str | None:
    """The cron expression of a frequency; None for `once`. `first` gives minute, hour and day."""
    if frequency == "once":
        return None
    if frequency == "custom":
        if not custom:
            raise InvalidArgument("frequency custom needs custom_cron", argument="custom_cron")
        return custom
    local = (first or datetime.now(UTC)).astimezone(zone)
    return FREQUENCIES[frequency].format(
        minute=local.minute, hour=local.hour, day=local.day, weekday=(local.weekday() + 1) % 7
    )
