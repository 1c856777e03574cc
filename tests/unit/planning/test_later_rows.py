"""What later starts take of caps, cores and memory is a row of its bucket, where it could be what stops them; and nowhere else."""

from typing import Any

import pytest

from federator.model.rules import CapRow, CapUnit, Period, Rule, Scope
from federator.model.snapshot import JobView, PoolView, Problem
from federator.planning.explanations.congestion import congestion
from federator.planning.linear.columns import ColumnKind, Columns, build
from federator.planning.linear.terms import Row
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.problem import World
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting, busy


def table(problem: Problem) -> Columns:
    return build(Evaluator(World(problem)))


def rows(columns: Columns, beginning: str) -> dict[str, Row]:
    return {row.name.rsplit("/", 1)[1]: row for row in columns.rows if row.name.startswith(beginning)}


def capped(unit: CapUnit, limit: float, **fields: object) -> CapRow:
    return CapRow("cap", unit, limit, **fields)  # type: ignore[arg-type]


def line(count: int = 4, **fields: object) -> list[JobView]:
    return [a_job(f"job-{n}", gpus=2, run_s=HOUR, **fields) for n in range(count)]


def test_a_cap_on_gpus_leaves_each_bucket_what_is_not_running_then() -> None:
    works = (busy("p", "old", gpus=2, ends_at=NOW + HOUR),)
    found = rows(
        table(a_world(line(), [a_pool(busy=works)], rules=[capped(CapUnit.GPUS, 3.0)])), "cap-hours/cap/gpus/"
    )
    assert found["0.5h"].high == pytest.approx(0.5)
    assert found["1h"].high == pytest.approx(3.0)
    assert max(found["0.25h"].coefficients) == pytest.approx(0.5)


def test_a_cap_that_all_work_together_does_not_fill_has_no_rows() -> None:
    assert not rows(table(a_world(line(), [a_pool()], rules=[capped(CapUnit.GPUS, 8.0)])), "cap")
    assert not rows(table(a_world(line(), [a_pool()], rules=[capped(CapUnit.JOBS, 4.0)])), "cap")
    other = capped(CapUnit.JOBS, 1.0, scope=Scope(queues=("nobody",)))
    assert not rows(table(a_world(line(), [a_pool()], rules=[other])), "cap")


def test_caps_of_one_policy_are_told_apart() -> None:
    each: list[Rule] = [capped(CapUnit.JOBS, 1.0, scope=Scope(owners=(owner,))) for owner in ("ann", "bob")]
    jobs = [*line(2, owner="ann"), *(a_job(f"bob-{n}", owner="bob") for n in range(2))]
    found = table(a_world(jobs, [a_pool()], rules=each))
    assert {row.name for row in found.rows if row.name.startswith("cap/")} == {
        "cap/cap/jobs",
        "cap/cap/jobs/2",
    }


def test_what_is_rented_later_takes_of_the_rate_until_it_is_gone() -> None:
    jobs = line(2, deadline_at=NOW + 3 * HOUR, value_usd=300.0)
    full = a_pool(nodes=1, free=(), busy=(busy("p", "old", gpus=4, ends_at=NOW + 9 * HOUR),))
    found = table(a_world(jobs, [full], [an_offer()], [bursting(), capped(CapUnit.USD_PER_H, 10.0)]))
    later = [c for c, kind in enumerate(found.kind) if kind == ColumnKind.LATER]
    assert later
    hours = rows(found, "cap-hours/cap/usd-per-h/")
    assert not any(later[0] in row.columns for row in found.rows if row.name == "cap/cap/usd-per-h")
    assert sum(sum(row.coefficients[row.columns == later[0]]) for row in hours.values()) > 0.0


def test_a_budget_counts_what_is_rented_before_its_period_ends_and_nothing_after() -> None:
    full = a_pool(nodes=1, free=(), busy=(busy("p", "old", gpus=4, ends_at=NOW + 90 * HOUR),))
    for hours, counts in ((2.0, True), (60.0, False)):
        jobs = line(1, deadline_at=NOW + hours * HOUR, value_usd=300.0)
        found = table(
            a_world(jobs, [full], [an_offer()], [bursting(), capped(CapUnit.USD, 40.0, period=Period.DAY)])
        )
        later = [c for c, kind in enumerate(found.kind) if kind == ColumnKind.LATER]
        assert later
        budget = [row for row in found.rows if row.name == "cap/cap/usd"]
        assert any(later[0] in row.columns for row in budget) == counts


def _host(**fields: Any) -> PoolView:
    return a_pool(nodes=1, gpus_per_node=8, **fields)


def test_cores_and_memory_are_rows_only_where_they_run_out_before_the_gpus() -> None:
    jobs = line(4, cpus_milli=2000, memory_mib=2048)
    scarce = table(a_world(jobs, [_host(cpus_milli_per_node=6000, memory_mib_per_node=6144)]))
    assert rows(scarce, "core-hours/")["1h"].high == pytest.approx(6.0)
    assert max(rows(scarce, "core-hours/")["0.25h"].coefficients) == pytest.approx(0.5)
    assert rows(scarce, "gib-hours/")["2h"].high == pytest.approx(12.0)
    ample = table(a_world(jobs, [_host(cpus_milli_per_node=8000, memory_mib_per_node=8192)]))
    assert not rows(ample, "core-hours/")
    assert not rows(ample, "gib-hours/")


def test_work_without_gpus_is_counted_beside_the_gpus() -> None:
    pool = _host(cpus_milli_per_node=8000)
    jobs = line(4, cpus_milli=2000)
    assert rows(table(a_world([*jobs, a_job("cpu", gpus=0, cpus_milli=500)], [pool])), "core-hours/")


def test_what_later_rows_cost_others_is_said_of_what_they_are_about() -> None:
    world = World(a_world(line(), [_host(cpus_milli_per_node=6000)], rules=[capped(CapUnit.GPUS, 3.0)]))
    prices = {"core-hours/home/home-1/gpu/0h": -4.0, "cap-hours/cap/gpus/0.25h": -8.0}
    found = congestion(prices, world.jobs[0], world.places[0], world.caps, world.shortfalls)
    cores = world.jobs[0].cpus_milli / 1000.0
    assert found == pytest.approx({"core-hours of home/home-1/gpu": cores, "cap of cap (gpus)": 4.0})
