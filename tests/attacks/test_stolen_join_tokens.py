"""A join token for many sites is stolen: what the thief gets is bounded by its names, its number and its end, and is never anything that is there already."""

import pytest

from federator.kernel.errors import Conflict, Forbidden, Invalid, Unauthenticated
from federator.model.identity import Caller, Role
from federator.wire.http import TokenRequest
from tests.support.dispatch import ADMIN, World, make_world
from tests.unit.control.test_joining_many import join, token


@pytest.fixture
async def world() -> World:
    return await make_world()


@pytest.fixture
async def secret(world: World) -> str:
    return await token(world)


async def test_it_admits_so_many_and_no_more(world: World) -> None:
    secret = await token(world, most=1)
    await join(world, secret, "store-zug", 1)
    with pytest.raises(Unauthenticated, match="all 1 "):
        await join(world, secret, "store-bern", 2)
    assert await join(world, secret, "store-zug", 1) == "store-zug"


@pytest.mark.parametrize(
    ("site", "member"), [("depot-zug", ""), ("Store-zug", ""), ("", ""), ("store-zug", "basel-2")]
)
async def test_names_that_the_pattern_does_not_fit_stay_free(
    world: World, secret: str, site: str, member: str
) -> None:
    with pytest.raises((Forbidden, Invalid)):
        await join(world, secret, site, 1, member)
    assert world.core.admission.rows()[0].used == 0


async def test_a_site_that_is_there_gets_no_further_agent_by_it(world: World, secret: str) -> None:
    request = TokenRequest(site="store-zug", kind="edge")
    await join(world, (await world.core.admission.create_token(ADMIN, request)).secret, "store-zug", 1)
    with pytest.raises(Conflict, match="there already"):
        await join(world, secret, "store-zug", 2)


async def test_who_was_revoked_or_removed_does_not_come_back_by_it(world: World, secret: str) -> None:
    await join(world, secret, "store-zug", 1)
    await world.core.sites.revoke(ADMIN, "store-zug", "store-zug")
    with pytest.raises(Unauthenticated):
        await join(world, secret, "store-zug", 1)
    await world.core.sites.remove(ADMIN, "store-zug")
    for key in (1, 2):
        with pytest.raises(Unauthenticated):
            await join(world, secret, "store-zug", key)


async def test_its_end_and_its_revocation_keep_all_out_who_have_not_joined(world: World, secret: str) -> None:
    await join(world, secret, "store-zug", 1)
    (row,) = world.core.admission.rows()
    assert await world.core.admission.revoke(ADMIN, row.id) == 1
    late = await token(world)
    world.clock.advance(86401)
    for ended in (secret, late):
        with pytest.raises(Unauthenticated, match="expired"):
            await join(world, ended, "store-bern", 2)
    assert await join(world, secret, "store-zug", 1) == "store-zug"


async def test_only_an_administrator_makes_one(world: World) -> None:
    own = Caller(name="north-admin", role=Role.SITE_ADMIN, sites=("store-zug",))
    with pytest.raises(Forbidden):
        await world.core.admission.create_token(own, TokenRequest(site="store-*", kind="edge", most=5))
