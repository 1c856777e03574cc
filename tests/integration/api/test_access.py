"""Who may do what: the gate of every route, tokens, and answers that give nothing away."""

import re

import pytest

from federator.api.routes import ROUTES
from federator.api.table import Gate, Route
from federator.kernel.errors import Bug, Conflict
from federator.model.identity import Caller, Role
from federator.wire.http import TokenRequest
from tests.integration.api.rig import PEOPLE, ROOT, Rig
from tests.support.dispatch import make_world

GATED = [route for route in ROUTES if route.gate not in (Gate.OPEN, Gate.AGENT)]
RESTRICTED = [route for route in ROUTES if route.gate is Gate.PERSON and route.roles]


def path_of(route: Route) -> str:
    values = {
        "hash": "0" * 64,
        "rank": "0",
        "tunnel": "guessed",
        "placement": "plc-1",
        "job": "job-1",
        "id": "x",
        "name": "north",
        "member": "nobody",
    }
    return re.sub(r"{(\w+)}", lambda part: values[part[1]], route.path)


def name_of(route: Route) -> str:
    return f"{route.method} {route.path}"


@pytest.mark.parametrize("route", GATED, ids=name_of)
@pytest.mark.parametrize("header", [None, "Bearer wrong", "Basic YTpi", "Bearer "])
async def test_no_route_but_the_open_ones_answers_without_a_good_credential(
    rig: Rig, route: Route, header: str | None
) -> None:
    headers = {} if header is None else {"Authorization": header}
    answer = await rig.ask(route.method, path_of(route), None, headers=headers)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("route", RESTRICTED, ids=name_of)
async def test_a_role_that_the_table_does_not_name_is_refused(rig: Rig, route: Route) -> None:
    for who, request in PEOPLE.items():
        if Role(request.role) not in route.roles:
            assert (await rig.ask(route.method, path_of(route), who)).status == 403, who


async def test_a_persons_token_is_no_ticket_and_a_ticket_no_persons_token(rig: Rig) -> None:
    agent = await rig.agent()
    assert (await rig.ask("GET", f"/agent/v1/specs/{'0' * 64}", "root")).status == 401
    assert (await agent.ask("GET", "/v1/jobs")).status == 401


async def test_tokens_are_stored_as_digests_only(rig: Rig) -> None:
    page = await rig.world.core.records.store.range("")
    stored = b"".join(item.value for item in page.items)
    for secret in rig.secrets.values():
        assert secret.encode() not in stored


async def test_a_token_ends_with_its_time_and_with_its_revocation(rig: Rig) -> None:
    made = await rig.ask(
        "POST", "/v1/tokens", "root", json={"name": "eve", "role": "user", "expires_in": "1h"}
    )
    assert made.status == 201
    rig.secrets["eve"] = made.json()["secret"]
    assert (await rig.ask("GET", "/v1/queues", "eve")).status == 200
    rig.world.clock.advance(3601)
    assert (await rig.ask("GET", "/v1/queues", "eve")).status == 401
    assert (await rig.ask("DELETE", "/v1/tokens/bob", "root")).json() == {"tokens": 1}
    assert (await rig.ask("GET", "/v1/queues", "bob")).status == 401
    assert (await rig.ask("DELETE", "/v1/tokens/nobody", "root")).status == 404


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        ({}, "$.role"),
        ({"name": "eve", "role": "queen"}, "$.role"),
        ({"name": "a b", "role": "user"}, "$.name"),
        ({"name": "eve", "role": "site-admin"}, "$.site"),
        ({"name": "eve", "role": "user", "site": "north"}, "$.site"),
        ({"site": "north", "kind": "moon"}, "$.kind"),
        ({"site": "No th", "kind": "edge"}, "$.site"),
        ({"name": "eve", "role": "user", "expires_in": "soon"}, "$.expires_in"),
    ],
)
async def test_a_token_that_makes_no_sense_is_not_made(
    rig: Rig, request_: dict[str, str], field: str
) -> None:
    before = len(rig.world.core.records.tokens)
    answer = await rig.ask("POST", "/v1/tokens", "root", json=request_)
    assert answer.status == 400
    assert answer.problem["field"] == field
    assert len(rig.world.core.records.tokens) == before


