"""Who may do what: people's tokens with roles, and agents' keys.

The two are separate on purpose. A person holds a bearer token; only its hash is stored. An agent holds a private key that
never leaves its host; it joins once with a one-time token and proves the key in every session.
"""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

import msgspec

from federator.kernel.errors import Forbidden
from federator.model.queues import DEFAULT_QUEUE
from federator.model.whose import OWNER

PERSON = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
"""What people and service accounts may be called."""

ANY = "*"
"""Stands for anything in the pattern of sites' names."""


class Role(StrEnum):
    """What a token may do; each route names the roles it admits."""

    USER = "user"
    SITE_ADMIN = "site-admin"
    PLATFORM = "platform"
    ADMIN = "admin"


class Scope(StrEnum):
    """What a token may do of what its role may; each route has one. A token without scopes may do all of it."""

    READ = "read"
    """Look at things: jobs, sites, queues, money, logs."""
    SUBMIT = "submit"
    """Submit jobs with their work directories, and preview them."""
    CHANGE = "change"
    """Change and cancel jobs and series."""
    EXEC = "exec"
    """Run commands inside of one's own jobs, and reach their ports."""
    MANAGE = "manage"
    """Everything else: sites, policies, renting, tokens."""


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token as it is stored: under the hash of its secret. `site` bounds a site-admin to one site."""

    digest: str
    name: str
    role: Role
    site: str | None = None
    default_queue: str = DEFAULT_QUEUE
    created_at: float = 0.0
    expires_at: float | None = None
    revoked: bool = False
    scopes: tuple[Scope, ...] = ()
    """What it is limited to; empty: everything that its role may do."""
    last_used_at: float = 0.0
    """To the hour: it is not written with each request. 0: never."""


def administrators(tokens: Iterable[Token], site: str) -> tuple[str, ...]:
    """The federation's administrators and the site's own, as a site says whom it trusts."""
    names = {
        token.name
        for token in tokens
        if not token.revoked
        and (token.role is Role.ADMIN or (token.role is Role.SITE_ADMIN and token.site == site))
    }
    return tuple(f"{OWNER}{name}" for name in sorted(names))


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """Admits one agent, once: the first key that presents it is bound to it. One with `most` admits the first agent of each of so many new sites."""

    digest: str
    site: str
    """Its name; of a token with `most` the pattern of the names, such as `store-*`."""
    kind: str
    member: str | None = None
    lease: str | None = None
    region: str = ""
    provider: str | None = None
    created_at: float = 0.0
    expires_at: float = 0.0
    public_key: str | None = None
    """Bound at first use; the same key may repeat its join, another may not."""
    most: int = 0
    """How many new sites it admits an agent of; 0: it is for one agent of one site."""
    used: int = 0
    """How many it has admitted."""
    revoked: bool = False
    """Its end is that of the revocation."""

    def fits(self, name: str) -> bool:
        """Whether a site or member of that name is among those that a token with `most` is for."""
        begin, _, end = self.site.partition(ANY)
        return len(name) >= len(begin) + len(end) and name.startswith(begin) and name.endswith(end)


class BlobOwner(msgspec.Struct, frozen=True, gc=False):
    """That somebody has uploaded these bytes, or a member of a team, and when they were last used so. Only such people may name them in a job file."""

    owner: str
    """Empty where it is a team's."""
    digest: str
    at: float
    team: str = ""

    @property
    def key(self) -> str:
        """Its place among all: no owner's name begins with the stroke that a team's has."""
        return f"{self.digest}/{f'/{self.team}' if self.team else self.owner}"


class OwnAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Where somebody has said to be told of their jobs. Both, if both are given."""

    name: str
    """Whose it is."""
    mail: str = ""
    webhook: str = ""
    """A secret: whoever knows it may post there."""
    format: Literal["json", "slack", "teams"] = "json"
    """What is posted there."""
    at: float = 0.0


class Caller(msgspec.Struct, frozen=True):
    """Whoever makes a request, once the credential is checked."""

    name: str
    role: Role
    sites: tuple[str, ...] = ()
    """Of a site-admin: those that are administered."""
    default_queue: str = DEFAULT_QUEUE
    groups: tuple[str, ...] = ()
    """The groups that the sign-in names; none for a token of ours."""
    scopes: tuple[Scope, ...] = ()
    """What the credential is limited to; empty: everything that the role may do."""
    expires_at: float | None = None
    """When the credential ends, seconds since the epoch; None: it does not by itself."""
    signed_in_by: str = "token"
    """How: `token`, or the issuer that has signed for it."""
    mail: str = ""
    """The address that the sign-in names and has verified; empty: none."""

    def require_scope(self, scope: Scope) -> None:
        """Raise `Forbidden` where the credential is limited to other things."""
        if self.scopes and scope not in self.scopes:
            what = f"this needs the scope {scope}; your token has {', '.join(self.scopes)}"
            raise Forbidden(what, remedy="use another token, or ask an admin for one with this scope")

    def require(self, *roles: Role) -> None:
        """Raise `Forbidden` unless the role is one of `roles`; an admin may do everything."""
        if self.role is not Role.ADMIN and self.role not in roles:
            raise Forbidden(f"this needs the role {' or '.join(roles)}; your token has {self.role}")


def read_role(text: str) -> tuple[Role, str | None]:
    """A role as settings name it, such as `platform` or `site-admin:north`, and its site. Raises `ValueError`."""
    name, _, site = text.partition(":")
    role = Role(name)
    if (role is Role.SITE_ADMIN) != bool(site):
        raise ValueError(text)
    return role, site or None
