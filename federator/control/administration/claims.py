"""Who somebody is, by the claims that their provider has signed: a pure function of claims, settings and time.

The signature is the business of `federator.oidc`; everything that a right signature does not say is judged here: for whom the token is
made, whether it is valid now, the name, the groups and the role. What is wrong with a token is told to the log alone, in `why`. Who is
known and lacks a role is told so.
"""

import math
from collections.abc import Mapping

from federator.control.administration.tokens import BOOTSTRAP_NAME, REFUSED
from federator.kernel.errors import Forbidden, Unauthenticated
from federator.model.identity import PERSON, Caller, Role, read_role
from federator.settings import OidcSettings

EVERYBODY = "*"
HIGHEST_FIRST = (Role.ADMIN, Role.PLATFORM, Role.SITE_ADMIN, Role.USER)
LOGIN = "sign in again: federator login"
Claims = Mapping[str, object]


def caller_of(claims: Claims, settings: OidcSettings, now: float) -> Caller:
    """The person or service. Raises `Unauthenticated` for a token that is not good here, `Forbidden` for somebody without a role."""
    expires_at = _check_for_us_and_now(claims, settings, now)
    groups = _groups(claims, settings.groups_claim)
    if claims.get(settings.username_claim) is not None or not settings.service_claim:
        name = _person(claims, settings)
    else:
        name = _name(settings.service_prefix, claims, settings.service_claim)
        groups = groups or (name,)
    role, sites = _role(name, groups, settings)
    return Caller(
        name,
        role,
        sites,
        settings.default_queue,
        groups=groups,
        expires_at=expires_at,
        signed_in_by=settings.issuer,
        mail=_verified_mail(claims),
    )


def refused(why: str) -> Unauthenticated:
    """The one sentence for every token that is not good, with the reason for the log."""
    return Unauthenticated(REFUSED, why=why, remedy=LOGIN)


def _check_for_us_and_now(claims: Claims, settings: OidcSettings, now: float) -> float:
    """Until when it is valid."""
    if claims.get("iss") != settings.issuer:
        raise refused("another issuer has signed it")
    audience = claims.get("aud")
    wanted = settings.audience or settings.client_id
    if audience != wanted and not (isinstance(audience, list) and wanted in audience):
        raise refused(f"it is not made for {wanted}")
    expires_at = _time(claims, "exp")
    if expires_at is None:
        raise refused("it has no time of expiry")
    if expires_at + settings.leeway_s <= now:
        raise refused("it has expired")
    for claim in ("nbf", "iat"):
        at = _time(claims, claim)
        if at is not None and at - settings.leeway_s > now:
            raise refused(f"it is not valid yet ({claim})")
    for claim, value in settings.required_claims.items():
        if claims.get(claim) != value:
            raise refused(f"its claim {claim} is not {value}")
    return expires_at


def _time(claims: Claims, name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise refused(f"its claim {name} is not a time")
    return float(value)


def _person(claims: Claims, settings: OidcSettings) -> str:
    if settings.username_claim == "email" and claims.get("email_verified", True) is not True:
        raise refused("its address is not verified")
    name = _name(settings.username_prefix, claims, settings.username_claim)
    if name.startswith(settings.service_prefix):
        raise refused(f"a person may not have a name that begins with {settings.service_prefix}")
    return name


def _verified_mail(claims: Claims) -> str:
    """The person's address; empty where the provider does not say that it is theirs."""
    mail = claims.get("email")
    return mail if isinstance(mail, str) and claims.get("email_verified") is True else ""


def _name(prefix: str, claims: Claims, claim: str) -> str:
    value = claims.get(claim)
    if not isinstance(value, str) or not value:
        raise refused(f"it has no claim {claim} to name anybody")
    name = prefix + value
    if not PERSON.fullmatch(name):
        raise refused(
            f"its claim {claim} is not a valid name: up to 63 letters, digits, '.', '_', '@' and '-'"
        )
    if name == BOOTSTRAP_NAME:
        raise refused(f"the name {name} is that of the first admin's token")
    return name


def _groups(claims: Claims, claim: str) -> tuple[str, ...]:
    """The groups in the order given, each once; anything but texts is none."""
    found: object = claims.get(claim)
    if found is None:
        found = claims
        for part in claim.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    listed = [found] if isinstance(found, str) else found if isinstance(found, list) else []
    return tuple(dict.fromkeys(each for each in listed if isinstance(each, str) and each != EVERYBODY))


def _role(name: str, groups: tuple[str, ...], settings: OidcSettings) -> tuple[Role, tuple[str, ...]]:
    """The highest role of the groups; of a site's admin with all sites that the groups give."""
    if settings.required_groups and not set(groups) & set(settings.required_groups):
        raise Forbidden(
            f"{name} is in none of the groups that are let in here",
            remedy="ask an administrator of your sign-in provider",
        )
    of_groups = [read_role(role) for group, role in settings.roles.items() if group in (EVERYBODY, *groups)]
    if not of_groups:
        raise Forbidden(
            f"no group of {name} has a role here", remedy="ask an administrator of your sign-in provider"
        )
    highest = min((role for role, _ in of_groups), key=HIGHEST_FIRST.index)
    return highest, tuple(dict.fromkeys(site for role, site in of_groups if role is highest and site))
