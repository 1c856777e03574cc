"""The columns made for all places at once say of each start what the rest of the planner says of it, one at a time."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings

from federator.model.snapshot import Problem
from federator.planning.linear import columns as cut
from federator.planning.linear.columns import ColumnKind, Columns
from federator.planning.places.host_sets import need_of
from federator.planning.scheduling.objective import Evaluator
from federator.planning.world.buckets import BUCKETS_H
from federator.planning.world.prices import cost
from federator.planning.world.problem import World
from tests.support.examples import examples
from tests.support.worlds import worlds_at_random

HOURS = tuple(pairwise(BUCKETS_H))
at_random = settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _gpu_h(table: Columns, column: int) -> float:
    """What a column takes of all buckets together."""
    return sum(
        float(value)
        for row in table.rows
        if row.name.startswith("hours/")
        for at, value in zip(row.columns, row.coefficients, strict=True)
        if at == column
    )


@at_random
@given(problem=worlds_at_random(most_jobs=5))
def test_a_start_costs_what_prices_say_and_takes_its_gpu_hours(problem: Problem) -> None:
    evaluator = Evaluator(World(problem))
    world, table = evaluator.world, cut.build(evaluator)
    for column, kind in enumerate(table.kind):
        if kind != ColumnKind.NOW:
            continue
        place = int(table.place[column])
        job = world.as_form(table.classes[table.klass[column]][0], place)
        at, host_set = world.places[place], world.host_set(place)
        until = host_set.releases[-1].at if at.rented and host_set.releases else 0.0
        assert table.cost[column] == pytest.approx(
            cost(world.book, job, at, world.now, committed_until=until).total, rel=1e-9
        )
        assert host_set.fits(need_of(job), job.nodes)
        # The longest of these runs ends long before the last bucket does. Shared GPUs are counted in thousandths.
        assert _gpu_h(table, column) == pytest.approx(job.nodes * job.gpus * at.run_s(job) / 3600.0)


@at_random
@given(problem=worlds_at_random(most_jobs=5))
def test_there_is_a_start_now_wherever_one_fits_and_later_ones_only_once_hosts_are_free(
    problem: Problem,
) -> None:
    evaluator = Evaluator(World(problem))
    world, table = evaluator.world, cut.build(evaluator)
    found = {(table.klass[c], table.place[c], kind) for c, kind in enumerate(table.kind)}
    for klass, members in enumerate(table.classes):
        for place in world.open_to(members[0]):
            job = world.as_form(members[0], place)
            at, host_set = world.places[place], world.host_set(place)
            if at.offer is not None or at.rented:
                continue
            fits = host_set.fits(need_of(job), job.nodes) and (job.not_before_at or 0.0) <= world.now
            assert ((klass, place, ColumnKind.NOW) in found) == fits
            later = sum(
                table.kind[c] == ColumnKind.FUTURE and table.klass[c] == klass and table.place[c] == place
                for c in range(len(table.kind))
            )
            earliest = host_set.earliest(need_of(job), job.nodes)
            if earliest is None:
                assert later == 0
            else:
                after_h = max(earliest - world.now, (job.not_before_at or 0.0) - world.now) / 3600.0
                assert later == sum(after_h < high for _, high in HOURS)
