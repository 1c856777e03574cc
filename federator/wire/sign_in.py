"""What the dispatcher tells about signing in: where, and who somebody is once it is done."""

import msgspec

from federator.wire.rights import QueueRights


class SignInWay(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/sign-in: what `federator login` needs to know of the OpenID Connect provider."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...]
    parameters: dict[str, str] = {}
    """More to send with the sign-in."""
    client_secret: str = ""
    """Of a client that is installed with its users, at providers that want one even so; it is no secret."""
    bearer: str = "id_token"
    """Which of the provider's tokens is shown to the dispatcher: `id_token` or `access_token`."""
    ca: str = ""
    """The private authority behind the provider's certificate, as PEM; empty: those that the machine knows."""


class WhoAmI(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/whoami: who the credential is taken for."""

    name: str
    """The owner of what is submitted with it."""
    role: str
    site: str = ""
    """Of a site-admin: the site, the first one where there are several."""
    sites: tuple[str, ...] = ()
    """Of a site-admin: all sites. A dispatcher of an earlier version says only the one."""
    default_queue: str = ""
    groups: tuple[str, ...] = ()
    """As the sign-in names them."""
    scopes: tuple[str, ...] = ()
    """What the token is limited to; empty: everything that the role may do."""
    signed_in_by: str = "token"
    """`token`, or the issuer of the sign-in."""
    expires_at: float | None = None
    """When the credential ends; None: it does not by itself."""
    teams: tuple[str, ...] = ()
    """The teams that who asks is in."""
    open: bool = True
    """Whether everybody may submit to every queue, because the policies name nobody."""
    queues: tuple[QueueRights, ...] = ()
    """The queues that who asks may submit to, and within which limits."""


class SessionRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """POST /v1/session: what a browser's session begins with, a token or what the OpenID Connect provider has sent the browser back with."""

    token: str = ""
    code: str = ""
    state: str = ""


class SessionStart(msgspec.Struct, frozen=True):
    """POST /v1/session/start: the provider's page to which the browser goes, to come back with a code."""

    url: str


class Credential(msgspec.Struct, frozen=True, kw_only=True):
    """What the command keeps of a sign-in, readable by its user alone."""

    server: str
    """The dispatcher that it is for; it is shown to no other."""
    server_ca: str = ""
    """PEM file of the authority behind the dispatcher's certificate, as given when signing in."""
    way: SignInWay
    token: str
    """What the dispatcher is shown."""
    refresh_token: str = ""
    """What gives the next token; empty: there is none, and the sign-in ends with the token."""
    expires_at: float
    """When the token ends, seconds since the epoch."""
