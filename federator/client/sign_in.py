"""Signing in at an OpenID Connect provider, as a command on somebody's machine: by a browser with PKCE, by a code typed elsewhere, and again silently.

The browser comes back to a port of this machine, with a code that only the verifier made here turns into tokens (RFC 7636, RFC 8252). `state` ties the
answer to the question, `nonce` the token to both. What the provider answers comes straight from its token endpoint, so its signature is left to the
dispatcher, who judges the token anyway.
"""

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import urlencode, urlsplit

import aiohttp
import msgspec
from aiohttp import web

from federator.kernel.errors import Invalid, NotSupported, Unauthenticated, Unavailable
from federator.kernel.route import Way, is_loopback
from federator.wire.jsontext import read
from federator.wire.sign_in import Credential, SignInWay

T = TypeVar("T")
ANSWER_S = 30.0
LARGEST_ANSWER = 2**20
DISCOVERY = "/.well-known/openid-configuration"
CALLBACK = "/callback"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
SLOWER_S = 5.0
"""By so much the provider is asked less often once it says that this is too often (RFC 8628)."""
AGAIN = "sign in again: federator login"


class Endpoints(msgspec.Struct, frozen=True):
    """The part of a provider's description that is needed here."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    device_authorization_endpoint: str = ""
    revocation_endpoint: str = ""


class _Tokens(msgspec.Struct, frozen=True):
    """What a token endpoint gives."""

    access_token: str = ""
    id_token: str = ""
    refresh_token: str = ""
    expires_in: float | None = None


class _Refusal(msgspec.Struct, frozen=True):
    """Why a provider gives nothing (RFC 6749, section 5.2)."""

    error: str = ""
    error_description: str = ""


class _Device(msgspec.Struct, frozen=True):
    """What a person types where, and how often may be asked whether that is done (RFC 8628)."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str = ""
    expires_in: float = 600.0
    interval: float = 5.0


class _Refused(Exception):
    """The provider says no, with a code of OAuth's."""

    def __init__(self, code: str, told: str) -> None:
        self.code = code
        super().__init__(f"{code}: {told}" if told else code)


def unguessable() -> str:
    """A text that nobody can guess: 43 characters, as many as a verifier needs (RFC 7636)."""
    return secrets.token_urlsafe(32)


class SignInQuestion(msgspec.Struct, frozen=True):
    """What ties the provider's answer to who has asked, and is kept by the asker until then. `redirect`: where the browser comes back."""

    redirect: str
    state: str = msgspec.field(default_factory=unguessable)
    nonce: str = msgspec.field(default_factory=unguessable)
    verifier: str = msgspec.field(default_factory=unguessable)


