"""Where places differ in price and some are taken, jobs wait on purpose; what they are said to wait for passes the checker, whole gangs and lines included."""

from typing import Any

from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from federator.model.jobs import Accelerators, Form, Resources
from federator.model.snapshot import JobView, PoolView, Problem
from federator.planning.checks import check
from federator.planning.plans.greedy import plan_greedily
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.problem import World
from tests.support.examples import examples
from tests.support.plain_price import score_plainly
from tests.support.worlds import HOUR, NOW, a_job, a_lease, a_pool, a_world, an_offer, bursting, busy

at_random = settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def _jobs(draw: st.DrawFn, number: int) -> JobView:
    forms = (Form(1, Resources(gpus=Accelerators(count=1), cpus_milli=1000, memory_mib=1024), 0.4),)
    deadline_h = draw(st.sampled_from([None, None, 1.2, 2.0, 6.0]))
    given: dict[str, Any] = {
        "gpus": draw(st.sampled_from([1, 2, 4])), "nodes": draw(st.sampled_from([1, 1, 2])), "priority": draw(st.sampled_from([50, 70])),
        "run_s": draw(st.sampled_from([HOUR, 5 * HOUR])), "max_duration_s": 10 * HOUR, "speed": {"H100": 2.0},
        "submitted_at": NOW - HOUR * draw(st.sampled_from([0.0, 5.0, 11.5, 13.0])), "value_usd": draw(st.sampled_from([None, 5.0, 500.0])),
        "deadline_at": None if deadline_h is None else NOW + deadline_h * HOUR, "forms": draw(st.sampled_from([(), (), forms])),
    }  # fmt: skip
    low_s, high_s = draw(st.sampled_from([(1.0, 1.0), (0.5, 2.0)]))
    return a_job(
        f"job-{number}", run_low_s=low_s * given["run_s"], run_high_s=high_s * given["run_s"], **given
    )


@st.composite
def _pools(draw: st.DrawFn, site: str) -> PoolView:
    given: dict[str, Any] = {
        "nodes": 2, "model": draw(st.sampled_from(["A100", "H100"])), "price_usd_gpu_h": draw(st.sampled_from([0.5, 1.0, 3.0, 6.0])),
    }  # fmt: skip
    if draw(st.booleans()):
        ends = st.sampled_from([0.1, 2.0, 9.0])
        old = {"gpus": 4, "cpus_milli": 64_000, "memory_mib": 262_144}
        given["busy"] = tuple(
            busy(f"{site}-{n}", f"old-{site}-{n}", ends_at=NOW + draw(ends) * HOUR, **old) for n in range(2)
        )
        given["free"] = ()
    return a_pool(site, **given)


@st.composite
def choosy_worlds(draw: st.DrawFn) -> Problem:
    """A few places at different prices, some of them taken for a while; perhaps a machine that is rented."""
    jobs = [draw(_jobs(number)) for number in range(draw(st.integers(1, 7)))]
    pools = [draw(_pools(site)) for site in ("home", "away", "edge")[: draw(st.integers(2, 3))]]
    if draw(st.booleans()):
        pools.append(a_lease(paid_until_at=NOW + 6 * HOUR))
    return a_world(jobs, pools, [an_offer()], [bursting()])


@at_random
@given(problem=choosy_worlds())
def test_what_waits_on_purpose_passes_the_checker(problem: Problem) -> None:
    plan = plan_greedily(problem)
    for waiting in plan.waiting:
        event(waiting.reserved.why if waiting.reserved else "not on purpose")
    assert [finding for finding in check(problem, plan) if finding.promise == 13] == []


@at_random
@given(problem=choosy_worlds())
def test_what_is_weighed_is_the_same_compiled_or_not(problem: Problem) -> None:
    evaluator = Evaluator(World(problem))
    assert dict(evaluator.score({}).blocks) == score_plainly(evaluator, {}).blocks
