"""A copy of an agent's key, from outside: it takes no seat from the agent, changes no key, and the site's admins hear of it."""

import asyncio
import shutil
from pathlib import Path

import pytest

from federator.kernel.errors import Unauthenticated
from federator.model.events import Alert
from federator.model.sites import SiteStatus
from federator.wire import link
from federator.wire.http import TokenRequest
from federator_agent.keys import HOST_KEY, Keys, public
from tests.support.dispatch import ADMIN, World, make_world
from tests.unit.hub.agents import Agent, a_world, seated


async def alerts(world: World) -> list[Alert]:
    return [each for each in await world.core.alerts.look() if each.kind == "identity"]


@pytest.mark.parametrize("instance", ["", "another"])
async def test_a_thief_on_the_same_host_takes_no_seat_and_freezes_new_work(instance: str) -> None:
    """Every job on a host can read the boot of its agent: that it knows it makes nobody the agent."""
    world, agents = await a_world("north")
    agent = agents["north"]
    agent.instance, agent.host = "agent", "host a"
    await seated(agent)
    thief = Agent(agent.hub, "north", agent.key, boot_id=agent.boot_id, instance=instance, host="elsewhere")
    opening = asyncio.create_task(thief.open())
    await agent.told()
    refusal = await opening
    assert isinstance(refusal, link.Refusal)
    assert refusal.code == "duplicate"
    assert agent.welcome is not None
    assert world.core.inventory.members["north"].session == agent.welcome.session
    member = world.core.records.members["north"]
    assert "elsewhere was turned away" in world.core.inventory.closed_because(member)
    assert world.core.inventory.status(member) is not SiteStatus.READY
    (alert,) = await alerts(world)
    assert "two agents have the identity north" in alert.text
    assert alert.site == "north"
    assert await alerts(world) == [], "told once"


@pytest.fixture
async def world() -> World:
    return await make_world()


async def joined(world: World, directory: Path) -> Keys:
    keys = Keys(directory)
    secret = (
        await world.core.admission.create_token(ADMIN, TokenRequest(site="north", kind="onprem"))
    ).secret
    request = link.JoinRequest(public_key=public(keys.present), host_key=public(keys.host))
    await world.core.admission.join(secret, request)
    return keys


async def test_a_stolen_key_cannot_be_changed_without_the_host_key(world: World, tmp_path: Path) -> None:
    home, loot = tmp_path / "home", tmp_path / "loot"
    home.mkdir()
    keys = await joined(world, home)
    shutil.copytree(home, loot, ignore=shutil.ignore_patterns(HOST_KEY))
    thief = Keys(loot)
    for guess in (False, True):
        if guess:
            assert public(thief.host) != public(keys.host), "one of its own"
        thief.begin("north")
        request = thief.request("north")
        assert request is not None
        with pytest.raises(Unauthenticated):
            await world.core.admission.rotate_key(request)
    assert world.core.records.members["north"].public_key == public(keys.present)
    assert await alerts(world) == []


async def test_a_change_of_key_by_its_host_is_told_to_the_admins(world: World, tmp_path: Path) -> None:
    keys = await joined(world, tmp_path)
    keys.begin("north")
    request = keys.request("north")
    assert request is not None
    await world.core.admission.rotate_key(request)
    keys.finish()
    assert world.core.records.members["north"].public_key == public(keys.present)
    (alert,) = await alerts(world)
    assert alert.text == "north of north has changed its key"


async def test_who_joined_before_there_were_host_keys_may_still_change_its_key(
    world: World, tmp_path: Path
) -> None:
    keys = Keys(tmp_path)
    secret = (
        await world.core.admission.create_token(ADMIN, TokenRequest(site="north", kind="onprem"))
    ).secret
    await world.core.admission.join(secret, link.JoinRequest(public_key=public(keys.present)))
    keys.begin("north")
    request = keys.request("north")
    assert request is not None
    assert request.host_proof == ""
    await world.core.admission.rotate_key(request)
    assert world.core.records.members["north"].public_key != public(keys.present)
