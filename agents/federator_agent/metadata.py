"""Learns from the metadata service of a cloud that this machine is about to be taken back.

The machine itself is told first, two minutes before by EC2, 30 seconds before by Azure and Compute Engine (an hour where its host is maintained): asking here every few seconds leaves jobs more of them than
the dispatcher's own look at the provider does. EC2's advice to move before there is a notice (`rebalance-recommendation`) is not followed: it may
come hours early, or without anything after it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import aiohttp
import msgspec

from federator.kernel.quantities import parse_instant
from federator.wire.jsontext import read
from federator_agent.core.events import Noticed

EVERY_S = {"ec2": 5.0, "gce": 1.0, "azure": 1.0}
"""Real seconds, by cloud: what Amazon advises, and what leaves most of the 30 seconds of Google and Azure."""
ANSWERS_WITHIN_S = 5.0
TOKEN_FOR_S = 6 * 3600
TOKEN_PATH, NOTICE_PATH = "/latest/api/token", "/latest/meta-data/spot/instance-action"
GCE_PATH = "/computeMetadata/v1/instance/"
GCE_NOTICES = {
    "preempted": {"FALSE": None, "TRUE": 30.0},
    "maintenance-event": {
        "NONE": None,
        "MIGRATE_ON_HOST_MAINTENANCE": None,  # it goes on, and no machine with a GPU is moved
        "TERMINATE_ON_HOST_MAINTENANCE": 3600.0,
    },
}
"""What a machine of Compute Engine is told, and how long it then has, at most (s): the notice itself names no time."""
AZURE_PATH = "/metadata/scheduledevents?api-version=2020-07-01"
log = logging.getLogger("federator_agent")


class Notices(NamedTuple):
    """Who tells of interruptions, and where."""

    cloud: str
    """`ec2`, `gce` or `azure`."""
    url: str


class _Notice(msgspec.Struct, frozen=True):
    """`stop` and `hibernate` end the work as well as `terminate` does."""

    action: str
    time: str


class _Event(msgspec.Struct, frozen=True):
    """What Azure is about to do. `NotBefore` is empty once it does it."""

    EventType: str
    NotBefore: str = ""


class _Events(msgspec.Struct, frozen=True):
    """Of a machine by itself, all are about it."""

    Events: tuple[_Event, ...] = ()


async def watch(notices: Notices, tell: Callable[[Noticed], None]) -> None:
    """Ask until there is a notice, and tell it. One that was given is not taken back, so that is all."""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWERS_WITHIN_S)) as http:
        token, silent, url = "", False, notices.url
        while True:
            try:
                if notices.cloud == "gce":
                    reclaim_at = await _ended_by_google(http, url)
                elif notices.cloud == "azure":
                    reclaim_at = await _evicted(http, url)
                else:
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
            await asyncio.sleep(EVERY_S[notices.cloud])


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


async def _ended_by_google(http: aiohttp.ClientSession, url: str) -> float | None:
    """When Compute Engine takes it back or maintains its host, if it says so. The header shows that nobody was tricked into asking."""
    for name, means in GCE_NOTICES.items():
        async with http.get(f"{url}{GCE_PATH}{name}", headers={"Metadata-Flavor": "Google"}) as answer:
            answer.raise_for_status()
            said = (await answer.text()).strip()
        if said not in means:
            raise ValueError(said[:100])
        left_s = means[said]
        if left_s is not None:
            log.warning("the provider takes this machine back within %g seconds (%s)", left_s, name)
            return time.time() + left_s
    return None


async def _evicted(http: aiohttp.ClientSession, url: str) -> float | None:
    """When Azure takes it back, if that is among its scheduled events. What only restarts or moves the machine is none."""
    async with http.get(f"{url}{AZURE_PATH}", headers={"Metadata": "true"}) as answer:
        answer.raise_for_status()
        said = read(await answer.read(), _Events)
    for event in said.Events:
        if event.EventType == "Preempt":
            at = parsedate_to_datetime(event.NotBefore).timestamp() if event.NotBefore else time.time()
            log.warning("the provider takes this machine back at %s", event.NotBefore or "once")
            return at
    return None
