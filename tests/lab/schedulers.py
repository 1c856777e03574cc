"""The schedulers of the comparison, by name: those of `federator simulate`, and baselines that only comparisons need.

Each baseline is the rule that makes it what it is; docs/explanation/simulation.md has them in a table.
"""

import math
import random
from collections.abc import Collection, Sequence
from typing import Any

from msgspec.structs import replace

from federator.kernel.errors import Invalid
from federator.model.snapshot import JobView
from federator.planning.scheduling.forecast import RUNTIME_MARGIN
from federator.planning.world.problem import World as Looked
from federator.simulation import schedulers as products
from federator.simulation.schedulers import Scheduler
from federator.simulation.schedulers.listing import Fifo, Rule, Threshold, listing
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSpec
from federator_agent.core.lent_capacity import HostPool

SITES_PER_ROUND = 3
ROUND_S = 300.0
"""A race that grows asks three more sites every five minutes, as MultiKueue's incremental dispatcher does."""
BUDGET_H_PER_GPU_H = 0.076
"""Starburst: hours of waiting per GPU-hour of a job, as the artifact's runs of Philly have it (`linear_cost-0.076` in michaelzhiluo/starburst)."""
AT_ONCE_S = 1.0


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

    def __init__(self, seed: int, setting: WorldSpec) -> None:
        super().__init__(seed, setting)
        self._chance = random.Random(seed)
        self._boot_s = min((offer.delay_s for offer in setting.offers), default=0.0)

    def order(self, job: JobView) -> Any:
        """Priority, then arrival."""
        return -job.priority, job.submitted_at, job.name

    def choose(self, job: JobView, fitting: Sequence[int], world: Looked) -> int:
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


def booted_ahead(world: WorldSpec) -> WorldSpec:
    """Clouds' machines are there as soon as they are rented."""
    return replace(world, offers=tuple(replace(offer, delay_s=AT_ONCE_S) for offer in world.offers))


def to_any(job: TraceJob, world: WorldSpec, seed: int) -> tuple[str, ...]:
    """One of the sites that could ever run it, drawn once; and the clouds."""
    able = [site.name for site in world.sites if any(_holds(pool, job) for pool in site.pools)]
    if not able:
        return ()
    return (random.Random(f"{seed}/site/{job.name}").choice(able), *sorted(set(world.cloud_sites.values())))


def _holds(pool: HostPool, job: TraceJob) -> bool:
    """Whether the job would fit an empty pool."""
    fits = [pool.cpus_milli_per_node // max(1, job.cpus_milli)]
    fits += [pool.memory_mib_per_node // job.memory_mib] if job.memory_mib else []
    fits += [pool.gpus_per_node // job.gpus] if job.gpus else []
    right = not job.gpus or not job.models or pool.model in job.models
    return right and min(fits) * pool.nodes >= job.nodes


PATIENT: dict[str, type[Rule]] = {"threshold": Threshold, "starburst": Starburst}
"""Those whose wait before they rent can be made longer or shorter."""
SCHEDULERS: dict[str, Scheduler] = {
    **products.SCHEDULERS,
    **{
        each.name: each
        for each in (
            listing("random", Fifo, bind=to_any),
            listing("race", Race, change=booted_ahead),
            listing("race-incremental", RaceIncremental, change=booted_ahead),
            listing("starburst", Starburst),
        )
    },
}


def scheduler(name: str) -> Scheduler:
    """The scheduler of that name. Raises `Invalid`."""
    return SCHEDULERS[name] if name in SCHEDULERS else products.scheduler(name)


def patient(name: str, patience: float) -> Scheduler:
    """The scheduler of that name, with its wait before it rents so many times as long. Raises `Invalid` for one that has none."""
    if patience == 1.0:
        return scheduler(name)
    if name not in PATIENT:
        raise Invalid(
            f"{name} has no wait of its own that could be longer or shorter",
            field="--scheduler",
            remedy=f"write one of {', '.join(PATIENT)}",
        )
    return listing(name, PATIENT[name], patience=patience)
