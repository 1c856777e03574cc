"""The one door to signed tokens: the keys of an OpenID Connect provider, and whether one of them has signed a token.

No request ever waits for the provider. A loop beside them fetches the keys: at the start, once in a while, and soon after a token has named
a key that is not known; however many such tokens come, not more often than once in `GAP_S`. While the provider is silent the keys that are
there go on counting for a day. Which algorithms count is said here and not by the token, and keys that are secrets are never taken from a
provider, so a public key cannot be passed off as one.
"""

import asyncio
import base64
import logging
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from joserfc import jwk, jws
from joserfc.errors import JoseError

from federator.kernel.clock import Clock
from federator.kernel.errors import FederatorError, Unauthenticated, Unavailable
from federator.kernel.route import Way, is_loopback
from federator.settings import OidcSettings
from federator.wire.jsontext import read

log = logging.getLogger(__name__)

LARGEST_TOKEN = 8000
"""Characters; looked at before anything is decoded. The HTTP parser reads 8190 in a line."""
LARGEST_ANSWER = 2**20
MOST_KEYS = 100
RSA_DIGITS = range(342, 1367)
"""Digits of base64 of an RSA modulus of 2048 to 8192 bits. Smaller ones can be broken, larger ones take long to check."""
ALGORITHMS = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "EdDSA"),
)
KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
"""The kind of key by how the name of an algorithm begins."""
TYPES = ("", "jwt", "at+jwt", "application/at+jwt")
"""Other kinds of signed documents, such as logout tokens, are no credentials."""
FETCH_S = 10.0
GAP_S = 10.0
"""Real seconds between two fetches, whatever tokens name."""
AGAIN_S = 30.0
"""After a fetch that failed."""
STALE_S = 86400.0
"""For so long keys count while the provider does not answer."""
DISCOVERY = "/.well-known/openid-configuration"


class _Header(msgspec.Struct):
    """What a token says of its own signature."""

    alg: str
    kid: str | None = None
    typ: str = ""
    crit: object = None


class Discovery(msgspec.Struct):
    """The part of a provider's description that is needed here."""

    issuer: str
    jwks_uri: str


