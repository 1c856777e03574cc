"""Where a job saved itself is a host, not a site: it goes back there if there is room, and is told to go on from it only there."""

import msgspec
import pytest

from federator.kernel.errors import Conflict
from federator.model.jobs import JobStatus
from federator.model.placements import Cause, PlacementStatus
from tests.support.dispatch import ADA, ADMIN, World, make_world

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
    await world.core.intake.act_on_one(ADA, "requeue", job)
    await world.obey()
    assert (world.job(job).status, world.job(job).resume_members) == (JobStatus.PENDING, members)
    return job


def resumes(world: World, job: str) -> bool:
    placement = world.placement(job)
    told = {world.core.hub.desired.entry(placement, member).resume for member in placement.members}
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


def cut_off(world: World, *members: str) -> None:
    for member in members:
        world.core.inventory.closed(member, world.core.inventory.members[member].session)


async def timeline(world: World, job: str) -> list[tuple[str, str]]:
    return [(event.kind, event.text) for event in await world.core.views.events(job, None)]


@pytest.mark.parametrize("how", ["declared dead", "removed"])
async def test_a_site_that_is_gone_for_good_keeps_no_job_that_saved_itself_there(how: str) -> None:
    world = await a_lab()
    waits, held = await saved(world, "lab"), await saved(world, "lab-2")
    await world.core.intake.act_on_one(ADA, "hold", held)
    await world.add_site("north")
    cut_off(world, *HOSTS)
    await world.turn()
    assert world.job(waits).status is JobStatus.PENDING
    if how == "removed":
        await world.core.sites.remove(ADMIN, "lab")
    else:
        await world.core.sites.declare_dead(ADMIN, "lab", "burnt")
    assert world.job(held).resume_site is None
    lost = (
        "checkpoint-lost",
        f"what it had saved is gone with lab, which was {how}: it starts from the beginning",
    )
    assert lost in await timeline(world, waits)
    await world.turn()
    assert world.placement(waits).site == "north"
    assert not resumes(world, waits)


async def test_a_site_that_may_not_be_removed_yet_keeps_what_was_saved_there() -> None:
    world = await a_lab()
    job = await saved(world, "lab")
    running = await world.submit(resources={"gpus": 4}, name="other")
    await world.place(running, "lab-2")
    await world.obey()
    cut_off(world, *HOSTS)
    with pytest.raises(Conflict, match="may still run"):
        await world.core.sites.remove(ADMIN, "lab")
    assert world.job(job).resume_site == "lab"


async def test_with_one_host_goes_what_was_saved_there_and_nothing_else() -> None:
    world = await a_lab()
    gone, gang, kept = (
        await saved(world, "lab-3"),
        await saved(world, "lab-3", "lab"),
        await saved(world, "lab-2"),
    )
    cut_off(world, "lab-3")
    await world.core.sites.declare_dead(ADMIN, "lab", "burnt", member="lab-3")
    assert [world.job(job).resume_site for job in (gone, gang, kept)] == [None, None, "lab"]
    assert world.job(gang).resume_members == ()
    assert "gone with lab-3" in dict(await timeline(world, gone))["checkpoint-lost"]


async def test_the_only_host_has_all_that_was_saved_at_its_site() -> None:
    """Also by records from when the hosts of a checkpoint were not kept."""
    world = await make_world()
    await world.add_site("lab")
    job = await saved(world, "lab")
    await world.put(msgspec.structs.replace(world.job(job), resume_members=()))
    cut_off(world, "lab")
    await world.core.sites.declare_dead(ADMIN, "lab", "burnt", member="lab")
    assert world.job(job).resume_site is None


async def test_many_jobs_are_freed_from_a_dead_site() -> None:
    """More than one transaction may take."""
    world = await make_world()
    await world.add_site("lab")
    job = await saved(world, "lab")
    row = world.job(job)
    copies = [msgspec.structs.replace(row, id=f"{row.id}{n:03}") for n in range(130)]
    for start in range(0, len(copies), 50):
        await world.put(*copies[start : start + 50])
    cut_off(world, "lab")
    await world.core.sites.declare_dead(ADMIN, "lab", "burnt")
    assert all(each.resume_site is None for each in world.core.records.open_jobs.values())


async def test_a_job_that_waits_for_its_checkpoint_says_so() -> None:
    world = await make_world()
    await world.add_site("lab")
    job = await saved(world, "lab")
    await world.add_site("north")
    cut_off(world, "lab")
    await world.turn()
    explanation = await world.core.views.explain(world.job(job))
    assert "closest is lab" in explanation.because
    reasons = {each.site: each.text for each in explanation.sites}
    assert "what the job has saved is at lab" in reasons["north"]
