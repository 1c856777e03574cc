"""Elastic jobs that run make room only for who would then run, and none goes wider than all limits together allow."""

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from federator.model.capacity import Shape
from federator.model.jobs import Accelerators, Form, Resources
from federator.model.plans import Finding, Plan, Preempt, Severity
from federator.model.rules import CapRow, CapUnit, GuaranteeRow, Rule, Scope
from federator.model.snapshot import BusyView, JobView, PoolView, Problem
from federator.planning.checks import check
from federator.planning.plans.greedy import plan_greedily
from federator.planning.wording.told import told_waiting
from federator.solving.decide import decide
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, busy

THEIRS, OURS = Scope(queues=("research",)), Scope(queues=("batch",))
WAITS = a_job(
    "job-w", queue="research", run_s=600.0, deadline_at=NOW + 1500.0, value_usd=500.0, submitted_at=NOW - 2 * HOUR
)  # fmt: skip


def form(gpus: int, throughput: float, nodes: int = 1) -> Form:
    return Form(nodes, Resources(gpus=Accelerators(count=gpus), cpus_milli=100, memory_mib=10), throughput)


def running(number: int, gpus: int, *forms: Form, nodes: int = 1) -> BusyView:
    """An elastic job that has run for hours, with a day to go."""
    sizes = {"nodes": nodes, "gpus": gpus, "cpus_milli": 100, "memory_mib": 10, "saves": True}
    waits_as = a_job(
        f"job-{number}", run_s=20 * HOUR, run_low_s=10 * HOUR, run_high_s=40 * HOUR, max_duration_s=1000 * HOUR,
        queue="batch", forms=forms, elastic=True, **sizes,
    )  # fmt: skip
    return busy(f"pl-{number}", f"job-{number}", waits_as=waits_as, started_at=NOW - 9 * HOUR, **sizes)


def beside(free: int, *work: BusyView, jobs: Iterable[JobView] = (), rules: Iterable[Rule] = ()) -> Problem:
    """One host of 16 GPUs."""
    pool = a_pool(nodes=1, gpus_per_node=16, free=(Shape(free, 60_000, 200_000, 1),), busy=work)
    return a_world(jobs, [pool], rules=rules)


def capped(scope: Scope, limit: int = 0, unit: CapUnit = CapUnit.GPUS) -> CapRow:
    return CapRow("quota", unit, limit, scope)


def stops(plan: Plan) -> list[tuple[str, int | None]]:
    return [(action.job, action.form) for action in plan.actions if isinstance(action, Preempt)]


def fatal(problem: Problem, plan: Plan) -> list[Finding]:
    return [found for found in check(problem, plan) if found.severity is Severity.FATAL]


def narrowing(problem: Problem, number: int = 1, form: int = 1, beneficiary: str = "job-w") -> Plan:
    """What the planner must not say, said."""
    stop = Preempt(
        job=f"job-{number}", revision=3, placement=f"pl-{number}", beneficiary=beneficiary, because="so", form=form
    )  # fmt: skip
    return replace(plan_greedily(problem), actions=(stop,))


def test_one_narrows_for_a_job_that_waits_for_room() -> None:
    problem = beside(0, running(1, 16, form(8, 0.6)), jobs=[WAITS])
    plan = plan_greedily(problem)
    assert (stops(plan), fatal(problem, plan)) == ([("job-1", 1)], [])


@pytest.mark.parametrize("free", [0, 12])
@pytest.mark.parametrize(
    "rule",
    [
        capped(THEIRS),
        capped(THEIRS, unit=CapUnit.JOBS),
        GuaranteeRow("share", "research", 0, borrowing_limit=0),
    ],
    ids=["gpus", "jobs", "borrowing"],
)
def test_nobody_narrows_for_a_job_that_a_limit_keeps(rule: Rule, free: int) -> None:
    problem = beside(free, running(1, 16 - free, form(2, 0.6)), jobs=[WAITS], rules=[rule])
    plan = plan_greedily(problem)
    assert stops(plan) == []
    assert "make room" not in told_waiting(plan.waiting[0], NOW).because
    assert fatal(problem, narrowing(problem))


def test_nobody_narrows_for_a_job_that_what_is_free_would_hold() -> None:
    problem = beside(8, running(1, 8, form(4, 0.6)), jobs=[WAITS], rules=[capped(Scope(), 8)])
    assert stops(plan_greedily(problem)) == []
    (finding,) = fatal(problem, narrowing(problem))
    assert "has room there without this job" in finding.text


def test_the_checker_finds_one_that_narrows_in_vain() -> None:
    wide = replace(WAITS, gpus=16)
    problem = beside(0, running(1, 8, form(4, 0.6)), running(2, 8), jobs=[wide])
    assert stops(plan_greedily(problem)) == []
    (finding,) = fatal(problem, narrowing(problem))
    assert "would have no room" in finding.text


def test_one_narrows_where_that_makes_room_under_a_limit_of_both() -> None:
    problem = beside(0, running(1, 16, form(8, 0.6)), jobs=[WAITS], rules=[capped(Scope(), 16)])
    plan = plan_greedily(problem)
    assert (stops(plan), fatal(problem, plan)) == ([("job-1", 1)], [])


