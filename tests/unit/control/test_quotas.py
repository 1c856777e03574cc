"""Quotas inside queues: users, models, what is kept for a queue, and turns by what queues have had of late. Each test fails without its field."""

import pytest

from federator.model.jobs import JobStatus
from tests.support.dispatch import ADA, BOB, World, make_world


def queue(name: str, spec: str) -> str:
    return f"---\napiVersion: federator/v1\nkind: Queue\nmetadata: {{name: {name}}}\nspec: {spec}\n"


async def a_world(*policies: str, hosts: int = 2) -> World:
    world = await make_world()
    await world.add_site("lab", nodes=hosts, gpus=4)
    await world.policies("".join(policies))
    return world


async def why(world: World, job: str) -> str:
    return " ".join(site.text for site in (await world.core.views.explain(world.job(job))).sites)


def statuses(world: World, jobs: list[str]) -> list[str]:
    return [world.job(job).status for job in jobs]


async def test_each_user_of_a_queue_has_so_many_gpus() -> None:
    world = await a_world(queue("default", "{per_user: {gpus: 4}}"))
    mine = [await world.submit(ADA, resources={"gpus": 2}) for _ in range(3)]
    other = await world.submit(BOB, resources={"gpus": 2})
    await world.turn()
    assert statuses(world, [*mine, other]) == ["RUNNING", "RUNNING", "PENDING", "RUNNING"]
    assert "policy Queue/default (ada): 4 in use" in await why(world, mine[2])


async def test_each_user_of_a_queue_has_so_many_jobs_at_once() -> None:
    world = await a_world(queue("default", "{per_user: {jobs: 1}}"))
    mine = [await world.submit(ADA, resources={"gpus": 1}) for _ in range(2)]
    other = await world.submit(BOB, resources={"gpus": 1})
    await world.turn()
    assert statuses(world, [*mine, other]) == ["RUNNING", "PENDING", "RUNNING"]


async def test_a_queue_is_limited_by_model() -> None:
    world = await a_world(queue("default", "{limit: {models: {A100: 4}}}"))
    jobs = [await world.submit(resources={"gpus": 4}) for _ in range(2)]
    await world.turn()
    assert statuses(world, jobs) == ["RUNNING", "PENDING"]
    await world.add_site("old", gpus=4, model="T4")
    await world.turn()
    assert world.placement(jobs[1]).site == "old"


async def test_a_guarantee_of_a_model_is_reclaimed_on_that_model() -> None:
    owner = "{guaranteed: {models: {A100: 4}}, reclaim_within: 1m}"
    world = await a_world(queue("owner", owner), hosts=1)
    await world.add_site("old", gpus=4, model="T4")
    borrower = await world.submit(resources={"gpus": "A100:4"})
    other = await world.submit(resources={"gpus": "T4:4"})
    await world.turn()
    job = await world.submit(queue="owner", resources={"gpus": "A100:4"})
    world.clock.advance(120)
    await world.turn()
    await world.turn()
    assert statuses(world, [borrower, other, job]) == ["PENDING", "RUNNING", "RUNNING"]


async def test_a_guarantee_is_back_in_time_though_its_borrower_has_outrun_its_forecast() -> None:
    world = await a_world(queue("owner", "{guaranteed: {gpus: 4}, reclaim_within: 1m}"), hosts=1)
    borrower = await world.submit(resources={"gpus": 4}, estimate="1m", checkpoint={"grace": "10s"})
    await world.turn()
    world.clock.advance(600)
    asked_at = world.clock.now()
    job = await world.submit(queue="owner", resources={"gpus": 4})
    await world.turn()
    while world.job(borrower).status is JobStatus.RUNNING:
        plan = world.core.turn.plan
        assert plan is not None
        assert plan.wake_at is not None
        world.clock.advance(plan.wake_at - world.clock.now())
        await world.turn()
    assert world.clock.now() - asked_at == pytest.approx(50)
    world.clock.advance(10)
    await world.turn()
    assert statuses(world, [borrower, job]) == ["PENDING", "RUNNING"]


