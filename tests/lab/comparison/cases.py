"""What is compared: the cases, each a trace on a world, judged by deadlines of its own.

Of the ten clusters each size is three cases, by how tight deadlines are, and each of these comes with and without clouds. A scheduler that does not look at
deadlines does the same in all three, so it is run once and judged three times; one that never rents does the same with clouds as without. `runs_of` finds what has to
be run.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from federator.kernel.errors import Invalid
from federator.model.capacity import Offer
from federator.simulation.loads import LoadOptions, prepared
from federator.simulation.traces import read_trace
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSite, WorldSpec
from federator.simulation.world_files import host_pool, load_world
from federator.wire.named_files import read_table
from tests.lab.comparison.elasticflow import PUBLISHED, TRACE, cluster_world, elastic
from tests.lab.comparison.offers import A100, SITES, V100, usd_gpu_h
from tests.lab.comparison.renting import (
    EACH_USD,
    PATIENCE,
    WORKS,
    WORTHS,
    Work,
    renting_jobs,
    renting_world,
)
from tests.lab.schedulers import SCHEDULERS

INTERACTIVE = "interactive"
VALUE_FACTOR = 3.0
"""A met deadline is worth so many times the on-demand price of its GPU-hours, where a trace has no values."""
WAIT_USD_GPU_H = 0.05
QUEUES_OF_BANDS = {30: "low", 50: "normal", 70: INTERACTIVE}
"""The synthetic family's three priority bands, as queues."""
ONLINE_POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: low}
spec: {waiting_usd_per_gpu_hour: 0.085}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: normal}
spec: {waiting_usd_per_gpu_hour: 0.155}
---
apiVersion: federator/v1
kind: Queue
metadata: {name: interactive}
spec: {interactive: true, waiting_usd_per_hour: 2, waiting_usd_per_gpu_hour: 0.2}
"""
"""What waiting costs is what the files say of their work, by the GPU-hour: they charge a job by the square root of its GPUs. Interactive work is to
start at once: of that it is mostly the person who waits, and so by the job; all of it counts ten times because it is interactive."""
PLAIN_POLICIES = f"""
apiVersion: federator/v1
kind: Queue
metadata: {{name: default}}
spec: {{waiting_usd_per_gpu_hour: {WAIT_USD_GPU_H}}}
"""
MUST_POLICIES = PLAIN_POLICIES.replace("spec: {", "spec: {allow_must: true, ")
"""The same, and a job may say that its deadline must be met."""
RENTING = """
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: rent}
spec:
  when: {mode: economic}
"""
RENTING_FOR_INTERACTIVE = """
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: interactive}
spec:
  who: {queues: [interactive]}
  when: {mode: economic, for: [deadline, waiting]}
"""
"""Somebody sits before interactive work, so its waiting may be rented for, if that costs less."""
LOADS = ("0.5", "0.7", "0.9", "1.1", "1.4")
SIZES = ("0.2", "0.15")
TIGHT = (1.5, 3.0, 10.0)
STRICT_USD = (1000.0, 2000.0, 3000.0, 5000.0)
"""What each of Chronus' strict deadlines is worth to who counts misses, however much work a job is."""
SIGMA = 0.4
KNOWN: dict[str, float | None] = {"sigma": None, "limit": 8.0}
"""ElasticFlow's jobs are so many iterations at a known pace. `max_duration` holds their narrowest form, too."""
CHOOSE_FORMS = frozenset({"ours", "greedy"})
OURS = ("ours", "greedy")
DEADLINE_BLIND = frozenset({"fifo", "random", "race", "race-incremental", "isolated", "starburst"})


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the table for each scheduler. Files are named from the folder of the data."""

    name: str
    family: str
    group: str
    """Cases of one group are means in the short table."""
    trace: str
    sites: str = ""
    """A table of pools; empty: the one cluster of Chronus' artifact."""
    deadline_k: float | None = None
    burst: bool = False
    seed: int = 0
    cluster: str = ""
    """Of ElasticFlow's clusters one alone; empty: all."""
    elastic: bool = False
    """Jobs may run in other forms than the one that they ask for."""
    work: str = ""
    """Of the figures of renting: a name of `renting.WORKS`."""
    spot: bool = False
    """Machines may be rented on spot, too."""
    patience: float = 1.0
    """The baselines wait so many times as long before they rent."""
    worth: float = VALUE_FACTOR
    """What a met deadline is worth, in on-demand prices of its GPU-hours: by this ours rents more or less."""
    each_usd: float | None = None
    """What every met deadline is worth instead, in USD, however much work it is."""
    must: bool = False
    """Jobs say `value: must` instead: what a platform writes whose deadlines are strict."""
    schedulers: tuple[str, ...] = ()
    """Whose rows there are; empty: everybody's."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation, and the cases that it answers, with the schedulers' names there: the rows that it makes."""

    scheduler: str
    case: Case
    rows: tuple[tuple[str, Case], ...]

    @property
    def name(self) -> str:
        """By which its result is kept: a file's name."""
        return f"{self.case.name}/{self.scheduler}".replace("/", "--")


