"""The problem in numbers: classes are counted, only commitments are whole, and rows bound what hosts, hours and caps allow."""

import numpy as np
import pytest

from federator.model.capacity import Market, Shape
from federator.model.rules import BurstMode, CapRow, CapUnit, GuaranteeRow, Scope
from federator.model.snapshot import Problem
from federator.planning.linear.columns import ColumnKind, Columns, build
from federator.planning.linear.terms import Row
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.prices import cost
from federator.planning.world.problem import World
from tests.support.worlds import HOUR, NOW, a_job, a_lease, a_pool, a_world, an_offer, bursting, busy


def table(problem: Problem) -> Columns:
    return build(Evaluator(World(problem)))


def row(columns: Columns, name: str) -> Row:
    return next(r for r in columns.rows if r.name == name)


FULL = a_pool(
    nodes=1,
    busy=(busy("p", "j", gpus=4, cpus_milli=1000, memory_mib=1024, ends_at=NOW + 2 * HOUR),),
    free=(Shape(0, 63_000, 261_120),),
)


def test_identical_jobs_are_one_class_with_a_count() -> None:
    jobs = [a_job(f"job-{n}") for n in range(50)]
    found = table(a_world([*jobs, a_job("other", gpus=2)], [a_pool()]))
    assert sorted(len(members) for members in found.classes) == [1, 50]
    more = table(
        a_world([*jobs, *(a_job(f"more-{n}") for n in range(50)), a_job("other", gpus=2)], [a_pool()])
    )
    assert len(more.cost) == len(found.cost)


def test_every_class_is_served_exactly() -> None:
    found = table(a_world([a_job("a"), a_job("b")], [a_pool()]))
    served = row(found, "class/a")
    assert (served.low, served.high) == (2.0, 2.0)
    assert {found.kind[c] for c in served.columns} == {ColumnKind.NOW, ColumnKind.FUTURE, ColumnKind.NEVER}


def test_only_commitments_are_whole() -> None:
    job = a_job("tight", gpus=4, models=("A100",), deadline_at=NOW + 1.2 * HOUR)
    other = a_pool("other", nodes=1, model="T4")
    found = table(a_world([job, a_job("any")], [FULL, other], [an_offer()], [bursting()]))
    assert {found.kind[c] for c in found.committed} == {ColumnKind.NOW, ColumnKind.RENT}


def test_a_rental_that_need_not_begin_is_no_commitment() -> None:
    job = a_job("relaxed", gpus=4, deadline_at=NOW + 2 * HOUR)
    found = table(a_world([job], [FULL], [an_offer()], [bursting()]))
    assert ColumnKind.LATER in found.kind
    assert ColumnKind.RENT not in found.kind


def test_nothing_starts_before_its_hosts_free() -> None:
    found = table(a_world([a_job("one", gpus=4)], [FULL]))
    assert ColumnKind.NOW not in found.kind
    hours = [r for r in found.rows if r.name.startswith("hours/")]
    assert {r.name.rsplit("/", 1)[1] for r in hours if len(r.columns)}.isdisjoint(
        {"0h", "0.25h", "0.5h", "1h"}
    )


def test_node_fit_counts_hosts_not_totals() -> None:
    pool = a_pool(nodes=4, free=(Shape(2, 64_000, 262_144, count=4),))
    found = table(a_world([a_job("two", gpus=2), a_job("three", gpus=3)], [pool]))
    assert row(found, "fit/home/home-1/gpu/2").high == 4.0
    assert row(found, "fit/home/home-1/gpu/1").high == 8.0
    assert all(
        members[0].gpus != 3 or ColumnKind.NOW not in _kinds_of(found, k)
        for k, members in enumerate(found.classes)
    )


def _kinds_of(columns: Columns, klass: int) -> set[ColumnKind]:
    return {kind for kind, k in zip(columns.kind, columns.klass, strict=True) if k == klass}


def test_future_hours_are_what_is_free_and_what_frees() -> None:
    found = table(a_world([a_job("one")], [FULL]))
    assert row(found, "hours/home/home-1/gpu/2h").high == pytest.approx(4 * 2.0)


def test_no_more_start_in_a_quarter_of_an_hour_than_there_are_gpus() -> None:
    """In what is proven; a turn's own model has hours alone."""
    jobs = [a_job(f"half-hour-{n}", run_s=HOUR / 2) for n in range(20)]
    evaluator = Evaluator(World(a_world(jobs, [a_pool(nodes=1)])))
    found = build(evaluator, in_use=True)
    hours, in_use = (
        row(found, f"{name}/home/home-1/gpu/{at}") for name, at in (("hours", "0h"), ("gpus", "0.25h"))
    )
    first = [c for c in in_use.columns.tolist() if found.kind[c] == ColumnKind.FUTURE]
    assert [hours.high / hours.coefficients[hours.columns == c] for c in first] == [pytest.approx(8.0)]
    assert [in_use.high / in_use.coefficients[in_use.columns == c] for c in first] == [4.0]
    assert ColumnKind.NOW in found.kind[in_use.columns]
    assert not [each for each in build(evaluator).rows if each.name.startswith("gpus/")]


