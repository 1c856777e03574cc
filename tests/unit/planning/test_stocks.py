"""Offers that draw on one stock: no plan takes more of it than there is, whatever the machines are called, and what is short is named."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from federator.model.capacity import Market, Offer, Shape, Stock
from federator.model.changes import MoreHosts
from federator.model.plans import Plan, Rent
from federator.model.snapshot import JobView, OfferView, PoolView, Problem
from federator.planning.checks import check, check_actions
from federator.planning.explanations.changes import apply
from federator.planning.explanations.explain import explain_waiting
from federator.planning.linear import columns as cut
from federator.planning.places.candidates import Candidate
from federator.planning.places.stocks import Stocks
from federator.planning.plans.greedy import plan_greedily
from federator.planning.scheduling.objective import Evaluator
from federator.planning.wording.told import told_waiting
from federator.planning.world.problem import World
from federator.solving.decide import decide
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting, busy

QUOTA = Stock("A100 GPUs", 8, unit="GPUs")


def full() -> PoolView:
    """A host of four GPUs, all in use."""
    running = busy("p", "j", gpus=4, cpus_milli=1000, memory_mib=1024, ends_at=NOW + 9 * HOUR)
    return a_pool(nodes=1, busy=(running,), free=(Shape(0, 63_000, 261_120),))


def drawing(name: str, gpus: int, stock: Stock = QUOTA, **fields: Any) -> OfferView:
    given: dict[str, Any] = {"price_usd_h": 2.5 * gpus, **fields}
    return an_offer(name, gpus=gpus, stock=replace(stock, each=gpus), **given)


def urgent(name: str, gpus: int) -> JobView:
    return a_job(name, gpus=gpus, deadline_at=NOW + 1.2 * HOUR)


def rents(plan: Plan) -> list[Rent]:
    return [action for action in plan.actions if isinstance(action, Rent)]


def taken(problem: Problem, plan: Plan) -> int:
    """Of the stock that all offers draw on."""
    each = {view.offer.name: view.offer.stock.each for view in problem.snapshot.offers if view.offer.stock}
    return sum(each.get(action.offer, 0) * action.machines for action in rents(plan))


@pytest.mark.parametrize("make", [plan_greedily, decide])
def test_machines_of_two_sizes_are_not_rented_beyond_what_both_are_taken_from(
    make: Callable[[Problem], Plan],
) -> None:
    jobs = [urgent(f"large-{n}", 4) for n in range(2)] + [urgent(f"small-{n}", 1) for n in range(3)]
    offers = [drawing("eu/4", 4), drawing("eu/1", 1)]
    problem = a_world(jobs, [full()], offers, [bursting()])
    plan = make(problem)
    assert taken(problem, plan) == 8
    assert len(rents(plan)) < 5
    assert not check(problem, plan)
    apart = a_world(
        jobs, [full()], [replace(v, offer=replace(v.offer, stock=QUOTA)) for v in offers], [bursting()]
    )
    assert len(rents(make(apart))) == 5, "where each machine takes one, there is enough"


def test_a_stock_of_another_provider_is_another_one() -> None:
    jobs = [urgent(f"job-{n}", 4) for n in range(4)]
    here, there = drawing("eu/4", 4), drawing("us/4", 4, provider="other")
    problem = a_world(jobs, [full()], [here, there], [bursting()])
    assert len(rents(plan_greedily(problem))) == 4
    one = replace(there, offer=replace(there.offer, provider="acme"))
    assert len(rents(plan_greedily(a_world(jobs, [full()], [here, one], [bursting()])))) == 2


def test_a_machine_whose_gpu_may_be_shared_is_one_machine() -> None:
    whole = an_offer("eu/1", gpus=1, available=1, price_usd_h=2.5)
    parts = replace(whole, offer=whole.offer.as_shared())
    jobs = [urgent("whole", 1), replace(urgent("part", 500), shared=True)]
    problem = a_world(jobs, [full()], [whole, parts], [bursting()])
    for plan in (plan_greedily(problem), decide(problem)):
        assert len(rents(plan)) == 1
        assert not check(problem, plan)
    two = [replace(view, offer=replace(view.offer, available=2)) for view in (whole, parts)]
    problem = a_world(jobs, [full()], two, [bursting()])
    plan = plan_greedily(problem)
    assert {action.offer for action in rents(plan)} == {"eu/1", "eu/1/shared"}
    damaged = a_world(jobs, [full()], [whole, parts], [bursting()])
    assert [f.promise for f in check_actions(damaged, plan) if f.severity == "fatal"] == [4]


def test_the_checker_counts_by_itself_what_is_left_of_a_stock() -> None:
    jobs = [urgent("large", 4), urgent("small", 1)]
    offers = [drawing("eu/4", 4), drawing("eu/1", 1)]
    plan = plan_greedily(a_world(jobs, [full()], offers, [bursting()]))
    assert len(rents(plan)) == 2
    used = [drawing("eu/4", 4, replace(QUOTA, used=4)), drawing("eu/1", 1, replace(QUOTA, used=4))]
    (fault,) = [
        f for f in check_actions(a_world(jobs, [full()], used, [bursting()]), plan) if f.severity == "fatal"
    ]
    assert (fault.promise, "4 GPUs left of A100 GPUs" in fault.text) == (4, True)


def test_what_is_short_is_named_and_so_is_what_would_help() -> None:
    jobs = [urgent(name, 4) for name in ("first", "second", "third")]
    problem = a_world(jobs, [full()], [drawing("eu/4", 4), drawing("eu/1", 1)], [bursting()])
    plan = plan_greedily(problem)
    (waiting,) = plan.waiting
    assert waiting.reason == "sold-out"
    assert (
        "8 of 8 GPUs that acme has of A100 GPUs are taken, and the job needs 4"
        in told_waiting(waiting, NOW).because
    )
    told = explain_waiting(problem, plan, waiting.job)
    (remedy,) = [
        r for r in told.remedies if any(isinstance(c, MoreHosts) and c.key == "acme/eu/4" for c in r.changes)
    ]
    assert "4 more GPUs of A100 GPUs" in remedy.text
    assert len(rents(plan_greedily(apply(problem, remedy.changes)))) == 3


def test_more_of_one_offer_is_more_for_all_that_draw_on_its_stock() -> None:
    whole = drawing("eu/1", 1, available=1)
    offers = [whole, replace(whole, offer=whole.offer.as_shared()), drawing("eu/4", 4)]
    problem = apply(a_world([urgent("one", 1)], [full()], offers, [bursting()]), [MoreHosts("acme/eu/1", 2)])
    found = [view.offer for view in problem.snapshot.offers]
    assert [(o.available, o.stock and o.stock.limit) for o in found] == [(3, 10)] * 3


def test_a_row_of_the_model_holds_for_all_that_draw_on_a_stock() -> None:
    jobs = [urgent("large", 4), urgent("small", 1)]
    offers = [drawing("eu/4", 4), drawing("eu/1", 1), an_offer("us/4")]
    table = cut.build(Evaluator(World(a_world(jobs, [full()], offers, [bursting()]))))
    rows = {row.name: row for row in table.rows}
    stock = rows["stock/acme/A100 GPUs"]
    assert (stock.high, sorted(stock.coefficients.tolist())) == (8.0, [1.0, 4.0, 4.0])
    assert rows["available/acme/us/4"].high == 3.0


@dataclass(frozen=True)
class _At:
    """Of a place, what stocks ask for."""

    offer: OfferView | None


@settings(deadline=None)
@given(
    limits=st.tuples(st.integers(0, 12), st.integers(0, 4), st.integers(0, 4)),
    each=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    wanted=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3)), max_size=8),
)
def test_what_is_taken_step_by_step_is_what_may_be_taken_at_once(
    limits: tuple[int, int, int], each: tuple[int, int], wanted: list[tuple[int, int]]
) -> None:
    limit, first, second = limits
    one = Offer("one", "p", "r", "t", Market.ON_DEMAND, "L4", 1, 1, 1, 1, 1.0, 1.0, available=first)
    one = replace(one, stock=Stock("s", limit, each=each[0]))
    other = replace(one, name="other", available=second, stock=Stock("s", limit, each=each[1]))
    offers = [one, one.as_shared(), other]
    stocks = Stocks([cast("Candidate", _At(OfferView(offer=offer, site="s"))) for offer in offers])
    counts = [0, 0, 0]
    for place, machines in wanted:
        if machines <= stocks.room(place):
            stocks.take(place, machines)
            counts[place] += machines

    def holds(a: int, b: int, c: int) -> bool:
        return a + b <= first and c <= second and each[0] * (a + b) + each[1] * c <= limit

    assert holds(*counts)
    for place, more in product(range(3), range(1, 4)):
        then = [count + more * (n == place) for n, count in enumerate(counts)]
        assert holds(*then) == (more <= stocks.room(place))
