"""Periods of a calendar, in UTC: over what a cap on money sums."""

from datetime import UTC, datetime, timedelta

from federator.model.rules import Period


def period_start(period: Period, now: float) -> float:
    """When the present day, week or month began; the beginning of time for a total."""
    if period is Period.TOTAL:
        return 0.0
    if period is Period.NOW:
        return now
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period is Period.WEEK:
        day -= timedelta(days=day.weekday())
    if period is Period.MONTH:
        day = day.replace(day=1)
    return day.timestamp()


def period_end(period: Period, now: float) -> float | None:
    """When the present day, week or month ends; None for what has no end."""
    start = datetime.fromtimestamp(period_start(period, now), UTC)
    if period is Period.DAY:
        return (start + timedelta(days=1)).timestamp()
    if period is Period.WEEK:
        return (start + timedelta(days=7)).timestamp()
    if period is Period.MONTH:
        return (start + timedelta(days=32)).replace(day=1).timestamp()
    return None
