"""Worlds so small that everything in them can be computed by hand."""

from typing import Any

import msgspec

from federator.model.capacity import Market, Offer
from federator.simulation.accounting import violations
from federator.simulation.clouds import OfferRisk
from federator.simulation.running import Outcome, simulate
from federator.simulation.schedule import Attempt
from federator.simulation.sites import Conditions
from federator.simulation.work import TraceJob
from federator.simulation.world import WorldSite, WorldSpec
from federator.simulation.world_files import host_pool
from tests.lab.schedulers import scheduler

HOUR_S = 3600.0
TURN_S = 61.0
"""What happens while a turn rests is planned at most so much later."""
ECONOMIC = """
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: rent}
spec:
  when: {mode: economic}
"""
OFFER = Offer(
    name="cloud/A100x4",
    provider="cloud",
    region="cloud",
    instance_type="A100x4",
    market=Market.ON_DEMAND,
    model="A100",
    gpu_memory_mib=81920,
    gpus=4,
    cpus_milli=48_000,
    memory_mib=500_000,
    price_usd_h=10.0,
    delay_s=600.0,
    teardown_s=60.0,
    available=4,
)


def site(name: str, nodes: int = 1, gpus: int = 4, model: str = "A100", **fields: Any) -> WorldSite:
    return WorldSite(name=name, pools=(host_pool("main", model, nodes, gpus),), **fields)


def world(*sites: WorldSite, **fields: Any) -> WorldSpec:
    return WorldSpec(name="tiny", sites=sites or (site("lab"),), **fields)


def renting_world(offer: Offer = OFFER, risk: OfferRisk | None = None, **fields: Any) -> WorldSpec:
    """One site of four GPUs, and a cloud that rents four at a time."""
    return world(
        offers=(offer,),
        risks={offer.name: risk or OfferRisk()},
        cloud_sites={"cloud": "rented"},
        policies=ECONOMIC,
        **fields,
    )


def job(name: str, submit_s: float = 0.0, run_s: float = HOUR_S, **fields: Any) -> TraceJob:
    """A job of one GPU whose user knows how long it runs."""
    given = {"estimate_s": run_s, "max_duration_s": 4 * run_s, **fields}
    return TraceJob(name=name, submit_s=submit_s, run_s=run_s, **given)


def run(where: WorldSpec, *jobs: TraceJob, by: str = "fifo", seed: int = 0) -> Outcome:
    """Simulate, and have it proven that what came out can be true."""
    outcome = simulate(where, jobs, scheduler(by), seed=seed)
    assert not outcome.faults, outcome.faults
    assert not list(violations(outcome, where, jobs))
    return outcome


def row(outcome: Outcome, name: str) -> Attempt:
    """The one attempt of a job."""
    (found,) = [attempt for attempt in outcome.schedule.attempts if attempt.job == name]
    return found


def slow(where: WorldSpec, **conditions: float) -> WorldSpec:
    """The same world with sites that take their time."""
    sites = [msgspec.structs.replace(each, conditions=Conditions(**conditions)) for each in where.sites]
    return msgspec.structs.replace(where, sites=tuple(sites))
