"""People's tokens: changed for new ones, ended one by one, now or later, and never the last that could make another."""

import pytest

from federator.control.administration.admission import Admission
from federator.kernel.errors import Conflict, Forbidden, NotFound, Unauthenticated
from federator.model.identity import Caller, Role
from federator.wire.http import TokenRequest, TokenRotation
from tests.support.dispatch import ADMIN, World, make_world


@pytest.fixture
async def world() -> World:
    return await make_world()


async def person(admission: Admission, name: str, role: str = "user", expires_in: str = "") -> str:
    request = TokenRequest(name=name, role=role, expires_in=expires_in)
    return (await admission.create_token(ADMIN, request)).secret


def valid(admission: Admission, secret: str) -> bool:
    try:
        admission.authenticate(secret)
    except Unauthenticated:
        return False
    return True


async def test_one_changes_ones_own_token_and_keeps_its_rights_and_its_end(world: World) -> None:
    admission = world.core.admission
    old = await person(admission, "ada", expires_in="30d")
    answer = await admission.rotate(Caller("ada", Role.USER), "ada", TokenRotation())
    assert (valid(admission, old), valid(admission, answer.secret)) == (False, True)
    assert admission.authenticate(answer.secret) == Caller("ada", Role.USER, expires_at=answer.expires_at)
    world.clock.advance(31 * 86400)
    assert not valid(admission, answer.secret)


async def test_the_old_one_may_be_kept_for_a_while(world: World) -> None:
    admission = world.core.admission
    old = await person(admission, "ada")
    answer = await admission.rotate(ADMIN, "ada", TokenRotation(keep="1h", expires_in="90d"))
    assert answer.expires_at == world.clock.now() + 90 * 86400
    assert valid(admission, old)
    world.clock.advance(3601)
    assert (valid(admission, old), valid(admission, answer.secret)) == (False, True)


async def test_nobody_changes_what_is_not_theirs_or_prolongs_what_is(world: World) -> None:
    admission = world.core.admission
    await person(admission, "ada")
    await person(admission, "bob", "platform")
    for caller, named in ((Caller("bob", Role.USER), "ada"), (Caller("bob", Role.USER), "bob")):
        with pytest.raises(Forbidden):
            await admission.rotate(caller, named, TokenRotation())
    with pytest.raises(Forbidden):
        await admission.rotate(Caller("ada", Role.USER), "ada", TokenRotation(expires_in="90d"))


async def test_of_several_the_one_is_named_by_its_id(world: World) -> None:
    admission = world.core.admission
    first, second = await person(admission, "ada"), await person(admission, "ada", "platform")
    with pytest.raises(Conflict, match="ada has 2 tokens"):
        await admission.rotate(ADMIN, "ada", TokenRotation())
    ids = {row.role: row.id for row in admission.rows()}
    assert await admission.revoke(ADMIN, ids["user"]) == 1
    assert (valid(admission, first), valid(admission, second)) == (False, True)
    assert await admission.revoke(ADMIN, "ada", 60.0) == 1
    assert valid(admission, second)
    world.clock.advance(61)
    assert not valid(admission, second)
    with pytest.raises(NotFound):
        await admission.revoke(ADMIN, "nobody")


async def test_an_agents_unused_token_is_ended_by_its_id(world: World) -> None:
    admission = world.core.admission
    await admission.create_token(ADMIN, TokenRequest(site="north", kind="onprem"))
    (row,) = admission.rows()
    assert await admission.revoke(ADMIN, row.id) == 1
    assert [row.status for row in admission.rows()] == ["revoked"]


async def test_the_last_admins_token_stays(world: World) -> None:
    admission = world.core.admission
    kept: list[str] = []
    await admission.bootstrap_admin(kept.append)
    with pytest.raises(Conflict, match="make another first"):
        await admission.revoke(ADMIN, "admin")
    await person(admission, "root", "admin")
    assert await admission.revoke(ADMIN, "admin") == 1
    assert not valid(admission, kept[0])


async def test_a_site_that_is_there_needs_no_kind(world: World) -> None:
    await world.add_site("north")
    assert (await world.core.admission.create_token(ADMIN, TokenRequest(site="north"))).secret
