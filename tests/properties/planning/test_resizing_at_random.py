"""Whatever runs and waits: plans that change forms of running jobs pass the checker, and leave room for what they say."""

from hypothesis import given, settings
from hypothesis import strategies as st

from federator.model.capacity import Shape
from federator.model.jobs import Accelerators, Form, Resources
from federator.model.plans import Place, Preempt, Severity
from federator.model.snapshot import BusyView, JobView, Problem
from federator.planning.checks import check
from federator.planning.plans.greedy import plan_greedily
from federator.planning.plans.resizes import LEAST_RUN_S
from tests.support.examples import examples
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, busy

GPUS = 8
SIZES = (1, 2, 4, 8)
THROUGHPUT = {1: 1.0, 2: 1.8, 4: 3.0, 8: 4.5}


def forms(first: int) -> tuple[Form, ...]:
    return tuple(
        Form(
            1,
            Resources(gpus=Accelerators(count=gpus), cpus_milli=100, memory_mib=10),
            THROUGHPUT[gpus] / THROUGHPUT[first],
        )
        for gpus in SIZES
        if gpus != first
    )


def elastic(name: str, first: int, hours: float, deadline_h: float | None) -> JobView:
    run_s = hours * HOUR
    return a_job(
        name, gpus=first, cpus_milli=100, memory_mib=10, run_s=run_s, run_low_s=run_s / 2, run_high_s=run_s * 2, forms=forms(first),
        elastic=True, saves=True, max_duration_s=100 * HOUR, deadline_at=None if deadline_h is None else NOW + deadline_h * HOUR,
        value_usd=None if deadline_h is None else 50.0,
    )  # fmt: skip


@st.composite
def worlds(draw: st.DrawFn) -> Problem:
    """Two hosts of eight GPUs, what runs there, and what waits."""
    free, running = [GPUS, GPUS], list[BusyView]()
    for number in range(draw(st.integers(1, 5))):
        first = draw(st.sampled_from(SIZES))
        host = draw(st.integers(0, 1))
        size = draw(st.sampled_from([gpus for gpus in SIZES if gpus <= max(1, free[host])]))
        if free[host] < size:
            continue
        free[host] -= size
        deadline_h = draw(st.none() | st.floats(0.5, 20.0))
        waits_as = elastic(f"job-{number}", first, draw(st.floats(0.2, 20.0)), deadline_h)
        chosen = (first, *(gpus for gpus in SIZES if gpus != first)).index(size)
        running.append(
            busy(
                f"pl-{number}", f"job-{number}", gpus=size, cpus_milli=100, memory_mib=10, form=chosen, saves=True,
                waits_as=draw(st.sampled_from([waits_as, waits_as, None])),
                started_at=NOW - draw(st.floats(0.0, 3 * LEAST_RUN_S)),
            )
        )  # fmt: skip
    waiting = [
        elastic(
            f"job-w{number}",
            draw(st.sampled_from(SIZES)),
            draw(st.floats(0.2, 5.0)),
            draw(st.none() | st.floats(0.5, 8.0)),
        )
        for number in range(draw(st.integers(0, 3)))
    ]
    pool = a_pool(
        gpus_per_node=GPUS, free=tuple(Shape(gpus, 64_000, 262_144, 1) for gpus in free), busy=tuple(running)
    )
    return a_world(waiting, [pool])


@settings(max_examples=examples(50), deadline=None)
@given(worlds())
def test_plans_with_changes_of_form_are_valid_and_none_is_changed_twice_or_too_soon(problem: Problem) -> None:
    plan = plan_greedily(problem)
    assert [f for f in check(problem, plan) if f.severity is Severity.FATAL] == []
    changes = [action for action in plan.actions if isinstance(action, Preempt)]
    running = {work.placement: work for pool in problem.snapshot.pools for work in pool.busy}
    assert len({change.placement for change in changes}) == len(changes)
    started = {action.job for action in plan.actions if isinstance(action, Place)}
    waiting = {job.id for job in problem.snapshot.jobs} - started
    grown = 0
    for change in changes:
        victim = running[change.placement]
        assert victim.waits_as is not None
        assert NOW - victim.started_at >= LEAST_RUN_S
        assert change.form is not None
        wider = victim.waits_as.as_form(change.form).gpus > victim.gpus
        assert wider == (change.beneficiary == change.job)
        assert (not waiting) if wider else change.beneficiary in waiting
        grown += victim.waits_as.as_form(change.form).gpus if wider else 0
    kept = sum(work.gpus for name, work in running.items() if name not in {c.placement for c in changes})
    assert grown + kept <= 2 * GPUS


def test_two_do_not_widen_onto_the_same_gpus() -> None:
    def work(number: int) -> BusyView:
        waits_as = elastic(f"job-{number}", 4, 20.0, None)
        return busy(f"pl-{number}", f"job-{number}", gpus=4, cpus_milli=100, memory_mib=10, waits_as=waits_as, saves=True)  # fmt: skip

    free = (Shape(4, 64_000, 262_144, 1), Shape(3, 64_000, 262_144, 1))
    runs = (work(1), work(2), busy("pl-3", "job-3", gpus=1, cpus_milli=100, memory_mib=10))
    plan = plan_greedily(a_world([], [a_pool(gpus_per_node=GPUS, free=free, busy=runs)]))
    assert len(plan.actions) == 1
