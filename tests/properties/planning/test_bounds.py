"""Whatever prices say, no plan of the model is cheaper than its bound, and no plan at all than a certificate's; and generating columns finds what solving them all does."""

from collections.abc import Iterator
from itertools import product
from math import prod
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from federator.model.rules import CapRow, CapUnit
from federator.model.snapshot import Problem
from federator.planning.linear import columns as cut
from federator.planning.linear.columns import ColumnKind, Columns
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.problem import World
from federator.solving import certify, column_generation, parts
from federator.solving.decide import decide
from federator.solving.least import least_usd
from federator.solving.packed import pack
from tests.bench.solver.baselines import RULES
from tests.bench.solver.instances import Instance, Parameters
from tests.properties.planning.test_each_kind_of_constraint import KINDS
from tests.support.examples import examples
from tests.support.relaxations import relaxed
from tests.support.worlds import HOUR, a_job, a_pool, a_world, worlds_at_random

MOST_PLANS = 3_000
at_random = settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)


@pytest.fixture
def _never_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few columns are looked at first, however small the model is, and bounds have to come very near."""
    monkeypatch.setattr(column_generation, "PICKED", 1)
    monkeypatch.setattr(column_generation, "PICKED_BY_SHARE", 0)
    monkeypatch.setattr(column_generation, "ROUNDS", 500)


@at_random
@given(problem=worlds_at_random(most_jobs=3), prices=st.lists(st.floats(-9.0, 9.0), min_size=1, max_size=9))
def test_no_plan_of_the_model_costs_less_than_any_prices_bound(problem: Problem, prices: list[float]) -> None:
    table = _table(problem)
    packed = pack(table)
    cheapest = min(_plans(table), default=None)
    assume(cheapest is not None)
    assert cheapest is not None
    drawn = np.resize(np.array(prices), len(table.rows))
    ours = np.maximum(0.0, -packed.sign * drawn[packed.row_origin])
    assert certify.proven_bound(table, drawn) <= cheapest + 1e-6
    assert packed.answer(ours).bound <= cheapest + 1e-6
    found = column_generation.solve(packed, ours, np.ones(len(packed.cost), dtype=bool))
    assert found is not None
    assert found.bound <= cheapest + 1e-6
    assert found.value <= cheapest + 1e-6


@pytest.mark.usefixtures("_never_at_once")
@settings(parent=at_random, suppress_health_check=list(HealthCheck))
@given(problem=worlds_at_random())
def test_generating_from_one_column_a_class_comes_to_what_all_columns_come_to(problem: Problem) -> None:
    table = _table(problem)
    packed, solved = pack(table), relaxed(table)
    assert solved is not None
    found = column_generation.solve(packed, np.zeros(len(packed.limit)), near=1e-9)
    assert found is not None
    assert found.bound <= solved.objective + 1e-4
    assert found.value == pytest.approx(solved.objective, rel=1e-5, abs=1e-3)
    told = certify.proven_bound(table, packed.duals(found.prices, found.marginal))
    assert told == pytest.approx(found.bound, rel=1e-6, abs=1e-4)


@pytest.mark.usefixtures("_never_at_once")
@pytest.mark.parametrize("seed", [0, 1])
def test_a_federation_is_certified_by_few_of_its_columns(seed: int) -> None:
    evaluator = Evaluator(World(Instance(Parameters(jobs=120, sites=6, seed=seed)).problem()))
    table = cut.build(evaluator)
    exact = relaxed(table)
    assert exact is not None
    packed = pack(table)
    hours = column_generation.hours_of(table, packed.row_origin)
    start = column_generation.smoothed(packed, hours)
    assert packed.answer(start).bound > packed.answer(np.zeros(len(start))).bound
    found = column_generation.solve(packed, start)
    assert found is not None
    assert found.bound <= exact.objective + 1e-4 <= found.value + 2e-4
    assert found.value - found.bound <= 2 * column_generation.NEAR * exact.objective
    assert len(found.kept) < 0.7 * len(table.cost)
    again = column_generation.solve(packed, start)
    assert again is not None
    assert (again.value, again.bound) == (found.value, found.bound)


def test_a_line_certified_in_parts_has_the_bound_and_the_gaps_of_the_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    problem = Instance(Parameters(jobs=120, sites=6, seed=2)).problem()
    decisions = [RULES["first-fit"](problem, 0), {}, {"job-0-0": 999}]
    evaluator = Evaluator(World(problem))
    monkeypatch.setattr(column_generation, "NEAR", 1e-4)
    whole = certify.certify(evaluator, *decisions)
    for name, value in (("WHOLE_COLUMNS", 0), ("PART_COLUMNS", 700), ("SAMPLE_COLUMNS", 1_500)):
        monkeypatch.setattr(parts, name, value)
    in_parts = certify.certify(evaluator, *decisions)
    monkeypatch.setattr(parts, "HELD_COLUMNS", 0)
    assert whole is not None
    assert in_parts is not None
    best = relaxed(cut.build(evaluator, in_use=True))
    assert best is not None
    for one, other in zip(whole, in_parts, strict=True):
        assert other.columns == one.columns
        assert other.model_usd <= best.objective + 1e-4
        assert other.model_usd == pytest.approx(one.model_usd, rel=2e-2)
        if one.completed_usd is None:
            assert other.completed_usd is None
        else:
            assert other.completed_usd == pytest.approx(one.completed_usd, rel=2e-2)
    assert in_parts == certify.certify(evaluator, *decisions)


def test_half_an_hour_of_waiting_is_less_than_the_model_has_for_it_and_no_less_than_the_bound() -> None:
    """The second starts when the first ends; the model expects it in the next quarter of an hour."""
    jobs = [a_job(name, run_s=HOUR / 2) for name in ("first", "second")]
    problem = a_world(jobs, [a_pool(nodes=1, gpus_per_node=1)])
    plan, found = decide(problem), certify.certify(Evaluator(World(problem)), {"first": 0})
    assert found is not None
    assert found[0].bound_usd <= plan.objective_usd < found[0].model_usd


def test_no_plan_costs_less_than_a_certificate_of_it_says() -> None:
    """Where one kind of constraint binds in tiny worlds; `test_the_bound_is_below_what_the_plan_comes_to` has worlds at random."""
    above = [
        (kind, seed, found[0].bound_usd, plan.objective_usd)
        for kind, rolled in KINDS.items()
        for seed in range(6)
        for problem in [rolled(Random(f"{kind}-bound{seed}"))]
        for plan in [decide(problem)]
        for found in [certify.certify(Evaluator(World(problem)), {})]
        if found is not None and found[0].bound_usd > plan.objective_usd + 1e-4
    ]
    assert above == []


def test_a_job_that_is_cheaper_never_run_counts_no_more_than_that() -> None:
    """A run of a week at 90 USD an hour, which a quota forbids: no plan pays for it."""
    job = a_job(run_s=168 * HOUR)
    no_quota = CapRow("none", CapUnit.GPUS, 0.0)
    problem = a_world([job], [a_pool(price_usd_gpu_h=90.0)], rules=[no_quota])
    assert least_usd(Evaluator(World(problem))) == pytest.approx(decide(problem).objective_usd)


def _table(problem: Problem) -> Columns:
    return cut.build(Evaluator(World(problem)))


def _plans(table: Columns) -> Iterator[float]:
    """What each whole plan of the model costs: a column for each job, and as much slack as that leaves to be charged."""
    choices = []
    for klass, members in enumerate(table.classes):
        mine = np.flatnonzero((table.klass == klass) & (table.upper >= 1.0)).tolist()
        choices += [mine] * len(members)
    if prod(map(len, choices)) > MOST_PLANS:
        return
    slack = np.flatnonzero(table.kind == ColumnKind.SLACK)
    for picks in product(*choices):
        values = np.bincount(np.array(picks, dtype=np.int64), minlength=len(table.cost)).astype(np.float64)
        for row in table.rows:
            spare = np.intersect1d(row.columns, slack)
            if len(spare):
                short = row.low - float(values[row.columns] @ row.coefficients)
                values[spare[0]] = max(0.0, short)
        uses = [float(values[row.columns] @ row.coefficients) for row in table.rows]
        inside = all(
            row.low - 1e-9 <= use <= row.high + 1e-9 for row, use in zip(table.rows, uses, strict=True)
        )
        if inside and (values <= table.upper + 1e-9).all():
            yield float(values @ table.cost)
