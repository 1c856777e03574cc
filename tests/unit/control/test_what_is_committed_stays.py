"""What a turn has committed, later turns leave where it is: a better place that comes free before the work starts does not move it."""

import pytest

from federator.model.jobs import JobStatus
from federator.model.placements import PlacementStatus
from tests.support.dispatch import World, make_world
from tests.unit.control.test_bursting import JOB, POLICIES, until_rented


@pytest.fixture
async def world() -> World:
    return await make_world()


@pytest.mark.parametrize("heard", [None, PlacementStatus.ACCEPTED, PlacementStatus.STARTING])
async def test_an_assignment_stays_when_a_better_place_comes_free_before_it_starts(
    world: World, heard: PlacementStatus | None
) -> None:
    slow = await world.add_site("slow", model="A100")
    job = await world.submit(resources={"gpus": 1}, estimate="10h", speed={"A100": 1.0, "H100": 4.0})
    await world.core.turn.once()
    placement = world.placement(job)
    if heard is not None:
        await slow.say(placement, heard)
    await world.add_site("quick", model="H100")
    other = await world.submit(resources={"gpus": 1}, estimate="10h", speed={"A100": 1.0, "H100": 4.0})
    plan = await world.core.turn.once()
    assert plan is not None
    assert [action.job for action in plan.actions] == [other]
    assert world.placement(other).site == "quick", "it is the better place, for whoever is not committed yet"
    assert world.placement(job).id == placement.id
    assert (world.placement(job).site, world.placement(job).order) == ("slow", placement.order)
    await slow.say(world.placement(job), PlacementStatus.RUNNING, started_at=world.clock.now())
    assert world.job(job).status is JobStatus.RUNNING
    assert world.placement(job).site == "slow"


async def test_a_job_stays_with_the_machine_rented_for_it_when_room_comes_free_at_home(world: World) -> None:
    lab = await world.add_site("lab")
    await world.policies(POLICIES)
    filler = await world.submit(resources={"gpus": 4}, estimate="4h", max_duration="5h", name="filler")
    await world.turn()
    await world.core.executor.poll()
    job = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, job)
    [lease], placement = world.leases(), world.placement(job)
    assert placement.lease == lease.id
    await lab.finish(filler)
    await world.submit(resources={"gpus": 1}, name="another")
    plan = await world.core.turn.once()
    assert plan is not None
    assert [action for action in plan.actions if action.job == job] == []
    assert world.placement(job).id == placement.id
    assert [(each.id, each.status) for each in world.leases()] == [(lease.id, lease.status)]
