"""Lists of jobs: which match, how many, and a page of them, newest first.

Owner, queue, status and what somebody is shown are answered by the index's cells, so that a page costs what it shows. A filter by name, array, site or labels begins with
the jobs that have them, and looks at each.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import chain, islice

from federator.control.governing.visibility import Sight
from federator.control.record.job_index import CellKey, cell_of
from federator.control.record.records import Records
from federator.model.jobs import Job
from federator.model.queues import under


@dataclass(frozen=True)
class Wanted:
    """Which jobs to list; what is empty leaves all."""

    owner: str = ""
    queue: str = ""
    """With all queues below it."""
    statuses: frozenset[str] = frozenset()
    name: str = ""
    site: str = ""
    """Where it runs, or ran last."""
    array: str = ""
    series: str = ""
    labels: dict[str, str] = field(default_factory=dict)

    def has(self, cell: CellKey) -> bool:
        """Whether jobs of that owner, queue and status are wanted, as far as that goes."""
        owner, queue, status, _ = cell
        return (
            (not self.owner or owner == self.owner)
            and (not self.queue or under(queue, self.queue))
            and (not self.statuses or status in self.statuses)
        )

    @property
    def by_cells_alone(self) -> bool:
        """Whether nothing but owner, queue and status is asked for."""
        return not (self.name or self.site or self.array or self.series or self.labels)


def listed(
    records: Records, sight: Sight, wanted: Wanted, *, after: str | None, limit: int
) -> tuple[list[str], int]:
    """At most `limit` ids of wanted jobs that are shown and older than `after`, newest first; and how many there are in all."""
    if wanted.by_cells_alone:
        more = [name for name in sight.at_their_site() if wanted.has(cell_of(records.jobs[name]))]
        cells = records.index.of_cells(lambda cell: wanted.has(cell) and sight.cell(cell), more)
        return list(islice(cells.before(after), limit)), len(cells)
    few, tests = _narrowed(records, wanted)
    if not sight.everything:
        tests.append(sight.job)
    jobs = records.jobs
    found = sorted(name for name in few if name in jobs and all(test(jobs[name]) for test in tests))
    end = len(found) if after is None else bisect_left(found, after)
    return found[max(0, end - limit) : end][::-1], len(found)


def named(records: Records, sight: Sight, owner: str, name: str) -> Job | None:
    """A job by id, or the newest of that name: that owner's first. None also for what is not shown."""
    index, job = records.index, records.jobs.get(name)
    if job is not None:
        return job if sight.job(job) else None
    return index.newest(name, owner) or index.newest_of_all(name, sight.job)


Test = Callable[[Job], bool]


def _narrowed(records: Records, wanted: Wanted) -> tuple[Iterable[str], list[Test]]:
    """Jobs among which are all that are wanted, and what is still to be asked of each."""
    sources: list[tuple[Callable[[], Iterable[str]], Test]] = []
    if wanted.array:
        sources.append((lambda: records.arrays.get(wanted.array, {}), lambda job: job.array == wanted.array))
    if wanted.series:
        runs = (jobs for jobs in records.runs.values() if next(iter(jobs.values())).series == wanted.series)
        sources.append((lambda: chain.from_iterable(runs), lambda job: job.series == wanted.series))
    if wanted.name:
        sources.append((lambda: records.index.named(wanted.name), lambda job: job.name == wanted.name))
    if wanted.labels:
        specs = records.specs_labelled(wanted.labels)
        of_specs = chain.from_iterable(records.index.of_spec(digest) for digest in specs)
        sources.append((lambda: of_specs, lambda job: job.spec_hash in specs))
    if wanted.site:
        sources.append(
            (lambda: _placed_at(records, wanted.site), lambda job: _site_of(records, job) == wanted.site)
        )
    (source, sure), *others = sources
    tests = [test for _, test in others]
    if wanted.site and not others:
        tests.append(sure)  # it was there once, and may be elsewhere now
    if wanted.owner or wanted.queue or wanted.statuses:
        tests.append(lambda job: wanted.has(cell_of(job)))
    return source(), tests


def _placed_at(records: Records, site: str) -> set[str]:
    return {placement.job for placement in records.placements.values() if placement.site == site}


def _site_of(records: Records, job: Job) -> str:
    placement = records.placements.get(job.placement or "")
    return placement.site if placement is not None else ""