class OidcKeys:
    """See `federator.ports.IdentityProvider`."""

    def __init__(self, settings: OidcSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._way = Way(ca=settings.ca, proxy=settings.proxy or "none", ca_field="$.oidc.ca")
        self._keys: dict[str, jwk.Key] = {}
        self._looked_at = -GAP_S
        self._known_at = -STALE_S
        self.wanted = asyncio.Event()
        self._registry = jws.JWSRegistry(algorithms=ALGORITHMS, strict_check_header=False)
        self._registry.max_header_length = LARGEST_TOKEN
        self.fetches = 0
        """How often the provider was asked."""

    def verify(self, bearer: str) -> Mapping[str, object]:
        """The claims of a token that the provider has signed. Raises `Unauthenticated` with `why`, or `Unavailable`."""
        if len(bearer) > LARGEST_TOKEN:
            raise _refused(f"it has {len(bearer)} characters, and {LARGEST_TOKEN} are read")
        header = header_of(bearer)
        key = self._key(header)
        try:
            signed = jws.deserialize_compact(bearer, key, algorithms=[header.alg], registry=self._registry)
            claims = read(signed.payload, object)
        except (JoseError, ValueError, TypeError) as error:
            # Not what the library says: it may quote the token.
            raise _refused(f"its signature or form is wrong ({type(error).__name__})") from None
        if not isinstance(claims, dict):
            raise _refused("it holds no claims")
        return claims

    async def run(self) -> None:
        """Fetch the keys, again and again."""
        while True:
            delay_s = self._settings.refresh_s if await self.fetch() else AGAIN_S
            await asyncio.sleep(min(GAP_S, delay_s))
            try:
                async with asyncio.timeout(max(0.0, delay_s - GAP_S)):
                    await self.wanted.wait()
            except TimeoutError:
                continue

    async def fetch(self) -> bool:
        """Ask the provider for its keys, once; whether it has told them. Those that it tells replace all that were known."""
        self.fetches += 1
        self._looked_at = self._clock.boot()
        self.wanted.clear()
        issuer = self._settings.issuer
        try:
            timeout = aiohttp.ClientTimeout(total=FETCH_S)
            async with aiohttp.ClientSession(timeout=timeout) as session:
                found = await self._get(session, issuer.rstrip("/") + DISCOVERY, Discovery)
                self._check(found)
                keys = usable(await self._get(session, found.jwks_uri, dict[str, Any]))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, FederatorError) as error:
            log.warning("no keys from the provider %s: %s %s", issuer, type(error).__name__, error)
            return False
        if not keys:
            log.warning("the OpenID Connect provider %s has no key that can be used", issuer)
            return False
        if keys.keys() != self._keys.keys():
            log.info("%d keys of the OpenID Connect provider %s", len(keys), issuer)
        self._keys, self._known_at = keys, self._clock.boot()
        return True

    async def _get(self, session: aiohttp.ClientSession, url: str, kind: Any) -> Any:
        """One small JSON document; no redirects: they could lead anywhere. Raises `ValueError` and what aiohttp raises."""
        async with session.get(url, allow_redirects=False, **self._way.options(url)) as answer:
            if answer.status != 200:
                raise ValueError(f"{url} is answered with status {answer.status}")
            body = bytearray()
            async for part in answer.content.iter_chunked(2**16):
                body += part
                if len(body) > LARGEST_ANSWER:
                    raise ValueError(f"{url} is answered with more than {LARGEST_ANSWER} bytes")
        return read(bytes(body), kind)

    def _check(self, found: Discovery) -> None:
        if found.issuer != self._settings.issuer:
            raise ValueError("its issuer is not $.oidc.issuer")
        parts = urlsplit(found.jwks_uri)
        here = urlsplit(self._settings.issuer).scheme == "http" and is_loopback(parts.hostname or "")
        if parts.scheme != "https" and not (parts.scheme == "http" and here):
            raise ValueError("its jwks_uri is not HTTPS")

    def _key(self, header: _Header) -> jwk.Key:
        now = self._clock.boot()
        if not self._keys or now - self._known_at > STALE_S:
            self.wanted.set()
            raise Unavailable(
                "the OpenID Connect provider has not sent its keys yet",
                retry_after_s=GAP_S,
                remedy="try again soon; tokens that were made here work meanwhile",
            )
        kid = header.kid if header.kid is not None or len(self._keys) > 1 else next(iter(self._keys))
        key = self._keys.get(kid) if kid is not None else None
        if key is None:
            if kid is not None and now - self._looked_at >= GAP_S:
                self.wanted.set()
                raise Unavailable("the OpenID Connect provider is asked for its keys", retry_after_s=1.0)
            raise _refused("no key of the provider has the name that it gives")
        if key.key_type != KINDS[header.alg[:2]] or key.get("alg", header.alg) != header.alg:
            raise _refused(f"its algorithm {header.alg} is not that of its key")
        return key


def usable(document: Mapping[str, Any]) -> dict[str, jwk.Key]:
    """The public keys for signatures in a key set, by their names; what is of another kind or size is left out."""
    found: dict[str, jwk.Key] = {}
    listed = document.get("keys")
    for each in listed[:MOST_KEYS] if isinstance(listed, list) else []:
        if not isinstance(each, dict) or each.get("kty") not in KINDS.values() or each.get("use") == "enc":
            continue
        if each["kty"] == "RSA" and len(str(each.get("n"))) not in RSA_DIGITS:
            continue
        public = {
            name: value for name, value in each.items() if name not in ("d", "p", "q", "dp", "dq", "qi")
        }
        try:
            key = jwk.import_key(public)
        except (JoseError, ValueError, TypeError, LookupError, ArithmeticError, AttributeError):
            continue  # what is no key makes the library stumble in many ways
        found[str(each.get("kid", ""))] = key
    return found


def header_of(bearer: str) -> _Header:
    """The header of a signed token. Raises `Unauthenticated` where it cannot be read."""
    try:
        padded = bearer.partition(".")[0].encode()
        header = read(_unpadded(padded), _Header)
    except ValueError:
        raise _refused("its header cannot be read") from None
    if header.alg not in ALGORITHMS:
        raise _refused(f"its algorithm {header.alg[:20]!r} is not one that counts")
    if header.crit is not None:
        raise _refused("its header demands what is not known here")
    if header.typ.lower() not in TYPES:
        raise _refused(f"it is of the type {header.typ[:40]!r}")
    return header


def _unpadded(segment: bytes) -> bytes:
    return base64.b64decode(segment + b"=" * (-len(segment) % 4), altchars=b"-_", validate=True)


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated("this token is not valid here", why=why, remedy="sign in again: federator login")
