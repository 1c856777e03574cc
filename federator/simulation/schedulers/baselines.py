"""The baselines, each as the rule that makes it what it is. `docs/explanation/simulation.md` has them in a table."""

import math
import random
from collections.abc import Collection, Sequence
from typing import Any

from federator.model.snapshot import JobView
from federator.planning.scheduling.forecast import RUNTIME_MARGIN
from federator.planning.world.problem import World
from federator.simulation.schedulers.listing import cheapest
from federator.simulation.schedulers.port import listed
from federator.simulation.world import World as Setting

WAIT_S = 1800.0
"""Baselines that rent do so after so long."""
SITES_PER_ROUND = 3
ROUND_S = 300.0
"""A race that grows asks three more sites every five minutes, as MultiKueue's incremental dispatcher does."""
BUDGET_H_PER_GPU_H = 0.076
"""Starburst: hours of waiting per GPU-hour of a job, as the artifact's runs of Philly have it (`linear_cost-0.076` in michaelzhiluo/starburst)."""


class Fifo:
    """In order of arrival; the first listed site that has room; what does not fit is passed over (backfill). Rents after half an hour."""

    shares = False
    patience = 1.0

    def __init__(self, seed: int, setting: Setting) -> None:
        del seed
        self._sites = listed(setting)
        self._clouds = tuple(dict.fromkeys(setting.cloud_sites.values()))

    def order(self, job: JobView) -> Any:
        """Arrival."""
        return job.submitted_at, job.name

    def choose(self, job: JobView, fitting: Sequence[int], world: World) -> int:
        """The first."""
        del job, world
        return fitting[0]

    def asked(self, waited_s: float) -> Collection[str]:
        """All sites."""
        del waited_s
        return self._sites

    def rents_after_s(self, job: JobView, site: str) -> float:
        """Half an hour, whatever the job and the cloud."""
        del job, site
        return WAIT_S * self.patience

    def stirs_s(self, job: JobView, *, renting: bool) -> Collection[float]:
        """When it may be rented for."""
        return {self.rents_after_s(job, site) for site in self._clouds} if renting else ()


class Threshold(Fifo):
    """By deadline; the cheapest site that has room now. Rents after half an hour."""

    def order(self, job: JobView) -> Any:
        """The deadline; jobs without one come last, in order of arrival."""
        return math.inf if job.deadline_at is None else job.deadline_at, job.submitted_at, job.name

    def choose(self, job: JobView, fitting: Sequence[int], world: World) -> int:
        """The cheapest."""
        return cheapest(job, fitting, world)


class Starburst(Fifo):
    """In order of arrival; what fits nowhere waits for so long as its GPU-hours allow, and is then rented for (Luo et al., ATC 2024)."""

    def rents_after_s(self, job: JobView, site: str) -> float:
        """In proportion to its GPU-hours, as its user estimates them."""
        del site
        return self.patience * BUDGET_H_PER_GPU_H * job.gpus_total * job.run_s / RUNTIME_MARGIN


class Race(Fifo):
    """By priority, then arrival; a random one of the sites that have room now, as if all had been asked and one had been first.

    Clouds are asked with the others and boot meanwhile: they take part when a job has waited for as long as that takes, and then are there at
    once (`booted_ahead` makes it so). Nobody pays for those boots, neither of clouds that win nor of those that lose.
    """

    shares = True

    def __init__(self, seed: int, setting: Setting) -> None:
        super().__init__(seed, setting)
        self._chance = random.Random(seed)
        self._boot_s = min((offer.delay_s for offer in setting.offers), default=0.0)

    def order(self, job: JobView) -> Any:
        """Priority, then arrival."""
        return -job.priority, job.submitted_at, job.name

    def choose(self, job: JobView, fitting: Sequence[int], world: World) -> int:
        """The first place of any site, however many it has."""
        del job
        first: dict[str, int] = {}
        for place in fitting:
            first.setdefault(world.places[place].site, place)
        return self._chance.choice(list(first.values()))

    def rents_after_s(self, job: JobView, site: str) -> float:
        """As long as the quickest cloud takes to boot."""
        del job, site
        return self._boot_s


class RaceIncremental(Race):
    """A race that grows: the first three listed sites, and three more every five minutes; clouds are listed last, and boot once they are asked."""

    def asked(self, waited_s: float) -> Collection[str]:
        """The sites that have been asked by now."""
        return self._sites[: SITES_PER_ROUND * (1 + int(waited_s / ROUND_S))]

    def rents_after_s(self, job: JobView, site: str) -> float:
        """From its round on it boots."""
        del job
        return ROUND_S * (self._sites.index(site) // SITES_PER_ROUND) + self._boot_s

    def stirs_s(self, job: JobView, *, renting: bool) -> Collection[float]:
        """At every round but the first, too."""
        rounds = math.ceil(len(self._sites) / SITES_PER_ROUND)
        return {*super().stirs_s(job, renting=renting), *(ROUND_S * number for number in range(1, rounds))}
