"""Small worlds for planner and checker: plain builders for one thing at a time.

Every builder takes what the test wants to vary and gives the rest a value under which everything is permitted, so that a test names only
what it is about. `NOW` is a Tuesday, 22:13:20 UTC.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from federator.model.capacity import BurstEvidence, Market, Offer, Shape
from federator.model.plans import Action, Place, Plan, Preempt, Rent, Waiting
from federator.model.rules import BurstMode, Effect, Filter, Rule
from federator.model.snapshot import BusyView, JobView, OfferView, PoolView, Problem, Snapshot, SpendView

NOW = 1_700_000_000.0
HOUR = 3600.0


def a_job(name: str = "job-a", **fields: Any) -> JobView:
    """A job of one GPU that runs for an hour, is killed after two, and has waited for ten minutes."""
    given: dict[str, Any] = {
        "revision": 7, "name": name, "queue": "research/vision", "owner": "ada", "submitted_at": NOW - 600.0,
        "gpus": 1, "cpus_milli": 1000, "memory_mib": 1024, "run_s": HOUR, "run_low_s": HOUR, "run_high_s": HOUR,
        "max_duration_s": 2 * HOUR,
    }  # fmt: skip
    return JobView(id=name, **(given | fields))


def a_pool(site: str = "home", **fields: Any) -> PoolView:
    """Two idle on-premises hosts of four A100 each, at one member."""
    given: dict[str, Any] = {
        "kind": "onprem", "pool": "gpu", "member": f"{site}-1", "session": f"session-{site}", "region": "eu", "model": "A100",
        "gpu_memory_mib": 81920, "nodes": 2, "gpus_per_node": 4, "cpus_milli_per_node": 64_000, "memory_mib_per_node": 262_144,
    }  # fmt: skip
    given |= fields
    whole = Shape(
        given["gpus_per_node"], given["cpus_milli_per_node"], given["memory_mib_per_node"], given["nodes"]
    )
    given.setdefault("free", (whole,))
    return PoolView(site=site, **given)


def a_lease(lease: str = "lease-1", **fields: Any) -> PoolView:
    """The pool of a rented host of four A100 that has booted."""
    given: dict[str, Any] = {
        "kind": "cloud", "member": f"{lease}-0", "nodes": 1, "market": Market.ON_DEMAND, "provider": "acme", "lease": lease,
        "price_usd_gpu_h": 2.5,
    }  # fmt: skip
    return a_pool("acme-eu", **(given | fields))


def an_offer(
    name: str = "eu/4xA100", *, site: str = "acme-eu", avoid_until_at: float | None = None, **fields: Any
) -> OfferView:
    """A host of four A100 for 10 USD an hour, nine minutes to boot and one to end; three of them to be had."""
    given: dict[str, Any] = {
        "provider": "acme", "region": "eu", "instance_type": "4xA100", "market": Market.ON_DEMAND, "model": "A100",
        "gpu_memory_mib": 81920, "gpus": 4, "cpus_milli": 64_000, "memory_mib": 262_144, "price_usd_h": 10.0, "delay_s": 540.0,
        "teardown_s": 60.0, "minimum_billing_s": 60.0, "available": 3,
    }  # fmt: skip
    return OfferView(offer=Offer(name=name, **(given | fields)), site=site, avoid_until_at=avoid_until_at)


def bursting(policy: str = "burst", *, mode: BurstMode | None = BurstMode.ECONOMIC, **fields: Any) -> Filter:
    """A policy that permits to rent anything, when it pays."""
    return Filter(policy=policy, effect=Effect.ALLOW, mode=mode, **fields)


def busy(placement: str, job: str, /, **fields: Any) -> BusyView:
    """Work of ours that holds one GPU for another hour."""
    given: dict[str, Any] = {
        "nodes": 1, "gpus": 1, "ends_at": NOW + HOUR, "queue": "batch", "owner": "bob", "priority": 10, "started_at": NOW - HOUR,
        "revision": 3,
    }  # fmt: skip
    return BusyView(placement=placement, job=job, **(given | fields))


def a_world(
    jobs: Iterable[JobView] = (),
    pools: Iterable[PoolView] = (),
    offers: Iterable[OfferView] = (),
    rules: Iterable[Rule] = (),
    spend: Iterable[SpendView] = (),
    *,
    burst_paused: bool = False,
) -> Problem:
    """A problem over these."""
    snapshot = Snapshot(
        taken_at=NOW, incarnation="store-1", revision=100, jobs=tuple(jobs), pools=tuple(pools), offers=tuple(offers),
        rules=tuple(rules), spend=tuple(spend), burst_paused=burst_paused,
    )  # fmt: skip
    return Problem(snapshot=snapshot, decision="dec-1")


def placed(job: JobView, pool: PoolView, /, **fields: Any) -> Place:
    """The action that starts the job there, all as it should be."""
    given: dict[str, Any] = {
        "revision": job.revision, "site": pool.site, "pool": pool.pool, "members": (pool.member,) * job.nodes,
        "session": pool.session, "market": pool.market, "price_usd_gpu_h": pool.price_usd_gpu_h, "expected_start_at": NOW,
        "expected_end_at": NOW + job.run_s, "because": "it fits", "lease": pool.lease,
    }  # fmt: skip
    return Place(job=job.id, **(given | fields))


def worst_usd(job: JobView, view: OfferView) -> float:
    """What renting the offer for the job costs if the job runs into its limit."""
    assert job.max_duration_s is not None
    offer = view.offer
    return (
        offer.price_usd_h
        * max(offer.minimum_billing_s, offer.delay_s + job.max_duration_s + offer.teardown_s)
        / HOUR
    )


def proof(job: JobView, view: OfferView, /, **fields: Any) -> BurstEvidence:
    """Evidence that an economic policy accepts, for a job whose deadline the offer meets."""
    given: dict[str, Any] = {
        "policy": "burst", "mode": "economic", "home_finish_at": None, "burst_finish_at": NOW + view.offer.delay_s + job.run_s,
        "deadline_at": job.deadline_at, "cost_usd": 1.0, "value_usd": 100.0, "decision": "dec-1",
    }  # fmt: skip
    return BurstEvidence(job=job.id, **(given | fields))


def rented(job: JobView, view: OfferView, /, *, evidence: BurstEvidence | None = None, **fields: Any) -> Rent:
    """The action that rents the offer for the job, all as it should be."""
    given: dict[str, Any] = {
        "revision": job.revision, "provider": view.offer.provider, "offer": view.offer.name, "site": view.site,
        "expected_start_at": NOW + view.offer.delay_s, "expected_end_at": NOW + view.offer.delay_s + job.run_s,
        "because": "its deadline is worth it",
    }  # fmt: skip
    given |= fields
    if "committed_usd" not in given:
        given["committed_usd"] = worst_usd(job, view)
    return Rent(job=job.id, evidence=evidence or proof(job, view), **given)


def preempted(victim: BusyView, beneficiary: str, /, **fields: Any) -> Preempt:
    """The action that stops the victim for the beneficiary."""
    given: dict[str, Any] = {"revision": victim.revision, "because": "its place is owed"}
    return Preempt(
        job=victim.job or "", placement=victim.placement or "", beneficiary=beneficiary, **(given | fields)
    )


def a_plan(*actions: Action, waiting: Iterable[str] = ()) -> Plan:
    """A plan of these actions; `waiting` names jobs that wait for capacity."""
    return Plan(
        decision="dec-1", taken_at=NOW, seed=0, winner="by-hand", winner_because="written by a test", objective_usd=0.0,
        actions=actions, waiting=tuple(Waiting(job=name, kind="capacity", because="nothing is free") for name in waiting),
    )  # fmt: skip


def changed(problem: Problem, **fields: Any) -> Problem:
    """The same problem, with other fields in its snapshot."""
    return msgspec.structs.replace(problem, snapshot=msgspec.structs.replace(problem.snapshot, **fields))
