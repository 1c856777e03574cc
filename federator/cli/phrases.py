"""Numbers as people read them: times relative to now, money, GPUs."""

import re
from datetime import UTC, datetime, time, timedelta

from federator.kernel.errors import Invalid
from federator.kernel.quantities import format_duration, parse_duration_s

NONE = "-"
DAY_S = 86_400.0
DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_UTC = re.compile(r"\b(?:(\d\d\d\d-\d\d-\d\d) )?(\d\d:\d\d)(:\d\d)? UTC\b")
"""A moment in the dispatcher's sentences, see `planning.wording.moment`."""


def ago(at: float | None, now: float) -> str:
    """How long something has been so: `3m`."""
    return NONE if at is None else format_duration(max(0.0, _coarse(now - at)) // 1)


def when(at: float | None, now: float) -> str:
    """An instant relative to now: `in 2h`, `5m ago`, `now`."""
    if at is None:
        return NONE
    away_s = _coarse(at - now)
    if abs(away_s) < 1:
        return "now"
    return f"in {format_duration(away_s)}" if away_s > 0 else f"{format_duration(-away_s)} ago"


def instant(at: float) -> str:
    """An instant by the clock of whoever reads it, to the second: `2026-12-01 09:00:00 CET`."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def when_exactly(at: float | None, now: float) -> str:
    """An instant both ways: `in 2h (2026-12-01 09:00:00 CET)`."""
    return NONE if at is None else f"{when(at, now)} ({instant(at)})"


RANGE_S = 60.0
"""A range that is smaller says nothing."""


def between(low_at: float | None, high_at: float | None, now: float) -> str:
    """Between when something may well be: `between in 1h and in 3h`; nothing where that is nearly one moment."""
    if low_at is None or high_at is None or high_at - low_at < RANGE_S:
        return ""
    return f"between {when(low_at, now)} and {when(high_at, now)}"


def when_about(at: float | None, low_at: float | None, high_at: float | None, now: float) -> str:
    """The same in little room: `in 2h (1h-5h)`."""
    if not between(low_at, high_at, now):
        return when(at, now)
    low, high = (when(max(now, each or now), now).removeprefix("in ") for each in (low_at, high_at))
    return f"{when(at, now)} ({low}-{high})"


def duration(seconds: float | None) -> str:
    """A duration, or a dash."""
    return NONE if seconds is None else format_duration(_coarse(seconds) if abs(seconds) >= 1 else 0.0)


def usd(amount: float | None) -> str:
    """Money: cents, and tenths of a cent for what is less than ten cents."""
    if amount is None:
        return NONE
    return f"{amount:.3f} USD" if 0 < abs(amount) < 0.1 else f"{amount:,.2f} USD"


def energy_kwh(amount: float) -> str:
    """Energy: in hundredths of a kilowatt-hour, and thousandths of what is less than a tenth."""
    return f"{amount:.3f} kWh" if amount < 0.1 else f"{amount:,.2f} kWh"


def gpus(nodes: int, per_node: float, models: str = "") -> str:
    """What a job asks for: `4`, `2x4 A100`."""
    count = f"{nodes}x{per_node}" if nodes > 1 else str(per_node)
    return f"{count} {models}".strip() if per_node else (f"{nodes}x0" if nodes > 1 else NONE)


def counted(count: int, what: str) -> str:
    """`1 rule`, `2 rules`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def plain(text: str) -> str:
    """Text from elsewhere without what could steer a terminal, its moments (`14:02 UTC`) by the clock of whoever reads it."""
    if " UTC" in text:
        text = _UTC.sub(_local, text)
    return "".join(letter if letter.isprintable() else " " for letter in text)


def _local(found: re.Match[str]) -> str:
    """A moment by the local clock: without a date the one that is nearest to now."""
    day, clock, seconds = found.groups()
    now = datetime.now(UTC)
    try:
        at = datetime.fromisoformat(f"{day or now.date()}T{clock}{seconds or ''}+00:00")
        away = timedelta() if day else timedelta(days=round((now - at) / timedelta(days=1)))
        local = (at + away).astimezone()
    except (ValueError, OverflowError):
        return found[0]
    return local.strftime(f"{'%Y-%m-%d ' if day else ''}{'%H:%M:%S' if seconds else '%H:%M'} %Z")


def _coarse(seconds: float) -> float:
    """Without the parts that nobody reads: seconds go beyond an hour, minutes beyond a day or two."""
    size = abs(seconds)
    step = 1 if size < 3600 else 60 if size < 2 * 86400 else 3600
    return round(seconds / step) * step if size >= 1 else seconds


def seconds_in(text: str, option: str) -> float:
    """What a person wrote for an option that takes a duration, such as 90s or 1h30m, in seconds. Raises `Invalid`."""
    try:
        return parse_duration_s(text)
    except ValueError as error:
        raise Invalid(str(error), field=option) from None


def moment_at(text: str, option: str, now: float, *, ahead: bool = False) -> float:
    """What a person wrote for an option that takes an instant, in seconds since the epoch: how long ago (`ahead`: from now), as `2h` or `2h ago`; `yesterday`, `today`, `tomorrow` (where they begin); `18:00` or `2026-12-01T08:00` by the local clock; or with a zone. Raises `Invalid`."""
    try:
        away_s = parse_duration_s(text.strip().removesuffix(" from now" if ahead else " ago"))
    except ValueError:
        pass
    else:
        return now + away_s if ahead else now - away_s
    if text.strip() in DAYS:
        day = datetime.fromtimestamp(now).astimezone() + timedelta(days=DAYS[text.strip()])
        return datetime.combine(day.date(), time.min).astimezone().timestamp()
    from federator.cli.sbatch_values import deadline_of

    try:
        at = datetime.fromisoformat(deadline_of(text, datetime.fromtimestamp(now).astimezone())).timestamp()
    except ValueError as error:
        how = "from now" if ahead else "ago"
        raise Invalid(str(error), field=option, remedy=f"or how long {how}, such as 2h") from None
    only_a_clock = len(text.strip()) <= len("18:00:00")
    return at - DAY_S if only_a_clock and not ahead and at > now else at
