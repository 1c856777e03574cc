"""What the worst interruption of a spot machine costs in time: hearing of it, another machine, and the work again that was lost."""

import math

from federator.model.capacity import Market
from federator.model.snapshot import JobView
from federator.planning.places.candidates import machines
from federator.planning.rules.permits import worst_usd
from federator.planning.world.problem import World

INTERRUPTION_S = 180.0
"""From an interruption's notice until its job can start again: the notice itself, its results' way home, a turn."""


class Interruptions:
    """Asked of one world; what is derived is kept."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._again: dict[tuple[object, int], float] = {}

    def again_s(self, job: JobView, place: int) -> float:
        """What the worst interruption costs in time: hearing of it, another machine, and the work again that was lost. 0 where nobody asks.

        Again on the fastest on-demand offer that the job may use and that its `max_cost` still leaves money for; where there is none, on
        such a machine as this. What is lost at the very end is the whole run, or what lies after the last checkpoint that is kept elsewhere.
        """
        at = self.world.places[place]
        if at.market is not Market.SPOT or job.spot_policy != "auto":
            return 0.0
        index = (self.world.key(job), place)
        if index not in self._again:
            left = math.inf
            if job.max_cost_usd is not None:
                left = job.max_cost_usd - job.spent_usd - worst_usd(job, at)
            if left == math.inf and job.repeats_s is None:  # then it is the same wherever the machine was
                again = self._again.get((index[0], -1))
                if again is None:
                    fresh = [self.fresh_s(job, p) for p in self.on_demand(job)]
                    again = self._again[index[0], -1] = min(fresh, default=math.inf)
            else:
                worst = {
                    p: worst_usd(self.world.as_form(job, p), self.world.places[p])
                    for p in self.on_demand(job)
                }
                affordable = (p for p, usd in worst.items() if usd <= left)
                again = min((self._resumed_s(job, place, p) for p in affordable), default=math.inf)
            known = again if math.isfinite(again) else self._resumed_s(job, place, place)
            self._again[index] = INTERRUPTION_S + known
        return self._again[index]

    def _resumed_s(self, job: JobView, place: int, other: int) -> float:
        """How much later than on time the job is done if its machine is taken back, at the worst moment, and it goes on at another place.

        Where most of its work is kept that is the very end; or, where the other place is slower, the beginning: most is then done there.
        """
        fresh_s = self.fresh_s(job, other)
        if job.repeats_s is None:
            return fresh_s
        here, there = self.world.places[place], self.world.places[other]
        here_s, there_s = here.run_s(job), there.run_s(self.world.as_form(job, other))
        again_s = min(there.transfer(job).seconds + job.repeats_s, there_s)
        return fresh_s - there_s + again_s + max(0.0, there_s - here_s)

    def on_demand(self, job: JobView) -> list[int]:
        """Offers on demand that the job may use, and that are to be had."""
        world, places = self.world, self.world.places
        return [
            p
            for p in world.offers(job)
            if places[p].market is Market.ON_DEMAND
            and world.stocks.room(world.place_of(p)) >= machines(world.as_form(job, p), places[p])
        ]

    def fresh_s(self, job: JobView, place: int) -> float:
        """From asking for a machine of this kind until the job is done there."""
        at, job = self.world.places[place], self.world.as_form(job, place)
        return (at.offer.offer.delay_s if at.offer else 0.0) + at.run_s(job)
