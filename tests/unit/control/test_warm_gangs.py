"""A gang that several machines are rented for uses those of the same make that are warm, and rents the rest."""

from typing import Any

import pytest
from msgspec.structs import replace

from federator.model.capacity import LEASE_ENDED, LeaseStatus
from federator.model.jobs import JobStatus
from federator.planning.wording.told import because_of
from tests.support.dispatch import OFFER, World
from tests.unit.control.test_gangs_over_machines import GANG, executor, running

SECOND = GANG | {"name": "second", "estimate": "55m", "finish_within": "80m", "value": "1000 USD"}


async def idle(count: int = 2) -> World:
    """So many machines are rented, and nothing runs there any more."""
    world, job = await running()
    world.clock.advance(600)
    for lease in world.leases():
        await world.sites[lease.member].finish(job)
    assert world.job(job).status is JobStatus.SUCCEEDED
    await executor(world, 1)
    for lease in world.leases()[count:]:
        await world.core.executor.move(lease.id, "drain")
        await executor(world, 3)
    assert sum(lease.status is LeaseStatus.READY for lease in world.leases()) == count
    return world


async def test_it_starts_at_once_where_all_its_machines_are_warm() -> None:
    world = await idle()
    job = await world.submit(**SECOND)
    await world.turn()
    await executor(world, 1)
    await world.obey()
    assert len(world.leases()) == 2, "nothing new is rented"
    assert sorted(world.placement(job).leases) == [lease.id for lease in world.leases()]
    assert world.job(job).status is JobStatus.RUNNING
    assert all(lease.idle_since_at is None for lease in world.leases())
    assert because_of(world.placement(job), world.clock.now()).endswith("of these, 2 are warm")


async def test_it_rents_what_is_missing_and_waits_for_that() -> None:
    world = await idle(1)
    warm = next(lease for lease in world.leases() if lease.status is LeaseStatus.READY)
    job = await world.submit(**SECOND)
    await world.turn()
    placement = world.placement(job)
    assert warm.id in placement.leases
    (new,) = [world.core.records.leases[name] for name in placement.leases if name != warm.id]
    assert (new.status, placement.assembling) == (LeaseStatus.REQUESTED, True)
    kept = world.core.records.leases[warm.id]
    rest_s = OFFER.delay_s + 2 * 3600 + 30 + 300 + OFFER.teardown_s
    billed_until_at = kept.billed_until_at or kept.launched_at or 0.0
    worst_usd = kept.billed_usd + 24.0 * (world.clock.now() - billed_until_at + rest_s) / 3600
    assert kept.committed_usd == pytest.approx(worst_usd), "it waits for the other one, and is paid meanwhile"
    other = await world.submit(resources={"gpus": 4}, estimate="10m", max_duration="30m", finish_within="40m")
    await world.turn()
    assert world.job(other).placement is None or warm.id != world.placement(other).lease
    await executor(world, 1)
    world.clock.advance(OFFER.delay_s)
    await executor(world, 1)
    assert world.core.records.leases[warm.id].status is LeaseStatus.READY, "it is kept for the gang"
    await world.boot(new)
    await executor(world, 1)
    await world.obey()
    assert world.job(job).status is JobStatus.RUNNING


async def test_what_fails_of_the_new_ones_frees_the_warm_one() -> None:
    world = await idle(1)
    warm = next(lease for lease in world.leases() if lease.status is LeaseStatus.READY)
    job = await world.submit(**SECOND)
    await world.turn()
    (new,) = [n for n in world.placement(job).leases if n != warm.id]
    world.provider.sold_out.add(OFFER.name)
    await world.core.executor.requested(world.core.records.leases[new])
    assert world.core.records.leases[new].status in LEASE_ENDED
    assert world.job(job).status is JobStatus.PENDING
    await executor(world, 1)
    assert world.core.records.leases[warm.id].idle_since_at is not None


@pytest.mark.parametrize("differs", ["queue", "policy", "price", "notice"])
async def test_one_that_counts_elsewhere_or_costs_more_is_left_alone(differs: str) -> None:
    world = await idle()
    changed: dict[str, Any] = {
        "queue": {"queue": "other"},
        "policy": {"policy": "BurstPolicy/other"},
        "price": {"pace_usd_h": 48.0},
        "notice": {"reclaim_at": world.clock.now() + 3600.0},
    }
    await world.put(*(replace(lease, **changed[differs]) for lease in world.leases()))
    job = await world.submit(**SECOND)
    await world.turn()
    before = {lease.id for lease in world.leases()[:2]}
    leases = set(world.placement(job).leases) if world.job(job).placement else set()
    assert not leases & before
