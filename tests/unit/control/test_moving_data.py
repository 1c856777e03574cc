"""Data that is moved for a job: planned, committed, booked once when its site has brought it, and counted by budgets."""

from typing import Any

import pytest

from federator.model.events import LedgerEntry, LedgerKind
from federator.model.jobs import JobStatus
from federator.model.placements import PlacementStatus
from federator.model.rules import Period
from federator.model.sites import Member, Site, SiteKind
from federator.planning.wording.told import because_of
from tests.support.dispatch import ADA, World, make_world

POLICIES = """
apiVersion: federator/v1
kind: Queue
metadata: {name: default}
spec: {met_deadline_usd_per_gpu_hour: 20, max_duration: 2h}
---
apiVersion: federator/v1
kind: Dataset
metadata: {name: imagenet}
spec: {uri: s3://datasets/imagenet, size: 150GB, replicas: [{site: hall, region: eu}]}
---
apiVersion: federator/v1
kind: Links
metadata: {name: links}
spec: {between_regions: {gbit_per_s: 1, usd_per_gb: 0.08}}
"""
BURST = """
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: deadlines}
spec: {who: {queues: [default]}, limits: {usd: {per_day: 500}}}
"""
BUDGET = """
---
apiVersion: federator/v1
kind: Budget
metadata: {name: lease_budget}
spec: {usd: {per_day: 100}}
"""
JOB: dict[str, Any] = {
    "resources": {"gpus": 4},
    "estimate": "1h",
    "inputs": [{"uri": "s3://datasets/imagenet"}],
}


async def a_world(policies: str = POLICIES) -> World:
    """One site, which has none of the data."""
    world = await make_world()
    await world.policies(policies)
    await world.put(
        Site(name="lab", kind=SiteKind.ONPREM, region="us"), Member(id="lab", site="lab", public_key="")
    )
    world.connect("lab", 1, 4, "A100")
    return world


async def moved(world: World, job: str) -> list[LedgerEntry]:
    """Lines of the ledger about its data."""
    lines = await world.core.views.ledger(job=job)
    return [line for line in lines if line.egress_gib]


async def until_rented(world: World) -> None:
    """Let time pass, turn by turn."""
    for _ in range(200):
        await world.core.executor.poll()
        plan = await world.core.turn.once()
        if world.leases():
            return
        wake_at = plan.wake_at if plan and plan.wake_at else world.clock.now() + 60
        world.clock.advance(min(60.0, max(1.0, wake_at - world.clock.now())))
    raise AssertionError("nothing was rented")


async def test_it_is_booked_when_its_site_has_brought_it_and_once() -> None:
    world = await a_world()
    job = await world.submit(**JOB)
    await world.core.turn.once()
    placement = world.placement(job)
    assert placement.moves is not None
    assert placement.expected_end_at == pytest.approx(world.clock.now() + 1200.0 + 1.35 * 3600.0)
    site = world.sites["lab"]
    await site.say(placement, PlacementStatus.ACCEPTED)
    assert await moved(world, job) == []
    assert world.job(job).spent_usd == 0.0
    await site.say(placement, PlacementStatus.STARTING)
    assert await moved(world, job) == [], "as long as its site can still refuse"
    world.clock.advance(1200.0)
    await site.say(placement, PlacementStatus.RUNNING, started_at=world.clock.now())
    (line,) = await moved(world, job)
    assert (line.kind, line.site) == (LedgerKind.MONEY, "lab")
    assert line.usd == pytest.approx(12.0)
    assert line.egress_gib == pytest.approx(150e9 / 2**30)
    assert line.what == "150 GB of data from hall"
    assert world.job(job).spent_usd == pytest.approx(12.0)
    assert world.placement(job).expected_end_at == pytest.approx(world.clock.now() + 1.35 * 3600.0)
    await site.finish(job)
    assert world.job(job).status is JobStatus.SUCCEEDED
    assert world.job(job).spent_usd == pytest.approx(12.0)
    assert len(await moved(world, job)) == 1


async def test_what_never_began_is_not_paid_for() -> None:
    world = await a_world()
    job = await world.submit(**JOB)
    await world.core.turn.once()
    await world.sites["lab"].say(world.placement(job), PlacementStatus.REFUSED)
    assert await moved(world, job) == []
    assert world.job(job).spent_usd == 0.0
    assert all(p.moves is None for p in world.core.records.placements.values())


