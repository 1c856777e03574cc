"""How long jobs of one name took on different GPU models corrects the speeds that they declare there."""

import math
from typing import Any

import pytest
from msgspec.structs import replace

from federator.control.reports.history import History
from federator.control.turns.job_views import JobViews
from federator.model.snapshot import JobView
from federator.wire.jobfile import read_job
from tests.support.dispatch import ADA, World, make_world

JOB: dict[str, Any] = {"resources": {"gpus": 4}, "estimate": "1h", "speed": {"A100": 1.0, "H100": 2.0}}
HOUR = 3600.0
TOOK = {"old": 1.0, "new": 1.0}
"""In hours: on H100, as long as on A100, which is half the declared speed."""


async def two_sites(*, learn: bool = True) -> World:
    world = await make_world()
    world.core.history.corrects = learn
    await world.add_site("old", model="A100")
    await world.add_site("new", model="H100")
    return world


async def run(world: World, site: str, hours: float, name: str = "train", **fields: Any) -> str:
    job = await world.submit(**JOB | {"name": name, "placement": {"sites": [site]}} | fields)
    await world.turn()
    await world.sites[site].run_all()
    world.clock.advance(hours * HOUR)
    await world.sites[site].finish(job)
    return job


async def waiting(world: World, name: str = "train", **fields: Any) -> JobView:
    job = await world.submit(**JOB | {"name": name} | fields)
    views = {view.id: view for view in world.core.turn.observer.snapshot().jobs}
    return views[job]


async def after(world: World, runs: int = 4, **fields: Any) -> World:
    for _ in range(runs):
        for site, hours in TOOK.items():
            await run(world, site, hours, **fields)
    return world


def middle_h(view: JobView, model: str) -> float:
    """Hours that half of its runs would take there, as planned."""
    return math.sqrt(view.run_low_s * view.run_high_s) / view.speed.get(model, 1.0) / HOUR


async def test_a_speed_that_is_declared_twice_too_high_is_found_out_by_a_few_runs() -> None:
    assert middle_h(await waiting(await two_sites()), "H100") == pytest.approx(0.5)
    view = await waiting(await after(await two_sites(), 3))
    assert {model: middle_h(view, model) for model in ("A100", "H100")} == pytest.approx(
        {"A100": 1.0, "H100": 1.0}, rel=0.15
    )
    assert view.speed["A100"] == 1.0


async def test_estimate_and_speed_are_corrected_apart() -> None:
    """All runs take twice the estimate, and on H100 once more twice what its speed says: neither correction has a part of the other."""
    world = await two_sites()
    for _ in range(6):
        await run(world, "old", 2.0)
        await run(world, "new", 2.0)
    view = await waiting(world)
    assert view.speed["H100"] == pytest.approx(1.0, rel=0.06)
    assert middle_h(view, "A100") == pytest.approx(2.0, rel=0.06)
    assert middle_h(view, "H100") == pytest.approx(2.0, rel=0.06)


async def test_runs_on_one_model_are_of_the_estimate() -> None:
    world = await two_sites()
    for _ in range(4):
        await run(world, "new", 1.0)
    view = await waiting(world)
    assert view.speed == JOB["speed"]
    assert middle_h(view, "H100") == pytest.approx(1.0, rel=0.1)


async def test_without_an_estimate_past_runs_are_compared_at_learned_speeds() -> None:
    view = await waiting(await after(await two_sites(), estimate=None, speed={}), estimate=None, speed={})
    assert middle_h(view, "H100") == pytest.approx(1.0, rel=0.06)
    world = await two_sites()
    for _ in range(4):
        await run(world, "old", 2.0, estimate=None, speed={})
        await run(world, "new", 1.0, estimate=None, speed={})
    view = await waiting(world, estimate=None, speed={})
    assert middle_h(view, "A100") / middle_h(view, "H100") == pytest.approx(2.0, rel=0.06)
    assert middle_h(view, "H100") == pytest.approx(1.0, rel=0.06)


