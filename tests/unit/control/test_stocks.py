"""Offers that draw on one stock: what is sold out under one name is not asked for under another, and what was asked for since a listing counts."""

from typing import Any

from msgspec.structs import replace

from federator.model.capacity import LeaseStatus, Stock
from federator.model.jobs import JobStatus
from federator.model.snapshot import OfferView
from tests.support.dispatch import OFFER, World, make_world
from tests.unit.control.test_bursting import POLICIES

SIXTEEN = Stock("A100 GPUs", limit=16, each=8, unit="GPUs")
EIGHT = replace(OFFER, stock=SIXTEEN)
FOUR = replace(OFFER, name="r1/p2/on-demand", gpus=4, price_usd_h=12.0, stock=replace(SIXTEEN, each=4))
APART = replace(OFFER, name="r1/other/on-demand", gpus=4, price_usd_h=40.0)
URGENT: dict[str, Any] = {"estimate": "1h", "max_duration": "2h", "finish_within": "90m"}


async def a_world(*catalogue: object) -> World:
    world = await make_world()
    world.provider.catalogue = list(catalogue)  # type: ignore[arg-type]
    await world.add_site("lab", nodes=1, gpus=1)
    await world.policies(POLICIES)
    await world.core.executor.poll()
    return world


def offers(world: World) -> dict[str, OfferView]:
    return {view.offer.name: view for view in world.core.turn.observer.snapshot().offers}


async def test_a_stock_that_is_used_up_is_avoided_under_each_name_that_takes_as_much() -> None:
    world = await a_world(EIGHT, FOUR, APART)
    job = await world.submit(resources={"gpus": 8}, **URGENT)
    await world.turn()
    (lease,) = world.leases()
    assert lease.offer.name == EIGHT.name
    world.provider.catalogue = [
        replace(EIGHT, stock=replace(SIXTEEN, used=10)),
        replace(FOUR, stock=replace(SIXTEEN, each=4, used=10)),
        APART,
    ]
    await world.core.executor.step()
    assert world.job(job).status is JobStatus.PENDING
    assert world.leases()[0].status is LeaseStatus.FAILED
    seen = offers(world)
    assert seen[EIGHT.name].avoid_until_at is not None
    assert "A100 GPUs" in seen[EIGHT.name].avoid_because
    assert seen[FOUR.name].avoid_until_at is None, "the smaller machine may still be had"
    assert seen[APART.name].avoid_until_at is None
    world.core.inventory.avoid_stock(
        "cloudy", "A100 GPUs", 4, until_at=world.clock.now() + 60.0, because="gone"
    )
    assert [offers(world)[o.name].avoid_because for o in (FOUR, APART)] == ["gone", ""]
    world.clock.advance(61.0)
    assert offers(world)[FOUR.name].avoid_until_at is None


async def test_a_quota_that_is_told_of_late_is_that_of_the_stock() -> None:
    world = await a_world(EIGHT, FOUR, APART)
    await world.submit(resources={"gpus": 8}, **URGENT)
    await world.turn()
    await world.core.executor.step()
    (lease,) = world.leases()
    twin = replace(EIGHT, name="r1/twin/on-demand")
    world.provider.catalogue = [EIGHT, twin, FOUR, APART]
    world.provider.find_nothing_for(lease.id, "QUOTA_EXCEEDED", over_quota=True)
    await world.core.executor.poll()
    assert world.leases()[0].failure == "no capacity: QUOTA_EXCEEDED"
    seen = offers(world)
    assert "A100 GPUs" in seen[twin.name].avoid_because
    assert [seen[o.name].avoid_until_at for o in (FOUR, APART)] == [None, None]


async def test_what_is_asked_for_since_the_last_listing_is_taken_off_the_stock_once() -> None:
    world = await a_world(EIGHT, FOUR)
    await world.submit(resources={"gpus": 8}, **URGENT)
    await world.turn()
    assert [offers(world)[o.name].offer.to_be_had for o in (EIGHT, FOUR)] == [1, 2]
    await world.core.executor.step()
    assert [offers(world)[o.name].offer.to_be_had for o in (EIGHT, FOUR)] == [1, 2]
    world.clock.advance(1.0)
    await world.core.executor.poll()
    assert [offers(world)[o.name].offer.to_be_had for o in (EIGHT, FOUR)] == [1, 2]
    assert offers(world)[EIGHT.name].offer.available == EIGHT.available - 1


async def test_the_list_of_offers_says_what_of_a_stock_is_taken() -> None:
    world = await a_world(replace(EIGHT, stock=replace(SIXTEEN, used=4)), APART)
    eight, apart = sorted(world.core.views.offers(), key=lambda row: row.name, reverse=True)
    assert (eight.available, eight.stock) == (1, "A100 GPUs: 4 of 16 GPUs taken")
    assert (apart.available, apart.stock) == (4, "")