def test_what_one_gives_up_is_enough_for_all_that_fit_there() -> None:
    work = [running(number, 8, form(4, 0.9)) for number in (1, 2)]
    jobs = [replace(WAITS, id=f"job-{number}", name=f"job-{number}") for number in (7, 8, 9)]
    problem = beside(0, *work, jobs=jobs)
    plan = plan_greedily(problem)
    assert len(stops(plan)) == 1
    assert fatal(problem, plan) == []


def test_a_job_that_waits_for_its_limit_keeps_nobody_from_going_wider() -> None:
    problem = beside(12, running(1, 4, form(16, 3.6)), jobs=[WAITS], rules=[capped(THEIRS)])
    plan = plan_greedily(problem)
    assert (stops(plan), fatal(problem, plan)) == ([("job-1", 1)], [])


@pytest.mark.parametrize(
    "rule", [capped(OURS, 6), GuaranteeRow("share", "batch", 4, borrowing_limit=2)], ids=["cap", "borrowing"]
)
@pytest.mark.parametrize("pools", [1, 2])
def test_two_do_not_break_a_limit_together(rule: Rule, pools: int) -> None:
    work = [running(number, 2, form(4, 1.9)) for number in (1, 2)]
    if pools == 1:
        problem = beside(12, *work, rules=[rule])
    else:
        each = [
            a_pool(name, nodes=1, gpus_per_node=4, free=(Shape(2, 60_000, 200_000, 1),), busy=(runs,))
            for name, runs in zip(("east", "west"), work, strict=True)
        ]
        problem = a_world([], each, rules=[rule])
    plan = plan_greedily(problem)
    assert len(stops(plan)) == 1
    assert fatal(problem, plan) == []
    both = replace(
        plan,
        actions=(
            *narrowing(problem, 1, beneficiary="job-1").actions,
            *narrowing(problem, 2, beneficiary="job-2").actions,
        ),
    )
    assert [found.subject for found in fatal(problem, both)] == ["job-2"]


def of_member(name: str, work: BusyView) -> PoolView:
    free = (Shape(0, 60_000, 200_000, 1), Shape(4, 60_000, 200_000, 1))
    return a_pool(member=name, session=name, nodes=2, gpus_per_node=4, free=free, busy=(work,))


@pytest.mark.parametrize("leader", [0, 1])
def test_a_gang_over_members_may_change_wherever_its_first_rank_is(leader: int) -> None:
    whole = running(1, 4, form(4, 1.9, nodes=4), nodes=2)
    lead = replace(whole, nodes=1)
    parts = [lead, replace(lead, leads=False, waits_as=None)]
    problem = a_world([], [of_member("m-1", parts[leader]), of_member("m-2", parts[1 - leader])])
    for plan in (plan_greedily(problem), decide(problem)):
        assert (stops(plan), fatal(problem, plan)) == ([("job-1", 1)], [])


def parts(number: int, milli: int, least: int) -> BusyView:
    """A job on so many thousandths of a GPU, which may go on with any tenth down to the least."""
    each = {
        tenth: Resources(gpus=Accelerators(share_milli=tenth), cpus_milli=100, memory_mib=10)
        for tenth in range(least, milli, 100)
    }
    forms = [Form(1, size, tenth / milli) for tenth, size in each.items()]
    sizes = {"gpus": milli, "cpus_milli": 100, "memory_mib": 10, "saves": True, "shared": True}
    waits_as = a_job(
        f"job-{number}",
        run_s=20 * HOUR,
        run_low_s=10 * HOUR,
        run_high_s=40 * HOUR,
        max_duration_s=1000 * HOUR,
        queue="batch",
        forms=tuple(forms),
        elastic=True,
        **sizes,
    )
    return busy(f"pl-{number}", f"job-{number}", waits_as=waits_as, started_at=NOW - 9 * HOUR, **sizes)


def on_shared(gpus: int, *work: BusyView, asks: int = 500) -> Problem:
    pool = a_pool(
        nodes=gpus, gpus_per_node=1000, shared=True, free=(Shape(0, 60_000, 200_000, gpus),), busy=work
    )
    return a_world([replace(WAITS, gpus=asks, shared=True)], [pool])


def sizes_then(problem: Problem) -> dict[str, int]:
    """Whoever changes, and the thousandths with which it goes on."""
    plan = plan_greedily(problem)
    assert fatal(problem, plan) == []
    wholes = {work.job: work.waits_as for work in problem.snapshot.pools[0].busy}
    found = {}
    for job, form in stops(plan):
        whole = wholes[job]
        assert whole is not None
        found[job] = whole.as_form(form or 0).gpus
    return found


def test_of_many_that_could_one_narrows_and_no_further_than_is_needed() -> None:
    problem = on_shared(3, parts(1, 1000, 400), parts(2, 1000, 400), parts(3, 1000, 400))
    assert list(sizes_then(problem).values()) == [500]


def test_two_on_one_gpu_narrow_together_where_neither_alone_gives_enough() -> None:
    problem = on_shared(2, parts(1, 500, 200), parts(2, 500, 200), parts(3, 1000, 600))
    then = sizes_then(problem)
    assert set(then) == {"job-1", "job-2"}
    assert sum(then.values()) == 500


def test_nobody_narrows_where_all_together_do_not_give_enough_on_one_gpu() -> None:
    assert sizes_then(on_shared(2, parts(1, 1000, 600), parts(2, 1000, 600))) == {}
