"""The plan, as the HTTP API tells it: what runs where and when, now or as a recorded decision saw it."""

import msgspec

from federator.model.timetable import Bar, Lane


class PlanPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a plan, of one window of time: all lanes, and bars in the order of what matters: what is there now, what is planned (the next first), what has ended (the newest first)."""

    decision: str
    """Whose plan it is; empty before the first."""
    taken_at: float
    """When that decision looked."""
    recorded: bool
    """Whether the decision is kept, and can be shown and replayed."""
    winner: str
    since_at: float
    until_at: float
    lanes: tuple[Lane, ...]
    bars: tuple[Bar, ...]
    total: int
    """Bars in that window, on this page and others."""
    next_after: str | None = None
    """`after` of the next page; none: this is the last."""
    unplanned: int = 0
    """So many of the waiting jobs that the decision looked at have no start that it could foresee."""
    outside: int = 0
    """So many more jobs wait, for other jobs or beyond what it looked at; only of the newest decision."""