async def test_a_site_admin_makes_join_tokens_for_one_site_and_no_others(rig: Rig) -> None:
    own = await rig.ask("POST", "/v1/tokens", "sam", json={"site": "north", "kind": "onprem"})
    other = await rig.ask("POST", "/v1/tokens", "sam", json={"site": "south", "kind": "onprem"})
    person = await rig.ask("POST", "/v1/tokens", "sam", json={"name": "sam2", "role": "admin"})
    assert (own.status, other.status, person.status) == (201, 403, 403)


async def test_a_site_admin_drains_the_own_site_only(rig: Rig) -> None:
    await rig.world.add_site("north")
    await rig.world.add_site("south")
    drained = await rig.ask("POST", "/v1/sites/north/drain", "sam")
    assert drained.json()["draining"] is True
    assert (await rig.ask("POST", "/v1/sites/north/undrain", "sam")).json()["draining"] is False
    assert (await rig.ask("POST", "/v1/sites/south/drain", "sam")).status == 403


async def test_what_an_admin_does_is_in_the_ledger(rig: Rig) -> None:
    await rig.ask("POST", "/v1/tokens", "root", json={"site": "north", "kind": "onprem"})
    await rig.ask("DELETE", "/v1/tokens/bob", "root")
    lines = (await rig.ask("GET", "/v1/ledger", "pat")).json()
    acts = [line["what"] for line in lines if line["who"] == "user:admin"]
    assert any("join token" in act for act in acts)
    assert any("revoked" in act for act in acts)
    page = (await rig.ask("GET", f"/v1/ledger?limit=2&after={lines[0]['id']}", "pat")).json()
    assert [line["id"] for line in page] == [line["id"] for line in lines[1:3]]


async def test_only_the_first_admin_is_made_without_one(rig: Rig) -> None:
    kept: list[str] = []
    with pytest.raises(Conflict, match="has an admin already"):
        await rig.world.core.admission.bootstrap_admin(kept.append)
    assert (await rig.world.core.admission.create_token(ROOT, TokenRequest(name="z", role="admin"))).secret


async def test_an_admins_secret_is_kept_before_it_counts_so_that_no_crash_locks_everybody_out() -> None:
    world = await make_world()

    def crash(_secret: str) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await world.core.admission.bootstrap_admin(crash)
    assert not world.core.admission.bootstrapped
    kept: list[str] = []
    await world.core.admission.bootstrap_admin(kept.append)
    assert world.core.admission.authenticate(kept[0]).role is Role.ADMIN


async def test_unknown_paths_and_methods_are_problems_too(rig: Rig) -> None:
    assert (await rig.ask("GET", "/v1/nothing")).problem["status"] == 404
    wrong = await rig.ask("PUT", "/v1/jobs")
    assert wrong.status == 405
    assert "POST" in wrong.headers["Allow"]
    assert wrong.problem


async def test_a_bug_of_ours_is_answered_without_its_trace(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (RuntimeError("secret detail"), Bug("secret detail")):

        def fail(_caller: Caller, error: Exception = error) -> None:
            raise error

        monkeypatch.setattr(rig.world.core.views, "queues", fail)
        answer = await rig.ask("GET", "/v1/queues")
        assert answer.status == 500
        assert b"secret" not in answer.data
        assert b"Traceback" not in answer.data


async def test_before_it_leads_only_health_is_answered(rig: Rig) -> None:
    rig.world.core.ready = False
    assert (await rig.ask("GET", "/v1/jobs")).status == 503
    assert (await rig.ask("POST", "/agent/v1/join", None, json={"public_key": "00"})).status == 503
    assert (await rig.ask("GET", "/agent/v1/link", None)).status == 503
    assert (await rig.ask("GET", "/readyz", None)).status == 503
    assert (await rig.ask("GET", "/healthz", None)).status == 200
    rig.world.core.ready = True
    assert (await rig.ask("GET", "/readyz", None)).status == 200


async def test_the_values_of_a_jobs_environment_are_its_owners(rig: Rig) -> None:
    """Everybody sees every job; what people put into the environment, tokens among it, only those who may read its logs."""
    body = {"run": "true", "env": {"DATA_SET": "s3cret"}}
    submitted = await rig.ask("POST", "/v1/jobs", "ada", json=body)
    job = submitted.json()["jobs"][0]
    for who, sees in (("ada", "s3cret"), ("bob", "(hidden)"), ("root", "s3cret")):
        detail = (await rig.ask("GET", f"/v1/jobs/{job}", who)).json()
        assert detail["spec"]["env"] == {"DATA_SET": sees}, who
