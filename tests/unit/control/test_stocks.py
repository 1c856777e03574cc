"""Offers that draw on one stock: what is sold out under one name is not asked for under another, and what was asked for since a listing counts."""

from typing import Any

from msgspec.structs import replace

from federator.control.leases.stocks import LEARNED_S, learned_limits
from federator.model.capacity import Lease, LeaseStatus, Stock
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


async def test_a_stock_that_is_used_up_is_not_planned_on_under_each_name_that_takes_as_much() -> None:
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
    assert seen[EIGHT.name].offer.to_be_had == 0
    assert seen[FOUR.name].offer.to_be_had == 1, "the smaller machine may still be had"
    assert seen[APART.name].offer.to_be_had == APART.available
    assert seen[EIGHT.name].offer.stock == replace(SIXTEEN, used=10), "it is as large as its provider says"
    assert {view.avoid_until_at for view in seen.values()} == {None}


async def refused_late(world: World) -> Lease:
    """A machine that was launched, and for which the provider then says that there is no quota."""
    await world.submit(resources={"gpus": 8}, **URGENT)
    await world.turn()
    await world.core.executor.step()
    (lease,) = [each for each in world.leases() if each.status is LeaseStatus.BOOTING]
    world.provider.find_nothing_for(lease.id, "QUOTA_EXCEEDED", over_quota=True)
    await world.core.executor.poll()
    return world.core.records.leases[lease.id]


async def test_a_quota_that_is_told_of_late_is_that_of_the_stock_for_a_while_and_a_new_leader() -> None:
    world = await a_world(EIGHT, FOUR, APART)
    twin = replace(EIGHT, name="r1/twin/on-demand")
    world.provider.catalogue = [EIGHT, twin, FOUR, APART]
    lease = await refused_late(world)
    assert (lease.failure, lease.stock_limit) == ("no capacity: QUOTA_EXCEEDED", 7)
    assert [offers(world)[o.name].offer.to_be_had for o in (EIGHT, twin, FOUR, APART)] == [0, 0, 1, 4]
    assert {row.name: row.stock for row in world.core.views.offers()}[twin.name] == (
        "A100 GPUs: 0 of 7 GPUs taken, more was refused"
    )
    again = await make_world(store=world.core.records.store, clock=world.clock)  # type: ignore[arg-type]
    again.provider.catalogue = world.provider.catalogue
    await again.core.executor.poll()
    assert [offers(again)[o.name].offer.to_be_had for o in (EIGHT, twin, FOUR, APART)] == [0, 0, 1, 4]
    world.clock.advance(LEARNED_S)
    assert [offers(again)[o.name].offer.to_be_had for o in (EIGHT, twin, FOUR, APART)] == [2, 2, 4, 4]


async def test_a_limit_that_a_refusal_has_told_ends_once_more_was_launched() -> None:
    world = await a_world(EIGHT)
    refused = await refused_late(world)
    now = world.clock.now()
    later = replace(refused, id="later", requested_at=now + 1, launched_at=now + 1, stock_limit=None)
    small = replace(later, offer=FOUR)
    assert dict(learned_limits([small, refused], now)) == {("cloudy", "A100 GPUs"): 7}
    assert not learned_limits([later, refused], now)
    lower = replace(refused, id="lower", requested_at=now + 2, stock_limit=3)
    assert dict(learned_limits([lower, small, refused], now)) == {("cloudy", "A100 GPUs"): 3}
    assert dict(learned_limits([replace(lower, requested_at=now), small], now)) == {}


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
