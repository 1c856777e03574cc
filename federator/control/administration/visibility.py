"""Which jobs somebody is shown: all, or by `visibility.jobs: team` only those to which they stand in a relation. Everything that shows jobs asks here.

What another's job is called may also stand in a text, such as the reason why one's own waits. Such texts name jobs as `NAME (ID)`, so that one place,
`Sight.masked`, can take the names out of every answer.
"""

import re
from collections.abc import Iterable, Iterator

from federator.control.administration.authority import OVERSEERS, Authority, AuthorityInForce
from federator.control.record.job_index import CellKey
from federator.control.record.records import Records
from federator.model.identity import Caller, Role
from federator.model.jobs import Job

ANOTHERS = "another team's job"
"""Stands for the name of a job that somebody is not shown."""
_ID = re.compile(rb"job-[0-9a-z]{26}")
_NAME_BACKWARDS = re.compile(rb"\( (?:\]\d{1,9}\[)?[A-Za-z0-9._-]{0,62}[A-Za-z0-9]")
"""A job's name before its id, read from the id back: to look for it forwards would try each byte as its beginning."""
_LONGEST_BEFORE = 80
"""Bytes before an id in which the job's name is looked for."""


class Visibility:
    """The rule in force."""

    def __init__(self, records: Records, authority: AuthorityInForce, *, by_team: bool) -> None:
        self._records = records
        self.authority = authority
        """By which relations are judged."""
        self.by_team = by_team
        """Whether people are shown only jobs to which they stand in a relation."""

    def of(self, caller: Caller) -> "Sight":
        """What that person is shown at this moment: policies may change, so it is not to be kept."""
        return Sight(self._records, self.authority.now, caller, everything=not self.by_team)


class Sight:
    """What one person is shown."""

    def __init__(
        self, records: Records, authority: Authority, caller: Caller, *, everything: bool = False
    ) -> None:
        self.everything = everything or caller.role in OVERSEERS
        """Whether they are shown all jobs."""
        self._records = records
        self._authority = authority
        self._caller = caller
        self._known: dict[tuple[str, str], bool] = {}

    @property
    def key(self) -> object:
        """Equal for two who are shown the same jobs."""
        return None if self.everything else (self._caller, self._authority)

    def standing(self, owner: str, queue: str, team: str) -> bool:
        """Whether they stand in a relation to what that person has there under that team, wherever it is placed."""
        if self.everything or owner == self._caller.name:
            return True
        key = (queue, team)
        if key not in self._known:
            self._known[key] = bool(
                self._authority.standing(self._caller, owner=owner, queue=queue, team=team)
            )
        return self._known[key]

    def cell(self, cell: CellKey) -> bool:
        """The same, of all jobs of a cell."""
        owner, queue, _, team = cell
        return self.standing(owner, queue, team)

    def job(self, job: Job) -> bool:
        """Whether they are shown that job."""
        return self.standing(job.owner, job.queue, job.team) or self._is_at_their_site(job)

    def named(self, name: str) -> bool:
        """The same by its id; what is not on record is not shown."""
        job = self._records.known_job(name)
        return self.everything or (job is not None and self.job(job))

    @property
    def sites(self) -> tuple[str, ...]:
        """The sites that they administer: what is placed there they are shown, too."""
        return tuple(self._caller.sites) if self._caller.role is Role.SITE_ADMIN else ()

    def at_their_site(self) -> list[str]:
        """Ids of the jobs that they are shown only because they administer the site where each is placed, in order."""
        if self.everything or self._caller.role is not Role.SITE_ADMIN:
            return []
        jobs = self._records.jobs
        placed = {each.job for each in self._records.placements.values() if each.site in self._caller.sites}
        found = (jobs[name] for name in placed if name in jobs)
        return sorted(
            job.id
            for job in found
            if self._is_at_their_site(job) and not self.standing(job.owner, job.queue, job.team)
        )

    def shown(self, jobs: Iterable[Job]) -> Iterator[Job]:
        """Those that they are shown."""
        return (job for job in jobs if self.job(job))

    def masked(self, data: bytes) -> bytes:
        """JSON in which no job is named that they are not shown; takes time in proportion to its length."""
        if self.everything:
            return data
        parts: list[bytes] = []
        end = 0
        for found in _ID.finditer(data):
            start = found.start()
            before = _NAME_BACKWARDS.match(data[max(end, start - _LONGEST_BEFORE) : start][::-1])
            job = self._records.known_job(found[0].decode())
            # An id alone that is not on record is of a preview, or of a job that is forgotten, and says nothing.
            if (job is None and before is None) or (job is not None and self.job(job)):
                continue
            parts += [data[end : start - before.end() if before else start], ANOTHERS.encode()]
            end = found.end()
            if before and data.startswith(b")", end):
                end += 1
            elif before and data.startswith(b", ", end):
                parts.append(b" (")
                end += 2
        return b"".join((*parts, data[end:]))

    def _is_at_their_site(self, job: Job) -> bool:
        if self._caller.role is not Role.SITE_ADMIN:
            return False
        placement = self._records.known_placement(job.placement)
        return placement is not None and placement.site in self._caller.sites


def told_of(job: Job, other: Job) -> str:
    """What a job's text calls another one: by its name where whoever sees the one sees the other, else so that the name can be taken out."""
    alike = (job.owner, job.queue, job.team) == (other.owner, other.queue, other.team)
    return other.name if alike else f"{other.name} ({other.id})"