def test_what_is_in_use_leaves_its_gpus_when_it_ends() -> None:
    ends = busy("p", "j", gpus=3, cpus_milli=1000, memory_mib=1024, ends_at=NOW + HOUR / 3)
    pool = a_pool(nodes=1, busy=(ends,), free=(Shape(1, 63_000, 261_120),))
    found = build(Evaluator(World(a_world([a_job("one")], [pool]))), in_use=True)
    assert [row(found, f"gpus/home/home-1/gpu/{at}").high for at in ("0.25h", "0.5h")] == [1.0, 4.0]


@pytest.mark.parametrize(("market", "again"), [(Market.ON_DEMAND, 1.0), (Market.SPOT, 1.10016)])
def test_a_start_on_a_spot_machine_takes_the_time_of_what_is_done_again(market: Market, again: float) -> None:
    """Six minutes of an hour, after which its deadline is over: the value of 200 USD is at stake in the column, too."""
    job = a_job(deadline_at=NOW + 1.05 * HOUR, value_usd=200.0)
    problem = a_world([job], [a_lease(market=market, rented_for=job.id)], rules=[bursting()])
    evaluator = Evaluator(World(problem))
    found, world = build(evaluator), evaluator.world
    (column,) = np.flatnonzero(found.kind == ColumnKind.NOW).tolist()
    hours = [r.coefficients[r.columns == column] for r in found.rows if r.name.startswith("hours/")]
    assert sum(each.sum() for each in hours) == pytest.approx(again, rel=1e-4)
    price = cost(world.book, world.jobs[0], world.places[0], NOW)
    assert found.cost[column] == pytest.approx(price.total)
    assert price.miss == (200.0 if market is Market.SPOT else 0.0)


def test_a_full_cap_leaves_no_room_and_never_less() -> None:
    cap = CapRow("q", CapUnit.GPUS, 2.0, scope=Scope(queues=("batch",)))
    pool = a_pool(
        nodes=1,
        busy=(busy("p", "j", gpus=3, cpus_milli=1000, memory_mib=1024),),
        free=(Shape(1, 63_000, 261_120),),
    )
    assert row(table(a_world([a_job("one", queue="batch")], [pool], rules=[cap])), "cap/q/gpus").high == 0.0


def test_a_guarantee_asks_for_no_more_than_there_is_work() -> None:
    found = table(a_world([a_job("one", queue="prod")], [a_pool()], rules=[GuaranteeRow("g", "prod", 8)]))
    assert row(found, "guarantee/prod/").low == 1.0


def test_what_a_policy_requires_costs_more_not_to_do() -> None:
    rule = bursting(mode=BurstMode.THRESHOLD, after_wait_s=60.0)
    found = table(a_world([a_job("patient")], [FULL], [an_offer()], [rule]))
    required = row(found, "required/patient")
    slack = next(c for c in required.columns if found.kind[c] == ColumnKind.SLACK)
    rent = next(c for c in required.columns if found.kind[c] == ColumnKind.RENT)
    assert required.low == 1.0
    assert found.cost[slack] > found.cost[rent]


def test_the_known_point_is_feasible() -> None:
    jobs = [a_job("a", gpus=4), a_job("b", gpus=4), a_job("c", gpus=4)]
    evaluator = Evaluator(World(a_world(jobs, [a_pool()], rules=[GuaranteeRow("g", "research", 8)])))
    found, scored = build(evaluator), evaluator.score({})
    values = found.known(scored.starts)
    assert sum(values[c] for c in found.committed) == len(scored.starts) == 2
    for each in found.rows:
        total = sum(k * values[c] for c, k in zip(each.columns, each.coefficients, strict=True))
        assert each.low - 1e-9 <= total <= each.high + 1e-9, each.name


def test_columns_cost_what_the_evaluator_says() -> None:
    """A world in which everything starts now: both add up to the same."""
    problem = a_world([a_job("a", gpus=2), a_job("b")], [a_pool(price_usd_gpu_h=0.7)])
    found = table(problem)
    now = sum(found.cost[c] * found.upper[c] for c in found.committed if found.place[c] == 0)
    assert now == pytest.approx(Evaluator(World(problem)).score({}).total)


def test_values_become_starts_of_jobs_in_their_order() -> None:
    problem = a_world([a_job("b", submitted_at=NOW), a_job("a", submitted_at=NOW - 10)], [a_pool()])
    evaluator = Evaluator(World(problem))
    found = build(evaluator)
    values = [1.0 if kind == ColumnKind.NOW else 0.0 for kind in found.kind]
    assert found.jobs_for(values, evaluator) == {"a": 0}
