"""The baselines, each as the rule that makes it what it is."""

import math
import random
from collections.abc import Sequence
from typing import Any

from federator.model.snapshot import JobView
from federator.planning.problem import World
from federator.simulation.schedulers.listing import cheapest


class Fifo:
    """In order of arrival; the first listed site that has room; what does not fit is passed over (backfill)."""

    def __init__(self, seed: int) -> None:
        del seed

    def order(self, job: JobView) -> Any:
        """Arrival."""
        return job.submitted_at, job.name

    def choose(self, job: JobView, fitting: Sequence[int], world: World) -> int:
        """The first."""
        del job, world
        return fitting[0]


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
