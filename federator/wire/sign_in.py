"""What the dispatcher tells about signing in: where, and who somebody is once it is done."""

import msgspec


class SignInWay(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/sign-in: what `federator login` needs to know of the OpenID Connect provider."""

    issuer: str
    client_id: str
    scopes: tuple[str, ...]
    parameters: dict[str, str] = {}
    """More to send with the sign-in."""
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
    """Of a site-admin: the site."""
    default_queue: str = ""
    groups: tuple[str, ...] = ()
    """As the sign-in names them."""
    scopes: tuple[str, ...] = ()
    """What the token is limited to; empty: everything that the role may do."""
    signed_in_by: str = "token"
    """`token`, or the issuer of the sign-in."""
    expires_at: float | None = None
    """When the credential ends; None: it does not by itself."""
