"""Lists of jobs: which match, how many, and a page of them, newest first or in another order.

Owner, queue, status and what somebody is shown are answered by the index's cells, so that a page costs what it shows. Any other filter, such as a name, an array, a site or
labels, begins with the jobs that have it, and looks at each.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest, nsmallest
from itertools import chain, islice
from typing import NamedTuple

from federator.control.administration.visibility import Sight
from federator.control.queries.job_sorting import JobOrders, Key, OrderedJobs, in_order
from federator.control.record.job_index import CellKey, Cells, cell_of
from federator.control.record.records import Records
from federator.kernel.errors import Invalid, NotFound
from federator.kernel.ids import earliest
from federator.model.arrays import EVERYWHERE, JobArray, Spans, both, has, joined, size, without
from federator.model.jobs import Job
from federator.model.queues import under
from federator.wire.addresses import begins_id, in_ranges, label_of_all, may_be_id, read_address
from federator.wire.http import JobOrder

MOST_ALIKE = 1000
"""Jobs whose ids begin alike that are looked at: tasks of an array do, and some may not be shown."""

MOST_NAMED = 100_000
"""Tasks of several arrays that are looked for one by one."""
LEEWAY_S = 60.0
"""By so much the moment in a job's id and that of its submission may differ: of a long batch, the one is made after the other."""


@dataclass(frozen=True)
class Wanted:
    """Which jobs to list; what is empty leaves all."""

    owner: str = ""
    queue: str = ""
    """With all queues below it."""
    statuses: frozenset[str] = frozenset()
    name: str = ""
    text: str = ""
    """What its name has somewhere, or its id begins with; capitals do not matter."""
    site: str = ""
    """Where it runs, or ran last."""
    reason: str = ""
    """The kind of the reason why it waits, or is as it is."""
    at_risk: bool = False
    """Not over, and not expected to be done by its deadline."""
    since_at: float | None = None
    until_at: float | None = None
    """Submitted at or after the one, and before the other."""
    array: str = ""
    series: str = ""
    pipeline: str = ""
    """By its id. Of the archive nobody knows which jobs were of it."""
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
        asked = (
            self.name,
            self.text,
            self.site,
            self.reason,
            self.at_risk,
            self.array,
            self.series,
            self.pipeline,
            self.labels,
        )
        return not any(asked) and self.since_at is None and self.until_at is None


class Sorting(NamedTuple):
    """In which order; `name` None: of submission, which is that of the ids."""

    name: JobOrder | None = None
    largest: bool = True
    """Whether the largest come first, which of submission are the newest."""


class Listed(NamedTuple):
    """A page: ids of jobs, or of arrays, each with its place in the order, and how many there are in all."""

    keys: list[Key]
    total: int


EVERY_JOB = Wanted()
NEWEST_FIRST = Sorting()
Test = Callable[[Job], bool]


class _In(NamedTuple):
    """A page of an order (None: of submission): after which place, and how many."""

    order: OrderedJobs | None
    largest: bool
    after: Key | None
    limit: int


