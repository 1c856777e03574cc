"""When a job had better wait for another owned place than start where it fits: where that costs less, all told.

The run, the data that has to be moved, the chance that the deadline is missed, and the wait itself: what is free and dear is declined for what is
cheap and free soon. A schedule asks it for one job at a time, and what a job declines is offered to the next. Work that waits for a place speaks for its
time there, so that no more waits than the place can serve.

It ends. Beside owned GPUs that idle nobody is patient for longer than half a day after it was submitted, so that no place whose end keeps moving, and no
stream of others that take it first, holds a job for ever. Rented time, which is paid for, may be declined for longer. And nobody is patient for the end of work that is overdue: when that ends nobody knows.
"""

import math
from collections.abc import Sequence

from federator.model.snapshot import JobView
from federator.planning.blocks import Block, cheaper_elsewhere
from federator.planning.candidates import size
from federator.planning.prices import cost
from federator.planning.problem import World
from federator.planning.yard import Lot, need_of

LEAST_GAIN_USD = 1.0
"""What waiting must save for a job not to start where it fits."""
PATIENT_S = 12 * 3600.0
"""What a job waits for must be free by so long after it was submitted. Of a line at high load most have waited for hours anyway: with one hour a simulation at load 0.7 lost 14 % more."""
MOST_ALIKE = 32
"""Nothing idles beside a longer line of work that is alike. A window shows as many behind those that could start, so it decides as the whole line does."""


class Patience:
    """Who waits for what, at one moment of a schedule."""

    def __init__(self, world: World, lots: Sequence[Lot]) -> None:
        """`lots` are the places as the schedule has them."""
        self.world, self.lots = world, lots
        self._awaited_s = [0.0] * len(lots)

    def better(self, job: JobView, at: float, total: int, alike: int, *, pays: bool) -> Block | None:
        """What to wait for rather than to start for so much, in billionths of a USD; None where starting is better.

        `pays`: the start would be on what is rented. Nothing idles for the wait then, so it may be of any length.

        It is asked of the last of all that are `alike`: if that one is better off at once, this one may as well start. Fewer
        than `MOST_ALIKE`, else it is not asked.
        """
        best, best_total, best_at = -1, total - LEAST_GAIN_USD * 1e9, 0.0
        until = math.inf if pays else job.submitted_at + PATIENT_S
        for place in self.world.home(job):
            if self._total(job, place, at) >= best_total:
                continue
            begins = self.lots[place].earliest(need_of(job), job.nodes, sure=True)
            if begins is None or not at < begins <= until:
                continue
            begins += self._awaited_s[place] + self._busy_s(job, place, alike - 1)
            then = self._total(job, place, begins)
            if then < best_total:
                best, best_total, best_at = place, then, begins
        if best < 0:
            return None
        self._awaited_s[best] += self._busy_s(job, best, alike)
        return cheaper_elsewhere(self.world.places[best], best_at, self.world.now)

    def _busy_s(self, job: JobView, place: int, count: int) -> float:
        """How long so many jobs like this one keep a place, as if they were a fluid."""
        at = self.world.places[place]
        return count * size(job) * at.run_s(job) / max(size(job), float(at.gpus_in_all))

    def _total(self, job: JobView, place: int, at: float) -> int:
        """What a start there then costs."""
        return math.floor(cost(self.world.book, job, self.world.places[place], at).total * 1e9 + 0.5)
