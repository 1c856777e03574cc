"""Events, as a list or as server-sent events that resume where a client left off."""

import re
from collections.abc import Callable, Iterable

import msgspec
from aiohttp import web

from federator.api.exchange import Call
from federator.api.feeds import Follower
from federator.kernel.errors import Invalid
from federator.model.events import Event
from federator.planning.wording.told import told_event

ALIVE_S = 15.0
"""Real seconds of silence after which a comment is sent, so that proxies keep the stream and a vanished client is noticed."""
CONTENT_TYPE = "text/event-stream"
_EVENT_ID = re.compile(r"[A-Za-z0-9-]{1,100}")


class FollowQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`follow=false` gives a JSON list of what there is."""

    follow: bool = True


class AllQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`mine`: of the caller's own jobs only."""

    mine: bool = False


async def of_job(call: Call) -> list[Event] | web.StreamResponse:
    """A job's timeline; the stream ends with the job."""
    last = last_seen(call)
    job = call.job.id
    if not call.query(FollowQuery).follow:
        return await call.core.views.events(job, last)

    def over() -> bool:
        record = call.core.records.open_job(job)
        return record is None or record.terminal

    # Follow first, then read what was before: in between nothing is missed, and what comes twice is dropped by its id.
    with call.feeds.follow(job) as follower:
        return await _stream(call, follower, await call.core.views.events(job, last), over)


async def of_all(call: Call) -> web.StreamResponse:
    """Events of all jobs from now on; after an id that is still remembered, from there on."""
    last = last_seen(call)
    mine = call.query(AllQuery).mine
    with call.feeds.follow() as follower:
        recent = [event for event in call.feeds.recent if last is not None and event.id > last]
        return await _stream(call, follower, recent, lambda: False, mine=mine)


def last_seen(call: Call) -> str | None:
    """The id of the last message that a client which comes back has seen. Raises `Invalid`."""
    last = call.request.headers.get("Last-Event-ID")
    if last is not None and not _EVENT_ID.fullmatch(last):
        raise Invalid(
            "is not the id of an event", field="Last-Event-ID", remedy="send back the last id as it came"
        )
    return last


async def _stream(
    call: Call, follower: Follower, before: Iterable[Event], over: Callable[[], bool], *, mine: bool = False
) -> web.StreamResponse:
    response = await call.stream(CONTENT_TYPE)
    last = ""
    events = list(before)
    while True:
        sight = call.sight
        fresh = [
            event
            for event in events
            if event.id > last and sight.named(event.job) and (not mine or _owned(call, event))
        ]
        last = max([last, *(event.id for event in events)])
        if fresh:
            await response.write(b"".join(sight.masked(_frame(event)) for event in fresh))
        elif not follower.waiting and not over():
            await response.write(b": alive\n\n")
        if not follower.waiting and (follower.cut_off or over()):
            break
        events = await follower.take(ALIVE_S)
    await response.write_eof()
    return response


def _owned(call: Call, event: Event) -> bool:
    job = call.core.records.known_job(event.job)
    return job is not None and job.owner == call.caller.name


def _frame(event: Event) -> bytes:
    return b"id: " + event.id.encode() + b"\ndata: " + msgspec.json.encode(told_event(event)) + b"\n\n"
