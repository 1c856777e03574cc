"""Synthetic federations: the instances behind the figures of docs/explanation/solver-benchmarks.md, the same ones for the same parameters.

40 % of the sites are on-premises (two or three pools of 8-GPU nodes), 30 % clouds (a reserved pool, and on-demand and spot offers that
boot for 9 minutes), 30 % edges (4-GPU nodes). Five GPU models differ in speed and price. Gangs are from 1×1 to 32×8, run times lognormal,
70 % of the jobs have deadlines, priorities come in three bands, jobs in heavy-tailed arrays of identical ones, 6 % of the work must stay
in a region. The owned capacity is such that the work is 1.3 times what it can do in a day. Half the arrays read a dataset that lies at one
site: it has dice of its own, so that all else is as it was before there was data.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count

import numpy as np
from msgspec.structs import replace

from federator.model.capacity import Market, Offer, Shape
from federator.model.datasets import DatasetRule, Link, LinkRule, Spot
from federator.model.jobs import Input
from federator.model.rules import BurstMode, Effect, Filter
from federator.model.snapshot import BusyView, JobView, OfferView, PoolView, Problem, Snapshot

NOW = 1_795_000_000.0
HOUR = 3600.0
REGIONS = ("eu", "us", "ap")
TEAMS = 8
MODELS = {"L4": (0.35, 0.6), "A10": (0.45, 0.9), "V100": (0.5, 1.2), "A100": (1.0, 2.4), "H100": (1.9, 4.8)}
"""Speed, and what a GPU-hour costs on demand, in USD. Owned capacity costs a fifth of it, reserved two fifths, spot half."""
GANGS = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (8, 8), (16, 8), (32, 8))
GANG_SHARES = (0.45, 0.15, 0.12, 0.12, 0.07, 0.05, 0.025, 0.01, 0.005)
DATASETS, READS = 40, 0.5
LINKS = LinkRule("links", within_region=Link(10.0, 0.01), between_regions=Link(2.0, 0.08))
"""Gigabits a second, and USD a gigabyte: 50 GB to another region take 200 s and cost 4 USD."""
CPUS_MILLI, MEMORY_MIB = 4_000, 32_768
"""Of each GPU that is asked for; hosts have three times as much per GPU."""


@dataclass(frozen=True)
class Parameters:
    """What an instance is made from. `classes` None: jobs / 8."""

    jobs: int
    sites: int
    classes: int | None = None
    seed: int = 0
    load: float = 1.3
    horizon_h: float = 24.0
    busy: float = 0.5
    """Share of the hosts that are busy now; their work ends within some hours."""

    def described(self) -> str:
        """All of them on a line, for reports."""
        return ", ".join(
            f"{name} {value}" for name, value in (asdict(self) | {"classes": self.kinds}).items()
        )

    @property
    def kinds(self) -> int:
        """How many classes of identical jobs."""
        return self.classes or max(1, self.jobs // 8)


class Instance:
    """One federation and its waiting work, which can be made to change from turn to turn."""

    def __init__(self, parameters: Parameters) -> None:
        """Draw it."""
        self.parameters = parameters
        self._draw = np.random.default_rng(parameters.seed)
        self._data = np.random.default_rng((parameters.seed, 1))
        self.datasets = [self._dataset(number) for number in range(DATASETS)]
        self._numbers = count()
        self._sizes = self._counts()
        self.classes = [self._class(size) for size in self._sizes]
        self.pools, self.offers = self._capacity()

    def problem(self, number: int = 0) -> Problem:
        """What a decision is given; `number` tells the turns apart."""
        snapshot = Snapshot(
            taken_at=NOW,
            incarnation="bench",
            revision=number,
            jobs=tuple(job for members in self.classes for job in members),
            pools=tuple(self.pools),
            offers=tuple(self.offers),
            rules=(Filter("burst", Effect.ALLOW, mode=BurstMode.ECONOMIC), *self.datasets, LINKS),
        )
        return Problem(snapshot=snapshot, decision=f"turn-{number}")

    def churn(self, share: float) -> None:
        """Replace so many of the classes by others of the same sizes."""
        many = max(1, round(share * len(self.classes)))
        for index in self._draw.choice(len(self.classes), size=many, replace=False).tolist():
            self.classes[index] = self._class(self._sizes[index])

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def _counts(self) -> list[int]:
        """Sizes of the arrays: heavy-tailed, one at least, as many jobs as asked for in all."""
        jobs, kinds = self.parameters.jobs, min(self.parameters.kinds, self.parameters.jobs)
        weights = self._draw.pareto(1.3, kinds) + 0.1
        sizes = 1 + np.floor(weights / weights.sum() * (jobs - kinds)).astype(int)
        sizes[np.argmax(sizes)] += jobs - int(sizes.sum())
        return [int(size) for size in sizes]

    def _class(self, size: int) -> list[JobView]:
        draw, number = self._draw, next(self._numbers)
        nodes, gpus = GANGS[draw.choice(len(GANGS), p=GANG_SHARES)]
        names = list(MODELS)
        models = (
            ()
            if draw.random() < 0.3
            else tuple(draw.choice(names, size=draw.integers(1, 4), replace=False).tolist())
        )
        run_s = float(np.clip(draw.lognormal(np.log(HOUR), 1.2), 120.0, 48 * HOUR))
        speed = {name: MODELS[name][0] for name in models or names}
        deadline_at = None
        if draw.random() < 0.7:
            slack = float(np.exp(draw.uniform(np.log(1.15), np.log(10.0))))
            deadline_at = NOW + slack * run_s / max(speed.values())
        labels = {"region": REGIONS[draw.integers(len(REGIONS))]} if draw.random() < 0.06 else {}
        team = f"team-{draw.integers(TEAMS)}"
        waited_s = float(draw.exponential(HOUR))
        first = JobView(
            id="", revision=1, name=f"class-{number}", queue=team, owner=team, submitted_at=NOW - waited_s,
            priority=int(draw.choice((30, 50, 70), p=(0.3, 0.5, 0.2))), nodes=nodes, gpus=gpus, models=models,
            cpus_milli=gpus * CPUS_MILLI, memory_mib=gpus * MEMORY_MIB, run_s=run_s, run_low_s=run_s / 1.8, run_high_s=run_s,
            speed=speed, max_duration_s=4 * run_s / min(speed.values()), deadline_at=deadline_at, site_labels=labels,
            inputs=self._inputs(),
        )  # fmt: skip
        return [replace(first, id=f"job-{number}-{task}") for task in range(size)]

    def _dataset(self, number: int) -> DatasetRule:
        """Tens of gigabytes mostly, at one site."""
        size = int(np.clip(self._data.lognormal(np.log(50e9), 1.2), 1e9, 2e12))
        site = f"site-{self._data.integers(self.parameters.sites)}"
        return DatasetRule("data", f"s3://data/{number}", size, (Spot(site, self._region(site)),))

    def _inputs(self) -> tuple[Input, ...]:
        number, reads = self._data.integers(DATASETS), self._data.random() < READS
        return (Input(self.datasets[number].uri),) if reads else ()

    # -- capacity -----------------------------------------------------------------------------------------------------

    def _capacity(self) -> tuple[list[PoolView], list[OfferView]]:
        """Pools of the right size for the work, and what could be rented."""
        plans = list(self._plans())
        gpus = np.array([per_node for *_, per_node in plans])
        weights = self._draw.lognormal(0.0, 0.7, len(plans)) * gpus
        work_h = sum(job.gpus_total * job.run_s for members in self.classes for job in members) / HOUR
        wanted = work_h / self.parameters.load / self.parameters.horizon_h / (1.0 - self.parameters.busy / 6)
        nodes = np.maximum(1, np.round(wanted * weights / weights.sum() / gpus)).astype(int)
        # The largest gang has somewhere to run.
        nodes[int(np.argmax(np.where(gpus == 8, nodes, 0)))] = max(32, int(nodes.max()))
        pools = [self._pool(*plan, int(size)) for plan, size in zip(plans, nodes, strict=True)]
        clouds = [f"site-{site}" for site, kind in enumerate(self._kinds()) if kind == "cloud"]
        return pools, [offer for site in clouds for offer in self._offers(site)]

    def _kinds(self) -> list[str]:
        sites = self.parameters.sites
        onprem, cloud = max(1, round(0.4 * sites)), round(0.3 * sites)
        return (["onprem"] * onprem + ["cloud"] * cloud + ["edge"] * sites)[:sites]

    def _plans(self) -> Iterator[tuple[str, str, str, int]]:
        """Site, kind, model and GPUs per node of each pool."""
        names = list(MODELS)
        for site, kind in enumerate(self._kinds()):
            many = int(self._draw.integers(2, 4)) if kind == "onprem" else 1
            for model in self._draw.choice(names, size=many, replace=False).tolist():
                yield f"site-{site}", kind, model, 4 if kind == "edge" else 8

    def _pool(self, site: str, kind: str, model: str, per_node: int, nodes: int) -> PoolView:
        draw = self._draw
        busy_nodes = int(draw.binomial(nodes, self.parameters.busy))
        cpus, memory = 3 * per_node * CPUS_MILLI, 3 * per_node * MEMORY_MIB
        works = [
            BusyView(
                nodes=1, gpus=per_node, cpus_milli=cpus, memory_mib=memory,
                ends_at=NOW + float(draw.exponential(4 * HOUR)) + 60.0,
            )
            for _ in range(busy_nodes)
        ]  # fmt: skip
        free = (Shape(per_node, cpus, memory, nodes - busy_nodes),) if nodes > busy_nodes else ()
        share = 0.4 if kind == "cloud" else 0.2
        return PoolView(
            site=site, kind=kind, pool=model.lower(), member=site, session=f"session-{site}", labels={"region": self._region(site)},
            region=self._region(site), price_usd_gpu_h=share * MODELS[model][1], model=model, gpu_memory_mib=81_920, nodes=nodes,
            gpus_per_node=per_node, cpus_milli_per_node=cpus, memory_mib_per_node=memory, free=free, busy=tuple(works),
        )  # fmt: skip

    def _region(self, site: str) -> str:
        return REGIONS[int(site.removeprefix("site-")) % len(REGIONS)]

    def _offers(self, site: str) -> Iterator[OfferView]:
        model = ("A100", "H100", "L4")[int(site.removeprefix("site-")) % 3]
        price = 8 * MODELS[model][1]
        for market, share in ((Market.ON_DEMAND, 1.0), (Market.SPOT, 0.5)):
            offer = Offer(
                name=f"{site}/8x{model}/{market.value}", provider="bench", region=self._region(site), instance_type=f"8x{model}",
                market=market, model=model, gpu_memory_mib=81_920, gpus=8, cpus_milli=24 * CPUS_MILLI, memory_mib=24 * MEMORY_MIB,
                price_usd_h=share * price, delay_s=540.0, available=16,
            )  # fmt: skip
            yield OfferView(offer=offer, site=site, labels={"region": self._region(site)})
