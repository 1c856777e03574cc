"""A second job on a rented machine: what budgets have committed holds its whole run, from where the bill stands."""

import pytest

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
