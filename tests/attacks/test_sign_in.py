"""Signed tokens that nobody should believe: each is refused in the same words, nothing of it reaches a log, and none costs the provider a request."""

import base64
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from joserfc import jws

from federator import oidc
from federator.control.administration.sign_in import SignIn
from federator.oidc import OidcKeys, usable
from tests.integration.api.conftest import rig
from tests.integration.api.rig import Answer, Rig
from tests.support.identity import Issuer, key_named

__all__ = ["rig"]
PUBLIC: dict[str, Any] = key_named("one").as_dict(private=False)
REFUSAL = "this token is not valid here"


@dataclass
class Door:
    """A dispatcher that believes the issuer."""

    rig: Rig
    issuer: Issuer
    keys: OidcKeys

    @property
    def now(self) -> float:
        return self.rig.world.clock.now()

    async def show(self, token: str, path: str = "/v1/whoami", method: str = "GET", **options: Any) -> Answer:
        headers = {"Authorization": f"Bearer {token}"}
        return await self.rig.ask(method, path, None, headers=headers, **options)

    def good(self, **fields: Any) -> str:
        return self.issuer.sign(self.issuer.claims(self.now, **fields))


async def door_for(rig: Rig, issuer: Issuer, **settings: Any) -> Door:
    core, given = rig.world.core, issuer.settings(**settings)
    keys = OidcKeys(given, rig.world.clock)
    await keys.fetch()
    core.sign_in = SignIn(core.admission, given, keys)
    return Door(rig, issuer, keys)


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    issuer = Issuer()
    await issuer.start()
    yield issuer
    await issuer.stop()


@pytest.fixture
async def door(rig: Rig, issuer: Issuer) -> Door:
    return await door_for(rig, issuer)


async def test_a_good_token_opens_so_that_the_refusals_below_mean_something(door: Door) -> None:
    answer = await door.show(door.good())
    assert answer.status == 200, answer.data
    told = answer.json()
    assert (told["name"], told["role"], told["groups"]) == ("ada", "platform", ["ops"])
    assert (told["signed_in_by"], told["expires_at"]) == (door.issuer.url, door.now + 300)


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _unsigned(door: Door, alg: str) -> str:
    claims = _part(door.issuer.claims(door.now))
    return f"{_part({'alg': alg, 'kid': 'one'})}.{claims}."


def _public_key_as_secret(door: Door) -> str:
    """HMAC with what everybody knows: the public key, as PEM."""
    body = f"{_part({'alg': 'HS256', 'kid': 'one'})}.{_part(door.issuer.claims(door.now))}"
    secret = door.issuer.keys["one"].as_pem(private=False)
    mac = hmac.new(secret, body.encode(), hashlib.sha256).digest()
    return f"{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def _tampered(door: Door) -> str:
    head, _, signature = door.good().split(".")
    return f"{head}.{_part(door.issuer.claims(door.now, groups=['root']))}.{signature}"


def _by_another(door: Door, **header: Any) -> str:
    """Signed by a key that is not the issuer's, under the name of one that is."""
    key = key_named("another")
    other = Issuer(server=door.issuer.server, keys={"one": key})
    if header.pop("embedded", False):
        header["jwk"] = key.as_dict(private=False)
    return other.sign(door.issuer.claims(door.now), **header)


def _claims(**fields: Any) -> Callable[[Door], str]:
    return lambda door: door.good(**{k: v(door.now) if callable(v) else v for k, v in fields.items()})


def _header(**fields: Any) -> Callable[[Door], str]:
    return lambda door: door.issuer.sign(door.issuer.claims(door.now), **fields)


