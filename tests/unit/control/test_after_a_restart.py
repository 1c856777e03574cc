"""The first moments after a start: what nobody has reported yet is unknown, not absent."""

import pytest

from federator.model.jobs import JobStatus
from tests.support.dispatch import World, make_world
from tests.unit.control.test_bursting import JOB, POLICIES, until_rented


async def restarted(world: World) -> World:
    """The same federation, its dispatcher killed and started again; no agent is back yet."""
    again = await make_world(store=world.core.records.store, clock=world.clock)  # type: ignore[arg-type]
    again.provider.machines = world.provider.machines  # the cloud goes on beside us
    await again.core.executor.poll()
    return again


async def test_nothing_is_rented_before_the_sites_could_report() -> None:
    """Its agent takes a moment to come back; meanwhile home must not look as if it did not exist."""
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(POLICIES)
    job = await world.submit(**JOB, finish_within="88m")
    again = await restarted(world)
    await again.core.turn.once()
    assert not again.leases()
    assert again.job(job).status is JobStatus.PENDING
    reasons = (await again.core.views.explain(again.job(job))).sites
    assert any("may come back" in reason.text for reason in reasons), (
        "the user is told what renting waits for"
    )
    await again.add_site("lab", nodes=1, gpus=4)
    await again.turn()
    assert again.job(job).status is JobStatus.RUNNING
    assert not again.leases()


async def test_a_site_that_stays_away_keeps_nobody_from_renting_for_long() -> None:
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(POLICIES)
    job = await world.submit(**JOB, finish_within="88m")
    again = await restarted(world)
    again.clock.advance(31)
    await again.core.turn.once()
    assert again.job(job).status is JobStatus.PLACED
    assert len(again.leases()) == 1


async def test_what_runs_at_a_site_not_yet_heard_still_counts_against_its_queues_limit() -> None:
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.add_site("yard", nodes=1, gpus=4)
    limited = POLICIES.replace("spec:\n  max", "spec:\n  limit: {gpus: 4}\n  max", 1)
    await world.policies(limited)
    running = await world.submit(resources={"gpus": 4})
    await world.turn()
    other = "yard" if world.placement(running).site == "lab" else "lab"
    waiting = await world.submit(resources={"gpus": 4})
    again = await restarted(world)
    await again.add_site(other, nodes=1, gpus=4)
    await again.turn()
    assert again.job(waiting).status is JobStatus.PENDING


async def test_a_machine_not_yet_heard_still_counts_against_the_cap_on_machines() -> None:
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(POLICIES.replace("usd: {per_day: 100}", "instances: 1"))
    await world.submit(resources={"gpus": 4}, estimate="4h", max_duration="5h", name="filler")
    await world.turn()
    await world.core.executor.poll()
    first = await world.submit(**JOB, finish_within="2h")
    await until_rented(world, first)
    await world.core.executor.step()
    await world.boot(world.leases()[0])
    await world.obey()
    await world.submit(resources={"gpus": 8}, estimate="1h", finish_within="88m")
    again = await restarted(world)
    again.clock.advance(60)
    await again.core.turn.once()
    assert len(again.leases()) == 1


async def test_a_site_that_is_away_for_a_moment_makes_nobody_rent() -> None:
    """An agent that restarts takes its site with it for seconds; a deadline with no time to spare must not rent for that."""
    world = await make_world()
    lab = await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(POLICIES)
    world.clock.advance(100)
    lab.report()
    await world.core.executor.poll()
    job = await world.submit(**JOB, finish_within="88m")
    world.core.inventory.closed("lab", world.core.inventory.members["lab"].session)
    await world.core.turn.once()
    assert not world.leases()
    lab.connect()
    await world.turn()
    assert world.job(job).status is JobStatus.RUNNING
    assert not world.leases()


async def test_a_site_that_stays_away_makes_a_deadline_rent() -> None:
    world = await make_world()
    lab = await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(POLICIES)
    world.clock.advance(100)
    lab.report()
    await world.core.executor.poll()
    await world.submit(**JOB, finish_within="88m")
    world.core.inventory.closed("lab", world.core.inventory.members["lab"].session)
    world.clock.advance(31)
    await world.core.turn.once()
    assert len(world.leases()) == 1


@pytest.mark.parametrize(
    ("asked", "shape"), [((4, 1, 1, 1, 1), (2, 4)), ((3, 2), (1, 5)), ((4, 4), (2, 4)), ((0, 0), (2, 0))]
)
async def test_a_site_not_yet_heard_has_what_is_known_to_run_there_and_no_more(
    asked: tuple[int, ...], shape: tuple[int, int]
) -> None:
    world = await make_world()
    await world.add_site("lab", nodes=1, gpus=8)
    await world.policies(POLICIES)
    jobs = [await world.submit(resources={"gpus": gpus}) for gpus in asked]
    await world.turn()
    assert {world.job(job).status for job in jobs} == {JobStatus.RUNNING}
    again = await restarted(world)
    (pool,) = again.core.turn.observer.pools()
    assert (pool.open, pool.nodes, pool.gpus_per_node) == (False, *shape)
    assert sum(busy.nodes * busy.gpus for busy in pool.busy) == sum(asked)
