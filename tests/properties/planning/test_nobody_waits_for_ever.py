"""Work that everything is put before starts all the same, some day: its turn comes nearer, and its price rises, with every hour that it waits.

Turn by turn, an hour apart, more work arrives than there is room for, all of it better than the one job that waits; what has not started is
taken away again, so the line stays short.
"""

import pytest
from msgspec.structs import replace

from federator.model.plans import Place
from federator.model.snapshot import JobView, PoolView
from federator.planning.plans.greedy import plan_greedily
from federator.solving.decide import decide
from tests.properties.planning.test_plans_pass_the_checker import Planner
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, busy, changed

PLANNERS = [pytest.param(plan_greedily, id="greedy"), pytest.param(decide, id="solver")]
GPUS = 4


def _hours_until_it_starts(planner: Planner, patient: JobView, rival: JobView, *, most: int) -> int | None:
    """After how many hours the job starts that waits beside ever new rivals: more of them each hour than the pool holds."""
    ends: dict[str, tuple[float, JobView]] = {}
    pool = a_pool(nodes=1, gpus_per_node=GPUS)
    for hour in range(most):
        now = NOW + hour * HOUR
        ends = {name: end for name, end in ends.items() if end[0] > now}
        rivals = [
            replace(
                rival, id=f"job-{hour}-{number}", name=f"rival-{number}", submitted_at=now,
                deadline_at=None if rival.deadline_at is None else rival.deadline_at + hour * HOUR,
            )
            for number in range(GPUS + 1)
        ]  # fmt: skip
        problem = a_world([patient, *rivals], [_at_work(pool, ends)])
        plan = planner(changed(problem, taken_at=now))
        started = {action.job for action in plan.actions if isinstance(action, Place)}
        if patient.id in started:
            return hour
        ends |= {job.id: (now + job.run_s, job) for job in rivals if job.id in started}
    return None


def _at_work(pool: PoolView, ends: dict[str, tuple[float, JobView]]) -> PoolView:
    """With that work on its one host."""
    works = tuple(busy(f"pl-{name}", name, gpus=job.gpus, ends_at=end) for name, (end, job) in ends.items())
    left = replace(pool.free[0], gpus=GPUS - sum(work.gpus for work in works))
    return replace(pool, free=(left,), busy=works)


@pytest.mark.parametrize("planner", PLANNERS)
def test_beside_urgent_work_the_lowest_priority_starts(planner: Planner) -> None:
    """Eighty points of priority are made good by eighty hours; the last band of ten is shared."""
    hours = _hours_until_it_starts(planner, a_job(priority=10), a_job(priority=90), most=120)
    assert hours is not None
    assert hours >= 10, "priority is worth something"


@pytest.mark.parametrize("planner", PLANNERS)
def test_beside_valuable_deadlines_work_without_one_starts(planner: Planner) -> None:
    """The price of its waiting doubles every 25 hours: after nine days it is worth more than 20 USD an hour."""
    rival = a_job(deadline_at=NOW + 1.5 * HOUR, value_usd=20.0)
    hours = _hours_until_it_starts(planner, a_job(), rival, most=250)
    assert hours is not None
    assert hours >= 10, "a deadline is worth something"


@pytest.mark.parametrize("planner", PLANNERS)
def test_beside_small_work_that_always_fits_a_gang_starts(planner: Planner) -> None:
    """What fits beside it, and would never leave it room at once, is let through until its turn has come; then room is kept for it.

    The solver may start it sooner: that four wait for its one hour costs less than that it waits for their hour and a half.
    """
    rival = a_job(run_s=1.5 * HOUR, priority=70)
    hours = _hours_until_it_starts(planner, a_job(nodes=2, gpus=2), rival, most=60)
    assert hours is not None
    assert hours >= 2 or planner is not plan_greedily, "priority is worth something"


@pytest.mark.parametrize("planner", PLANNERS)
def test_beside_interactive_work_a_batch_job_starts(planner: Planner) -> None:
    hours = _hours_until_it_starts(planner, a_job(), a_job(interactive=True), most=120)
    assert hours is not None
    assert hours >= 50, "being interactive is worth something"
