"""Orders of jobs: made in steps, while jobs change, and not anew for each plan."""

import asyncio

import pytest

from federator.control.queries import job_sorting
from federator.control.queries.job_sorting import JobOrders, OrderedJobs
from federator.control.record.job_index import cell_of
from federator.control.record.records import Records
from federator.kernel.clock import ManualClock
from federator.model.jobs import Job, JobStatus
from federator.store.memory import MemoryStore

CELLS = 5


def a_job(number: int, priority: int) -> Job:
    return Job(
        id=f"job-{number:02d}", name="x", owner=f"user{number % CELLS}", spec_hash="h", submitted_at=0.0, priority=priority,
        queue="default", status=JobStatus.PENDING,
    )  # fmt: skip


class Told:
    def found(self, job_id: str) -> None: ...

    def reason_of(self, job: Job) -> str:
        return str(job.priority)


@pytest.mark.parametrize("after", range(1, 50, 4))
async def test_what_changes_while_an_order_is_made_has_its_place(
    monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    monkeypatch.setattr(job_sorting, "STEP", 1)
    jobs = {job.id: job for job in (a_job(n, 50 - n) for n in range(20))}
    order = OrderedJobs(lambda job: job.priority)
    making = asyncio.create_task(order.build(jobs))
    steps = 0
    while not making.done():
        await asyncio.sleep(0)
        steps += 1
        if steps == after:
            for changed in (a_job(0, 99), a_job(1, 0), a_job(30, 7)):
                jobs[changed.id] = changed
                order.put(changed)
            order.put(a_job(0, 3))
            jobs["job-00"] = a_job(0, 3)
            del jobs["job-04"]
            order.drop("job-04")
    assert steps >= 2 * 20 + CELLS, "others have their turn, between the lists too"
    expected = {
        cell: sorted((job.priority, job.id) for job in jobs.values() if cell_of(job) == cell)
        for cell in {cell_of(job) for job in jobs.values()}
    }
    assert sorted(order.lists(lambda _: True, tasks=True)) == sorted(expected.values())


async def test_an_order_of_the_plan_is_kept_for_a_multiple_of_what_it_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    records = Records(MemoryStore(ManualClock()))
    orders = JobOrders(records, Told(), object)  # a new plan at each look
    monkeypatch.setattr(job_sorting, "REST", 1e9)
    first = await orders.of("starts")
    assert await orders.of("starts") is first
    first.good_until = 0.0
    assert await orders.of("starts") is not first