def all_cases() -> list[Case]:
    """Every case, in the order of the table."""
    return [*_online(), *_ten_clusters(), *_chronus(), *_elasticflow(), *_renting()]


def _online() -> Iterable[Case]:
    for load in LOADS:
        for seed in (1, 2, 3):
            yield Case(
                name=f"online/load{load}/seed{seed}",
                family="online",
                group=f"online, load {load}",
                trace=f"online/load{load}_seed{seed}.csv.gz",
                sites="online/pools.csv",
                burst=True,
            )


def _ten_clusters() -> Iterable[Case]:
    for size in SIZES:
        for burst in (False, True):
            for k in TIGHT:
                clouds = ", with clouds" if burst else ""
                yield Case(
                    name=f"ten-clusters/x{size}/k{k:g}{'/burst' if burst else ''}",
                    family="ten clusters",
                    group=f"ten clusters × {size}{clouds}, k = {k:g}",
                    trace="itp10_jobs_month1.csv.gz",
                    sites=f"itp10_sites_x{size}.csv",
                    deadline_k=k,
                    burst=burst,
                )


def _chronus() -> Iterable[Case]:
    """Deadlines are worth their work to ours, or each the same, or must be met; the baselines do not ask."""
    yield _mix("burst", "")
    for usd in STRICT_USD:
        yield _mix(f"each{usd:g}", f", each deadline {usd:,.0f} USD", each_usd=usd, schedulers=OURS)
    yield _mix("must", ", deadlines that must be met", must=True, schedulers=OURS)


def _mix(what: str, title: str, **more: Any) -> Case:
    return Case(
        name=f"chronus/{what}",
        family="chronus",
        group=f"Chronus' Philly mix 1, with clouds{title}",
        trace="chronus_philly_mix1.csv.gz",
        burst=True,
        **more,
    )


def _elasticflow() -> Iterable[Case]:
    for cluster in (*PUBLISHED, ""):
        for form in ("rigid", "elastic"):
            yield Case(
                name=f"elasticflow/{cluster or 'federated'}/{form}",
                family="elasticflow",
                group=f"ElasticFlow's {cluster or 'ten clusters together'}, {form}",
                trace=TRACE,
                cluster=cluster,
                elastic=form == "elastic",
            )


def _renting() -> Iterable[Case]:
    """What spot saves; then how much is missed for how much money, for each scheduler over what makes it rent more or less."""
    for name, work in WORKS.items():
        for spot in (False, True):
            yield _of_work(name, work, "spot", "spot" if spot else "on-demand", spot=spot, schedulers=OURS)
    for name, work in WORKS.items():
        for worth in WORTHS:
            yield _of_work(name, work, "bursting", f"worth{worth:g}", worth=worth, schedulers=OURS)
        for usd in EACH_USD:
            yield _of_work(name, work, "bursting", f"each{usd:g}", each_usd=usd, schedulers=OURS)
        for by, waits in PATIENCE.items():
            for patience in waits:
                yield _of_work(
                    name, work, "bursting", f"{by}-waits{patience:g}", patience=patience, schedulers=(by,)
                )


def _of_work(name: str, work: Work, family: str, what: str, **more: Any) -> Case:
    return Case(
        name=f"{family}/{name}/{what}",
        family=family,
        group=f"{family}, {work.title}, {what}",
        trace=work.trace,
        cluster=work.cluster,
        deadline_k=work.deadline_k,
        burst=True,
        work=name,
        **more,
    )


def chosen(cases: Sequence[Case], only: Sequence[str]) -> list[Case]:
    """Those whose names begin with one of these words; all without any. Raises `Invalid` for a word that no name begins with."""
    for word in only:
        if not any(case.name.startswith(word) for case in cases):
            raise Invalid(
                f"no case is called {word!r}",
                field="--only",
                remedy="write the beginning of a name, such as online/load0.9 or ten-clusters/x0.2/k3",
            )
    return [case for case in cases if not only or any(case.name.startswith(word) for word in only)]