async def test_a_new_name_is_told_something_by_other_work_of_its_owner() -> None:
    world = await two_sites()
    for name in ("a", "b", "c"):
        await after(world, 2, name=name)
    view = await waiting(world, "new-name")
    assert 1.2 < view.speed["H100"] < 1.8
    assert middle_h(view, "A100") == pytest.approx(1.0, rel=0.1), "its owner's estimates are right"


async def test_what_is_the_speeds_is_not_held_against_the_owners_estimates() -> None:
    world = await two_sites()
    for name in ("a", "b", "c", "d"):
        for site in ("new", "old"):
            await run(world, site, 1.0, name=name)
    assert middle_h(await waiting(world, "new-name"), "A100") == pytest.approx(1.0, rel=0.12)


async def test_who_does_not_want_corrections_keeps_the_declared_speeds() -> None:
    view = await waiting(await after(await two_sites(learn=False)))
    assert view.speed == JOB["speed"]
    assert view.run_s == pytest.approx(1.35 * HOUR)


async def test_speeds_that_were_learned_are_there_after_a_restart() -> None:
    world = await after(await two_sites())
    again = History()
    again.load(world.core.records)
    view = await waiting(world)
    job = world.job(view.id)
    other, live = JobViews(world.core.records, again), JobViews(world.core.records, world.core.history)
    assert other.of(job) == live.of(job)
    assert other.of(job).speed["H100"] < 1.1


async def test_what_runs_is_forecast_at_the_speed_that_was_learned() -> None:
    world = await after(await two_sites())
    job = await world.submit(**JOB, name="train", placement={"sites": ["new"]})
    await world.turn()
    await world.sites["new"].run_all()
    world.clock.advance(60.0)
    (pool,) = (pool for pool in world.core.turn.observer.pools() if pool.site == "new")
    (busy,) = pool.busy
    assert busy.job == job
    assert (busy.ends_at - busy.started_at) / HOUR == pytest.approx(1.0, rel=0.1)


async def test_runs_in_several_pieces_tell_nothing_of_speeds() -> None:
    world = await two_sites()
    history = History()
    jobs = [world.job(await run(world, site, 1.0)) for site in ("old", "new")]
    for job in jobs:
        history.learn(replace(job, epoch=2), world.core.records)
        history.learn(replace(job, saved_s=60.0), world.core.records)
    job = jobs[0]
    assert history.speeds(job.queue, "train", job.owner, JOB["speed"]).factors == JOB["speed"]


async def test_what_ran_in_another_form_tells_nothing_of_speeds() -> None:
    """It may be that form's throughput that is off."""
    world = await two_sites()
    history = History()
    forms: dict[str, Any] = {"resources": {"any_of": [{"gpus": 4}, {"gpus": 2}]}}
    jobs = [world.job(await run(world, site, 1.0, **forms)) for site in ("old", "new")]
    for job in jobs:
        await world.put(replace(world.placement(job.id), form=1))
        history.learn(world.job(job.id), world.core.records)
    job = jobs[0]
    assert history.runs(job.queue, job.kin)
    assert history.speeds(job.queue, job.kin, job.owner, JOB["speed"]).factors == JOB["speed"]


async def test_only_so_many_names_are_kept_of_an_owner_and_a_queue() -> None:
    world = await two_sites()
    jobs = [world.job(await run(world, site, 1.0)) for site in ("old", "new")]
    history = History()
    for number in range(50):
        for job in jobs:
            history.learn(replace(job, name=f"{number}"), world.core.records)
    assert {len(names) for names in history.measured.values()} == {20}


async def test_a_run_time_says_which_speed_was_corrected() -> None:
    world = await after(await two_sites())
    request = read_job({"run": "x", "name": "train", **JOB}, now=world.clock.now())
    said = (await world.core.views.preview(ADA, request)).explanation.run_time
    assert "; on H100 at speed 1.0" in said
    assert "not the 2 declared, as 4 runs of that name took" in said
    fresh = read_job({"run": "x", "name": "fresh", "estimate": "1h"}, now=world.clock.now())
    assert "that name" not in (await world.core.views.preview(ADA, fresh)).explanation.run_time
