"""One join token for the agents of many new sites: bounded by their names, their number and its end, and each site lets one agent in by it."""

import asyncio

import pytest

from federator.kernel.errors import Invalid, Unauthenticated
from federator.ports import Transaction
from federator.store.memory import MemoryStore
from federator.wire.http import TokenRequest
from federator.wire.link import JoinRequest
from tests.support.dispatch import ADMIN, World, make_world


@pytest.fixture
async def world() -> World:
    return await make_world()


@pytest.fixture
async def secret(world: World) -> str:
    return await token(world)


async def token(
    world: World,
    site: str = "store-*",
    most: int = 3,
    *,
    region: str = "",
    member: str = "",
    expires_in: str = "",
) -> str:
    request = TokenRequest(
        site=site, kind="edge", region=region, most=most, member=member, expires_in=expires_in
    )
    return (await world.core.admission.create_token(ADMIN, request)).secret


async def join(world: World, secret: str, site: str, key: int, member: str = "") -> str:
    request = JoinRequest(public_key=f"{key:064x}", member=member)
    return (await world.core.admission.join(secret, request, site)).member


async def test_each_new_site_lets_one_agent_in_which_may_ask_again(world: World, secret: str) -> None:
    assert await join(world, secret, "store-zug", 1) == "store-zug"
    assert await join(world, secret, "store-bern", 2) == "store-bern"
    assert await join(world, secret, "store-zug", 1) == "store-zug"
    with pytest.raises(Unauthenticated, match="another agent of site store-zug has joined"):
        await join(world, secret, "store-zug", 3)
    (row,) = world.core.admission.rows()
    assert (row.site, row.used, row.most) == ("store-*", 2, 3)
    acts = [each for each in await world.core.views.ledger() if each.site == "store-zug"]
    assert [each.what for each in acts] == [f"joined site store-zug by the token {row.id}"]


async def test_what_it_says_of_the_sites_holds_for_each(world: World) -> None:
    secret = await token(world, region="eu")
    await join(world, secret, "store-zug", 1)
    site = world.core.records.sites["store-zug"]
    assert (site.kind, site.region) == ("edge", "eu")


@pytest.mark.parametrize(
    ("site", "most", "fields"),
    [
        ("*", 5, {}),
        ("store-*-*", 5, {}),
        ("Store-*", 5, {}),
        ("store-*", 0, {}),
        ("store", 5, {}),
        ("store-*", 5, {"member": "store-1"}),
        ("store-*", 5, {"expires_in": "91d"}),
    ],
)
async def test_one_without_bounds_is_not_made(
    world: World, site: str, most: int, fields: dict[str, str]
) -> None:
    with pytest.raises(Invalid):
        await token(world, site, most, **fields)


async def test_many_sites_may_join_at_the_same_moment(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    real = MemoryStore.commit

    async def commit(store: MemoryStore, transaction: Transaction) -> int:
        await asyncio.sleep(0)  # as a disk is waited for
        return await real(store, transaction)

    monkeypatch.setattr(MemoryStore, "commit", commit)
    secret = await token(world, most=100)
    names = [f"store-{number}" for number in range(100)]
    joined = await asyncio.gather(*(join(world, secret, name, number) for number, name in enumerate(names)))
    assert joined == names