async def test_what_a_queue_does_not_lend_stays_free_for_it() -> None:
    world = await a_world(queue("owner", "{guaranteed: {gpus: 6}, lending: 2}"))
    jobs = [await world.submit(resources={"gpus": 2}) for _ in range(4)]
    await world.turn()
    assert statuses(world, jobs) == ["RUNNING", "RUNNING", "PENDING", "PENDING"]
    assert "4 of 8 owned GPUs are kept for owner" in await why(world, jobs[2])
    job = await world.submit(queue="owner", resources={"gpus": 4})
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING, "at once, with nobody to be stopped"


async def test_all_is_lent_where_nothing_is_said() -> None:
    world = await a_world(queue("owner", "{guaranteed: {gpus: 6}}"))
    jobs = [await world.submit(resources={"gpus": 2}) for _ in range(4)]
    await world.turn()
    assert statuses(world, jobs) == ["RUNNING"] * 4


@pytest.mark.parametrize("half_life", ["7d", None])
async def test_who_has_had_much_of_late_waits_for_who_has_not(half_life: str | None) -> None:
    spec = f"{{usage_half_life: {half_life}}}" if half_life else "{}"
    world = await a_world(queue("greedy", spec), queue("modest", spec), hosts=1)
    past = await world.submit(queue="greedy", resources={"gpus": 4})
    await world.turn()
    world.clock.advance(10 * 3600)
    await world.sites["lab"].finish(past)
    first = await world.submit(queue="greedy", resources={"gpus": 4})
    world.clock.advance(1)
    second = await world.submit(queue="modest", resources={"gpus": 4})
    await world.turn()
    running = second if half_life else first
    assert world.job(running).status is JobStatus.RUNNING


async def test_what_is_long_ago_is_forgotten_and_a_restart_changes_nothing() -> None:
    world = await a_world(queue("greedy", "{usage_half_life: 1d}"), hosts=1)
    past = await world.submit(queue="greedy", resources={"gpus": 4})
    await world.turn()
    world.clock.advance(86400)
    usage, now = world.core.turn.observer.usage, world.clock.now()
    assert usage.recent_gpus(now) == {"greedy": pytest.approx(2.0)}
    await world.sites["lab"].finish(past)
    assert usage.recent_gpus(now) == {"greedy": pytest.approx(2.0)}
    world.clock.advance(86400)
    assert usage.recent_gpus(world.clock.now()) == {"greedy": pytest.approx(1.0)}
    again = await make_world(store=world.core.records.store, clock=world.clock)  # type: ignore[arg-type]
    assert again.core.turn.observer.usage.recent_gpus(world.clock.now()) == {"greedy": pytest.approx(1.0)}


@pytest.mark.parametrize(("weights", "gpus"), [("{A100: 3}", 6.0), ("{H100: 3}", 2.0), ("{A100: 0}", 0.0)])
async def test_past_use_is_charged_by_the_model_it_was_of(weights: str, gpus: float) -> None:
    world = await a_world(queue("greedy", f"{{usage_half_life: 1d, usage_weights: {weights}}}"), hosts=1)
    past = await world.submit(queue="greedy", resources={"gpus": 4})
    await world.turn()
    world.clock.advance(86400)
    usage, now = world.core.turn.observer.usage, world.clock.now()
    assert usage.recent_gpus(now) == {"greedy": pytest.approx(gpus)}
    await world.sites["lab"].finish(past)
    assert usage.recent_gpus(now) == {"greedy": pytest.approx(gpus)}


async def test_who_is_to_start_soon_by_its_queue_goes_before_who_came_first() -> None:
    world = await a_world(queue("quick", "{max_wait: 10m}"), queue("slow", "{}"), hosts=1)
    filler = await world.submit(resources={"gpus": 4}, estimate="1h")
    await world.turn()
    first = await world.submit(queue="slow", resources={"gpus": 4}, estimate="1h")
    world.clock.advance(60)
    second = await world.submit(queue="quick", resources={"gpus": 4}, estimate="1h")
    await world.turn()
    assert "queue quick is to start it by" in (await world.core.views.explain(world.job(second))).because
    world.clock.advance(60)
    await world.sites["lab"].finish(filler)
    await world.turn()
    assert statuses(world, [first, second]) == ["PENDING", "RUNNING"]