class JobLists:
    """Answers which jobs are wanted."""

    def __init__(self, records: Records, orders: JobOrders) -> None:
        self._records = records
        self._orders = orders

    async def page(
        self, sight: Sight, wanted: Wanted, sorting: Sorting, *, after: Key | None, limit: int
    ) -> Listed:
        """At most `limit` wanted jobs that are shown and come after `after`, and how many there are in all."""
        reasons = await self._orders.of("reason") if wanted.reason else None
        late = await self._orders.of("late") if wanted.at_risk else None
        newest_first = sorting.name is None and sorting.largest
        order = None if newest_first else await self._orders.of(sorting.name or "submitted")
        more = sight.at_their_site() if wanted.by_cells_alone else []
        more = [name for name in more if wanted.has(cell_of(self._records.jobs[name]))]
        if wanted.by_cells_alone and not (more and wanted.collapse):
            return self._by_cells(sight, wanted, _In(order, sorting.largest, after, limit), more)
        found = self._found(sight, wanted, reasons, late)
        keys = list(self._keys(found, order, collapse=wanted.collapse, largest=sorting.largest))
        if after is None:
            left: Iterable[Key] = keys
        else:
            left = (key for key in keys if (key < after if sorting.largest else key > after))
        return Listed((nlargest if sorting.largest else nsmallest)(limit, left), len(keys))

    def _by_cells(self, sight: Sight, wanted: Wanted, how: "_In", more: list[str]) -> Listed:
        """`more` are wanted too, and in none of the cells that are."""
        index = self._records.index

        def has(cell: CellKey) -> bool:
            return wanted.has(cell) and sight.cell(cell)

        cells = index.of_cells(has, more)
        total = len(cells) - (index.more_tasks(has) if wanted.collapse else 0)
        if how.order is None:
            before = how.after[1] if how.after is not None else None
            ids = _collapsed(self._records, cells, before) if wanted.collapse else cells.before(before)
            return Listed([("", name) for name in islice(ids, how.limit)], total)
        lists = how.order.lists(has, tasks=not wanted.collapse)
        if more:
            lists.append(sorted(map(how.order.key, more)))
        if wanted.collapse:
            arrays = index.arrays_of(has)
            lists.append(sorted(how.order.of_array(*each, largest=how.largest) for each in arrays))
        return Listed(list(islice(in_order(lists, how.after, largest=how.largest), how.limit)), total)

    def _found(
        self, sight: Sight, wanted: Wanted, reasons: OrderedJobs | None, late: OrderedJobs | None
    ) -> list[str]:
        """All that are wanted and shown, in no order."""
        few, tests = self._narrowed(sight, wanted, reasons, late)
        if not sight.everything:
            tests.append(sight.job)
        jobs = self._records.jobs
        found = [name for name in few if name in jobs]
        for test in tests:
            found = [name for name in found if test(jobs[name])]
        return found

    def _keys(
        self, found: Iterable[str], order: OrderedJobs | None, *, collapse: bool, largest: bool
    ) -> Iterable[Key]:
        """Where they come; of the tasks of an array as one, the array."""
        key = order.key if order is not None else lambda name: ("", name)
        if not collapse:
            return map(key, found)
        lines: dict[str, Key] = {}
        for name in found:
            line = self._records.jobs[name].array or name
            new = (key(name)[0], line)
            lines[line] = (max if largest else min)(lines.get(line, new), new)
        return lines.values()

    def _narrowed(
        self, sight: Sight, wanted: Wanted, reasons: OrderedJobs | None, late: OrderedJobs | None
    ) -> tuple[Iterable[str], list[Test]]:
        """Jobs among which are all that are wanted, and what is still to be asked of each."""
        sources = list(self._sources(wanted))
        if reasons is not None:
            sources.append(
                (
                    lambda: reasons.equal(wanted.reason, wanted.has),
                    lambda job: reasons.has(job.id, wanted.reason),
                )
            )
        if late is not None:
            sources.append((lambda: late.above(0.0, wanted.has), lambda job: late.exceeds(job.id, 0.0)))
        if not sources:
            index, more = self._records.index, sight.at_their_site()
            cells = index.of_cells(lambda cell: wanted.has(cell) and sight.cell(cell), more)
            return _between(cells, wanted), list(self._tests(wanted))
        (source, sure), *others = sources
        tests = [test for _, test in others]
        if wanted.site and not others:
            tests.append(sure)  # it was there once, and may be elsewhere now
        return source(), [*tests, *self._tests(wanted)]

    def _sources(self, wanted: Wanted) -> Iterator[tuple[Callable[[], Iterable[str]], Test]]:
        """Where the jobs are that have what is asked for, those of which there are the fewest first, and how to tell one of them."""
        records, index = self._records, self._records.index
        if wanted.array:
            tasks = records.arrays.get(wanted.array, {})
            yield lambda: tasks, lambda job: job.array == wanted.array
        if wanted.series:
            runs = (
                jobs for jobs in records.runs.values() if next(iter(jobs.values())).series == wanted.series
            )
            yield lambda: chain.from_iterable(runs), lambda job: job.series == wanted.series
        if wanted.pipeline:
            steps = records.pipelines.get(wanted.pipeline, {})
            yield lambda: steps, lambda job: job.pipeline == wanted.pipeline
        if wanted.name:
            yield lambda: index.named(wanted.name), lambda job: job.name == wanted.name
        if wanted.text:
            text = wanted.text.lower()
            yield lambda: index.about(text), lambda job: text in job.name.lower() or job.id.startswith(text)
        if wanted.labels:
            specs = records.specs_labelled(wanted.labels)
            of_specs = chain.from_iterable(index.of_spec(digest) for digest in specs)
            yield lambda: of_specs, lambda job: job.spec_hash in specs
        if wanted.site:
            yield lambda: _placed_at(records, wanted.site), lambda job: _site_of(records, job) == wanted.site

    def _tests(self, wanted: Wanted) -> Iterator[Test]:
        """What is asked of each job, the quickest first."""
        if wanted.owner or wanted.queue or wanted.statuses:
            yield lambda job: wanted.has(cell_of(job))
        if wanted.since_at is not None:
            since_at = wanted.since_at
            yield lambda job: job.submitted_at >= since_at
        if wanted.until_at is not None:
            until_at = wanted.until_at
            yield lambda job: job.submitted_at < until_at


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
    index, job = records.index, records.open_job(name)
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


