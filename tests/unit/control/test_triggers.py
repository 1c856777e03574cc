"""What is an occasion for a turn: whatever may let work start, and nothing that a turn would find to be as it left it."""

from typing import Any

import msgspec
import pytest

from federator.control.turns.triggers import Occasion
from federator.model.capacity import Shape
from federator.wire.http import JobPatch
from tests.support.dispatch import ADA, OFFER, World, make_world


class Watched:
    """A dispatcher with one site of four GPUs, and its occasion."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.occasion: Occasion = world.core.turn.occasion

    def due(self) -> bool:
        return self.occasion.due

    async def turn(self) -> None:
        self.occasion.begin()
        await self.world.core.turn.once()
        self.occasion.end()


@pytest.fixture
async def watched() -> Watched:
    world = await make_world()
    await world.add_site("north")
    watched = Watched(world)
    world.core.records.subscribe(watched.occasion.note)
    world.core.inventory.subscribe(watched.occasion.hear)
    await watched.turn()
    return watched


async def test_what_was_committed_begins_and_is_counted_without_another_turn(watched: Watched) -> None:
    world = watched.world
    await world.submit(resources={"gpus": 2})
    await world.submit(resources={"gpus": 4})
    assert watched.due()
    await watched.turn()
    assert not watched.due(), "it has just been planned"
    await world.obey()
    world.report()
    assert watched.occasion.stirred.is_set(), "much has happened"
    assert not watched.due(), "and nothing that a plan could make use of"


async def test_what_ends_is_an_occasion_where_work_waits(watched: Watched) -> None:
    world = watched.world
    first = await world.submit(resources={"gpus": 4})
    await watched.turn()
    await world.obey()
    await world.sites["north"].finish(first)
    assert not watched.due(), "nobody waits for it"
    second = await world.submit(resources={"gpus": 4})
    await world.submit(resources={"gpus": 4})
    await watched.turn()
    await world.obey()
    await world.sites["north"].finish(second)
    assert watched.due()


async def test_what_ends_is_an_occasion_where_something_follows_it(watched: Watched) -> None:
    world = watched.world
    first = await world.submit(resources={"gpus": 1}, name="first")
    await world.submit(resources={"gpus": 1}, after=["first"])
    await watched.turn()
    await world.obey()
    assert not watched.due()
    await world.sites["north"].finish(first)
    assert watched.due()


async def test_capacity_that_comes_back_is_an_occasion_whoever_gave_it_back(watched: Watched) -> None:
    world, site = watched.world, watched.world.sites["north"]
    whole = site.pool
    site.pool = msgspec.structs.replace(whole, gpus_per_node=2)
    site.report()
    await world.submit(resources={"gpus": 4})
    await watched.turn()
    site.report()
    assert not watched.due(), "it says what it said before"
    site.pool = whole
    site.report()
    assert world.core.turn.observer.pools()[0].free == (Shape(4, 64000, 500_000, 1),)
    assert watched.due()


async def test_one_job_less_in_the_line_is_an_occasion_for_the_others(watched: Watched) -> None:
    world = watched.world
    await world.submit(resources={"gpus": 3}, estimate="1h")
    await watched.turn()
    await world.obey()
    large = await world.submit(resources={"gpus": 4}, priority=90)
    await world.submit(resources={"gpus": 1}, estimate="20h")
    await watched.turn()
    assert not watched.due()
    await world.core.intake.act_on_one(ADA, "hold", large)
    assert watched.due(), "what was kept for it is free"


async def test_a_running_job_that_changes_its_queue_is_an_occasion(watched: Watched) -> None:
    world = watched.world
    kind = "apiVersion: federator/v1\nkind: Queue\nmetadata: {name: %s}\n"
    await world.policies(kind % "default" + "---\n" + kind % "other")
    running = await world.submit(resources={"gpus": 4})
    await watched.turn()
    await world.obey()
    await world.submit(resources={"gpus": 4})
    await watched.turn()
    assert not watched.due()
    await world.core.intake.update(ADA, running, JobPatch(queue="other"))
    assert watched.due(), "it counts against another limit now"


async def test_what_is_heard_while_a_turn_plans_is_an_occasion_for_the_next(watched: Watched) -> None:
    world = watched.world
    await world.submit(resources={"gpus": 8})
    watched.occasion.begin()
    await world.core.turn.once()
    watched.occasion.hear()
    watched.occasion.end()
    assert watched.due()


@pytest.mark.parametrize("change", [{"price_usd_h": 0.01}, {"available": 7}])
async def test_an_offer_that_changes_is_an_occasion_where_work_waits(
    watched: Watched, change: dict[str, Any]
) -> None:
    world, inventory = watched.world, watched.world.core.inventory
    inventory.offered("cloudy", [OFFER])
    await world.submit(resources={"gpus": 8})
    await watched.turn()
    inventory.offered("cloudy", [OFFER])
    watched.occasion.hear()
    assert not watched.due(), "it is what it was"
    inventory.offered("cloudy", [msgspec.structs.replace(OFFER, **change)])
    assert watched.due()
    await watched.turn()
    assert not watched.due(), "it has been planned with"


async def test_an_offer_that_need_not_be_avoided_any_more_is_an_occasion(watched: Watched) -> None:
    world, inventory = watched.world, watched.world.core.inventory
    inventory.offered("cloudy", [OFFER])
    inventory.avoid("cloudy", OFFER.name, until_at=world.clock.now() + 60, because="it failed")
    await world.submit(resources={"gpus": 8})
    await watched.turn()
    assert not watched.due()
    world.clock.advance(61)
    watched.occasion.hear()
    assert watched.due()
