"""Learns from EC2's metadata service that this machine is about to be taken back.

The machine itself is told first, two minutes before: asking here every few seconds leaves jobs more of them than the dispatcher's own
look at the provider does. Advice to move before there is a notice (`rebalance-recommendation`) is not followed: it may come hours early, or
without anything after it.
"""

import asyncio
import logging
from collections.abc import Callable

import aiohttp
import msgspec

from federator.kernel.quantities import parse_instant
from federator.wire.jsontext import read
from federator_agent.core.events import Noticed

EVERY_S = 5.0
"""Real seconds; what Amazon advises."""
ANSWERS_WITHIN_S = 5.0
TOKEN_FOR_S = 6 * 3600
TOKEN_PATH, NOTICE_PATH = "/latest/api/token", "/latest/meta-data/spot/instance-action"
log = logging.getLogger("federator_agent")


class _Notice(msgspec.Struct, frozen=True):
    """`stop` and `hibernate` end the work as well as `terminate` does."""

    action: str
    time: str


async def watch(url: str, tell: Callable[[Noticed], None]) -> None:
    """Ask until there is a notice, and tell it. One that was given is not taken back, so that is all."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWERS_WITHIN_S)) as http:
        token, silent = "", False
        while True:
            try:
                token = token or await _token(http, url)
                reclaim_at = await _notice(http, url, token)
                silent = False
            except (aiohttp.ClientError, TimeoutError, ValueError, msgspec.MsgspecError) as error:
                if not silent:
                    log.warning("the metadata service %s does not answer as it should: %r", url, error)
                token, silent, reclaim_at = "", True, None
            if reclaim_at is not None:
                tell(Noticed(reclaim_at))
                return
            await asyncio.sleep(EVERY_S)


async def _token(http: aiohttp.ClientSession, url: str) -> str:
    """The service answers only who has asked for a token before: what a job is tricked into fetching has none."""
    lives = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_FOR_S)}
    async with http.put(f"{url}{TOKEN_PATH}", headers=lives) as answer:
        answer.raise_for_status()
        return await answer.text()


async def _notice(http: aiohttp.ClientSession, url: str, token: str) -> float | None:
    """When it is taken back, if there is a notice: until then there is nothing at that address. A token that has run out is an error."""
    async with http.get(f"{url}{NOTICE_PATH}", headers={"X-aws-ec2-metadata-token": token}) as answer:
        if answer.status == 404:
            return None
        answer.raise_for_status()
        notice = read(await answer.read(), _Notice)
    log.warning("the provider takes this machine back at %s (%s)", notice.time, notice.action)
    return parse_instant(notice.time)