FORGED: dict[str, tuple[Callable[[Door], str], str]] = {
    "another audience": (_claims(aud="elsewhere"), "not made for"),
    "other audiences": (_claims(aud=["elsewhere", "federator"]), "not made for"),
    "no audience": (_claims(aud=None), "not made for"),
    "another issuer": (_claims(iss="https://evil.example"), "issuer"),
    "expired": (_claims(exp=lambda now: now - 31), "expired"),
    "expires never": (_claims(exp=None), "no time of expiry"),
    "expires at infinity": (_claims(exp="never"), "not a time"),
    "expires as a truth": (_claims(exp=True), "not a time"),
    "not valid yet": (_claims(nbf=lambda now: now + 31), "not valid yet"),
    "made tomorrow": (_claims(iat=lambda now: now + 86400), "not valid yet"),
    "alg none": (lambda door: _unsigned(door, "none"), "not one that counts"),
    "alg NONE": (lambda door: _unsigned(door, "NONE"), "not one that counts"),
    "no signature": (lambda door: _unsigned(door, "RS256"), "signature"),
    "public key as secret": (_public_key_as_secret, "not one that counts"),
    "an algorithm of another kind of key": (lambda door: _unsigned(door, "ES256"), "not that of its key"),
    "tampered": (_tampered, "signature"),
    "signed by another": (_by_another, "signature"),
    "brings its own key": (lambda door: _by_another(door, embedded=True), "signature"),
    "names its own keys": (lambda door: _by_another(door, jku="https://evil.example/keys"), "signature"),
    "demands an extension": (
        lambda door: f"{_part({'alg': 'RS256', 'kid': 'one', 'crit': ['exp'], 'exp': 1})}.e30.AAAA",
        "demands",
    ),
    "a logout token": (_header(typ="logout+jwt"), "of the type"),
    "a proof of possession": (_header(typ="dpop+jwt"), "of the type"),
    "claims that are a list": (lambda door: door.issuer.sign(["ada"]), "no claims"),
    "nested claims": (lambda door: _raw(door, b"[" * 3000), "signature or form"),
    "a nested header": (lambda door: _segment(b'{"alg":' + b"[" * 4000) + ".e30.e30", "header"),
    "a header that is no text": (lambda door: "AAAA.e30.e30", "header"),
    "empty parts": (lambda door: "..", "header"),
    "oversized": (lambda door: "a" * 4000 + "." + "b" * 4000 + "." + "c" * 50, "characters"),
    "nobody": (_claims(preferred_username=None), "to name anybody"),
    "a name that is a path": (_claims(preferred_username="../ada"), "is not a valid name"),
    "a name of two lines": (_claims(preferred_username="ada\nroot"), "is not a valid name"),
    "a name in look-alikes": (_claims(preferred_username="аdа"), "is not a valid name"),  # noqa: RUF001 - on purpose
    "a name that is a list": (_claims(preferred_username=["ada"]), "to name anybody"),
    "the first admin's name": (_claims(preferred_username="admin"), "first admin"),
    "a service's name": (_claims(preferred_username="service-ci"), "a person may not"),
}


