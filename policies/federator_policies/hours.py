"""Hours of the week and days of the year, as people write them and as rules have them: always UTC."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Literal

import msgspec

from federator.kernel.errors import Invalid
from federator.model.rules import Window

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MINUTE = re.compile(r"([01][0-9]|2[0-4]):([0-5][0-9])")
_DAY_MINUTES = 24 * 60


class Hours(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Hours of the week, UTC. When `to` is not after `from`, the window runs into the next day."""

    days: tuple[Day, ...] = DAYS
    """The days on which it begins."""
    from_: str = "00:00"
    """When it begins, such as `18:30`."""
    to: str = "24:00"
    """When it ends."""
    first_day: str | None = None
    """Not before that day, such as `2026-12-24`."""
    last_day: str | None = None
    """Not after that day; it counts in."""


def windows_of(hours: Hours, path: str) -> list[Window]:
    """As windows that end on the day on which they begin: at most two. Raises `Invalid` for what is no time of day."""
    begin, end = _minute(hours.from_, f"{path}.from"), _minute(hours.to, f"{path}.to")
    days = tuple(sorted({DAYS.index(day) for day in hours.days}))
    if not days:
        raise Invalid("is empty", field=f"{path}.days", remedy=f"write some of {', '.join(DAYS)}")
    if begin == _DAY_MINUTES:
        raise Invalid("no day begins at 24:00", field=f"{path}.from", remedy="write 00:00 of the next day")
    first_at, until_at = _dates(hours, path)
    if begin < end:
        return [Window(days, begin, end, first_at, until_at)]
    next_days = tuple(sorted((day + 1) % 7 for day in days))
    late = Window(days, begin, _DAY_MINUTES, first_at, until_at)
    early = Window(next_days, 0, end, _a_day_later(first_at), _a_day_later(until_at))
    return [late, early] if end else [late]


def _dates(hours: Hours, path: str) -> tuple[float | None, float | None]:
    first = None if hours.first_day is None else _day(hours.first_day, f"{path}.first_day")
    last = None if hours.last_day is None else _day(hours.last_day, f"{path}.last_day")
    if first is not None and last is not None and last < first:
        raise Invalid(
            f"{hours.last_day} is before {hours.first_day}",
            field=f"{path}.last_day",
            remedy="write a later day",
        )
    until = None if last is None else last + timedelta(days=1)
    return (None if first is None else first.timestamp(), None if until is None else until.timestamp())


def _day(text: str, path: str) -> datetime:
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{text!r} is not a day", field=path, remedy="write for example 2026-12-24") from None
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _a_day_later(at: float | None) -> float | None:
    return None if at is None else at + 86400.0


def _minute(text: str, path: str) -> int:
    match = _MINUTE.fullmatch(text)
    minute = int(match[1]) * 60 + int(match[2]) if match else _DAY_MINUTES + 1
    if minute > _DAY_MINUTES:
        raise Invalid(
            f"{text!r} is not a time of day", field=path, remedy="write for example '18:30', in UTC"
        )
    return minute
