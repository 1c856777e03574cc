"""A browser's session: its credential in a cookie that scripts cannot read, and no other page can use.

The cookie holds the same token that a client sends as its bearer, so rights, limits and the end of a session are those of the token, any
dispatcher of the same store takes it, and nothing is kept here. Browsers send it by themselves, so a request with it must come from the console's own
page: it carries no foreign `Origin`; what changes something, and a WebSocket, carries our own; and what changes something has a header that a
foreign page cannot set without asking first.

Who signs in with OpenID Connect is sent to the provider with a challenge of PKCE; what the answer has to match waits in a second cookie.
"""

import asyncio
import base64
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp import web

from federator.api.exchange import Call, json_response
from federator.api.people import sign_in, who_is
from federator.client.sign_in import Provider, SignInQuestion, credential
from federator.kernel.errors import Forbidden, Invalid, TooMany, Unauthenticated, Unavailable
from federator.wire.jsontext import read
from federator.wire.sign_in import SessionRequest, SessionStart, SignInWay

COOKIE = "federator_session"
PENDING = "federator_sign_in"
TLS_PREFIX = "__Host-"
"""Of the names of both where the page came by TLS: browsers take such a cookie from this host alone, and not from a neighbour under the same domain."""
OWN_HEADER = "X-Federator-Console"
"""Set by the console on every request; a page from elsewhere would have to ask for leave to set it, and gets none."""
LARGEST = 3900
"""Characters of a token: browsers keep 4096 bytes of a cookie, its name and attributes included."""
PENDING_S = 600
AT_ONCE = 8
"""Sign-ins for which the provider is asked at once."""
LANDING = "/sign-in"
"""The page to which the provider sends the browser back."""
_asking = asyncio.Semaphore(AT_ONCE)


def token_of(request: web.Request) -> str | None:
    """The token in the session's cookie; None without one, or beside a bearer token, which counts more. Raises `Forbidden` where the request may come from another page."""
    token = _kept(request, COOKIE) if "Authorization" not in request.headers else None
    if not token or not token.isascii():
        return None
    changes = request.method not in ("GET", "HEAD")
    if changes:
        require_own_page(request)
    elif request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise _foreign("Sec-Fetch-Site")
    elif "Origin" in request.headers or request.headers.get("Upgrade"):
        _require_own_origin(request)
    return token


def require_own_page(request: web.Request) -> None:
    """Raise `Forbidden` unless the request comes from the console of this dispatcher."""
    if OWN_HEADER not in request.headers:
        raise _foreign(OWN_HEADER)
    _require_own_origin(request)


async def begin(call: Call) -> web.Response:
    """Sign a browser in, with a token or with what the provider has sent it back with."""
    require_own_page(call.request)
    if not call.core.serving:
        raise Unavailable("the dispatcher is starting or stopping", retry_after_s=1.0)
    given = await call.body(SessionRequest)
    if bool(given.token) == bool(given.code):
        raise Invalid("a session begins with either a token or a code", field="$.token", remedy="send one")
    token = given.token.strip() or await _redeem(call, given)
    if not token.isascii():
        raise Unauthenticated("this token is not valid here", remedy="copy it as it was shown")
    if len(token) > LARGEST:
        raise Invalid(
            f"the token has {len(token)} characters, and a browser keeps {LARGEST}",
            field="$.token",
            remedy="have the provider put fewer groups into it",
        )
    caller = call.core.sign_in.authenticate(token)
    answer = json_response(who_is(call.core, caller))
    _set(call.request, answer, COOKIE, token)
    _forget(answer, PENDING)
    return answer


async def start(call: Call) -> web.Response:
    """Where the browser goes to sign in with OpenID Connect."""
    require_own_page(call.request)
    way = await _way(call)
    question = SignInQuestion(call.request.headers["Origin"] + LANDING)
    async with _place(), aiohttp.ClientSession() as session:
        page = await Provider(way, session, _proxies(call)).page(question)
    answer = json_response(SessionStart(page))
    _set(call.request, answer, PENDING, _packed(question), PENDING_S)
    return answer


async def end(call: Call) -> web.Response:
    """Sign a browser out: it forgets its token, which counts on elsewhere."""
    require_own_page(call.request)
    answer = web.Response(status=204)
    _forget(answer, COOKIE)
    return answer


async def _redeem(call: Call, given: SessionRequest) -> str:
    """The token for a code. Raises `Unauthenticated` when the answer belongs to no question of this browser."""
    question = _unpacked(_kept(call.request, PENDING))
    if question is None or question.state != given.state:
        raise Unauthenticated("this browser has begun no such sign-in", remedy="sign in again")
    way = await _way(call)
    async with _place(), aiohttp.ClientSession() as session:
        tokens = await Provider(way, session, _proxies(call)).redeem(question, given.code)
    return credential("", "", way, tokens).token


async def _way(call: Call) -> SignInWay:
    """As for the command, but without a refresh token: a browser signs in again by itself while the provider remembers it."""
    way = await sign_in(call)
    scopes = tuple(each for each in way.scopes if each != "offline_access")
    return msgspec.structs.replace(way, scopes=scopes)


def _place() -> asyncio.Semaphore:
    if _asking.locked():
        raise TooMany("many sign in at this moment", retry_after_s=2.0, remedy="try again")
    return _asking


def _proxies(call: Call) -> dict[str, str]:
    oidc = call.core.settings.oidc
    return {"HTTPS_PROXY": oidc.proxy} if oidc is not None and oidc.proxy else {}


def _require_own_origin(request: web.Request) -> None:
    parts = urlsplit(request.headers.get("Origin", ""))
    wrong_scheme = request.secure and parts.scheme != "https"
    if parts.netloc != request.host or parts.scheme not in ("http", "https") or wrong_scheme:
        raise _foreign("Origin")


def _foreign(field: str) -> Forbidden:
    return Forbidden(
        "a browser's session serves the console's own page only",
        field=field,
        remedy="open the console at the dispatcher's own address; a proxy in front must pass on the header Host; programs send Authorization: Bearer TOKEN",
    )


def _set(
    request: web.Request, answer: web.Response, name: str, value: str, max_age: int | None = None
) -> None:
    secure = request.headers["Origin"].startswith("https:")
    name = TLS_PREFIX + name if secure else name
    answer.set_cookie(name, value, path="/", httponly=True, samesite="Strict", secure=secure, max_age=max_age)


def _kept(request: web.Request, name: str) -> str:
    """What the browser sends of a cookie; by TLS only what was set by TLS. Empty: nothing."""
    plain = "" if request.secure else request.cookies.get(name, "")
    return request.cookies.get(TLS_PREFIX + name, plain)


def _forget(answer: web.Response, name: str) -> None:
    answer.del_cookie(name, path="/")
    answer.del_cookie(TLS_PREFIX + name, path="/", secure=True)


def _packed(question: SignInQuestion) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(question)).decode().rstrip("=")


def _unpacked(text: str) -> SignInQuestion | None:
    try:
        return read(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), SignInQuestion)
    except (ValueError, msgspec.DecodeError):
        return None
