"""What is left free goes by prices; what fits stays what fits."""

from federator.model.capacity import Shape
from federator.model.snapshot import Problem
from federator.planning.linear import columns as cut
from federator.planning.linear.columns import Columns, Kind
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.problem import World
from federator.solving import guided
from tests.support.worlds import HOUR, NOW, a_job, a_lease, a_pool, a_world, bursting


def table_of(problem: Problem) -> tuple[Evaluator, Columns]:
    evaluator = Evaluator(World(problem))
    return evaluator, cut.build(evaluator)


def reduced(table: Columns, of: dict[str, float]) -> list[float]:
    """Reduced costs by a class's first job."""
    return [of.get(table.classes[k][0].id, 0.0) if k >= 0 else 0.0 for k in table.klass]


def two_for_one_place() -> Problem:
    jobs = [a_job("first", gpus=4, priority=90), a_job("second", gpus=4, priority=10)]
    return a_world(jobs, [a_pool(nodes=1, gpus_per_node=4, free=(Shape(4, 64_000, 262_144),))])


def test_the_lowest_reduced_cost_goes_first_whatever_the_order() -> None:
    evaluator, table = table_of(two_for_one_place())
    for wins, loses in (("first", "second"), ("second", "first")):
        costs = reduced(table, {wins: 0.5, loses: 2.0})
        assert list(guided.fill(evaluator, table, costs, {})) == [wins]


def test_it_counts_per_gpu_so_that_a_large_job_is_not_kept_out_for_being_large() -> None:
    jobs = [a_job("large", gpus=4), a_job("small", gpus=1)]
    pool = a_pool(nodes=1, gpus_per_node=4, free=(Shape(4, 64_000, 262_144),))
    evaluator, table = table_of(a_world(jobs, [pool]))
    assert list(guided.fill(evaluator, table, reduced(table, {"large": 2.0, "small": 1.0}), {})) == ["large"]


def test_what_has_started_keeps_its_place() -> None:
    evaluator, table = table_of(two_for_one_place())
    place = next(table.place[c] for c, kind in enumerate(table.kind) if kind == Kind.NOW)
    costs = reduced(table, {"first": -9.0, "second": 9.0})
    assert guided.fill(evaluator, table, costs, {"second": place}) == {"second": place}


def test_only_who_has_a_case_is_put_on_a_lease() -> None:
    lease = a_lease(rented_for="other")
    late = a_job("late", deadline_at=NOW + HOUR / 2)
    evaluator, table = table_of(a_world([a_job("calm"), late], [lease], rules=(bursting(),)))
    found = guided.fill(evaluator, table, [0.0] * len(table.cost), {})
    assert "calm" not in found
