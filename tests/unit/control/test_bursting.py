"""Renting: caused by a deadline, permitted by a policy, paid to the cent, and given back."""

from typing import Any

import msgspec
import pytest

from federator.kernel.errors import Invalid
from federator.model.capacity import InstanceStatus, LeaseStatus, Market
from federator.model.events import LedgerKind
from federator.model.jobs import JobStatus
from federator.model.placements import PlacementStatus
from federator.model.plans import Rent
from federator.wire.http import JobPatch
from federator_providers.reserved import Reservation
from tests.support.dispatch import ADA, ADMIN, OFFER, World, make_world, renting

POLICIES = renting(max_duration="2h", deadline_usd=20, usd_per_day=100)
JOB: dict[str, Any] = {"resources": {"gpus": 4}, "estimate": "1h"}


@pytest.fixture
async def world() -> World:
    """One site, which is full for five hours, and a policy that lets deadlines rent."""
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(POLICIES)
    await world.submit(resources={"gpus": 4}, estimate="4h", max_duration="5h", name="filler")
    await world.turn()
    await world.core.executor.poll()
    return world


async def until_rented(world: World, job: str) -> None:
    """Let time pass, turn by turn, until the job is placed. Fails after a day."""
    for _ in range(24 * 12):
        plan = await world.core.turn.once()
        if world.job(job).status is JobStatus.PLACED:
            return
        assert plan is not None
        wake_at = plan.wake_at or world.clock.now() + 300
        world.clock.advance(min(300.0, max(1.0, wake_at - world.clock.now())))
    raise AssertionError("nothing was rented")


async def test_what_is_reserved_is_rented_first_and_counts_what_it_still_costs() -> None:
    """Two machines are needed, and one is paid for already: the caps count the other."""
    world = await make_world(reserved={OFFER.name: Reservation(1, 0.5, None)})
    await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(POLICIES)
    await world.submit(resources={"gpus": 4}, estimate="4h", max_duration="5h", name="filler")
    await world.turn()
    await world.core.executor.poll()  # one look is enough to offer it
    one: dict[str, Any] = {"resources": {"gpus": 8}, "estimate": "1h", "finish_within": "2h"}
    for job in [await world.submit(**one), await world.submit(**one)]:
        await until_rented(world, job)
    await world.core.executor.step()
    await world.core.executor.poll()
    first, second = sorted(world.leases(), key=lambda lease: lease.offer.price_usd_h)
    assert (first.offer.name, second.offer.name) == (f"{OFFER.name}/reserved", OFFER.name)
    assert first.committed_usd < 2.0
    assert second.committed_usd > 24.0
    assert {lease.status for lease in world.leases()} == {LeaseStatus.BOOTING}
    (row,) = [each for each in world.core.views.offers() if each.name == first.offer.name]
    assert (row.available, row.price_usd_h, row.price_source) == (0, 0.5, "1 reserved")


async def test_without_a_deadline_nothing_is_rented(world: World) -> None:
    job = await world.submit(**JOB)
    for _ in range(12):
        await world.turn()
        world.clock.advance(600)
    assert world.job(job).status is JobStatus.PENDING
    assert not world.leases()


async def test_a_deadline_that_home_misses_rents_and_records_why(world: World) -> None:
    job = await world.submit(**JOB, finish_within="3h")
    deadline_at = world.job(job).deadline_at
    assert deadline_at is not None
    await until_rented(world, job)
    (lease,) = world.leases()
    evidence = lease.evidence
    assert evidence is not None
    assert evidence.job == job
    assert evidence.home_finish_at is not None
    assert evidence.home_finish_at > deadline_at >= evidence.burst_finish_at
    assert evidence.policy == "BurstPolicy/deadlines"
    assert evidence.value_usd > evidence.cost_usd > 0
    assert evidence.decision


