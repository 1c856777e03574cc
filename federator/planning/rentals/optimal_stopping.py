"""When to stop waiting for home and rent: when what a little more waiting may save is worth less than what it puts at risk.

Until then home may be free, and nothing need be rented. But each minute makes the deadline less sure, because run times have a range. The latest moment is when the planned run would
just meet its deadline: there the chance of missing it is one in four. What is certain waits until then.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from federator.model.snapshot import JobView
from federator.planning.kernels.chances import SLIDE_LEAST_S
from federator.planning.world.chances import late_share, share_late

SOON = 0.4
"""Of the time that a job is still expected to wait, so large a share passes, and so large a share of such jobs has begun: of forecasts in a simulation of itp02 on 96 A100 one in ten had begun after a
quarter of the time."""
FAR_S = 86_400.0
"""A wait of which nobody knows when it ends counts as a day."""
STOPS, HALVINGS = 12, 8
"""So many moments are looked at, and the time before the first that will do is halved so often."""
STEP_S = 60.0
"""Of waiting so much longer its cost is asked."""


class AtHome(NamedTuple):
    """How long until it is expected to begin there (infinite: nobody knows), and how long it then runs, in seconds."""

    ahead_s: float
    run_s: float

    def risk(self, job: JobView, now: float) -> float:
        """The chance that the deadline is missed there: the run has a range, and so has the end of the work that it waits for."""
        if self.ahead_s == math.inf:
            return 1.0
        return late_share(job, now + self.ahead_s, self.run_s, self.ahead_s)


class Rented(NamedTuple):
    """If it is rented for now: when it begins, how long it runs, in seconds, and the bill."""

    start_at: float
    run_s: float
    usd: float


def put_off_s(
    job: JobView, now: float, home: AtHome, rented: Rented, value_usd: float, spare_s: float
) -> float:
    """How long to put renting off; at most `spare_s`, when the planned run would just meet the deadline. `value_usd` is that of the deadline."""
    late = share_late(job)

    def stops(after_s: float) -> bool:
        risk = late(rented.start_at + after_s, rented.run_s, 0.0)
        grows_usd = value_usd * (late(rented.start_at + after_s + STEP_S, rented.run_s, 0.0) - risk)
        left_s = max(SLIDE_LEAST_S, min(home.ahead_s, FAR_S + after_s) - after_s)
        at_home = late(now + after_s, rented.run_s if home.run_s == math.inf else home.run_s, 0.0)
        saves_usd = max(0.0, rented.usd + value_usd * (risk - at_home))
        return grows_usd > SOON * STEP_S / left_s * saves_usd

    before_s = 0.0
    for stop in range(STOPS):
        after_s = spare_s * stop / STOPS
        if stops(after_s):
            return _first(before_s, after_s, stops)
        before_s = after_s
    return spare_s


def _first(before_s: float, after_s: float, stops: Callable[[float], bool]) -> float:
    """The first moment of those two and between them at which it does, near enough."""
    for _ in range(HALVINGS):
        middle_s = (before_s + after_s) / 2.0
        before_s, after_s = (before_s, middle_s) if stops(middle_s) else (middle_s, after_s)
    return after_s
