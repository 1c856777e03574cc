"""Following what there is: rows of sites, queues, leases and budgets, and what changes of them, as server-sent events."""

import asyncio
import contextlib
from typing import Annotated

import msgspec
from aiohttp import web

from federator.api.events import ALIVE_S, CONTENT_TYPE, last_seen
from federator.api.exchange import Call
from federator.api.filters import refuse_unknown
from federator.api.live import LIVE, PACE_S, TOPICS
from federator.kernel.errors import Invalid
from federator.wire.changes import Topic


class ChangesQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`topics` with commas in between; all if it is not said. `site`: of the sites this one alone. `after`: the id of the last message that was seen, as the header Last-Event-ID."""

    topics: Annotated[str, msgspec.Meta(max_length=200)] = ""
    site: Annotated[str, msgspec.Meta(max_length=200)] = ""
    after: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9-]{0,100}$")] = ""


async def follow(call: Call) -> web.StreamResponse:
    """What there is, and then what changes; ends with the dispatcher, or when the client leaves."""
    query, live = call.query(ChangesQuery), call.request.app[LIVE]
    topics = _named(query.topics)
    refuse_unknown(call, site=query.site, queue="")
    after = live.number_of(last_seen(call) or query.after)
    with live.place(call.caller.name):
        response = await call.stream(CONTENT_TYPE)
        seen_by, quiet_s = call.sight.key, 0.0
        while not live.closing.is_set():
            live.look(topics)
            sight = call.sight
            if sight.key != seen_by:  # another rule may show or hide names in rows that were sent
                seen_by, after = sight.key, None
            news = live.news(topics, query.site, after)
            after = live.number
            if news:
                await response.write(sight.masked(news))
            elif quiet_s >= ALIVE_S:
                await response.write(b": alive\n\n")
            quiet_s = 0.0 if news or quiet_s >= ALIVE_S else quiet_s + PACE_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(live.closing.wait(), PACE_S)
        await response.write_eof()
    return response


def _named(words: str) -> tuple[Topic, ...]:
    """The topics of a query, in the order of `TOPICS`. Raises `Invalid`."""
    named = {each.strip() for each in words.split(",") if each.strip()}
    if unknown := named.difference(TOPICS):
        raise Invalid(
            f"there is no topic {min(unknown)!r}", field="?topics", remedy=f"known are {', '.join(TOPICS)}"
        )
    return tuple(each for each in TOPICS if each in named) or TOPICS
