"""The baselines, each as the rule that makes it what it is."""

import math
import random
from collections.abc import Sequence
from typing import Any

from federator.model.snapshot import JobView
from federator.planning.problem import World
from federator.simulation.schedulers.listing import cheapest, owned_first
from federator.simulation.work import HOME


class Fifo:
    """In order of arrival; the first listed site that has room; what does not fit is passed over (backfill)."""

    def __init__(self, seed: int) -> None:
        del seed

    def order(self, job: JobView) -> Any:
        """Arrival."""
        return job.submitted_at, job.name

    def places(self, job: JobView, world: World) -> Sequence[int]:
        """Anywhere."""
        return owned_first(job, world)

    def choose(self, job: JobView, fitting: Sequence[int], world: World) -> int:
        """The first."""
        del job, world
        return fitting[0]


class Isolated(Fifo):
    """Each job in its home site only, in order of arrival, with backfill: the federation that is none."""

    def places(self, job: JobView, world: World) -> Sequence[int]:
        """Its home; a job without one has nowhere to go."""
        home = job.labels.get(HOME)
        return [place for place in world.home(job) if world.places[place].site == home]


class RandomSite(Fifo):
    """In order of arrival; each job is bound, when it is first seen, to one of the sites that could ever run it."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._seed = seed

    def places(self, job: JobView, world: World) -> Sequence[int]:
        """The site that was drawn for it, and what is rented already."""
        home = world.home(job)
        sites = sorted({world.places[place].site for place in home})
        if not sites:
            return world.leases(job)
        site = random.Random(f"{self._seed}/{job.name}").choice(sites)
        return [*(place for place in home if world.places[place].site == site), *world.leases(job)]


class Threshold(Fifo):
    """By deadline; the cheapest site that has room now."""

    def order(self, job: JobView) -> Any:
        """The deadline; jobs without one come last, in order of arrival."""
        return math.inf if job.deadline_at is None else job.deadline_at, job.submitted_at, job.name

    def choose(self, job: JobView, fitting: Sequence[int], world: World) -> int:
        """The cheapest."""
        return cheapest(job, fitting, world)


class Race(Fifo):
    """By priority, then arrival; a random one of the sites that have room now, as if all had been asked and one had been first."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._chance = random.Random(seed)

    def order(self, job: JobView) -> Any:
        """Priority, then arrival."""
        return -job.priority, job.submitted_at, job.name

    def choose(self, job: JobView, fitting: Sequence[int], world: World) -> int:
        """Any."""
        del job, world
        return self._chance.choice(fitting)
