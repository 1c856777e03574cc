"""A job that asks for part of a GPU may rent a machine with one: that is shared, and others that ask for parts may use what is left."""

import json
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from federator.control.administration.user_data import user_data
from federator.model.capacity import LeaseStatus
from federator.model.jobs import JobStatus
from federator.model.snapshot import OfferView
from federator.wire.jobfile import read_job
from federator_agent import config
from tests.support.dispatch import ADA, OFFER, World, make_world
from tests.unit.control.test_bursting import POLICIES, until_rented

HALF: dict[str, Any] = {"resources": {"gpus": 0.5, "cpus": 1}, "estimate": "1h", "max_duration": "2h"}
SMALL = replace(OFFER, name="small", gpus=1, price_usd_h=2.0)


async def a_world() -> World:
    """A site whose GPUs are whole, and machines of one GPU and of four."""
    world = await make_world()
    world.provider.catalogue = [OFFER, SMALL]
    await world.add_site("lab", nodes=1, gpus=4)
    await world.policies(POLICIES)
    await world.core.executor.poll()
    return world


def offers(world: World) -> dict[str, OfferView]:
    return {view.offer.name: view for view in world.core.turn.observer.snapshot().offers}


async def test_machines_of_one_gpu_are_offered_in_parts_while_a_job_asks_for_parts() -> None:
    world = await a_world()
    assert set(offers(world)) == {OFFER.name, "small"}
    await world.submit(**HALF)
    assert set(offers(world)) == {OFFER.name, "small", "small/shared"}
    parts = offers(world)["small/shared"].offer
    assert (parts.gpus_to_plan, parts.pool, parts.as_offered()) == (1000, "gpu-shared", SMALL)


async def test_half_a_gpu_is_rented_with_its_machine_and_the_other_half_is_for_others() -> None:
    world = await a_world()
    first = await world.submit(**HALF, finish_within="90m")
    await world.turn()
    assert world.job(first).status is JobStatus.PLACED
    placement = world.placement(first)
    assert (placement.pool, placement.gpus_per_node, placement.shared) == ("gpu-shared", 500, True)
    assert placement.price_usd_gpu_h == SMALL.price_usd_h
    (lease,) = world.core.records.leases.values()
    assert (lease.offer.name, lease.offer.shared, lease.status) == (
        "small/shared",
        True,
        LeaseStatus.REQUESTED,
    )
    await world.core.executor.step()
    (asked,) = (machine.offer for machine in await world.provider.instances("federation"))
    assert asked == "small"
    second = await world.submit(**HALF, finish_within="90m")
    await world.turn()
    assert world.job(second).placement is None
    machine = await world.boot(lease)
    await world.turn()
    assert (world.placement(second).members, world.placement(second).pool) == ((lease.member,), "gpu-shared")
    assert len(world.core.records.leases) == 1
    await machine.run_all()
    assert {world.job(job).status for job in (first, second)} == {JobStatus.RUNNING}


async def test_whole_gpus_are_not_rented_in_parts() -> None:
    world = await a_world()
    await world.submit(**HALF)
    await world.submit(resources={"gpus": 4}, estimate="4h", max_duration="5h")
    await world.turn()
    whole = await world.submit(resources={"gpus": 1}, estimate="1h", max_duration="2h", finish_within="90m")
    await until_rented(world, whole)
    placement = world.placement(whole)
    assert (placement.pool, placement.shared) == ("gpu", False)


async def test_what_a_machine_is_started_with_has_its_agent_share_the_gpu_as_the_pool_is_called() -> None:
    world = await a_world()
    await world.submit(**HALF, finish_within="90m")
    await world.turn()
    (lease,) = world.leases()
    make = user_data(world.core.admission, world.core.settings, "http://127.0.0.1:7070")
    given = json.loads(await make(lease))
    given = {key: given[key] for key in ("site", "dispatcher", "pools")}
    (pool,) = config.parse(json.dumps(given), "site.yaml", {}).site.pools
    assert (pool.name, pool.shares, pool.nodes) == (lease.offer.pool, 1, 1)
    (pool,) = config.parse(
        json.dumps(given).replace('"shared": 1', '"shared": 0'), "site.yaml", {}
    ).site.pools
    assert (pool.name, pool.shares) == (SMALL.pool, 0)


def test_an_offer_as_it_was_says_nothing_of_parts() -> None:
    assert SMALL.as_shared().as_offered() == SMALL
    assert SMALL.shared is UNSET


def test_an_offer_that_a_provider_calls_so_keeps_its_name() -> None:
    odd = replace(SMALL, name="a100/shared")
    assert odd.as_offered() is odd
    assert odd.as_shared().as_offered() == odd


async def test_a_preview_sees_the_offers_that_are_there_once_it_is_submitted() -> None:
    world = await a_world()
    asked = read_job({"run": "x", **HALF, "finish_within": "90m"}, now=world.clock.now())
    found = (await world.core.views.preview(ADA, asked)).explanation
    assert "small/shared" in {site.pool for site in found.sites}
    assert found.burst is not None


async def test_a_machine_that_is_not_to_be_had_is_avoided_in_parts_and_whole() -> None:
    world = await a_world()
    await world.submit(**HALF)
    world.core.inventory.avoid(OFFER.provider, "small/shared", until_at=world.clock.now() + 60.0, because="x")
    avoided = {name for name, view in offers(world).items() if view.avoid_until_at is not None}
    assert avoided == {"small", "small/shared"}
