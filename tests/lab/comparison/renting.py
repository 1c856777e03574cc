"""The work on which renting is judged: clusters too small for their jobs, beside clouds with real prices, on demand and on spot.

Each has a cluster that is about as large as what its jobs ask for in the mean, so that there are hours in which deadlines can be met only elsewhere, and hours in which
whatever is rented is wasted. On spot, machines live and are to be had as they were in a market that somebody has watched for a day.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from federator.model.capacity import Offer
from federator.simulation.clouds import OfferRisk
from federator.simulation.spot_events import read_history
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSite, WorldSpec
from federator.simulation.world_files import host_pool
from tests.lab.comparison.offers import A100, V100, on_spot

DAY_S = 86_400.0
SAVES_S = 600.0
"""Where spot is judged, jobs save themselves so often, at a place that outlives their machine."""


class Work(NamedTuple):
    """Jobs, the hosts of eight GPUs that there are for them, and where more can be rented."""

    title: str
    trace: str
    hosts: int
    model: str
    gpu_memory_mib: int
    offers: tuple[Offer, ...]
    events: str
    """A file, and in it a trace, of what the spot market of this model did."""
    market: str
    cluster: str = ""
    """Of the ten clusters this one."""
    share: float = 1.0
    """So much of the jobs, by chance."""
    length_s: float = 9 * DAY_S
    """Of those that are submitted in so long a time."""
    deadline_k: float | None = None
    """None: the trace's own deadlines."""


def _itp02(k: float) -> Work:
    return Work(
        title=f"itp02 on 96 A100, k = {k:g}",
        trace="itp10_jobs_month1.csv.gz",
        hosts=12,
        model="A100",
        gpu_memory_mib=40_960,
        offers=A100,
        events="bamboo_gcp_spot_counts.csv.gz",
        market="gcp-a100x1-us-east1-b",
        cluster="itp02",
        deadline_k=k,
    )


WORKS = {
    "itp02-k1.5": _itp02(1.5),
    "itp02-k3": _itp02(3.0),
    "philly": Work(
        title="a tenth of Chronus' Philly mix 1 on 96 V100",
        trace="chronus_philly_mix1.csv.gz",
        hosts=12,
        model="V100",
        gpu_memory_mib=16_384,
        offers=V100,
        events="bamboo_spot_events.csv.gz",
        market="aws-p3",
        share=0.1,
        length_s=5 * DAY_S,
    ),
}
WORTHS = (1.2, 1.5, 2.0, 3.0, 10.0)
EACH_USD = (3.0, 10.0, 30.0, 100.0, 300.0)
"""By misses that are counted, each deadline is as good as any other: then ours is told so, too."""
PATIENCE = {"threshold": (0.0, 1 / 3, 1.0, 4.0, 12.0, 48.0), "starburst": (0.25, 1.0, 4.0, 16.0)}
"""Of these baselines, how many times as long as they are known for (half an hour; 0.076 h per GPU-hour) they wait before they rent."""


def renting_world(name: str, data: Path, *, spot: bool) -> tuple[WorldSpec, tuple[Offer, ...]]:
    """The site, and what can be rented."""
    work = WORKS[name]
    pool = host_pool("main", work.model, work.hosts, 8, gpu_memory_mib=work.gpu_memory_mib)
    world = WorldSpec(name=work.title, sites=(WorldSite(name="home", pools=(pool,)),))
    if not spot:
        return world, work.offers
    taken = on_spot(work.offers)
    risk = OfferRisk(history=read_history(data / work.events, work.market))
    return replace(world, risks={offer.name: risk for offer in taken}), (*work.offers, *taken)


def renting_jobs(name: str, trace: Sequence[TraceJob], *, saves: bool) -> list[TraceJob]:
    """Those of its cluster, at home; they save themselves, if they shall. A deadline is worth what its work costs, whatever the trace says."""
    cluster = WORKS[name].cluster
    saves_s = SAVES_S if saves else None
    return [
        replace(job, home="home", saves_s=saves_s, value_usd=None)
        for job in trace
        if cluster in ("", job.home)
    ]
