"""Whatever a provider signs: a caller has a name as tokens have them, a role that the settings give, and nothing that is not in the claims."""

import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federator.control.administration.claims import HIGHEST_FIRST, caller_of
from federator.kernel.errors import Forbidden, Unauthenticated
from federator.model.identity import PERSON, read_role
from federator.settings import OidcSettings

NOW = 1_800_000_000.0
GROUPS = ("research", "ops", "basel", "*", "", "admin")
ROLES = ("user", "platform", "admin", "site-admin:basel", "site-admin:north")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
SETTINGS = st.builds(
    OidcSettings,
    issuer=st.just("https://sso.example"),
    client_id=st.just("cli"),
    username_prefix=st.sampled_from(("", "x-", "service-")),
    service_claim=st.sampled_from(("", "client_id")),
    roles=st.dictionaries(st.sampled_from(GROUPS), st.sampled_from(ROLES), min_size=1),
    required_groups=st.sampled_from(((), ("ops",))),
)
GOOD = st.fixed_dictionaries(
    {"iss": st.just("https://sso.example"), "aud": st.just("cli"), "exp": st.just(NOW + 60)},
    optional={
        "preferred_username": st.sampled_from(("ada", "admin", "service-x", "..", "a" * 64)) | JSON,
        "client_id": st.just("ci") | JSON,
        "groups": st.lists(st.sampled_from(GROUPS), max_size=4) | JSON,
    },
)
SPOILED = st.dictionaries(
    st.sampled_from(("iss", "aud", "exp", "nbf", "iat", "preferred_username", "groups")), JSON, max_size=2
)


def _listed(claims: dict[str, Any]) -> set[str]:
    found = claims.get("groups")
    return (
        {found}
        if isinstance(found, str)
        else {each for each in found or () if isinstance(each, str)}
        if isinstance(found, list)
        else set()
    )


@given(GOOD, SPOILED, SETTINGS)
def test_claims_give_no_more_than_the_settings_say(
    good: dict[str, Any], spoiled: dict[str, Any], settings: OidcSettings
) -> None:
    claims = {**good, **spoiled}
    try:
        caller = caller_of(claims, settings, NOW)
    except (Unauthenticated, Forbidden):
        return
    ours = claims["aud"] if isinstance(claims["aud"], list) else [claims["aud"]]
    assert (claims["iss"], "cli" in ours) == (settings.issuer, True)
    assert caller.expires_at is not None
    assert math.isfinite(caller.expires_at)
    assert caller.expires_at > NOW - settings.leeway_s
    assert re.fullmatch(PERSON, caller.name)
    assert caller.name != "admin"
    person = claims.get("preferred_username") is not None
    assert caller.name.startswith("service-") != person
    assert set(caller.groups) <= (_listed(claims) - {"*"}) | ({caller.name} if not person else set())
    open_to = {read_role(role) for group, role in settings.roles.items() if group in ("*", *caller.groups)}
    assert caller.role in {role for role, _ in open_to}
    assert set(caller.sites) == {site for role, site in open_to if role is caller.role and site}
    assert all(HIGHEST_FIRST.index(caller.role) <= HIGHEST_FIRST.index(role) for role, _ in open_to)
    assert not settings.required_groups or set(settings.required_groups) & set(caller.groups)


@given(st.sampled_from(("iss", "aud", "exp", "preferred_username")), SETTINGS)
def test_without_any_one_of_what_a_token_must_say_nobody_is_let_in(
    missing: str, settings: OidcSettings
) -> None:
    claims: dict[str, Any] = {
        "iss": "https://sso.example",
        "aud": "cli",
        "exp": NOW + 60,
        "preferred_username": "ada",
    }
    del claims[missing]
    with pytest.raises(Unauthenticated) as refused:
        caller_of(claims, settings, NOW)
    assert refused.value.why


@pytest.mark.parametrize(
    ("verified", "mail"), [(True, "ada@example.org"), (False, ""), ("true", ""), (None, "")]
)
def test_a_mail_address_is_taken_only_where_the_provider_has_verified_it(verified: object, mail: str) -> None:
    settings = OidcSettings(issuer="https://sso.example", client_id="cli", roles={"*": "user"})
    claims = {
        "iss": "https://sso.example", "aud": "cli", "exp": NOW + 60,
        "preferred_username": "u1234", "email": "ada@example.org", "email_verified": verified,
    }  # fmt: skip
    assert caller_of(claims, settings, NOW).mail == mail
