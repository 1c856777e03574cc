"""Times as cron writes them: five fields, by the wall clock of a time zone, as Debian's cron understands them. cronsim does the arithmetic.

Days of the month and of the week that are both given are alternatives. Where clocks are put forward, a run of a fixed time that does not exist
is due as soon as the clock is past it; where they are put back, it is due once. A time with `*` in its minute or hour follows the time that
really passes.
"""

import math
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
FIELDS = (
    ("minute", 0, 59),
    ("hour", 0, 23),
    ("day of the month", 1, 31),
    ("month", 1, 12),
    ("weekday", 0, 7),
)
SOME_DAY = datetime(2000, 1, 1, tzinfo=UTC)
REPEATED_S = 3 * 3600.0
"""Clocks are put back by less: so long afterwards, no time by the clock is one of before."""


def check_cron(text: str) -> None:
    """Refuse what is not a time of cron's, such as `0 3 * * mon-fri` or `@daily`. Raises ValueError that names the wrong field."""
    fields = _expression(text).split()
    if len(fields) != len(FIELDS):
        raise ValueError(
            f"{text!r} has {len(fields)} of the five fields of cron: minute, hour, day of the month, month, weekday"
        )
    for place, (field, (what, low, high)) in enumerate(zip(fields, FIELDS, strict=True)):
        if not _is_read(" ".join(field if number == place else "*" for number in range(len(FIELDS)))):
            raise ValueError(
                f"{field[:40]!r} is not a valid {what}; write {low} to {high}, a range, a list, or */n"
            )
        for part in field.split(","):  # cron takes */90 for once an hour, which nobody means
            _, _, step = part.partition("/")
            if step and int(step) > high:
                wrong = f"{part[:40]!r} steps over every {what} but the first"
                raise ValueError(f"{wrong}; write at most */{high}, or an interval instead, such as 90m")
    # The library looks fifty years ahead; the rarest day, a 29th of February of one weekday, comes within forty.
    if not _is_read(text) or next(CronSim(_expression(text), SOME_DAY), None) is None:
        raise ValueError(f"{text!r} names a day that none of its months has")


def first_after(text: str, zone: str, at: float) -> float:
    """The first instant after `at`, of what `check_cron` has taken."""
    times = CronSim(_expression(text), datetime.fromtimestamp(math.floor(at), ZoneInfo(zone)))
    return next(due_at for due_at in map(datetime.timestamp, times) if due_at > at)


def last_until(text: str, zone: str, at: float) -> float:
    """The last instant up to `at`, of what `check_cron` has taken."""
    later = datetime.fromtimestamp(math.floor(at) + REPEATED_S, ZoneInfo(zone))
    times = CronSim(_expression(text), later, reverse=True)
    return next(due_at for due_at in map(datetime.timestamp, times) if due_at <= at)


def _expression(text: str) -> str:
    return NICKNAMES.get(text.strip().lower(), text)


def _is_read(text: str) -> bool:
    try:
        CronSim(_expression(text), SOME_DAY)
    except CronSimError:
        return False
    return True