@pytest.mark.parametrize("how", [PlacementStatus.REFUSED, PlacementStatus.STOPPED])
async def test_a_site_that_gives_up_while_it_starts_is_not_paid_however_often(how: PlacementStatus) -> None:
    world = await a_world(POLICIES + BUDGET)
    job = await world.submit(**JOB)
    for _ in range(3):
        await world.core.turn.once()
        site = world.sites["lab"]
        placement = world.placement(job)
        assert not placement.ended
        (row,) = world.core.views.budgets()
        assert row.spent + row.committed == pytest.approx(12.0), "what is on its way counts"
        for status in (PlacementStatus.ACCEPTED, PlacementStatus.STARTING, how):
            await site.say(placement, status)
        (row,) = world.core.views.budgets()
        assert row.spent + row.committed == 0.0
        world.clock.advance(4000)
        site.report()
    assert await moved(world, job) == []
    assert world.job(job).spent_usd == 0.0


async def test_what_was_given_up_while_it_started_and_ran_after_all_is_paid() -> None:
    world = await a_world(POLICIES + BUDGET)
    job = await world.submit(**JOB)
    await world.core.turn.once()
    site, placement = world.sites["lab"], world.placement(job)
    for status in (PlacementStatus.ACCEPTED, PlacementStatus.STARTING):
        await site.say(placement, status)
    await world.core.progress.lose(placement.id, "it is silent", acknowledged=False)
    assert await moved(world, job) == []
    (row,) = world.core.views.budgets()
    assert row.spent + row.committed == pytest.approx(12.0), "it may still run"
    await site.say(placement, PlacementStatus.SUCCEEDED, started_at=world.clock.now())
    assert [line.usd for line in await moved(world, job)] == [pytest.approx(12.0)]
    assert world.job(job).spent_usd == pytest.approx(12.0)


async def test_where_its_data_is_nothing_is_moved() -> None:
    world = await a_world(POLICIES.replace("site: hall, region: eu", "site: lab"))
    job = await world.submit(**JOB)
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    assert world.placement(job).moves is None
    assert await moved(world, job) == []


async def test_on_a_rented_machine_budgets_count_it_beside_the_rent() -> None:
    world = await a_world(POLICIES + BURST)
    await world.submit(resources={"gpus": 4}, estimate="100m", name="filler")
    await world.turn()
    job = await world.submit(**JOB, finish_within="2h30m")
    await until_rented(world)
    (lease,) = world.leases()
    assert lease.egress_usd == pytest.approx(12.0)
    (row,) = world.core.views.budgets()
    assert (row.policy, row.period) == ("BurstPolicy/deadlines", str(Period.DAY))
    assert row.spent == pytest.approx(lease.billed_usd + 12.0)
    longest_s = lease.offer.delay_s + 1200.0 + 7200.0 + 30.0 + lease.offer.teardown_s
    late_s = lease.committed_usd / lease.offer.price_usd_h * 3600.0 - longest_s
    assert 0.0 <= late_s < 1200.0  # what is kept for what is late
    assert lease.evidence is not None
    assert lease.evidence.job == job


async def test_people_are_told_what_bringing_the_data_takes() -> None:
    world = await a_world()
    job = await world.submit(**JOB)
    await world.core.turn.once()
    told = await world.core.views.explain(world.core.views.find_job(ADA, job))
    assert "150 GB from hall: 20m and 12.00 USD" in told.because


async def test_what_a_job_has_kept_elsewhere_is_brought_when_it_goes_on() -> None:
    world = await a_world()
    job = await world.submit(resources={"gpus": 4}, estimate="1h", checkpoint={"uri": "s3://kept/mine"})
    await world.core.turn.once()
    assert "s3://kept" not in because_of(world.placement(job), world.clock.now())
    site = world.sites["lab"]
    await site.say(world.placement(job), PlacementStatus.RUNNING, started_at=world.clock.now())
    await world.core.intake.act_on_one(ADA, "requeue", job)
    await site.say(world.placement(job), PlacementStatus.STOPPED, checkpointed=True)
    world.clock.advance(120.0)
    site.report()
    await world.core.turn.once()
    assert "what bringing s3://kept/mine takes is not known" in because_of(
        world.placement(job), world.clock.now()
    )


async def test_a_machine_that_never_came_brings_nothing() -> None:
    world = await a_world(POLICIES + BURST)
    await world.submit(resources={"gpus": 4}, estimate="100m", name="filler")
    await world.turn()
    job = await world.submit(**JOB, finish_within="2h30m")
    await until_rented(world)
    assert world.placement(job).moves is not None
    await world.core.intake.cancel(ADA, job)
    assert world.job(job).status is JobStatus.CANCELLED
    assert [p.moves for p in world.core.records.placements.values() if p.job == job] == [None]
    assert world.job(job).spent_usd == 0.0
