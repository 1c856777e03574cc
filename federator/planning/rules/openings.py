"""When places take work by a calendar: whether they do at a moment, until when, and from when on again.

Windows are of the week and of days; the next change is looked for among the moments at which some window begins or ends, a week and a day
ahead. What changes later than that counts as never: plans do not look so far.
"""

from collections.abc import Iterable, Iterator

from federator.model.rules import Opening, Window

AHEAD_DAYS = 8
_DAY_S = 86400.0
_ALWAYS = (Window().days, Window().from_minute, Window().to_minute)
"""Of a window that is not of some hours."""


def open_at(window: Window | None, at: float) -> bool:
    """Whether the moment (seconds since the epoch, UTC) lies in the window; one that ends before it begins runs past midnight."""
    if window is None:
        return True
    if (window.first_at is not None and at < window.first_at) or (
        window.until_at is not None and at >= window.until_at
    ):
        return False
    day, minute = (int(at // _DAY_S) + 3) % 7, int(at % _DAY_S) // 60
    if window.from_minute <= window.to_minute:
        return day in window.days and window.from_minute <= minute < window.to_minute
    late = day in window.days and minute >= window.from_minute
    return late or ((day - 1) % 7 in window.days and minute < window.to_minute)


def takes_work(rule: Opening, at: float) -> bool:
    """Whether what the rule is about takes work at that moment."""
    opened = not rule.windows or any(open_at(window, at) for window in rule.windows)
    return opened and not any(open_at(window, at) for window in rule.closed)


def kept_spans(rule: Opening, after: float) -> Iterator[tuple[float, float]]:
    """From when until when it is closed whole, as a reservation is, and not by hours of the week; without what is over by that moment."""
    for window in rule.closed:
        whole = (window.days, window.from_minute, window.to_minute) == _ALWAYS
        if whole and window.first_at is not None and window.until_at is not None and window.until_at > after:
            yield window.first_at, window.until_at


def changes_at(rule: Opening, at: float) -> float | None:
    """The next moment at which it closes, where it takes work now, or else at which it opens; None within the days ahead."""
    now_open = takes_work(rule, at)
    moments = sorted(set(_edges((*rule.windows, *rule.closed), at)))
    return next((moment for moment in moments if takes_work(rule, moment) != now_open), None)


def _edges(windows: Iterable[Window], at: float) -> Iterator[float]:
    """When windows begin or end from now on."""
    midnight = at // _DAY_S * _DAY_S
    for window in windows:
        for edge in (window.first_at, window.until_at):
            if edge is not None and edge > at:
                yield edge
        if (window.days, window.from_minute, window.to_minute) == _ALWAYS:
            continue
        for day in range(AHEAD_DAYS + 1):
            for minute in (window.from_minute, window.to_minute):
                edge = midnight + day * _DAY_S + minute * 60.0
                if edge > at:
                    yield edge
