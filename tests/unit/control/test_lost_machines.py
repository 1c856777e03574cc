"""Machines that fail under work: a person's wish outlives them, and only proof frees what may still run."""

from typing import Any

import msgspec

from federator.control.accounts.billing import placements_on
from federator.kernel.errors import Unavailable
from federator.model.capacity import LeaseStatus
from federator.model.events import LedgerKind
from federator.model.jobs import JobStatus
from federator.model.placements import PlacementStatus
from tests.support.dispatch import ADA, World, make_world
from tests.unit.control.test_bursting import JOB, POLICIES, until_rented


async def rented_world() -> tuple[World, str]:
    """A full home, and a job for which a machine has been asked."""
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(POLICIES)
    await world.submit(resources={"gpus": 4}, estimate="4h", max_duration="5h", name="filler")
    await world.turn()
    await world.core.executor.poll()
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    await world.core.executor.step()
    return world, job


async def test_a_hold_outlives_the_machine_that_was_to_stop_the_job() -> None:
    world, job = await rented_world()
    await world.boot(world.leases()[0])
    await world.obey()
    await world.core.intake.act_on_one(ADA, "hold", job)
    assert world.job(job).status is JobStatus.SUSPENDING
    world.provider.vanish(world.leases()[0].id)
    await world.core.executor.poll()
    assert world.job(job).status is JobStatus.HELD
    assert world.job(job).placement is None
    await world.core.intake.act_on_one(ADA, "release", job)
    assert world.job(job).status is JobStatus.PENDING


async def test_a_machine_that_has_joined_is_not_given_up_for_being_away() -> None:
    """Its agent joined and lost its connection before anyone looked: its work may run, and must not start twice."""
    world, job = await rented_world()
    await world.boot(world.leases()[0])
    await world.obey()
    lease = world.leases()[0]
    world.core.inventory.closed(lease.member, world.core.inventory.members[lease.member].session)
    await world.put(msgspec.structs.replace(lease, status=LeaseStatus.BOOTING))
    world.clock.advance(3600)
    await world.core.executor.step()
    assert world.leases()[0].status is LeaseStatus.READY
    assert world.placement(job).status is PlacementStatus.RUNNING


async def test_a_machine_that_nothing_was_found_for_says_why_and_its_offer_is_avoided() -> None:
    """Its launch was taken, and no node came: its job hears the provider's reason and looks elsewhere."""
    world, job = await rented_world()
    lease = world.leases()[0]
    world.provider.find_nothing_for(lease.id, "max node group size reached")
    await world.core.executor.poll()
    lease = world.leases()[0]
    assert (lease.status, lease.failure) == (LeaseStatus.GONE, "no capacity: max node group size reached")
    assert world.job(job).status is JobStatus.PENDING
    assert world.core.inventory.avoided(lease.provider, lease.offer)[1] == "its last launch failed"


async def test_work_on_a_machine_given_back_unanswered_waits_for_proof() -> None:
    """Giving a machine back is no proof that it is gone: until the listing says so, its job may not start elsewhere."""
    world, job = await rented_world()
    await world.boot(world.leases()[0])
    await world.obey()
    world.provider.interrupt(world.leases()[0].id)
    await world.core.executor.poll()
    await world.core.executor.step()
    assert world.leases()[0].status is LeaseStatus.DRAINING
    world.clock.advance(601)
    world.provider.faults = [Unavailable("the cloud does not answer")]
    await world.core.executor.step()
    assert world.leases()[0].status is LeaseStatus.TERMINATING
    assert world.job(job).status is JobStatus.SUSPENDING, "the machine still runs it"
    losses = [line for line in await world.core.views.ledger() if line.kind is LedgerKind.LOSS]
    assert [line.job for line in losses] == [job]
    world.clock.advance(15)
    await world.core.executor.step()
    await world.core.executor.poll()
    assert world.leases()[0].status is LeaseStatus.GONE
    assert world.job(job).status is JobStatus.PENDING


async def test_a_machine_whose_work_never_ends_is_not_paid_for_ever() -> None:
    """Its agent hangs: long after the job's limit, the machine is stopped and given back."""
    world, job = await rented_world()
    await world.boot(world.leases()[0])
    await world.obey()
    for _ in range(40):
        world.clock.advance(300)
        await world.core.executor.poll()
        await world.core.executor.step()
    (lease,) = world.leases()
    assert lease.status is LeaseStatus.GONE
    worst_usd = lease.offer.price_usd_h * (300 + 2 * 3600 + 60) / 3600
    assert lease.billed_usd <= worst_usd + lease.offer.price_usd_h * (2 * 600 + 4 * 300) / 3600
    assert world.job(job).status is JobStatus.PENDING


async def test_work_committed_while_the_machine_is_found_gone_is_not_left_on_it() -> None:
    """Between hearing of its end and noting it, a job was placed there: the lease may not end over its head."""
    world, _ = await rented_world()
    await world.boot(world.leases()[0])
    await world.obey()
    world.provider.vanish(world.leases()[0].id)
    lose = world.core.progress.lose

    async def lose_and_place(placement: str, proof: str, **fields: Any) -> None:
        await lose(placement, proof, **fields)
        world.core.progress.lose = lose  # type: ignore[method-assign]
        await world.core.turn.once()
        assert placements_on(world.core.records, world.leases()[0]), world.core.turn.waiting

    world.core.progress.lose = lose_and_place  # type: ignore[assignment, method-assign]
    await world.core.executor.poll()
    await world.core.executor.poll()
    assert world.leases()[0].status is LeaseStatus.GONE
    assert not placements_on(world.core.records, world.leases()[0])


async def test_a_machine_that_ended_while_nobody_listened_frees_its_job() -> None:
    """The dispatcher was away for longer than providers list what has ended: silence must not keep the job for ever."""
    world, job = await rented_world()
    await world.boot(world.leases()[0])
    await world.obey()
    assert world.job(job).status is JobStatus.RUNNING
    world.provider.machines.clear()
    await world.core.executor.poll()
    await world.core.executor.poll()
    assert world.leases()[0].status is LeaseStatus.READY, "a young machine may not be listed yet"
    world.clock.advance(3601)
    await world.core.executor.poll()
    assert world.leases()[0].status is LeaseStatus.READY, "one listing may be wrong"
    await world.core.executor.poll()
    assert world.leases()[0].status is LeaseStatus.GONE
    assert world.job(job).status is JobStatus.PENDING
