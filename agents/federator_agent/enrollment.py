"""What an agent asks outside of a session: to be let in, and to have its next key taken. And how any answer becomes an error of ours."""

import aiohttp
import msgspec

from federator.kernel.errors import (
    Conflict,
    Invalid,
    NotFound,
    Permanent,
    TooLarge,
    Transient,
    Unauthenticated,
    Untrusted,
)
from federator.kernel.route import Way
from federator.wire.jsontext import read
from federator.wire.link import SITE_HEADER, JoinAnswer, JoinRequest, KeyRequest
from federator_agent.dialer import Addresses
from federator_agent.spool import Identity

ANSWER_S = 20.0
JSON = {"Content-Type": "application/json"}


async def join(
    dispatcher: str,
    token: str,
    request: JoinRequest,
    site: str = "",
    *,
    way: Way,
) -> Identity:
    """Bind a key to a site with a one-time token, at the first of the dispatchers that answers. `site`: what the token must be for.
    Raises `Permanent` when the token is not (any more) good, `Conflict` when it is for another site, `Untrusted`, else `Transient`.
    """
    headers = JSON | {"Authorization": f"Bearer {token}"} | ({SITE_HEADER: site} if site else {})
    answer = await _ask(dispatcher, "/agent/v1/join", msgspec.json.encode(request), headers, way)
    try:
        joined = read(answer, JoinAnswer)
    except msgspec.DecodeError as error:
        remedy = "is that the address of a dispatcher, and of this agent's version?"
        raise Invalid(f"the answer of {dispatcher} cannot be read: {error}", remedy=remedy) from None
    return Identity(
        dispatcher=dispatcher, member=joined.member, site=joined.site, incarnation=joined.incarnation
    )


async def change_key(dispatcher: str, request: KeyRequest, way: Way) -> None:
    """Have the dispatcher take the newest key. Raises `Unauthenticated` when it knows none of those that lead to it, and as `join`."""
    await _ask(dispatcher, "/agent/v1/key", msgspec.json.encode(request), JSON, way)


async def _ask(dispatcher: str, path: str, body: bytes, headers: dict[str, str], way: Way) -> bytes:
    """The first answer of one of the dispatchers."""
    addresses = Addresses(dispatcher)
    while True:
        try:
            return await _ask_one(addresses.present, path, body, headers, way)
        except (Transient, Untrusted):
            if addresses.failed():
                raise


async def _ask_one(url: str, path: str, body: bytes, headers: dict[str, str], way: Way) -> bytes:
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(f"{url}{path}", data=body, headers=headers, **way.options(url)) as answer,
        ):
            data = await answer.read()
            raise_for(answer.status, data)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise way.fault(error, url) or Transient(f"{url} cannot be reached: {reason(error)}") from None
    return data


def reason(error: BaseException) -> str:
    """What a person is told of an error that may have no words."""
    return str(error) or type(error).__name__


def raise_for(status: int, body: bytes) -> None:
    """The error that an answer stands for; none below 400."""
    if status < 400:
        return
    detail = body[:500].decode(errors="replace")
    try:
        problem = read(body, dict[str, object])
        detail = str(problem.get("detail") or problem.get("title") or detail)
        detail += f" ({problem['remedy']})" if problem.get("remedy") else ""
    except msgspec.MsgspecError:
        pass
    families: dict[int, type[Permanent | Conflict]] = {
        404: NotFound,
        401: Unauthenticated,
        409: Conflict,
        413: TooLarge,
    }
    if status >= 500 or status in (408, 425, 429):
        raise Transient(f"the dispatcher answered {status}: {detail}")
    raise families.get(status, Invalid)(f"the dispatcher answered {status}: {detail}")