class Meant(NamedTuple):
    """What somebody means: jobs, and tasks of an array that are not expanded, or were cancelled before they were."""

    jobs: list[Job]
    array: JobArray | None = None
    places: Spans = ()
    """Of the latter,"""
    named: Spans = ()
    """and of all that were named, those in the archive among them."""

    @property
    def tasks(self) -> list[Job]:
        """Those that are no jobs, one by one."""
        if self.array is None:
            return []
        return [self.array.told(place) for first, end in self.places for place in range(first, end)]

    @property
    def label(self) -> str:
        """What people call them."""
        if self.array is None:
            return label_of_all(self.jobs)
        return f"{self.array.template.name}[{self.array.indices.at(self.named)}]"


def selected(records: Records, sight: Sight, owner: str, text: str) -> Meant | None:
    """All that is meant: one job by its id or name, an array's tasks by the array's, or some of them as in `sweep[3-7]`. None also for what is not shown. Raises `Invalid`, and `NotFound` for a task that there is not."""
    name, indices = read_address(text)
    job = named(records, sight, owner, name)
    array = records.job_arrays.get(job.array or "") if job is not None else None
    if array is not None and job is not None and not begins_id(name, job.id):
        if any(run.count > MOST_NAMED and run.step not in _steps(array) for run in indices.runs):
            raise Invalid(f"{text} names over {MOST_NAMED} tasks by a step", field="JOB", remedy="name fewer")
        places = array.indices.places(indices) if indices else EVERYWHERE
        if not indices or size(places) == len(indices):
            return _of_array(records, sight, array, places)
    if len(indices) > MOST_NAMED:
        raise Invalid(f"{name} has not all of these tasks", field="JOB", remedy="name those of one array")
    if indices:
        found = _tasks(records, sight, owner, name, indices)
    elif job is None or job.array is None or begins_id(name, job.id):
        found = [] if job is None else [job]
    else:
        found = list(sight.shown(records.arrays[job.array].values()))
    return Meant(found) if found else None


def _steps(array: JobArray) -> set[int]:
    """How far apart indices may be so that ranges of them are ranges of tasks."""
    return {1, *(run.step for run in array.runs)}


def _of_array(records: Records, sight: Sight, array: JobArray, places: Spans) -> Meant | None:
    """Tasks of one array."""
    rest = both(joined((*array.left, *array.cancelled)), places) if sight.job(array.template) else ()
    jobs, indices = list(sight.shown(records.arrays[array.id].values())), array.indices
    if places is not EVERYWHERE:
        jobs = [job for job in jobs if has(places, indices.index(job.array_index or 0))]
    return Meant(jobs, array, rest, both(((0, len(indices)),), places)) if jobs or rest else None


def of_archived(array: JobArray, text: str) -> Meant:
    """What is meant of an array that is in the archive. Raises `NotFound` for a task that it has not."""
    name, indices = read_address(text)
    places = array.indices.places(indices or array.indices)
    if size(places) < len(indices):
        missing = indices.at(without(((0, len(indices)),), indices.places(array.indices)))
        raise NotFound(f"{name} has no task {missing}", remedy=f"federator show {name}")
    return Meant([], array, both(array.cancelled, places), places)


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


def _placed_at(records: Records, site: str) -> set[str]:
    return {placement.job for placement in records.placements.values() if placement.site == site}


def _site_of(records: Records, job: Job) -> str:
    placement = records.placements.get(job.placement or "")
    return placement.site if placement is not None else ""


def _between(cells: Cells, wanted: Wanted) -> Iterable[str]:
    """Jobs among which are all that were submitted in that time: an id begins with the moment when it was made."""
    low = None if wanted.since_at is None else earliest("job", wanted.since_at - LEEWAY_S)
    high = None if wanted.until_at is None else earliest("job", wanted.until_at + LEEWAY_S)
    return cells.within(low, high)
