"""What a problem says of work outside its window: plans are charged for what they take of it, the model and the evaluator alike."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.model.plans import Place
from federator.model.snapshot import JobView, Outside, Problem
from federator.planning.linear import columns as cut
from federator.planning.scheduling.objective import DISPLACED, Evaluator
from federator.planning.world.buckets import hours_row
from federator.planning.world.problem import World
from federator.solving.certify import certify
from federator.solving.decide import decide
from tests.support.plain_price import score_plainly
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting

POOL = a_pool()
ROW = hours_row("home/home-1/gpu", 0)


def with_outside(problem: Problem, **rows: tuple[float, float]) -> Problem:
    """The same, with so much used and such a price by row."""
    return replace(problem, outside={name: Outside(*each) for name, each in rows.items()})


def test_only_what_goes_beyond_what_is_left_is_charged() -> None:
    jobs = [a_job(f"job-{n}", run_s=HOUR / 4) for n in range(8)]
    problem = with_outside(a_world(jobs, [POOL]), **{ROW: (0.5, 100.0)})
    evaluator = Evaluator(World(problem))
    scored = evaluator.score({})
    assert len(scored.starts) == 8
    # Eight GPUs for a quarter of an hour are two GPU-hours; half of one is others'.
    assert scored.terms[DISPLACED] == pytest.approx(50.0)
    assert scored.total == pytest.approx(sum(scored.terms.values()))
    assert DISPLACED not in Evaluator(World(a_world(jobs, [POOL]))).score({}).terms


def test_the_model_has_as_much_less_at_that_price() -> None:
    problem = a_world([a_job(f"job-{n}", run_s=HOUR / 4) for n in range(12)], [POOL])
    row = {each.name: each for each in cut.build(Evaluator(World(problem))).rows}[ROW]
    told = cut.build(Evaluator(World(with_outside(problem, **{ROW: (0.5, 100.0)}))))
    other = {each.name: each for each in told.rows}[ROW]
    assert other.high == pytest.approx(row.high - 0.5)
    (slack,) = other.columns[other.coefficients < 0.0]
    assert told.cost[slack] == 100.0
    assert told.upper[slack] == 0.5


@settings(max_examples=40, deadline=None)
@given(
    runs=st.lists(st.sampled_from((0.2, 0.5, 1.0, 3.0)), min_size=1, max_size=12),
    used=st.lists(st.floats(0.0, 8.0), min_size=4, max_size=4),
    usd=st.lists(st.floats(0.0, 50.0), min_size=4, max_size=4),
)
def test_kernel_and_plain_python_charge_the_same(
    runs: list[float], used: list[float], usd: list[float]
) -> None:
    jobs: list[JobView] = [
        a_job(f"job-{n}", run_s=run * HOUR, behind_s=60.0 * (n % 3)) for n, run in enumerate(runs)
    ]
    rows = {hours_row("home/home-1/gpu", b): (u, p) for b, (u, p) in enumerate(zip(used, usd, strict=True))}
    evaluator = Evaluator(World(with_outside(a_world(jobs, [POOL]), **rows)))
    assert evaluator.score({}).terms == score_plainly(evaluator, {}).terms


def test_a_job_that_starts_only_because_others_are_left_out_misses_at_home_and_may_be_rented_for() -> None:
    """It is behind ten hours of work that the window leaves out, and its deadline is sooner."""
    job = a_job("job-0", deadline_at=NOW + 3 * HOUR, value_usd=500.0, behind_s=10 * HOUR)
    problem = a_world([job], [POOL], [an_offer()], [bursting()])
    assert Evaluator(World(problem)).home["job-0"].finish_at == NOW + HOUR
    priced = with_outside(problem, **{ROW: (2.0, 1.0)})
    assert Evaluator(World(priced)).home["job-0"].finish_at == NOW + 11 * HOUR


def test_a_job_goes_where_it_takes_nothing_from_others_and_the_plan_repeats_itself() -> None:
    """Home is cheaper, but others want the hours that the job would take there."""
    pools = [a_pool(price_usd_gpu_h=0.1), a_pool("lab", price_usd_gpu_h=0.105)]
    problem = a_world([a_job("long", run_s=2 * HOUR)], pools)
    assert [action.site for action in decide(problem).actions if isinstance(action, Place)] == ["home"]
    dear = {hours_row("home/home-1/gpu", b): (64.0, 5.0) for b in (1, 2)}
    priced = with_outside(problem, **dear)
    plan = decide(priced)
    assert [action.site for action in plan.actions if isinstance(action, Place)] == ["lab"]
    assert plan == decide(priced)


def test_a_bound_of_it_is_below_every_plan_of_it() -> None:
    jobs = [a_job(f"job-{n}", run_s=HOUR / 2, deadline_at=NOW + HOUR, value_usd=9.0) for n in range(12)]
    rows = {hours_row("home/home-1/gpu", b): (3.0, 2.0) for b in range(4)}
    evaluator = Evaluator(World(with_outside(a_world(jobs, [POOL]), **rows)))
    starts = evaluator.score({}).starts
    told = certify(evaluator, starts)
    assert told is not None
    assert told[0].completed_usd is not None
    assert told[0].model_usd <= told[0].completed_usd + 1e-6
