"""Lists of jobs: which match, how many, and a page of them, newest first.

Owner, queue and status are answered by the index's cells, so that a page costs what it shows. A filter by name, array or site begins with the
jobs of that name, array or site; labels have to be looked at job by job.
"""

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice

from federator.control.job_index import CellKey
from federator.control.records import Records
from federator.model.jobs import Job


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
    labels: dict[str, str] = field(default_factory=dict)

    def has(self, cell: CellKey) -> bool:
        """Whether jobs of that owner, queue and status are wanted, as far as that goes."""
        owner, queue, status = cell
        return (
            (not self.owner or owner == self.owner)
            and (not self.queue or queue == self.queue or queue.startswith(self.queue + "/"))
            and (not self.statuses or status in self.statuses)
        )

    @property
    def by_cells_alone(self) -> bool:
        """Whether nothing but owner, queue and status is asked for."""
        return self.by_labels_alone and not self.labels

    @property
    def by_labels_alone(self) -> bool:
        """Whether, beside those, nothing but labels is asked for."""
        return not (self.name or self.site or self.array)


def listed(records: Records, wanted: Wanted, *, after: str | None, limit: int) -> tuple[list[str], int]:
    """At most `limit` ids of wanted jobs that are older than `after`, newest first; and how many are wanted in all."""
    cells = records.index.of_cells(wanted.has)
    if wanted.by_cells_alone:
        return list(islice(cells.before(after), limit)), len(cells)
    found = sorted(_matching(records, wanted, cells.ids()))
    end = len(found) if after is None else bisect_left(found, after)
    return found[max(0, end - limit) : end][::-1], len(found)


def _matching(records: Records, wanted: Wanted, of_cells: Iterable[str]) -> Iterable[str]:
    """All that are wanted, in no order."""
    jobs = records.jobs
    if wanted.by_labels_alone:
        found: Iterable[str] = of_cells
    else:
        found = [name for name in _few(records, wanted) if name in jobs and _is(records, wanted, jobs[name])]
    if not wanted.labels:
        return found
    specs = records.specs_labelled(wanted.labels)
    return [name for name in found if jobs[name].spec_hash in specs]


def _few(records: Records, wanted: Wanted) -> Iterable[str]:
    """Few jobs that hold all that are wanted."""
    if wanted.array:
        return records.arrays.get(wanted.array, {})
    if wanted.name:
        return records.index.named(wanted.name)
    return {placement.job for placement in records.placements.values() if placement.site == wanted.site}


def _is(records: Records, wanted: Wanted, job: Job) -> bool:
    """Whether the job is wanted, but for its labels."""
    return (
        wanted.has((job.owner, job.queue, job.status))
        and (not wanted.name or job.name == wanted.name)
        and (not wanted.array or job.array == wanted.array)
        and (not wanted.site or _site_of(records, job) == wanted.site)
    )


def _site_of(records: Records, job: Job) -> str:
    placement = records.placements.get(job.placement or "")
    return placement.site if placement is not None else ""
