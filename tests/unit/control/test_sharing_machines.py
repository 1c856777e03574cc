"""A second job on a rented machine: what budgets have committed holds its whole run, from where the bill stands."""

import pytest
from msgspec.structs import replace

from federator.control.accounts.money import affordable, paid_until_at
from federator.model.jobs import JobStatus
from tests.support.dispatch import World
from tests.unit.control.test_bursting import until_rented
from tests.unit.control.test_lost_machines import rented_world


async def share(world: World) -> None:
    """A job with the longest limit that finds room on the machine."""
    job = await world.submit(
        name="second", resources={"gpus": 4}, estimate="1h", max_duration="3h", finish_within="100m"
    )
    await until_rented(world, job)
    assert len(world.leases()) == 1
    assert world.placement(job).lease == world.leases()[0].id


async def test_on_a_machine_that_runs_what_is_not_billed_yet_is_committed_too() -> None:
    world, first = await rented_world()
    world.clock.advance(300)
    await world.boot(world.leases()[0])
    await world.obey()
    assert world.job(first).status is JobStatus.RUNNING
    world.clock.advance(100)
    await share(world)
    (lease,) = world.leases()
    assert lease.billed_usd == 0.0, "the provider has not been asked since"
    assert lease.committed_usd == pytest.approx(24.0 * (400 + 3 * 3600 + 30 + 300 + 60) / 3600)


@pytest.mark.parametrize("limits", [("3h", "30m"), ("30m", "3h")])
async def test_jobs_that_join_a_machine_in_one_transaction_are_all_committed(limits: tuple[str, str]) -> None:
    world, _ = await rented_world()
    world.clock.advance(300)
    await world.boot(world.leases()[0])
    await world.obey()
    world.clock.advance(100)
    jobs = [
        await world.submit(
            name=f"second-{limit}",
            resources={"gpus": 2},
            estimate="20m",
            max_duration=limit,
            finish_within="50m",
        )
        for limit in limits
    ]
    await until_rented(world, jobs[0])
    assert len({world.placement(job).decision for job in jobs}) == 1
    (lease,) = world.leases()
    assert lease.committed_usd == pytest.approx(24.0 * (400 + 3 * 3600 + 30 + 300 + 60) / 3600)


async def test_a_machine_that_costs_nothing_is_never_too_dear() -> None:
    world, first = await rented_world()
    (lease,) = world.leases()
    free = replace(lease, offer=replace(lease.offer, price_usd_h=0.0), payer=first, billed_until_at=1.0)
    world.core.records.jobs[first] = replace(world.job(first), max_cost_usd=1.0)
    assert affordable(world.core.records, free, {}).until_at == paid_until_at(free)
