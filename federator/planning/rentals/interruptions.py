"""What the worst interruption of a spot machine costs in time: hearing of it, another machine, and the work again that was lost."""

import math

import numpy as np

from federator.model.capacity import Market
from federator.model.snapshot import JobView
from federator.planning.rules.permits import worst_usd
from federator.planning.world.model_arrays import numbers_of
from federator.planning.world.problem import World

INTERRUPTION_S = 180.0
"""From an interruption's notice until its job can start again: the notice itself, its results' way home, a turn."""


class Interruptions:
    """Asked of one world; what is derived is kept."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._fresh: dict[object, dict[int, float]] = {}
        self._room = np.array(
            [
                world.stocks.room(place) if at.offer and at.market is Market.ON_DEMAND else 0
                for place, at in enumerate(world.places)
            ]
        )
        """By place: machines on demand that are to be had."""

    def again_s(self, job: JobView, place: int) -> float:
        """What the worst interruption costs in time: hearing of it, another machine, and the work again that was lost. 0 where nobody asks.

        Again on the fastest on-demand offer that the job may use and that its `max_cost` still leaves money for; where there is none, on
        such a machine as this. What is lost at the very end is the whole run, or what lies after the last checkpoint that is kept elsewhere.
        """
        at = self.world.places[place]
        if at.market is not Market.SPOT or job.spot_policy != "auto":
            return 0.0
        fresh, others = self.on_demand(job), []
        if job.max_cost_usd is None and job.repeats_s is None:  # then it is the same wherever the machine was
            others = list(fresh.values())
        else:
            left = math.inf
            if job.max_cost_usd is not None:
                left = job.max_cost_usd - job.spent_usd - worst_usd(job, at)
            for other, fresh_s in fresh.items():
                if worst_usd(self.world.as_form(job, other), self.world.places[other]) <= left:
                    others.append(self._resumed_s(job, place, other, fresh_s))
        mine_s = (at.offer.offer.delay_s if at.offer else 0.0) + at.run_s(job)
        return INTERRUPTION_S + (min(others) if others else self._resumed_s(job, place, place, mine_s))

    def _resumed_s(self, job: JobView, place: int, other: int, fresh_s: float) -> float:
        """How much later than on time the job is done if its machine is taken back, at the worst moment, and it goes on at another place.

        Where most of its work is kept that is the very end; or, where the other place is slower, the beginning: most is then done there.
        """
        if job.repeats_s is None:
            return fresh_s
        here, there = self.world.places[place], self.world.places[other]
        here_s, there_s = here.run_s(job), there.run_s(self.world.as_form(job, other))
        again_s = min(there.transfer(job).seconds + job.repeats_s, there_s)
        return fresh_s - there_s + again_s + max(0.0, there_s - here_s)

    def on_demand(self, job: JobView) -> dict[int, float]:
        """Offers on demand that the job may use, and that are to be had, as choices; with how long it takes from asking for a machine of this kind until the job is done there (s)."""
        key = self.world.key(job)
        if key not in self._fresh:
            numbers = numbers_of(self.world)
            ways = numbers.rented_ways(job.of or job)
            ways = ways[ways["machines"] <= self._room[ways["place"]]]
            fresh_s = numbers.places["delay_s"][ways["place"]] + ways["run_s"]
            self._fresh[key] = dict(zip(ways["choice"].tolist(), fresh_s.tolist(), strict=True))
        return self._fresh[key]
