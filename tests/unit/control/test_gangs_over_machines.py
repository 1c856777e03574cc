"""A gang for which several machines are rented: all of them or none, it starts when all are there, and what fails frees the rest."""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.control.accounts.money import affordable
from federator.hub.desired import DesiredPlacements
from federator.model.capacity import LEASE_ENDED, InstanceStatus, LeaseStatus
from federator.model.jobs import JobStatus
from federator.model.placements import Order
from federator.model.plans import Rent
from federator.planning.wording.told import because_of
from federator.settings import LeaseSettings
from tests.support.dispatch import ADA, OFFER, World, make_world
from tests.unit.control.test_bursting import POLICIES, until_rented

GANG: dict[str, Any] = {
    "name": "gang",
    "nodes": 3,
    "resources": {"gpus": 4, "cpus": 1, "memory": "1GiB"},
    "estimate": "1h",
    "finish_within": "3h",
}
"""Three ranks of four GPUs: two fill a machine of eight, and the third has half of another one."""


async def rented(**fields: Any) -> tuple[World, str]:
    """A full home, and a gang for which two machines have been asked."""
    world = await make_world()
    await world.add_site("lab", nodes=2, gpus=8)
    await world.policies(POLICIES.replace("per_day: 100", "per_day: 1000"))
    await world.submit(nodes=2, resources={"gpus": 8}, estimate="4h", max_duration="5h", name="filler")
    await world.turn()
    await world.core.executor.poll()
    job = await world.submit(**(GANG | fields))
    await until_rented(world, job)
    return world, job


async def executor(world: World, passes: int = 3) -> None:
    for _ in range(passes):
        await world.core.executor.poll()
        await world.core.executor.step()


async def running() -> tuple[World, str]:
    """The gang runs on both."""
    world, job = await rented()
    await executor(world, 1)
    world.clock.advance(OFFER.delay_s)
    for lease in world.leases():
        await world.boot(lease)
    await executor(world, 1)
    await world.obey()
    assert world.job(job).status is JobStatus.RUNNING
    return world, job


async def test_so_many_machines_are_rented_as_hold_the_gang() -> None:
    world, job = await rented()
    plan = world.core.turn.plan
    assert plan is not None
    (rent,) = [action for action in plan.actions if isinstance(action, Rent)]
    assert rent.machines == 2
    assert "2 × cloudy/r1/p4/on-demand" in because_of(rent, world.clock.now())
    first, second = world.leases()
    worst_usd = 24.0 * (300 + 2 * 3600 + 30 + 300 + 60) / 3600
    assert [first.committed_usd, second.committed_usd] == pytest.approx([worst_usd, worst_usd])
    assert rent.committed_usd == pytest.approx(2 * worst_usd)
    placement = world.placement(job)
    assert sorted(placement.leases) == [first.id, second.id]
    assert [placement.members.count(lease.member) for lease in (first, second)] in ([2, 1], [1, 2])
    assert placement.members[0] == placement.members[1]


async def test_it_starts_when_all_machines_are_there_and_nobody_is_told_before() -> None:
    world, job = await rented()
    await executor(world, 1)
    board = DesiredPlacements(world.core.records, lambda member, placement: None)
    board.load()
    first, second = world.leases()
    world.clock.advance(OFFER.delay_s)
    await world.boot(first)
    await world.obey()
    world.clock.advance(1200)
    await executor(world, 1)
    await world.core.fences.step()
    assert board.held(first.member) == {}, "a reservation there would run out while the other one boots"
    assert (world.placement(job).assembling, world.placement(job).order) == (True, Order.RESERVE)
    await world.boot(second)
    await executor(world, 1)
    assert set(board.held(first.member)) == set(board.held(second.member)) == {world.placement(job).id}
    await world.obey()
    assert world.job(job).status is JobStatus.RUNNING
    assert world.placement(job).order is Order.RUN


async def test_its_bills_are_the_jobs_and_all_machines_are_given_back() -> None:
    world, job = await running()
    world.clock.advance(3600)
    await executor(world, 1)
    for lease in world.leases():
        await world.sites[lease.member].finish(job)
    assert world.job(job).status is JobStatus.SUCCEEDED
    world.clock.advance(LeaseSettings().idle_s)
    await executor(world)
    world.clock.advance(LeaseSettings().idle_s)
    await executor(world)
    assert {lease.status for lease in world.leases()} == {LeaseStatus.GONE}
    bills = [each.billed_usd for each in await world.provider.instances("federation")]
    assert len(bills) == 2
    assert world.job(job).spent_usd == pytest.approx(sum(bills))
    assert sum(lease.committed_usd for lease in world.leases()) == pytest.approx(sum(bills))


