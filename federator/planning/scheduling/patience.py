"""When a job had better wait for another owned place than start where it fits: where that costs less, all told.

The run, the data that has to be moved, the chance that the deadline is missed, and the wait itself: what is free and dear is declined for what is
cheap and free soon. A schedule asks it for one job at a time, and what a job declines is offered to the next. Work that waits for a place speaks for its
time there, so that no more waits than the place can serve.

It is allowed, and it ends (delay scheduling). Beside owned GPUs that are free and fit it a job waits only as long after its submission as its `patience` allows, which is nothing
where neither its user nor its queue says so. Rented time, which is paid for, may be declined for longer. No job waits for the end of overdue work: nobody knows when that ends.
"""

import math
from collections.abc import Sequence

from federator.model.snapshot import JobView
from federator.planning.places.candidates import size
from federator.planning.places.yard import Lot, need_of
from federator.planning.scheduling.blocks import Block, cheaper_elsewhere
from federator.planning.world.prices import cost
from federator.planning.world.problem import OPTION, World

LEAST_GAIN_USD = 0.1
"""What waiting must save for a job not to start where it fits. With a dollar, small work filled the GPUs that are dear
(`docs/explanation/schedulers-compared.md`)."""
MOST_ALIKE = 32
"""Nothing idles beside a longer line of work that is alike. A window shows as many behind those that could start, so it decides as the whole line does."""


class Patience:
    """Who waits for what, at one moment of a schedule."""

    def __init__(self, world: World, lots: Sequence[Lot]) -> None:
        """`lots` are the places as the schedule has them."""
        self.world, self.lots = world, lots
        self._awaited_s = [0.0] * len(lots)

    def left(self, alike: Sequence[JobView], at: float) -> bool:
        """Whether those that are alike may wait beside owned GPUs that are free at that moment."""
        return _until(alike) > at

    def better(
        self, job: JobView, at: float, here: int, total: int, alike: Sequence[JobView], *, pays: bool
    ) -> Block | None:
        """What to wait for rather than to start by the choice `here` for so much, in billionths of a USD; None where starting is better.

        A job of several forms starts for what the cheapest of them costs there: it may be widened at once. It waits for another place, in
        whatever form, but not for a later entry of a list in order.

        `pays`: it could start only on what is rented. Nothing owned idles for the wait then, so it may be of any length.

        It is asked of the last of all that are `alike`, and the patience is counted from the first that was submitted: if that one is better off at once, this one may as well start. Fewer
        than `MOST_ALIKE`, else it is not asked.
        """
        least = (
            total
            if self.world.places[here].rented or not job.forms
            else min(self._totals_here(job, here, at))
        )
        best, best_total, best_at = -1, least - LEAST_GAIN_USD * 1e9, 0.0
        until = math.inf if pays else _until(alike)
        for place in self.world.home(job):
            if self._is_no_choice(job, place, here) or self._total(job, place, at) >= best_total:
                continue
            view = self.world.as_form(job, place)
            begins = self.lots[place].earliest(need_of(view), view.nodes, sure=True)
            if begins is None or not at < begins <= until:
                continue
            begins += self._awaited_s[self.world.place_of(place)] + self._busy_s(job, place, len(alike) - 1)
            then = self._total(job, place, begins)
            if begins <= until and then < best_total:
                best, best_total, best_at = place, then, begins
        if best < 0:
            return None
        self._awaited_s[self.world.place_of(best)] += self._busy_s(job, best, len(alike))
        saves_usd = (least - best_total) / 1e9
        return cheaper_elsewhere(self.world.places[best], best_at, self.world.now, saves_usd)

    def _totals_here(self, job: JobView, here: int, at: float) -> list[int]:
        place_of = self.world.place_of
        mine = [each for each in self.world.home(job) if place_of(each) == place_of(here)]
        return [self._total(job, each, at) for each in mine]

    def _is_no_choice(self, job: JobView, other: int, here: int) -> bool:
        """Of a job of several forms: it is the same place, or a later entry of its list."""
        if not job.forms:
            return False
        entry, mine = (self.world.precedence(job, each)[0] // OPTION for each in (other, here))
        return self.world.place_of(other) == self.world.place_of(here) or entry > mine

    def _busy_s(self, job: JobView, place: int, count: int) -> float:
        """How long so many jobs like this one keep a place, as if they were a fluid."""
        at = self.world.places[place]
        run_s = at.run_s(self.world.as_form(job, place))
        return count * size(job) * run_s / max(size(job), float(at.gpus_in_all))

    def _total(self, job: JobView, place: int, at: float) -> int:
        """What a start there then costs."""
        view = self.world.as_form(job, place)
        return math.floor(cost(self.world.book, view, self.world.places[place], at).total * 1e9 + 0.5)


def _until(alike: Sequence[JobView]) -> float:
    return min(each.submitted_at + each.patience_s for each in alike)