async def test_renting_is_as_late_as_is_safe(world: World) -> None:
    job = await world.submit(**JOB, finish_within="3h")
    plan = await world.core.turn.once()
    assert plan is not None
    assert world.job(job).status is JobStatus.PENDING, "three hours are left for a run of 1.35 h: not yet"
    assert plan.wake_at is not None
    assert world.clock.now() < plan.wake_at < world.clock.now() + 3 * 3600
    begun_at = world.clock.now()
    while world.job(job).status is JobStatus.PENDING:
        assert plan is not None
        assert plan.wake_at is not None, (
            "what home is forecast to do has changed, so it may look again: but it looks"
        )
        world.clock.advance(plan.wake_at - world.clock.now())
        plan = await world.core.turn.once()
    assert world.job(job).status is JobStatus.PLACED
    assert world.clock.now() < begun_at + (3 - 1.35) * 3600 - 300, "the planned run is still in time"


async def test_the_executor_is_woken_by_what_may_concern_a_lease_and_by_nothing_else(world: World) -> None:
    executor, woken = world.core.executor, world.core.executor.alarm.rings
    world.core.records.subscribe(executor.wake)
    world.core.inventory.subscribe(executor.wake)
    await executor.step()
    woken.clear()
    job = await world.submit(**JOB, finish_within="2h")
    world.report()
    assert not woken.is_set(), "nothing is rented"
    await until_rented(world, job)
    assert woken.is_set(), "there is a lease now"
    await executor.step()
    woken.clear()
    await world.submit(**JOB)
    assert woken.is_set(), "while there is one, anything may concern it"


async def test_a_lease_lives_its_whole_life_and_the_money_adds_up(world: World) -> None:
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    (lease,) = world.leases()
    assert lease.status is LeaseStatus.REQUESTED
    await world.core.executor.step()
    world.clock.advance(300)
    cloud = await world.boot(world.leases()[0])
    assert world.leases()[0].status is LeaseStatus.READY
    await world.obey()
    assert world.job(job).status is JobStatus.RUNNING
    assert world.placement(job).market is Market.ON_DEMAND
    world.clock.advance(3600)
    await cloud.finish(job)
    await world.core.executor.step()
    await world.core.executor.step()
    world.clock.advance(400)
    for _ in range(4):
        await world.core.executor.step()
        await world.core.executor.poll()
    (lease,) = world.leases()
    assert lease.status is LeaseStatus.GONE
    assert world.core.views.site(lease.site).status == "UNRENTED", "nothing of it is on its way"
    (instance,) = await world.provider.instances("federation")
    assert instance.status is InstanceStatus.ENDED
    assert lease.billed_usd == pytest.approx(instance.billed_usd)
    assert world.job(job).spent_usd == pytest.approx(instance.billed_usd)
    money = [entry for entry in await world.core.views.ledger() if entry.kind is LedgerKind.MONEY]
    assert sum(entry.usd for entry in money) == pytest.approx(instance.billed_usd)


async def test_sold_out_capacity_gives_the_job_back_and_avoids_the_offer(world: World) -> None:
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    world.provider.sold_out.add("r1/p4/on-demand")
    await world.core.executor.step()
    (lease,) = world.leases()
    assert lease.status is LeaseStatus.FAILED
    assert world.job(job).status is JobStatus.PENDING
    plan = await world.core.turn.once()
    assert plan is not None
    assert not [action for action in plan.actions if isinstance(action, Rent)], (
        "the offer is avoided for a while"
    )


async def test_a_launch_asked_for_twice_rents_once(world: World) -> None:
    """A crash between the provider's answer and our note of it: the next pass asks again, under the same name."""
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    await world.core.executor.step()
    await world.put(msgspec.structs.replace(world.leases()[0], status=LeaseStatus.LAUNCHING))
    world.clock.advance(15)
    await world.core.executor.step()
    assert world.leases()[0].status is LeaseStatus.BOOTING
    assert len(await world.provider.instances("federation")) == 1


async def test_a_machine_that_vanishes_loses_no_job(world: World) -> None:
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    await world.core.executor.step()
    await world.boot(world.leases()[0])
    await world.obey()
    world.provider.vanish(world.leases()[0].id)
    await world.core.executor.poll()
    assert world.leases()[0].status is LeaseStatus.GONE
    assert world.job(job).status is JobStatus.PENDING
    (placement,) = [p for p in world.core.records.placements.values() if p.job == job]
    assert placement.status is PlacementStatus.LOST