async def test_one_that_cannot_be_launched_frees_the_other_and_its_offer_is_avoided() -> None:
    world, job = await rented()
    await world.core.executor.requested(world.leases()[0])
    world.provider.sold_out.add(OFFER.name)
    await executor(world, 1)
    assert world.job(job).status is JobStatus.PENDING
    assert "failed" in world.job(job).because
    await executor(world)
    assert not [le for le in world.leases() if le.status not in LEASE_ENDED]
    living = await world.provider.instances("federation")
    assert [each.status for each in living] == [InstanceStatus.ENDED], "the one that was launched is ended"
    assert world.core.inventory.avoided("cloudy", OFFER)[0] is not None
    assert world.job(job).refusals == ()


async def test_one_that_never_joins_frees_the_other() -> None:
    world, job = await rented()
    await executor(world, 1)
    world.clock.advance(OFFER.delay_s)
    await world.boot(world.leases()[0])
    world.clock.advance(LeaseSettings().join_within_s + 1)
    await executor(world, 1)
    assert world.job(job).status is JobStatus.PENDING
    assert world.leases()[1].failure == "its agent never joined"
    assert world.core.records.open_placements.keys() == {
        p.id for p in world.core.records.open_placements.values() if p.job != job
    }, "nobody has anything to answer: nobody was told"
    await executor(world)
    world.clock.advance(LeaseSettings().idle_s)
    await executor(world)
    assert {le.status for le in world.leases()} <= LEASE_ENDED


async def test_one_that_is_taken_back_while_the_gang_runs_stops_it_and_the_other_is_free() -> None:
    world, job = await running()
    first, second = world.leases()
    world.provider.interrupt(first.id)
    await executor(world, 1)
    assert world.job(job).status is JobStatus.SUSPENDING
    await world.obey()
    assert world.job(job).status is JobStatus.PENDING
    assert "takes the machine back" in world.job(job).because
    await executor(world)
    assert world.core.records.leases[first.id].status is LeaseStatus.GONE
    assert world.core.records.leases[second.id].status is LeaseStatus.READY
    assert world.core.records.leases[second.id].idle_since_at is not None


async def test_one_that_is_taken_back_before_the_gang_has_begun_costs_it_nothing_but_time() -> None:
    world, job = await rented()
    await executor(world, 1)
    first, second = world.leases()
    world.clock.advance(OFFER.delay_s)
    await world.boot(first)
    world.provider.interrupt(second.id)
    await executor(world, 1)
    assert world.job(job).status is JobStatus.PENDING
    assert (world.job(job).losses, world.job(job).refusals) == ((), ())
    world.clock.advance(world.provider.notice_s)
    await executor(world)
    assert world.core.records.leases[second.id].status is LeaseStatus.GONE


async def test_one_that_vanishes_under_the_gang_stops_the_rest_of_it() -> None:
    world, job = await running()
    first, _ = world.leases()
    world.provider.vanish(first.id)
    await executor(world, 1)
    assert world.job(job).status is JobStatus.RECOVERING
    await world.obey()
    assert world.job(job).status is JobStatus.PENDING
    await executor(world)
    assert world.core.records.leases[first.id].status is LeaseStatus.GONE


async def test_a_cancelled_gang_that_still_waits_for_machines_frees_them() -> None:
    world, job = await rented()
    await executor(world, 1)
    await world.core.intake.cancel(ADA, job)
    assert world.job(job).status is JobStatus.CANCELLED
    await executor(world)
    assert {le.status for le in world.leases()} <= LEASE_ENDED


async def test_what_the_job_may_cost_is_used_up_by_all_its_machines() -> None:
    world, job = await running()
    world.clock.advance(600)
    await executor(world, 1)
    first, _ = world.leases()
    alone_at = affordable(world.core.records, first, {}).until_at
    await world.put(replace(world.job(job), max_cost_usd=world.job(job).spent_usd + 48.0))
    until_at = affordable(world.core.records, first, {}).until_at
    assert until_at == pytest.approx(world.clock.now() + 3600), (
        "48 USD last two machines of 24 USD for an hour"
    )
    assert until_at < alone_at
