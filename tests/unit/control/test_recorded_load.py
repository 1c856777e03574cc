"""The load that there was: who ran for how long, what is left out, and that nothing of what a job runs is told."""

from typing import Any

import msgspec
import pytest

from federator.control.queries.recorded_load import Span
from federator.model.jobs import Checkpoint
from federator.model.sites import SiteKind
from federator.wire.recorded import RecordedJob
from tests.support.dispatch import ADA, ADMIN, OFFER, World, make_world

DAY_S = 86_400.0
SECRET = "hunter2"
MATLAB = "apiVersion: federator/v1\nkind: License\nmetadata: {name: matlab}\nspec: {count: 1}\n"


async def busy() -> World:
    world = await make_world()
    await world.add_site("lab", nodes=2, gpus=4)
    return world


async def load(world: World, since_s: float = DAY_S, **page: Any) -> list[RecordedJob]:
    now = world.clock.now()
    found = await world.core.recorded.jobs(
        Span(now - since_s, now + 1.0), **({"after": None, "limit": 1000, "now": now} | page)
    )
    return list(found.jobs)


async def finished(world: World, after_s: float, **fields: Any) -> str:
    name = await world.submit(**fields)
    await world.turn()
    world.clock.advance(after_s)
    await world.sites["lab"].finish(name)
    return name


async def test_a_job_that_ended_has_its_true_run_time_and_what_was_asked_for() -> None:
    world = await busy()
    await world.policies(MATLAB)
    name = await finished(
        world, 500.0, name="train", nodes=2, resources={"gpus": "A100:4", "cpus": 2, "memory": "8GiB"}, estimate="2h",
        speed={"A100": 2.0}, finish_within="5h", value="30 USD", priority=60, labels={"team": "vision"}, placement={"kinds": ["onprem"]},
        max_cost="40 USD", licenses={"matlab": 1},
    )  # fmt: skip
    (only,) = await load(world)
    assert (only.id, only.name, only.owner, only.queue) == (name, "train", "ada", "default")
    assert (only.run_s, only.ended, only.estimate_s) == (1000.0, True, 7200.0)
    assert (only.nodes, only.gpus, only.models, only.cpus_milli, only.memory_mib) == (
        2,
        4,
        ("A100",),
        2000,
        8192,
    )
    assert (only.value_usd, only.priority, only.labels, only.kinds, only.max_cost_usd) == (30.0, 60, {"team": "vision"}, ("onprem",), 40.0)  # fmt: skip
    assert only.licenses == {"matlab": 1}
    assert only.deadline_at == pytest.approx(only.ready_at + 5 * 3600.0)


async def test_a_job_that_runs_or_waits_has_what_is_expected() -> None:
    world = await busy()
    runs = await world.submit(resources={"gpus": 4}, nodes=2, estimate="1h")
    await world.turn()
    waits = await world.submit(resources={"gpus": 4}, estimate="2h")
    world.clock.advance(1200.0)
    found = {job.id: job for job in await load(world)}
    assert found[runs].run_s == pytest.approx(3600.0)
    assert found[waits].run_s == pytest.approx(7200.0)
    assert not found[runs].ended
    assert not found[waits].ended
    world.clock.advance(3600.0)
    assert {job.id: job.run_s for job in await load(world)}[runs] == pytest.approx(4800.0 * 1.1), (
        "longer than expected"
    )
    cut = {job.id: job for job in await load(world, since_s=800.0)}
    assert cut[runs].ran_before_s == pytest.approx(4000.0)
    assert cut[waits].ran_before_s == 0.0


async def test_what_saved_itself_has_run_as_long_as_all_its_attempts() -> None:
    world = await busy()
    name = await finished(world, 300.0, resources={"gpus": 2}, checkpoint={"grace": "30s"})
    job = world.job(name)
    assert job.gpu_s == pytest.approx(600.0)
    await world.put(msgspec.structs.replace(job, saved_s=700.0))
    assert [each.run_s for each in await load(world)] == [1000.0]
    assert Checkpoint().grace_s == 30.0


async def test_what_never_ran_and_never_will_is_counted_and_left_out() -> None:
    world = await busy()
    await finished(world, 10.0, name="first")
    gone, held = await world.submit(nodes=50), await world.submit(nodes=50)
    await world.core.intake.cancel(ADA, gone)
    await world.core.intake.act_on_one(ADA, "hold", held)
    behind = await world.submit(after=[held])
    now = world.clock.now()
    page = await world.core.recorded.jobs(Span(0.0, now + 1), after=None, limit=100, now=now)
    assert [job.name for job in page.jobs] == ["first"]
    assert page.left_out == 3
    assert behind not in {job.id for job in page.jobs}


async def test_a_follower_could_start_when_what_it_follows_was_done() -> None:
    world = await busy()
    first = await world.submit(estimate="1h")
    second = await world.submit(after=[first])
    await world.turn()
    world.clock.advance(700.0)
    await world.sites["lab"].finish(first)
    by_id = {job.id: job for job in await load(world)}
    assert by_id[second].ready_at == world.job(first).finished_at


async def test_only_what_was_there_in_the_time_is_told_page_by_page() -> None:
    world = await busy()
    old = await finished(world, 10.0)
    world.clock.advance(2 * DAY_S)
    new = [await finished(world, 10.0, name=f"n{n}") for n in range(3)]
    assert {job.id for job in await load(world)} == set(new)
    assert {job.id for job in await load(world, since_s=3 * DAY_S)} == {old, *new}
    now, after, seen = world.clock.now(), None, []
    while True:
        page = await world.core.recorded.jobs(Span(0.0, now + 1), after=after, limit=2, now=now)
        seen += [job.id for job in page.jobs]
        after = page.next_after
        if after is None:
            break
    assert seen == [*new[::-1], old], "newest first, each once"


async def test_nothing_of_what_a_job_runs_is_told() -> None:
    world = await busy()
    await finished(
        world,
        10.0,
        run=f"echo {SECRET}",
        env={"WORD": SECRET},
        setup=f"# {SECRET}",
        outputs=[f"{SECRET}/**"],
    )
    assert SECRET not in msgspec.json.encode(await load(world)).decode()


async def test_the_world_is_what_sites_have_reported_and_providers_offer() -> None:
    world = await busy()
    await world.add_member("lab", "lab-2", nodes=1, gpus=4)
    await world.add_member("lab", "lab-3", nodes=1, gpus=2)
    await world.add_site("edge", gpus=1, model="L4", kind=SiteKind.EDGE)
    await world.core.sites.drain(ADMIN, "edge")
    world.core.inventory.offered("cloudy", [OFFER])
    told = world.core.recorded.world(world.clock.now())
    edge, lab = told.sites
    assert (edge.kind, edge.draining, edge.pools[0].model) == (SiteKind.EDGE, True, "L4")
    assert [(pool.name, pool.nodes, pool.gpus_per_node) for pool in lab.pools] == [
        ("main", 3, 4),
        ("main-2", 1, 2),
    ]
    assert [each.offer for each in told.offers] == [OFFER]
    assert told.offers[0].site
