"""Times as cron writes them: five fields, by the wall clock of a time zone.

Days of the month and of the week that are both said are alternatives, as cron has always had it. Where clocks are put forward, a time that
does not exist comes as much later; where they are put back, a time that comes twice counts once – unless the hours are `*`, which means every
hour that really passes.
"""

from bisect import bisect_right
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
FARTHEST_DAYS = 41 * 366
"""The 29th of February is at most eight years away; that on a Sunday, which `29 2 */7` asks for, at most forty."""


class Cron(NamedTuple):
    """What matches, field by field, each in order. Weekdays count from Sunday, 0."""

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    either_day: bool
    """Days of the month and weekdays are alternatives: both are said."""
    each_hour: bool
    """The hours are `*`."""

    def on(self, day: date) -> bool:
        """Whether anything comes on that day."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week


def parse_cron(text: str) -> Cron:
    """`0 3 * * mon-fri`, `@daily`. Raises ValueError that says which field is wrong."""
    fields = NICKNAMES.get(text.strip().lower(), text).split()
    if len(fields) != 5:
        raise ValueError(
            f"{text!r} has {len(fields)} of the five fields of cron: minute, hour, day of the month, month, weekday"
        )
    minutes = _values(fields[0], "minute", 0, 59)
    hours = _values(fields[1], "hour", 0, 23)
    days = _values(fields[2], "day of the month", 1, 31)
    months = _values(fields[3], "month", 1, 12, MONTHS)
    weekdays = sorted({day % 7 for day in _values(fields[4], "weekday", 0, 7, WEEKDAYS)})
    said = [not field.startswith("*") for field in (fields[2], fields[4])]
    cron = Cron(minutes, hours, days, months, tuple(weekdays), all(said), fields[1] == "*")
    longest = {2: 29, 4: 30, 6: 30, 9: 30, 11: 30}
    if not cron.either_day and all(days[0] > longest.get(month, 31) for month in months):
        raise ValueError(f"{text!r} names a day that none of its months has")
    return cron


def _values(field: str, what: str, low: int, high: int, names: tuple[str, ...] = ()) -> tuple[int, ...]:
    found: set[int] = set()
    for part in field.lower().split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        try:
            begin = low if span == "*" else _value(first, low, names)
            end = _value(last, low, names) if dash else high if slash or span == "*" else begin
            stride = _value(step, 1, ()) if slash else 1
        except ValueError:
            begin, end, stride = 1, 0, 1
        if not low <= begin <= end <= high or stride < 1:
            raise ValueError(
                f"{part[:40]!r} is not a valid {what}; write {low} to {high}, a range, a list, or */n"
            )
        if stride > high:  # cron would take */90 for once an hour, which nobody means
            wrong = f"{part[:40]!r} steps over every {what} but the first"
            raise ValueError(f"{wrong}; write at most */{high}, or an interval instead, such as 90m")
        found.update(range(begin, end + 1, stride))
    return tuple(sorted(found))


def _value(word: str, low: int, names: tuple[str, ...]) -> int:
    if word in names:
        return names.index(word) + low
    if not word.isascii() or not word.isdecimal():
        raise ValueError(word)
    return int(word)


def first_after(cron: Cron, zone: str, at: float) -> float:
    """The first instant after `at`."""
    for instants in _days(cron, zone, at, 1):
        later = bisect_right(instants, at)
        if later < len(instants):
            return instants[later]
    raise ValueError("it never comes")


def last_until(cron: Cron, zone: str, at: float) -> float:
    """The last instant up to `at`."""
    for instants in _days(cron, zone, at, -1):
        later = bisect_right(instants, at)
        if later:
            return instants[later - 1]
    raise ValueError("it never came")


def _days(cron: Cron, zone: str, at: float, step: int) -> Iterator[tuple[float, ...]]:
    """The instants of one day after another, from the day before or after the one that `at` is in."""
    day = datetime.fromtimestamp(at, ZoneInfo(zone)).date() - timedelta(days=step)
    for _ in range(FARTHEST_DAYS):
        if cron.on(day):
            yield _instants(cron, zone, day)
        day += timedelta(days=step)


@lru_cache(maxsize=256)
def _instants(cron: Cron, zone: str, day: date) -> tuple[float, ...]:
    """All of one day, in order."""
    found: set[float] = set()
    for hour in cron.hours:
        for minute in cron.minutes:
            wall = datetime(day.year, day.month, day.day, hour, minute, tzinfo=ZoneInfo(zone))
            found.add(wall.timestamp())
            if cron.each_hour:
                again = wall.replace(fold=1)
                if again.utcoffset() < wall.utcoffset():  # type: ignore[operator] # a zone has an offset
                    found.add(again.timestamp())
    return tuple(sorted(found))
