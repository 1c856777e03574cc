"""The plan: what runs where and when, as the newest decision foresees it, or as a recorded one did."""

from typing import Annotated

import msgspec

from federator.api.exchange import Call, Cursor, Moment
from federator.api.filters import refuse_unknown
from federator.control.queries.timetables import PlanFilter
from federator.kernel.errors import Invalid
from federator.model.timetable import Timetable
from federator.wire.timetable import PlanPage

BEFORE_S, AFTER_S = 3600.0, 24 * 3600.0
LONGEST_S = 31 * 86_400.0


class PlanQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What overlaps the time from `since` to `until` (seconds since the epoch; 0: an hour before the decision, and a day after it), at a site, of a queue and those below it, of an owner. `collapse`: tasks of an array that start and end together are one bar. `after`: as `next_after` of the page before."""

    since: Moment = 0.0
    until: Moment = 0.0
    site: str = ""
    queue: str = ""
    owner: str = ""
    collapse: bool = False
    after: Cursor | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=5000)] = 1000


async def show(call: Call) -> PlanPage:
    """What the newest decision foresees."""
    return await _page(call, await call.core.timetables.newest())


async def show_recorded(call: Call) -> PlanPage:
    """What a recorded decision foresaw, and what had ended before it."""
    return await _page(call, await call.core.timetables.recorded(call.path("id")))


async def _page(call: Call, found: Timetable) -> PlanPage:
    query, at = call.query(PlanQuery), found.taken_at or call.core.clock.now()
    since_at, until_at = query.since or at - BEFORE_S, query.until or at + AFTER_S
    if not 0 <= since_at < until_at:
        raise Invalid("is not before `until`", field="?since", remedy="give seconds since the epoch")
    if until_at - since_at > LONGEST_S:
        raise Invalid("is more than 31 days before `until`", field="?since", remedy="ask for a shorter time")
    wanted = PlanFilter(
        since_at=since_at,
        until_at=until_at,
        site=query.site,
        queue=query.queue,
        owner=query.owner,
        collapse=query.collapse,
    )
    page = await call.core.timetables.page(found, wanted, call.sight, after=query.after, limit=query.limit)
    if not page.total:
        refuse_unknown(call, site=query.site, queue=query.queue)
    return page
