"""What simulations take from a running dispatcher: its load of some time, and its world. For platform engineers, who see all jobs anyway."""

from typing import Annotated

import msgspec

from federator.api.exchange import Call, Cursor, Moment
from federator.control.queries.recorded_load import Span
from federator.kernel.errors import Invalid
from federator.wire.recorded import RecordedJobs, RecordedWorld

LONGEST_S = 400 * 86_400.0
USUAL_S = 7 * 86_400.0


class LoadQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Jobs that were there between `since` and `until` (seconds since the epoch; 0: a week before, and now), after what the page before gave as `next_after`."""

    since: Moment = 0.0
    until: Moment = 0.0
    after: Cursor | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 1000


async def jobs(call: Call) -> RecordedJobs:
    """The load of a time, page by page."""
    query, now = call.query(LoadQuery), call.core.clock.now()
    until_at = query.until or now
    span = Span(query.since or until_at - USUAL_S, until_at)
    if not 0 <= span.since_at < span.until_at:
        raise Invalid(
            "is not before `until`", field="?since", remedy="give seconds since the epoch, in the past"
        )
    if until_at - span.since_at > LONGEST_S:
        raise Invalid("is more than 400 days before `until`", field="?since", remedy="ask for a shorter time")
    return await call.core.recorded.jobs(span, after=query.after, limit=query.limit, now=now)


async def world(call: Call) -> RecordedWorld:
    """Sites and offers, as they are now."""
    return call.core.recorded.world(call.core.clock.now())
