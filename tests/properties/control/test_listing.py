"""Lists from the index are those that looking at every job would give, whatever has been written and dropped before."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.control.administration.authority import Authority
from federator.control.administration.visibility import Sight
from federator.control.queries.job_lists import NEWEST_FIRST, JobLists, Sorting, Wanted
from federator.control.queries.job_sorting import JobOrders, Key
from federator.control.record.records import Changes, Records, Spec
from federator.kernel.clock import ManualClock
from federator.kernel.ids import content_hash
from federator.model.capacity import Market
from federator.model.identity import Caller, Role
from federator.model.jobs import TERMINAL, Job, JobSpec, JobStatus
from federator.model.placements import Order, Placement, PlacementStatus
from federator.model.rights import TeamRule
from federator.store.memory import MemoryStore
from federator.wire.jobfile import encode_spec
from tests.support.examples import examples

OWNERS, QUEUES, NAMES, SITES = ("ada", "bob"), ("a", "a/b", "ab"), ("x", "y"), ("home", "lab")
AUTHORITY = Authority([TeamRule(policy="v", team="v", members=("ada", "cy"))])
LOOKERS = (
    Caller("root", Role.ADMIN),
    Caller("ada", Role.USER),
    Caller("cy", Role.USER),
    Caller("eve", Role.USER),
    Caller("sam", Role.SITE_ADMIN, ("home",)),
)
ARRAYS = (None, "job-03z", None, "job-11z")
"""Tasks have ids of one moment, which come right after that of their array."""
STATUSES = (JobStatus.PENDING, JobStatus.PLACED, JobStatus.SUCCEEDED, JobStatus.FAILED)
SPECS = [
    JobSpec(name="s", run="true", labels=labels) for labels in ({}, {"team": "v"}, {"team": "v", "k": "1"})
]
DIGESTS = [content_hash(encode_spec(spec)) for spec in SPECS]


Change = tuple[int, dict[str, Any] | None]


@st.composite
def changes(draw: st.DrawFn) -> list[Change]:
    """Jobs written, written again, and dropped: number, and fields or None."""
    fields = st.fixed_dictionaries(
        {
            "queue": st.sampled_from(QUEUES),
            "team": st.sampled_from(("", "v")),
            "status": st.sampled_from(STATUSES),
            "site": st.sampled_from((None, *SITES)),
        }
    )
    return draw(
        st.lists(st.tuples(st.integers(0, 14), st.one_of(st.none(), fields, fields, fields)), max_size=40)
    )


def a_job(number: int, site: str | None = None, **fields: Any) -> Job:
    """What never changes of a job follows from its number."""
    return Job(
        id=f"job-{number:02d}",
        name=NAMES[number % 2],
        owner=OWNERS[number // 2 % 2],
        spec_hash=DIGESTS[number % 3],
        submitted_at=float(number),
        placement=None if site is None else f"pl-{site}-{number:02d}",
        array=ARRAYS[number // 4],
        **fields,
    )


async def records_after(history: list[Change]) -> Records:
    """Records to which all that has happened."""
    records = Records(MemoryStore(ManualClock()))
    first = Changes()
    first.put(*(Spec(digest, encode_spec(spec)) for digest, spec in zip(DIGESTS, SPECS, strict=True)))
    first.put(*(_placement(site, number) for site in SITES for number in range(15)))
    await records.transact(lambda: first)
    return await changed(records, history)


async def changed(records: Records, history: list[Change]) -> Records:
    """The same records, after all that has happened too."""
    for number, fields in history:
        change = Changes()
        if fields is not None:
            change.put(a_job(number, **fields))
        elif f"job-{number:02d}" in records.jobs:
            change.deletes.append(f"job/job-{number:02d}")
        await records.transact(lambda change=change: change)  # type: ignore[misc]
    return records


def _placement(site: str, number: int) -> Placement:
    return Placement(
        id=f"pl-{site}-{number:02d}", job=f"job-{number:02d}", epoch=1, site=site, pool="gpu", members=(site,), market=Market.OWNED,
        status=PlacementStatus.RUNNING, order=Order.RUN, spec_hash=DIGESTS[0], nodes=1, assigned_at=0.0,
    )  # fmt: skip


def naively(records: Records, wanted: Wanted) -> list[str]:
    """By looking at every job; newest first."""

    def matches(job: Job) -> bool:
        placement = records.placements.get(job.placement or "")
        return (
            wanted.owner in ("", job.owner)
            and (wanted.queue in ("", job.queue) or job.queue.startswith(wanted.queue + "/"))
            and (not wanted.statuses or job.status in wanted.statuses)
            and wanted.name in ("", job.name)
            and wanted.text in job.name + job.id
            and wanted.reason in ("", job.status)
            and wanted.array in ("", job.array)
            and (not wanted.site or (placement is not None and placement.site == wanted.site))
            and wanted.labels.items() <= records.spec(job.spec_hash).labels.items()
        )

    return sorted((job.id for job in records.jobs.values() if matches(job)), reverse=True)


def shown(records: Records, who: Caller, job: Job) -> bool:
    """By the relation alone, one job at a time."""
    placement = records.placements.get(job.placement or "")
    return bool(AUTHORITY.relations(who, job, placement.site if placement else ""))


questions = st.builds(
    Wanted,
    owner=st.sampled_from(("", *OWNERS)),
    queue=st.sampled_from(("", *QUEUES)),
    statuses=st.frozensets(st.sampled_from(STATUSES), max_size=2),
    name=st.sampled_from(("", "", *NAMES)),
    text=st.sampled_from(("", "", "x", "job-1")),
    reason=st.sampled_from(("", "", "PENDING")),
    site=st.sampled_from(("", "", "home")),
    array=st.sampled_from(("", "", "job-03z")),
    collapse=st.booleans(),
    labels=st.sampled_from(({}, {}, {"team": "v"}, {"k": "1"}, {"k": "2"})),
)


sortings = st.sampled_from(
    [
        NEWEST_FIRST,
        *(Sorting(name, largest) for name in ("owner", "site", "submitted") for largest in (False, True)),
    ]
)


class Explained:
    """There is no plan; the reason of each job is its status."""

    def found(self, job_id: str) -> None: ...

    def reason_of(self, job: Job) -> str:
        return str(job.status)


def value_of(records: Records, sorting: Sorting, job: Job) -> float | str:
    placement = records.placements.get(job.placement or "")
    site = placement.site if placement is not None else ""
    values: dict[str | None, float | str] = {"owner": job.owner, "site": site, "submitted": job.submitted_at}
    return values.get(sorting.name, "")


@settings(max_examples=examples(120), deadline=None)
@given(
    history=changes(),
    later=changes(),
    who=st.sampled_from(LOOKERS),
    wanted=questions,
    sorting=sortings,
    limit=st.integers(1, 6),
)
def test_pages_are_those_of_a_full_look(
    history: list[Change], later: list[Change], who: Caller, wanted: Wanted, sorting: Sorting, limit: int
) -> None:
    async def pages() -> tuple[list[Key], list[Key]]:
        records = await records_after(history)
        lists = JobLists(records, JobOrders(records, Explained(), lambda: None))
        sight = Sight(records, AUTHORITY, who)
        await lists.page(
            sight, wanted, sorting, after=None, limit=1
        )  # the order is kept up to date from now on
        await changed(records, later)
        expected = lines_of(records, who, wanted, sorting)
        found: list[Key] = []
        while True:
            after = found[-1] if found else None
            page, total = await lists.page(sight, wanted, sorting, after=after, limit=limit)
            assert total == len(expected)
            found += page
            if not page:
                return found, expected

    found, expected = asyncio.run(pages())
    assert found == expected


def lines_of(records: Records, who: Caller, wanted: Wanted, sorting: Sorting) -> list[Key]:
    """By looking at every job; an array comes as the first of its tasks."""
    lines: dict[str, Key] = {}
    for name in naively(records, wanted):
        job = records.jobs[name]
        if shown(records, who, job):
            line = (job.array or name) if wanted.collapse else name
            key = (value_of(records, sorting, job), line)
            lines[line] = (max if sorting.largest else min)(lines.get(line, key), key)
    return sorted(lines.values(), reverse=sorting.largest)


@settings(max_examples=examples(40), deadline=None)
@given(history=changes(), limit=st.integers(1, 20))
def test_counts_and_the_newest_of_a_name_are_those_of_a_full_look(history: list[Change], limit: int) -> None:
    records = asyncio.run(records_after(history))
    jobs, index = list(records.jobs.values()), records.index
    by_id: Callable[[Job], str] = lambda job: job.id  # noqa: E731
    for name in NAMES:
        named = [job for job in jobs if job.name == name]
        assert index.newest_of_all(name, lambda _job: True) == max(named, key=by_id, default=None)
        for owner in OWNERS:
            own = [job for job in named if job.owner == owner]
            assert index.newest(name, owner) == max(own, key=by_id, default=None)
    assert sum(index.counts().values()) == len(jobs)
    assert all(index.counts()[status] == sum(j.status is status for j in jobs) for status in index.counts())
    assert index.open_queues() == {job.queue for job in jobs if job.status not in TERMINAL}
    assert sum(index.pending_by_queue().values()) == sum(job.status is JobStatus.PENDING for job in jobs)
    tasks = Counter(job.status for job in jobs if job.array == "job-03z")
    assert index.task_counts("job-03z") == tasks
    oldest = sorted(jobs, key=lambda job: (job.terminal, job.id))[:limit]
    assert index.oldest(limit, lambda _cell: True) == [job.id for job in oldest]


def test_equal_words_of_jobs_are_one_object() -> None:
    history: list[Change] = [
        (number, {"queue": "-".join(["a", *"bc"]), "status": JobStatus.PENDING}) for number in (1, 3)
    ]
    first, second = asyncio.run(records_after(history)).jobs.values()
    assert first.queue == "a-b-c"
    assert first.queue is second.queue
