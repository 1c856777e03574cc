"""Capacity whose site declares no price is weighed by its GPU model, and nobody is billed for that."""

import pytest

from federator.model.owned_prices import LIST_USD_GPU_H, undeclared_usd_gpu_h
from federator.model.sites import Member, Site, SiteKind
from tests.support.dispatch import World, make_world


async def two_sites() -> World:
    """`box` has a T4 and says no price; `hall` has an H100, likewise."""
    world = await make_world()
    for name, model in (("box", "T4"), ("hall", "H100")):
        await world.put(Site(name=name, kind=SiteKind.EDGE), Member(id=name, site=name, public_key=""))
        world.connect(name, 1, 1, model)
    return world


async def test_no_place_counts_as_free_and_the_dearer_model_costs_more() -> None:
    world = await two_sites()
    pools = {pool.site: pool for pool in world.core.turn.observer.pools()}
    assert 0 < pools["box"].price_usd_gpu_h < pools["hall"].price_usd_gpu_h
    assert pools["box"].undeclared
    assert pools["hall"].billed_usd_gpu_h == 0.0


@pytest.mark.parametrize(("declared", "billed"), [(None, 0.0), (0.0, 0.0), (0.4, 0.4)])
async def test_a_placement_is_billed_at_what_is_declared(declared: float | None, billed: float) -> None:
    world = await two_sites()
    job = await world.submit(resources={"gpus": "T4:1"}, estimate="1h")
    world.sites["box"].report(price_usd_gpu_h=declared)
    await world.turn()
    assert world.placement(job).price_usd_gpu_h == billed


async def test_what_is_declared_as_free_is_free() -> None:
    world = await two_sites()
    world.sites["box"].report(price_usd_gpu_h=0.0)
    pools = {pool.site: pool for pool in world.core.turn.observer.pools()}
    assert (pools["box"].price_usd_gpu_h, pools["box"].undeclared) == (0.0, False)


def test_unknown_models_count_and_hosts_without_gpus_do_not() -> None:
    assert min(LIST_USD_GPU_H.values()) < 8 * undeclared_usd_gpu_h("B9000") < max(LIST_USD_GPU_H.values())
    assert undeclared_usd_gpu_h("") == 0.0
