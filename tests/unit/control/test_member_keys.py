"""Agents' keys, from both ends: an agent's state directory against a dispatcher's admission, at every point where either may die."""

from pathlib import Path

import msgspec
import pytest

from federator.kernel.errors import Conflict, Unauthenticated
from federator.wire.http import TokenRequest
from federator.wire.link import Challenge, JoinRequest, challenge_bytes
from federator_agent.keys import Keys, public
from tests.support.dispatch import ADMIN, World, make_world

CHALLENGE = Challenge("nonce", "inc-1")


@pytest.fixture
async def world() -> World:
    return await make_world()


async def token(world: World, member: str = "") -> str:
    request = TokenRequest(site="north", kind="onprem", member=member)
    return (await world.core.admission.create_token(ADMIN, request)).secret


@pytest.fixture
async def keys(world: World, tmp_path: Path) -> Keys:
    """Those of an agent that has joined as `north`."""
    keys = Keys(tmp_path)
    request = JoinRequest(public_key=public(keys.present), host_key=public(keys.host))
    await world.core.admission.join(await token(world), request)
    return keys


def lets_in(world: World, keys: Keys) -> bool:
    signature = keys.present.sign(challenge_bytes(CHALLENGE, "north")).hex()
    try:
        world.core.admission.verify_session("north", CHALLENGE, signature)
    except Unauthenticated:
        return False
    return True


async def show(world: World, keys: Keys) -> None:
    request = keys.request("north")
    assert request is not None
    await world.core.admission.rotate_key(request)


async def test_the_old_key_works_until_the_dispatcher_has_taken_the_new_one_and_then_the_new_one_does(
    world: World, keys: Keys
) -> None:
    keys.begin("north")
    assert lets_in(world, keys), "killed before the dispatcher was asked: the old key works"
    before = public(keys.present)
    keys.begin("north")
    await show(world, keys)
    assert not lets_in(world, keys), "killed before the answer came"
    await show(world, keys)
    keys.finish()
    assert lets_in(world, keys)
    assert public(keys.present) != before
    assert not keys.unfinished
    keys.finish()
    assert lets_in(world, keys)
    (act,) = [e for e in await world.core.views.ledger() if e.what == "rotated its key"]
    assert act.who == "agent:north"


async def test_a_dispatcher_of_before_two_changes_is_led_to_the_present_key(world: World, keys: Keys) -> None:
    former = world.core.records.members["north"]
    for _ in range(2):
        keys.begin("north")
        await show(world, keys)
        keys.finish()
    await world.put(former)
    assert not lets_in(world, keys)
    await show(world, keys)
    assert lets_in(world, keys)


async def test_nobody_else_changes_the_key(world: World, keys: Keys, tmp_path: Path) -> None:
    thief = Keys(tmp_path / "thief")
    (tmp_path / "thief").mkdir()
    thief.begin("north")
    with pytest.raises(Unauthenticated):
        await show(world, thief)
    keys.begin("north")
    request = keys.request("north")
    assert request is not None
    signed = thief.present.sign(b"something else").hex()
    stolen = msgspec.structs.replace(request, proof=signed)
    with pytest.raises(Unauthenticated):
        await world.core.admission.rotate_key(stolen)
    assert lets_in(world, keys)


async def test_a_revoked_key_leads_nowhere_and_its_host_comes_back_by_a_token_that_is_made_for_it(
    world: World, keys: Keys
) -> None:
    admission = world.core.admission
    await world.core.sites.revoke(ADMIN, "north", "north")
    assert not lets_in(world, keys)
    keys.begin("north")
    with pytest.raises(Unauthenticated):
        await show(world, keys)
    (row,) = world.core.views.sites()
    assert "its key was revoked" in row.hosts[0].because
    other = JoinRequest(public_key=public(keys.next_for_joining()), member="north")
    with pytest.raises(Conflict, match="named north"):
        await admission.join(await token(world), other)
    assert (await admission.join(await token(world, "north"), other)).member == "north"
    assert not lets_in(world, keys)
    keys.finish()
    assert lets_in(world, keys)
    with pytest.raises(Conflict, match="named north"):
        await token(world, "north")


async def test_a_used_join_token_lets_no_removed_or_revoked_member_back_in(
    world: World, tmp_path: Path
) -> None:
    admission, keys = world.core.admission, Keys(tmp_path)
    secret = await token(world)
    request = JoinRequest(public_key=public(keys.present))
    for _ in range(2):
        assert (await admission.join(secret, request)).member == "north"
    await world.core.sites.revoke(ADMIN, "north", "north")
    with pytest.raises(Unauthenticated, match="was used"):
        await admission.join(secret, request)
    await world.core.sites.remove(ADMIN, "north")
    with pytest.raises(Unauthenticated, match="was used"):
        await admission.join(secret, request)
    assert world.core.records.members == {}
