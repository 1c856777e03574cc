"""A token that was made for one thing does no other: not by any route, and not by making itself a better one."""

import pytest

from federator.api.routes import ROUTES
from federator.api.scopes import scope_of
from federator.api.table import Gate, Route
from federator.control.administration.sign_in import USE_S
from federator.model.identity import Scope
from tests.integration.api.conftest import rig
from tests.integration.api.rig import Rig
from tests.integration.api.test_access import name_of, path_of

__all__ = ["rig"]
DAY_S = 86400.0
ASKED = [route for route in ROUTES if route.gate in (Gate.PERSON, Gate.JOB)]


async def limited(rig: Rig, *scopes: str, role: str = "admin", **fields: str) -> None:
    """Give eve a token with these scopes."""
    asked = {"name": "eve", "role": role, "scopes": scopes, **fields}
    made = await rig.ask("POST", "/v1/tokens", "root", json=asked)
    assert made.status == 201, made.data
    rig.secrets["eve"] = made.json()["secret"]


@pytest.mark.parametrize("route", ASKED, ids=name_of)
async def test_an_admins_token_with_all_other_scopes_is_refused_at_every_route(
    rig: Rig, route: Route
) -> None:
    await limited(rig, *(scope for scope in Scope if scope is not scope_of(route)))
    answer = await rig.ask(route.method, path_of(route), "eve")
    assert answer.status == 403
    if route.method != "HEAD":
        assert f"needs the scope {scope_of(route)}" in answer.problem["detail"]


async def test_each_scope_opens_what_it_is_for(rig: Rig) -> None:
    await limited(rig, "read")
    assert (await rig.ask("GET", "/v1/queues", "eve")).status == 200
    await limited(rig, "submit", role="user")
    job = await rig.submit("eve")
    assert (await rig.ask("GET", f"/v1/jobs/{job}", "eve")).status == 403
    await limited(rig, "change", role="user")
    assert (await rig.ask("DELETE", f"/v1/jobs/{job}", "eve")).status == 202


@pytest.mark.parametrize("scopes", [[], ["read"], ["manage", "read"]])
async def test_a_limited_token_makes_none_that_may_do_more(rig: Rig, scopes: list[str]) -> None:
    await limited(rig, "manage")
    asked = {"name": "mallory", "role": "admin", "scopes": scopes}
    answer = await rig.ask("POST", "/v1/tokens", "eve", json=asked)
    assert (answer.status, answer.problem["field"]) == (403, "$.scopes")
    rotated = await rig.ask("POST", "/v1/tokens/admin/rotate", "eve", json={})
    assert rotated.status == 403


async def test_a_rotated_token_keeps_its_limits(rig: Rig) -> None:
    await limited(rig, "read", role="user")
    made = await rig.ask("POST", "/v1/tokens/eve/rotate", "root", json={})
    rig.secrets["eve"] = made.json()["secret"]
    assert (await rig.ask("POST", "/v1/jobs", "eve", json={"run": "true"})).status == 403


async def test_a_persons_token_ends_after_ninety_days_unless_it_is_said(rig: Rig) -> None:
    for given, ends_s in (
        ({}, 90 * DAY_S),
        ({"expires_in": "2d"}, 2 * DAY_S),
        ({"expires_in": "never"}, None),
    ):
        made = await rig.ask("POST", "/v1/tokens", "root", json={"name": "eve", "role": "user", **given})
        expires_at = made.json()["expires_at"]
        assert expires_at == (None if ends_s is None else rig.world.clock.now() + ends_s)
    rig.world.clock.advance(91 * DAY_S)
    assert (await rig.ask("GET", "/v1/queues", "ada")).status == 401
    assert (await rig.ask("GET", "/v1/queues", "root")).status == 200, "the first admin's does not end"


async def test_the_last_use_is_told_and_a_thousand_uses_are_one_write(rig: Rig) -> None:
    core = rig.world.core
    for _ in range(1000):
        core.sign_in.authenticate(rig.secrets["ada"])
    assert await core.sign_in.write_uses() == 1
    core.sign_in.authenticate(rig.secrets["ada"])
    assert await core.sign_in.write_uses() == 0
    rows = (await rig.ask("GET", "/v1/tokens", "root")).json()
    assert [row.get("last_used_at") for row in rows if row["name"] in ("ada", "bob")] == [
        rig.world.clock.now(),
        None,
    ]
    await core.sign_in.write_uses()
    rig.world.clock.advance(USE_S)
    core.sign_in.authenticate(rig.secrets["ada"])
    assert await core.sign_in.write_uses() == 1, "an hour later it is written again"