class Provider:
    """One provider, as the dispatcher has named it. `proxies`: the environment, for a proxy on the way."""

    def __init__(self, way: SignInWay, session: aiohttp.ClientSession, proxies: Mapping[str, str]) -> None:
        self._way = way
        self._session = session
        self._reach = Way(ca=way.ca, environ=proxies)
        self._known: Endpoints | None = None

    async def places(self) -> Endpoints:
        """Where what is asked. Raises `Unavailable`, and `Invalid` for a provider that is not the one that was named or not to be trusted."""
        if self._known is None:
            _check_safe(self._way.issuer, self._way.issuer)
            found = await self._ask("GET", self._way.issuer.rstrip("/") + DISCOVERY, Endpoints)
            if found.issuer != self._way.issuer:
                raise Invalid(
                    f"the provider at {self._way.issuer} names itself {found.issuer[:200]}",
                    field="issuer",
                    remedy="have the dispatcher's oidc.issuer set to that",
                )
            for url in (found.authorization_endpoint, found.token_endpoint):
                _check_safe(url, self._way.issuer)
            self._known = found
        return self._known

    async def by_browser(self, show: Callable[[str], None], *, port: int, wait_s: float) -> _Tokens:
        """Tokens for who signs in at the page that `show` is given. Raises `Unauthenticated` when that is refused or takes longer than `wait_s`."""
        await self.places()
        state = unguessable()
        async with _listening(port, state, self._way.issuer) as (redirect, answer):
            question = SignInQuestion(redirect, state)
            show(await self.page(question))
            try:
                async with asyncio.timeout(wait_s):
                    code = await answer
            except TimeoutError:
                raise Unauthenticated(f"nobody has signed in within {wait_s:g} s", remedy=AGAIN) from None
        return await self.redeem(question, code)

    async def page(self, question: SignInQuestion) -> str:
        """Where a browser signs in."""
        place = (await self.places()).authorization_endpoint
        challenge = base64.urlsafe_b64encode(hashlib.sha256(question.verifier.encode()).digest()).rstrip(b"=")
        consent = {"prompt": "consent"} if "offline_access" in self._way.scopes else {}
        asked = {
            **consent,
            **self._way.parameters,
            "response_type": "code",
            "client_id": self._way.client_id,
            "redirect_uri": question.redirect,
            "scope": " ".join(self._way.scopes),
            "state": question.state,
            "nonce": question.nonce,
            "code_challenge": challenge.decode(),
            "code_challenge_method": "S256",
        }
        return place + ("&" if urlsplit(place).query else "?") + urlencode(asked)

    async def redeem(self, question: SignInQuestion, code: str) -> _Tokens:
        """Tokens for the code that the browser came back with. Raises `Unauthenticated`."""
        given = {"code": code, "redirect_uri": question.redirect, "code_verifier": question.verifier}
        try:
            tokens = await self._tokens("authorization_code", given)
        except _Refused as refusal:
            raise Unauthenticated(f"the provider refuses the sign-in: {refusal}", remedy=AGAIN) from None
        if tokens.id_token:
            self._check_ours(claims_in(tokens.id_token), question.nonce)
        return tokens

    async def by_device(self, show: Callable[[str, str], None]) -> _Tokens:
        """Tokens for who types the code at the page, on whatever machine; `show` is given page and code."""
        place = (await self.places()).device_authorization_endpoint
        if not place:
            raise NotSupported(
                "the provider does not support device codes", remedy="sign in by a browser: federator login"
            )
        _check_safe(place, self._way.issuer)
        form = {
            "client_id": self._way.client_id,
            "scope": " ".join(self._way.scopes),
            **self._resource(),
            **self._secret(),
        }
        try:
            asked = await self._ask("POST", place, _Device, form)
        except _Refused as refusal:
            raise Unauthenticated(f"the provider gives no device code: {refusal}") from None
        show(asked.verification_uri_complete or asked.verification_uri, asked.user_code)
        pause_s, until = max(asked.interval, 0.1), time.monotonic() + asked.expires_in
        while time.monotonic() < until:
            await asyncio.sleep(pause_s)
            try:
                return await self._tokens(DEVICE, {"device_code": asked.device_code})
            except _Refused as refusal:
                if refusal.code not in ("authorization_pending", "slow_down"):
                    raise Unauthenticated(f"nobody has signed in: {refusal}", remedy=AGAIN) from None
                pause_s += SLOWER_S if refusal.code == "slow_down" else 0.0
        raise Unauthenticated("nobody has signed in in time", remedy=AGAIN)

    async def again(self, refresh_token: str) -> _Tokens:
        """New tokens for a refresh token, which may be worth nothing afterwards. Raises `Unauthenticated` when the sign-in has ended."""
        try:
            return await self._tokens("refresh_token", {"refresh_token": refresh_token})
        except _Refused as refusal:
            raise Unauthenticated(f"your sign-in has expired ({refusal.code})", remedy=AGAIN) from None

    async def revoke(self, refresh_token: str) -> bool:
        """Have the provider forget the sign-in; whether it was asked."""
        place = (await self.places()).revocation_endpoint
        if not place:
            return False
        _check_safe(place, self._way.issuer)
        form = {"token": refresh_token, "token_type_hint": "refresh_token", "client_id": self._way.client_id}
        await self._ask("POST", place, bytes, form | self._secret())
        return True

    def _resource(self) -> dict[str, str]:
        return {name: self._way.parameters[name] for name in ("resource",) if name in self._way.parameters}

    def _secret(self) -> dict[str, str]:
        return {"client_secret": self._way.client_secret} if self._way.client_secret else {}

    def _check_ours(self, claims: Mapping[str, Any], nonce: str) -> None:
        audience = claims.get("aud")
        ours = self._way.client_id in (audience if isinstance(audience, list) else [audience])
        told = str(claims.get("nonce", ""))
        if claims.get("iss") != self._way.issuer or not ours or not hmac.compare_digest(told, nonce):
            raise Unauthenticated("the provider's answer belongs to another sign-in", remedy=AGAIN)

    async def _tokens(self, grant: str, given: Mapping[str, str]) -> _Tokens:
        form = {"grant_type": grant, "client_id": self._way.client_id, **given}
        place = (await self.places()).token_endpoint
        return await self._ask("POST", place, _Tokens, {**form, **self._resource(), **self._secret()})

    async def _ask(self, method: str, url: str, kind: type[T], form: Mapping[str, str] | None = None) -> T:
        """One request; no redirects, and no more of an answer than is sensible. Raises `_Refused`, `Unavailable`."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_S)
        host = urlsplit(url).hostname or url
        try:
            async with self._session.request(
                method, url, data=form, timeout=timeout, allow_redirects=False, **self._reach.options(url)
            ) as answer:
                body = await answer.content.read(LARGEST_ANSWER)
                if answer.status in (400, 401, 403):
                    refusal = read(body, _Refusal)
                    raise _Refused(refusal.error[:80], refusal.error_description[:200])
                if answer.status != 200:
                    raise Unavailable(f"the provider at {host} answers with status {answer.status}")
                return body if kind is bytes else read(body, kind)  # type: ignore[return-value]
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            fault = self._reach.fault(error, url)
            raise fault or Unavailable(
                f"cannot reach the provider at {host}: {str(error) or type(error).__name__}"
            ) from None
        except msgspec.DecodeError:
            raise Unavailable(
                f"the provider at {host} did not answer with the JSON that was expected"
            ) from None


def credential(server: str, server_ca: str, way: SignInWay, tokens: _Tokens, old: str = "") -> Credential:
    """What is kept of a sign-in. `old`: the refresh token so far, where no new one was given. Raises `Unauthenticated` without the token that is shown."""
    token = tokens.id_token if way.bearer == "id_token" else tokens.access_token
    if not token:
        raise Unauthenticated(f"the provider gives no {way.bearer}", remedy=AGAIN)
    ends = claims_in(token).get("exp")
    if not isinstance(ends, int | float):
        ends = time.time() + (tokens.expires_in or 300.0)
    return Credential(
        server=server,
        server_ca=server_ca,
        way=way,
        token=token,
        refresh_token=tokens.refresh_token or old,
        expires_at=float(ends),
    )


def claims_in(token: str) -> dict[str, Any]:
    """What a token says, unproven; empty when it cannot be read, as it need not be by us."""
    parts = token.split(".")
    try:
        segment = parts[1] if len(parts) == 3 else ""
        padded = segment + "=" * (-len(segment) % 4)
        claims = read(base64.urlsafe_b64decode(padded), object)
    except ValueError:
        return {}
    return claims if isinstance(claims, dict) else {}


@asynccontextmanager
async def _listening(port: int, state: str, issuer: str) -> AsyncIterator[tuple[str, "asyncio.Future[str]"]]:
    """A port of this machine to which the browser comes back: its URL, and the code that it brings. What has another `state` is somebody else's."""
    code: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def take(request: web.Request) -> web.Response:
        told = request.query
        if not hmac.compare_digest(told.get("state", "").encode(), state.encode()):
            return web.Response(status=400, text="This is not the sign-in that was begun here.\n")
        if told.get("iss", issuer) != issuer:
            return web.Response(status=400, text="This answer is of another provider.\n")
        if not code.done():
            if "code" in told:
                code.set_result(told["code"])
            else:
                why = told.get("error_description") or told.get("error", "no reason given")
                code.set_exception(Unauthenticated(f"the provider refuses: {why[:200]}", remedy=AGAIN))
        good = "code" in told
        text = "You are signed in. This page can be closed.\n" if good else "The provider has refused.\n"
        return web.Response(text=text)

    app = web.Application()
    app.router.add_get(CALLBACK, take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}{CALLBACK}", code
    finally:
        code.cancel()
        await runner.cleanup()


def _check_safe(url: str, issuer: str) -> None:
    """Tokens and codes go over TLS, or stay on this machine."""
    parts = urlsplit(url)
    here = parts.scheme == "http" and is_loopback(parts.hostname or "") and issuer.startswith("http:")
    if parts.scheme != "https" and not here:
        raise Invalid(f"the provider's address {url[:200]} is not HTTPS", field="issuer")