def runs_of(cases: Sequence[Case], schedulers: Sequence[str]) -> list[Run]:
    """The simulations that these cases need, each with all that it answers, in the order of the cases."""
    rows: dict[tuple[str, str], list[tuple[str, Case]]] = {}
    first: dict[tuple[str, str], tuple[str, Case]] = {}
    for case in cases:
        for name in schedulers:
            if name not in SCHEDULERS:
                raise Invalid(f"there is no scheduler {name!r}", field="--scheduler")
            if name == "isolated" and case.family == "online":
                continue  # its jobs have no home: where their data is may not even have their GPUs
            if case.elastic and name not in CHOOSE_FORMS:
                continue  # it starts every job as it is asked for
            if case.schedulers and name not in case.schedulers:
                continue
            runs_as, index = _index(case, name)
            first.setdefault(index, (runs_as, case))
            rows.setdefault(index, []).append((name, case))
    return [
        Run(scheduler=first[index][0], case=first[index][1], rows=tuple(found))
        for index, found in rows.items()
    ]


def _index(case: Case, name: str) -> tuple[str, tuple[str, str]]:
    """As which scheduler it is run, and what tells its simulation from all others."""
    rents = case.burst and name != "isolated"
    runs_as = "fifo" if name == "starburst" and not rents else name
    tightness = "" if name in DEADLINE_BLIND else str(case.deadline_k)
    work = f"{case.trace} {case.sites} {case.cluster} {case.elastic} {case.family == 'elasticflow'} {case.must} {case.worth} {case.each_usd}"
    if case.work:
        work += f" {case.work if tightness else ''} {case.family} {case.spot} {case.patience}"
    return runs_as, (runs_as, f"{work} {tightness} {rents} {case.seed}")


def world_of(case: Case, data: Path) -> WorldSpec:
    """Sites, clouds and policies."""
    if case.family == "online":
        with read_table(data / "online" / "gpu_speed.csv", "--data") as table:
            speeds = {row["gpu_model"]: float(row["speed"]) for _, row in table.rows}
        world = load_world(data / case.sites)
        return msgspec.structs.replace(
            world, speeds=speeds, policies=ONLINE_POLICIES + RENTING + RENTING_FOR_INTERACTIVE
        )
    if case.work:
        world, offers = renting_world(case.work, data, spot=case.spot)
        return _with_clouds(world, offers)
    if case.family == "chronus":
        pool = host_pool("main", "V100", 120, 8, gpu_memory_mib=16384)
        world = WorldSpec(name="Chronus' cluster", sites=(WorldSite(name="philly", pools=(pool,)),))
        world = _with_clouds(world, V100) if case.burst else world
        return msgspec.structs.replace(world, policies=MUST_POLICIES + RENTING) if case.must else world
    if case.family == "elasticflow":
        return cluster_world(data, case.cluster, PLAIN_POLICIES)
    world = msgspec.structs.replace(load_world(data / case.sites), policies=PLAIN_POLICIES)
    return _with_clouds(world, A100) if case.burst else world


def _with_clouds(world: WorldSpec, offers: tuple[Offer, ...]) -> WorldSpec:
    return msgspec.structs.replace(
        world,
        offers=offers,
        cloud_sites={offer.provider: SITES[offer.provider] for offer in offers},
        policies=PLAIN_POLICIES + RENTING,
    )


def jobs_of(case: Case, data: Path, world: WorldSpec, length_s: float | None = None) -> list[TraceJob]:
    """The jobs as they are submitted, with their estimates, deadlines and values."""
    trace = read_trace(data / case.trace)
    if case.work:
        trace = renting_jobs(case.work, trace, saves=case.family == "spot")
    if case.family == "online":
        trace = [msgspec.structs.replace(job, queue=QUEUES_OF_BANDS[job.priority]) for job in trace]
        return prepared(trace, LoadOptions(length_s=length_s), case.seed, world)
    if case.family == "chronus":
        trace = [msgspec.structs.replace(job, home="philly") for job in trace]
    if case.cluster and not case.work:
        trace = [job for job in trace if job.home == case.cluster]
    if case.elastic:
        trace = elastic(trace, data)
    if case.each_usd is not None:
        trace = [
            msgspec.structs.replace(job, value_usd=None if job.deadline_s is None else case.each_usd)
            for job in trace
        ]
    offers = V100 if case.family == "chronus" else A100
    share = 1.0
    if case.work:
        work = WORKS[case.work]
        offers, share, length_s = work.offers, work.share, length_s or work.length_s
    options = LoadOptions(
        length_s=length_s,
        load=share,
        deadline_k=case.deadline_k,
        **(KNOWN if case.family == "elasticflow" else {"sigma": SIGMA}),
        value_usd_gpu_h=case.worth * usd_gpu_h(offers),
    )
    return [
        msgspec.structs.replace(
            job,
            wait_usd_h=WAIT_USD_GPU_H * job.gpus_total,
            must=case.must and job.deadline_s is not None,
        )
        for job in prepared(trace, options, case.seed, world)
    ]
