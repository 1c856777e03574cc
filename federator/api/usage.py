"""What people, teams and queues have used, and what that cost."""

import math
from typing import Annotated

import msgspec

from federator.api.exchange import Call, Moment
from federator.control.queries.usage_report import UsageSums, add_jobs, add_lines
from federator.kernel.errors import Invalid
from federator.model.archive import ArchivedShare, ArchiveFilter
from federator.model.events import LedgerEntry
from federator.model.rights import Relation
from federator.wire.usage import KEYS, Key, UsageReport

SINCE_S = 30 * 86400.0
COUNTED = frozenset(
    {Relation.OWNER, Relation.TEAM_ADMIN, Relation.QUEUE_ADMIN, Relation.SITE_ADMIN, Relation.PLATFORM}
)
"""Who is shown what others have used: not those who are only in the same team."""


class UsageQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`by`: user, team, queue, site, model, month, day, several with commas. Times are seconds since the epoch; `since` left out: the last 30 days. `everybody`: all that one may see, not only one's own."""

    by: Annotated[str, msgspec.Meta(max_length=100)] = "month"
    since: Moment | None = None
    until: Moment | None = None
    everybody: bool = False


async def usage(call: Call) -> UsageReport:
    """Added up from the ledger and the jobs on record."""
    query, now = call.query(UsageQuery), call.core.clock.now()
    since = now - SINCE_S if query.since is None else query.since
    until = math.inf if query.until is None else query.until
    if since >= min(until, now):
        raise Invalid("is not before the end", field="?since", remedy="give an earlier time")
    sums, records = UsageSums(_keys(query.by)), call.core.records
    counts = _Counted(call, everybody=query.everybody)

    def team_of(line: LedgerEntry) -> str:
        job = records.jobs.get(line.job)
        return line.team or (job.team if job is not None else "")

    lines = call.core.views.ledger_lines(since=since)
    await add_lines(sums, lines, team_of, counts.line, until)
    shown = records.index.of_cells(lambda cell: counts.group(cell[0], cell[1], cell[3], ""))
    # What has ended leaves memory for the archive: both are looked at as they are at one moment.
    jobs = [
        (job, records.placements.get(job.placement or ""))
        for job in map(records.jobs.get, shown.ids())
        if job
    ]
    ended = ArchiveFilter(ended_since_at=since, ended_until_at=None if math.isinf(until) else until)
    archived = await call.core.views.search.usage(ended, _keys(query.by), counts.archived)
    await add_jobs(sums, jobs, since, until)
    for each in archived:
        sums.archived(each, _keys(query.by))
    return sums.report(whose=counts.whose, since=since, until=min(until, now))


class _Counted:
    """What the caller is shown: their own use, or that of everybody whom they administer."""

    def __init__(self, call: Call, *, everybody: bool) -> None:
        self._caller, self._everybody = call.caller, everybody
        self._authority = call.core.authority.now
        self._known: dict[tuple[str, str, str, str], bool] = {}

    @property
    def whose(self) -> str:
        """In words."""
        if not self._everybody:
            return self._caller.name
        if Relation.PLATFORM in self._authority.standing(self._caller, owner="", queue=""):
            return "everybody"
        return f"{self._caller.name}, and whom {self._caller.name} administers"

    def line(self, line: LedgerEntry, team: str) -> bool:
        """Whether a line of the ledger counts."""
        return self.group(line.owner, line.queue, team, line.site)

    def archived(self, share: ArchivedShare) -> bool:
        """Whether jobs of the archive count."""
        return self.group(share.owner, share.queue, share.team, "")

    def group(self, owner: str, queue: str, team: str, site: str) -> bool:
        """Whether what that person has had there counts."""
        if not self._everybody:
            return owner == self._caller.name
        key = (owner, queue, team, site)
        if key not in self._known:
            stands = self._authority.standing(self._caller, owner=owner, queue=queue, team=team, site=site)
            self._known[key] = not COUNTED.isdisjoint(stands)
        return self._known[key]


def _keys(text: str) -> tuple[Key, ...]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    known: dict[str, Key] = {key: key for key in KEYS}
    if unknown := [word for word in words if word not in known]:
        raise Invalid(f"cannot group by {unknown[0]!r}", field="?by", remedy=f"known: {', '.join(KEYS)}")
    return tuple(known[word] for word in words)
