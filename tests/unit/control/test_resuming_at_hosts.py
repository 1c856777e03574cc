"""Where a job saved itself is a host, not a site: it goes back there if there is room, and is told to go on from it only there."""

import pytest

from federator.model.jobs import JobStatus
from federator.model.placements import Cause, PlacementStatus
from tests.support.dispatch import ADA, World, make_world

HOSTS = ("lab", "lab-2", "lab-3")


async def a_lab() -> World:
    world = await make_world()
    await world.add_site("lab")
    for name in HOSTS[1:]:
        await world.add_member("lab", name)
    return world


async def saved(world: World, *members: str) -> str:
    """A job that has run there, saved itself, and waits."""
    job = await world.submit(
        nodes=len(members), resources={"gpus": 4}, checkpoint={"grace": "10s"}, name="saved"
    )
    await world.place(job, *members)
    await world.obey()
    await world.core.intake.requeue(ADA, job)
    await world.obey()
    assert (world.job(job).status, world.job(job).resume_members) == (JobStatus.PENDING, members)
    return job


def resumes(world: World, job: str) -> bool:
    placement = world.placement(job)
    told = {world.core.hub._board.entry(placement, member).resume for member in placement.members}
    assert len(told) == 1, "all ranks go on, or none"
    return told.pop()


@pytest.mark.parametrize(
    "members", [("lab-3",), ("lab-3", "lab"), ("lab-2", "lab-3"), ("lab-3", "lab-2", "lab")]
)
async def test_it_goes_back_to_the_hosts_where_it_saved_itself_in_their_order(
    members: tuple[str, ...],
) -> None:
    world = await a_lab()
    job = await saved(world, *members)
    await world.turn()
    assert world.placement(job).members == members
    assert resumes(world, job)


async def test_elsewhere_it_is_not_told_to_go_on_from_what_is_not_there() -> None:
    world = await a_lab()
    job = await saved(world, "lab-3", "lab")
    other = await world.submit(resources={"gpus": 4}, name="other", priority=90)
    await world.place(other, "lab-3")
    await world.obey()
    await world.turn()
    assert sorted(world.placement(job).members) == ["lab", "lab-2"]
    assert not resumes(world, job)


async def test_what_was_lost_with_its_host_is_forgotten() -> None:
    world = await a_lab()
    job = await saved(world, "lab-3")
    await world.turn()
    placement = world.placement(job)
    await world.core.progress.lose(placement.id, "gone", acknowledged=False)
    assert (world.job(job).resume_site, world.job(job).resume_members) == (None, ())


async def test_a_site_of_one_host_resumes_as_ever() -> None:
    world = await make_world()
    site = await world.add_site("lab", nodes=2)
    job = await saved(world, "lab", "lab")
    await world.turn()
    assert resumes(world, job)
    await site.say(world.placement(job), PlacementStatus.STOPPED, cause=Cause.STOPPED)
    assert world.job(job).resume_members == ("lab", "lab"), "what it saved before is still there"
