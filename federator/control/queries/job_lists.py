"""Lists of jobs: which match, how many, and a page of them, newest first.

Owner, queue, status and what somebody is shown are answered by the index's cells, so that a page costs what it shows. A filter by name, array, site or labels begins with
the jobs that have them, and looks at each.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from federator.control.administration.visibility import Sight
from federator.control.record.job_index import CellKey, Cells, cell_of
from federator.control.record.records import Records
from federator.kernel.errors import Invalid, NotFound
from federator.model.jobs import Job
from federator.model.queues import under
from federator.wire.addresses import begins_id, in_ranges, may_be_id, read_address

MOST_ALIKE = 1000
"""Jobs whose ids begin alike that are looked at: tasks of an array do, and some may not be shown."""


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
    collapse: bool = False
    """An array's tasks as one line, by the array's id."""
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

        def has(cell: CellKey) -> bool:
            return wanted.has(cell) and sight.cell(cell)

        cells = records.index.of_cells(has, more)
        if not wanted.collapse:
            return list(islice(cells.before(after), limit)), len(cells)
        if not more:
            lines = islice(_collapsed(records, cells, after), limit)
            return list(lines), len(cells) - records.index.more_tasks(has)
    few, tests = _narrowed(records, wanted)
    if not sight.everything:
        tests.append(sight.job)
    jobs = records.jobs
    found = sorted(name for name in few if name in jobs and all(test(jobs[name]) for test in tests))
    if wanted.collapse:
        found = sorted({jobs[name].array or name for name in found})
    end = len(found) if after is None else bisect_left(found, after)
    return found[max(0, end - limit) : end][::-1], len(found)


def _collapsed(records: Records, cells: Cells, after: str | None) -> Iterator[str]:
    """Each job, and each array once: its tasks have ids of one moment, which come right after its own."""
    ids = cells.before(after)
    while (name := next(ids, None)) is not None:
        array = records.jobs[name].array
        yield array or name
        if array is not None:
            ids = cells.before(array)


def named(records: Records, sight: Sight, owner: str, text: str) -> Job | None:
    """A job by id, by how only its id begins, or by name, or a task as in `sweep[3]`; of a name the newest, that owner's first. None also for what is not shown. Raises `Invalid` for several tasks or jobs."""
    name, indices = read_address(text)
    if indices:
        if len(indices) > 1:
            raise Invalid(
                f"{text} names several tasks", field="JOB", remedy=f"name one: {name}[{indices[0]}]"
            )
        return next(iter(_tasks(records, sight, owner, name, indices)), None)
    index, job = records.index, records.jobs.get(name)
    if job is not None:
        return job if sight.job(job) else None
    if name in records.arrays:
        return next((job for job in reversed(records.arrays[name].values()) if sight.job(job)), None)
    return (
        index.newest(name, owner) or index.newest_of_all(name, sight.job) or _beginning(records, sight, name)
    )


def _beginning(records: Records, sight: Sight, prefix: str) -> Job | None:
    """The one job whose id begins like that. Raises `Invalid` where there are several."""
    if not may_be_id(prefix):
        return None
    ids = records.index.beginning(prefix, MOST_ALIKE)
    found = [records.jobs[each] for each in sorted(ids) if sight.job(records.jobs[each])]
    if len(found) > 1:
        several = ", ".join(job.id for job in found[:3]) + (", …" if len(found) > 3 else "")
        raise Invalid(
            f"the ids of several jobs begin with {prefix}: {several}",
            field="JOB",
            remedy="write more of the id",
        )
    return found[0] if found else None


def selected(records: Records, sight: Sight, owner: str, text: str) -> list[Job]:
    """All jobs that are meant: one by its id or name, an array's tasks by the array's, or some of them as in `sweep[3-7]`. Empty also for what is not shown. Raises `Invalid`, and `NotFound` for a task that there is not."""
    name, indices = read_address(text)
    if indices:
        return _tasks(records, sight, owner, name, indices)
    job = named(records, sight, owner, name)
    if job is None or job.array is None or begins_id(name, job.id):
        return [] if job is None else [job]
    return list(sight.shown(records.arrays[job.array].values()))


def _tasks(records: Records, sight: Sight, owner: str, name: str, indices: Sequence[int]) -> list[Job]:
    """The newest task of each index; where the name is that of an array, its own."""
    if name in records.arrays:
        tasks = (records.index.task(name, records.arrays[name], index) for index in indices)
        found = [job if job is not None and sight.job(job) else None for job in tasks]
    else:
        find = records.index.labelled
        found = [find(name, owner, index) or _anybodys(records, sight, name, index) for index in indices]
    if missing := [index for index, job in zip(indices, found, strict=True) if job is None]:
        if len(missing) == len(indices) and named(records, sight, owner, name) is None:
            return []
        raise NotFound(
            f"{name} has no task {in_ranges(tuple(missing))}",
            remedy=f"federator list --tasks --name {name} shows those that there are",
        )
    return [job for job in found if job is not None]


def _anybodys(records: Records, sight: Sight, name: str, index: int) -> Job | None:
    """The newest that is shown, whoever owns it."""
    tasks = (records.index.labelled(name, owner, index) for owner in records.index.owners_of(name))
    return max(
        (job for job in tasks if job is not None and sight.job(job)), key=lambda job: job.id, default=None
    )


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
    (source, sure), *others = sources or [(lambda: records.jobs, lambda _job: True)]
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
