"""Gangs that a place refuses again and again: another place has its turn, and where there is none the attempts become rare."""

from collections.abc import Callable
from itertools import pairwise

from federator.control.reports.refusals import BACKOFF, FORGET_S, refused_again
from federator.model.jobs import JobStatus, Refusal
from federator.model.placements import Placement, PlacementStatus
from tests.support.dispatch import FakeSite, World, make_world

S = PlacementStatus


async def a_world(*sites: str, hosts: int = 2) -> tuple[World, str]:
    """Sites of so many hosts, with an agent on each, and a gang of two ranks that waits."""
    world = await make_world()
    world.core.fences.begin()
    for name in sites:
        await world.add_site(name)
        for number in range(2, hosts + 1):
            await world.add_member(name, f"{name}-{number}")
    return world, await world.submit(nodes=2, resources={"gpus": 4})


async def attempts(
    world: World, job: str, too_old: Callable[[str], bool], mute: Callable[[str], bool], for_s: float
) -> list[Placement]:
    """The reservations made of the job until it runs. Agents that are too old do not say where they are; mute ones report, and never answer."""
    found: dict[str, Placement] = {}
    until_at = world.clock.now() + for_s
    while world.clock.now() < until_at and world.job(job).status is not JobStatus.RUNNING:
        await world.core.turn.once()
        if world.job(job).status is JobStatus.PLACED:
            placement = world.placement(job)
            found[placement.id] = placement
        for name, site in world.sites.items():
            if not mute(name):
                await _answer(site, too_old=too_old(name))
        world.clock.advance(6.0)
        await world.core.fences.step()
        for site in world.sites.values():
            site.report()
    return list(found.values())


async def _answer(site: FakeSite, *, too_old: bool) -> None:
    for placement in site.held():
        part = placement.part(site.name)
        if too_old and part is not None and part.status is S.ASSIGNED:
            await site.say(placement, S.ACCEPTED, rendezvous="")
    await site.run_all()


def nobody(name: str) -> bool:
    return False


async def test_a_site_whose_agent_is_too_old_for_gangs_does_not_keep_one_from_another_site() -> None:
    world, job = await a_world("lab", "zeta")
    tried = await attempts(world, job, lambda name: name.startswith("lab"), nobody, 600.0)
    assert world.job(job).status is JobStatus.RUNNING
    assert tried[-1].site == "zeta"
    assert 2 <= len(tried) <= 3, "the first attempts were at lab, which looks just as good"


async def test_a_host_that_reports_but_never_answers_does_not_keep_a_gang_from_another_site() -> None:
    world, job = await a_world("lab", "zeta")
    tried = await attempts(world, job, nobody, lambda name: name == "lab-2", 1200.0)
    assert world.job(job).status is JobStatus.RUNNING
    assert tried[-1].site == "zeta"
    assert 2 <= len(tried) <= 3
    assert [refusal.member for refusal in world.job(job).refusals] == ["lab-2"], "lab did answer"


async def test_a_cluster_that_always_refuses_a_job_does_not_keep_it_from_another_one() -> None:
    """Its scheduler has reasons that no report tells, such as a partition's time limit."""
    world = await make_world()
    await world.add_site("lab")
    await world.add_site("zeta")
    job = await world.submit(resources={"gpus": 4})
    tried = await _refused_at(world, job, ("lab",))
    assert world.job(job).status is JobStatus.RUNNING
    assert tried == ["lab", "zeta"]


async def test_where_there_is_no_other_one_the_attempts_become_rare_and_the_reason_is_said() -> None:
    world = await make_world()
    await world.add_site("lab")
    job = await world.submit(resources={"gpus": 4})
    assert len(await _refused_at(world, job, ("lab",))) <= 8
    row = world.core.views.row(world.job(job))
    assert "lab has evicted or repeatedly refused it" in row.because
    assert "(lab refused it: partition short takes jobs of at most 5m)" in row.because


async def _refused_at(world: World, job: str, sites: tuple[str, ...], for_s: float = 1800.0) -> list[str]:
    """The sites that it was placed at, until one takes it."""
    found = []
    until_at = world.clock.now() + for_s
    while world.clock.now() < until_at and world.job(job).status is not JobStatus.RUNNING:
        await world.core.turn.once()
        for name, site in world.sites.items():
            for placement in site.held():
                if placement.status is S.ASSIGNED:
                    found.append(name)
                    if name in sites:
                        await site.say(
                            placement, S.REFUSED, detail="partition short takes jobs of at most 5m"
                        )
            if name not in sites:
                await site.run_all()
            site.report()
        world.clock.advance(6.0)
    return found


async def test_a_site_that_is_otherwise_the_better_one_is_left_alone_all_the_same() -> None:
    """A deadline that only one place meets comes before which of its members are avoided: only leaving the site alone ends it."""
    world = await make_world()
    world.core.fences.begin()
    for name, model in (("lab", "H100"), ("zeta", "A100")):
        await world.add_site(name, model=model)
        await world.add_member(name, f"{name}-2", model=model)
    job = await world.submit(
        nodes=2, resources={"gpus": 4}, estimate="1h", speed={"H100": 2.0}, finish_within="50m"
    )
    tried = await attempts(world, job, lambda name: name.startswith("lab"), nobody, 600.0)
    assert world.job(job).status is JobStatus.RUNNING
    assert [placement.site for placement in tried] == ["lab", "lab", "zeta"]


async def test_another_host_of_the_same_site_takes_the_rank_of_one_that_does_not_answer() -> None:
    world, job = await a_world("lab", hosts=3)
    tried = await attempts(world, job, nobody, lambda name: name == "lab-2", 1200.0)
    assert world.job(job).status is JobStatus.RUNNING
    assert "lab-2" not in tried[-1].members
    assert len(tried) <= 2


async def test_where_there_is_no_other_place_the_attempts_become_rare_and_the_reason_is_told() -> None:
    world, job = await a_world("lab")
    tried = await attempts(world, job, nobody, lambda name: name == "lab-2", 4 * 3600.0)
    assert world.job(job).status is JobStatus.PENDING
    at = [placement.assigned_at for placement in tried]
    gaps_s = [after - before for before, after in pairwise(at)]
    assert 6 <= len(tried) <= 14, "without a pause there would be more than a hundred"
    assert gaps_s[-1] > BACKOFF.longest_s > 2 * gaps_s[2] > 2 * gaps_s[0]
    explanation = await world.core.views.explain(world.job(job))
    assert [site.filter for site in explanation.sites] == ["refused"]
    assert "lab has evicted or repeatedly refused it" in explanation.sites[0].text


async def test_a_place_that_has_been_mended_is_used_again() -> None:
    world, job = await a_world("lab")
    await attempts(world, job, lambda name: name == "lab-2", nobody, 600.0)
    assert world.job(job).status is JobStatus.PENDING
    await attempts(world, job, nobody, nobody, BACKOFF.longest_s + 60.0)
    assert world.job(job).status is JobStatus.RUNNING


async def test_a_member_that_refused_long_ago_begins_anew() -> None:
    world, job = await a_world("lab")
    placement = await world.place(job, "lab", "lab-2")
    old = (Refusal("lab", "lab", 0.0, 9, 1800.0), Refusal("lab-2", "lab", 0.0, 9, 1800.0))
    soon = refused_again(old, placement, FORGET_S - 1.0)
    assert {(refusal.times, refusal.until_at) for refusal in soon} == {
        (10, FORGET_S - 1.0 + BACKOFF.longest_s)
    }
    late = refused_again(old, placement, FORGET_S)
    assert {(refusal.times, refusal.until_at) for refusal in late} == {(1, 0.0)}