async def test_cancelling_before_the_boot_gives_the_machine_back(world: World) -> None:
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    await world.core.executor.step()
    await world.core.intake.cancel(ADA, job)
    assert world.job(job).status is JobStatus.CANCELLED
    for _ in range(4):
        await world.core.executor.step()
        await world.core.executor.poll()
    assert world.leases()[0].status is LeaseStatus.GONE


async def test_a_job_that_its_machine_boots_for_is_said_to_start_when_that_is_there(world: World) -> None:
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    placed_at = world.clock.now()
    explanation = await world.core.views.explain(world.job(job))
    assert explanation.expected_start_at == placed_at + OFFER.delay_s
    world.clock.advance(OFFER.delay_s + 40.0)
    await world.boot(world.leases()[0])
    await world.obey()
    explanation = await world.core.views.explain(world.job(job))
    assert explanation.expected_start_at == placed_at + OFFER.delay_s + 40.0


async def test_the_daily_cap_stops_a_rental_with_its_name(world: World) -> None:
    await world.policies(renting(max_duration="2h", deadline_usd=20, usd_per_day=10))
    job = await world.submit(**JOB, finish_within="2h")
    await world.core.turn.once()
    explanation = await world.core.views.explain(world.job(job))
    assert not world.leases()
    assert any("deadlines" in site.text for site in explanation.sites), explanation.sites


async def test_burst_pause_stops_new_spending_at_once(world: World) -> None:
    await world.core.policy_service.pause_burst(ADMIN, on=True)
    job = await world.submit(**JOB, finish_within="2h")
    for _ in range(20):
        await world.core.turn.once()
        world.clock.advance(300)
    assert world.job(job).status is JobStatus.PENDING
    assert not world.leases()


async def test_a_leaked_instance_is_ended_after_two_listings(world: World) -> None:
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    await world.core.executor.step()
    lease = world.leases()[0]
    await world.put(msgspec.structs.replace(lease, status=LeaseStatus.GONE))
    assert await world.core.sweeper.end_leaks() == []
    assert await world.core.sweeper.end_leaks() == [lease.id]
    assert (await world.provider.instances("federation"))[0].status is InstanceStatus.ENDED


async def test_a_longer_limit_on_a_rented_machine_is_refused_and_a_shorter_one_reaches_it(
    world: World,
) -> None:
    """Budgets were asked for the limit that the job started with; a longer one would spend what nobody committed."""
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    for longer in ("3h", "none"):
        with pytest.raises(Invalid, match="rented") as refused:
            await world.core.intake.update(ADA, job, JobPatch(max_duration=longer))
        assert refused.value.field == "$.max_duration"
    await world.core.intake.update(ADA, job, JobPatch(max_duration="90m"))
    assert world.placement(job).max_duration_s == 5400


async def test_max_cost_of_a_rented_job_cannot_fall_below_what_is_committed(world: World) -> None:
    job = await world.submit(**JOB, finish_within="2h", max_cost="200 USD")
    await until_rented(world, job)
    committed_usd = world.leases()[0].committed_usd
    with pytest.raises(Invalid, match="rented") as refused:
        await world.core.intake.update(ADA, job, JobPatch(max_cost=f"{committed_usd - 1:.2f} USD"))
    assert refused.value.field == "$.max_cost"
    await world.core.intake.update(ADA, job, JobPatch(max_cost=f"{committed_usd + 1:.2f} USD"))
    assert world.job(job).max_cost_usd == pytest.approx(committed_usd + 1, abs=0.01)


async def test_a_cap_counts_what_another_policy_let_rent(world: World) -> None:
    """Two policies about the same queue: the day's cap of one holds for what both have let be rented."""
    capped = """
---
apiVersion: federator/v1
kind: BurstPolicy
metadata: {name: lease_budget}
spec: {who: {queues: [default]}, when: {mode: economic}, limits: {usd: {per_day: 90}}}
"""
    await world.policies(POLICIES + capped)
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    (lease,) = world.leases()
    committed = {row.policy: row.committed for row in world.core.views.budgets() if row.unit == "usd"}
    assert committed == {
        "BurstPolicy/deadlines": lease.committed_usd,
        "BurstPolicy/lease_budget": lease.committed_usd,
    }