def _segment(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _raw(door: Door, payload: bytes) -> str:
    header = {"alg": "RS256", "kid": "one"}
    return jws.serialize_compact(header, payload, door.issuer.keys["one"], ["RS256"])


@pytest.mark.parametrize("what", FORGED)
async def test_what_is_not_signed_for_us_and_now_is_refused(
    door: Door, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    make, why = FORGED[what]
    token, asked = make(door), door.issuer.asked
    with caplog.at_level(logging.DEBUG):
        answer = await door.show(token)
    assert answer.status == 401, answer.data
    assert (answer.problem["detail"], answer.problem["code"]) == (REFUSAL, "unauthenticated")
    assert why in caplog.text
    assert token not in caplog.text
    assert all(part not in caplog.text for part in token.split(".") if len(part) > 20)
    assert door.issuer.asked == asked


async def test_without_a_provider_in_the_settings_a_signed_token_is_no_credential(
    rig: Rig, issuer: Issuer
) -> None:
    door = Door(rig, issuer, OidcKeys(issuer.settings(), rig.world.clock))
    answer = await door.show(door.good())
    assert (answer.status, answer.problem["detail"]) == (401, REFUSAL)


async def test_a_thousand_unknown_keys_cost_the_provider_one_question(door: Door) -> None:
    """The first says come again, for the key may be new; once that was looked into, the rest are refused."""
    door.rig.world.clock.advance(oidc.GAP_S)
    asked, seen = door.issuer.asked, []
    for number in range(1000):
        with pytest.raises(Exception) as refused:
            door.keys.verify(_unknown(number))
        seen.append(type(refused.value).__name__)
        if door.keys.wanted.is_set():
            await door.keys.fetch()
    assert (seen.count("Unavailable"), seen.count("Unauthenticated")) == (1, 999)
    assert door.issuer.asked == asked + 1


def _unknown(number: int) -> str:
    return f"{_part({'alg': 'RS256', 'kid': f'k{number}'})}.e30.AAAA"


async def test_a_key_that_is_new_is_fetched_beside_the_requests_and_then_counts(door: Door) -> None:
    door.issuer.new_key("two")
    door.issuer.keys.pop("one")
    token = door.issuer.sign(door.issuer.claims(door.now), "two")
    door.rig.world.clock.advance(oidc.GAP_S)
    first = await door.show(token)
    assert (first.status, first.headers["Retry-After"]) == (503, "1")
    await door.keys.fetch()
    assert (await door.show(token)).status == 200


async def test_a_key_that_the_provider_has_withdrawn_counts_no_more(door: Door) -> None:
    token = door.good()
    door.issuer.new_key("two")
    door.issuer.keys.pop("one")
    await door.keys.fetch()
    assert (await door.show(token)).status == 401


async def test_a_provider_that_is_down_keeps_no_token_of_ours_out(rig: Rig, issuer: Issuer) -> None:
    issuer.down = True
    door = await door_for(rig, issuer)
    answer = await door.show(door.good())
    assert answer.status == 503
    assert "tokens that were made here work" in answer.problem["remedy"]
    assert (await rig.ask("GET", "/v1/whoami", "ada")).json()["signed_in_by"] == "token"
    issuer.down = False
    await door.keys.fetch()
    assert (await door.show(door.good())).status == 200


async def test_known_keys_outlive_a_silent_provider_for_a_day_and_no_longer(door: Door) -> None:
    door.issuer.down = True
    for passed, status in ((oidc.STALE_S - 1, 200), (2, 503)):
        door.rig.world.clock.advance(passed)
        assert not await door.keys.fetch()
        assert (await door.show(door.good())).status == status


async def test_a_provider_that_calls_itself_otherwise_is_not_believed(rig: Rig, issuer: Issuer) -> None:
    keys = OidcKeys(issuer.settings(issuer=issuer.url + "/"), rig.world.clock)
    assert not await keys.fetch()


async def test_a_sign_in_ends_with_its_token(door: Door) -> None:
    token = door.good()
    assert (await door.show(token)).status == 200
    door.rig.world.clock.advance(331)
    assert (await door.show(token)).status == 401


async def test_who_is_known_and_has_no_role_is_told_so(rig: Rig, issuer: Issuer) -> None:
    door = await door_for(rig, issuer, roles={"ops": "admin"})
    answer = await door.show(door.good(groups=["others", "*"]))
    assert (answer.status, answer.problem["detail"]) == (403, "no group of ada has a role here")


async def test_who_administers_two_sites_by_their_groups_administers_these_and_no_third(
    rig: Rig, issuer: Issuer
) -> None:
    """Only the site that the settings name first counted, so its neighbour's admins shared their tokens."""
    roles = {"*": "user", "basel": "site-admin:basel", "north": "site-admin:north", "far": "site-admin:far"}
    door = await door_for(rig, issuer, roles=roles)
    both = door.good(groups=["north", "basel"])
    who = (await door.show(both)).json()
    assert (who["role"], who["site"], who["sites"]) == ("site-admin", "basel", ["basel", "north"])
    for site, status in (("basel", 201), ("north", 201), ("far", 403)):
        asked = await door.show(both, "/v1/tokens", "POST", json={"site": site, "kind": "onprem"})
        assert asked.status == status, (site, asked.data)
    for site, status in (("basel", 200), ("north", 200), ("far", 403)):
        assert (await door.show(both, f"/v1/ledger?site={site}")).status == status
    told = (await door.show(both, "/v1/ledger")).json()
    assert {entry["site"] for entry in told} <= {"basel", "north"}
    one = door.good(groups=["basel"])
    assert (await door.show(one)).json()["sites"] == ["basel"]
    assert (await door.show(one, "/v1/ledger?site=north")).status == 403


async def test_a_role_of_the_provider_is_held_like_one_of_a_token(door: Door) -> None:
    answer = await door.show(door.good(), "/v1/tokens")
    assert (answer.status, answer.problem["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    "key",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a"},
        {"kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": "a"},
        {"kty": "RSA", "kid": "a"},
        {"kty": ["RSA"], "kid": "a"},
        "key",
        {**PUBLIC, "n": PUBLIC["n"][:171]},
        {**PUBLIC, "use": "enc"},
    ],
    ids=["a secret", "tiny", "half", "odd", "a text", "short", "for encryption"],
)
def test_keys_that_cannot_be_trusted_are_left_out(key: Any) -> None:
    assert usable({"keys": [PUBLIC]})
    assert usable({"keys": [key]}) == {}
