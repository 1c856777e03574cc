"""Who may do what: people's tokens with roles, and agents' keys.

The two are separate on purpose. A person holds a bearer token; only its hash is stored. An agent holds a private key that
never leaves its host; it joins once with a one-time token and proves the key in every session.
"""

from enum import StrEnum

import msgspec

from federator.kernel.errors import Forbidden


class Role(StrEnum):
    """What a token may do; each route names the roles it admits."""

    USER = "user"
    SITE_ADMIN = "site-admin"
    PLATFORM = "platform"
    ADMIN = "admin"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A bearer token as it is stored: under the hash of its secret. `site` bounds a site-admin to one site."""

    digest: str
    name: str
    role: Role
    site: str | None = None
    default_queue: str = "default"
    created_at: float = 0.0
    expires_at: float | None = None
    revoked: bool = False


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """Admits one agent, once: the first key that presents it is bound to it."""

    digest: str
    site: str
    kind: str
    member: str | None = None
    lease: str | None = None
    region: str = ""
    provider: str | None = None
    created_at: float = 0.0
    expires_at: float = 0.0
    public_key: str | None = None
    """Bound at first use; the same key may repeat its join, another may not."""


class BlobOwner(msgspec.Struct, frozen=True, gc=False):
    """That somebody has uploaded these bytes, and when they last used them so. Only such a person may name them in a job file."""

    owner: str
    digest: str
    at: float


class Caller(msgspec.Struct, frozen=True):
    """Whoever makes a request, once the credential is checked."""

    name: str
    role: Role
    site: str | None = None
    default_queue: str = "default"

    def require(self, *roles: Role) -> None:
        """Raise `Forbidden` unless the role is one of `roles`; an admin may do everything."""
        if self.role is not Role.ADMIN and self.role not in roles:
            raise Forbidden(f"this needs the role {' or '.join(roles)}; your token has {self.role}")
