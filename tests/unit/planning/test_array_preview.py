"""All tasks of an array that is not submitted yet: when the last of them is done, and what they cost together."""

import pytest

from federator.planning.plans.array_preview import preview_array
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting


def test_tasks_stand_in_each_others_way() -> None:
    home = a_world([], [a_pool(nodes=1)])
    task = a_job("sweep", gpus=1, deadline_at=NOW + 2.5 * HOUR)
    found = preview_array(home, task, 12, owned_usd=0.25, rented_usd=0.0)
    assert (found.tasks, found.in_time, found.rented) == (12, 8, 0)
    assert found.finish_at == NOW + 3 * HOUR, "four at once, three times"
    assert found.cost_usd == 3.0


@pytest.mark.parametrize(("max_cost_usd", "rented", "in_time"), [(0.0, 0, 2), (50.0, 2, 4)])
def test_what_is_rented_for_is_in_the_price(max_cost_usd: float, rented: int, in_time: int) -> None:
    """At home two are done in time; the other two are rented for as late as that is in time, where they may cost that."""
    cloud = a_world([], [a_pool(nodes=1)], [an_offer()], [bursting()])
    task = a_job(
        "sweep", gpus=4, deadline_at=NOW + 2.5 * HOUR, value_usd=max_cost_usd, max_cost_usd=max_cost_usd
    )
    found = preview_array(cloud, task, 4, owned_usd=1.0, rented_usd=12.0)
    assert (found.rented, found.in_time) == (rented, in_time)
    assert found.cost_usd == rented * 12.0 + (4 - rented) * 1.0


def test_a_task_that_fits_nowhere_leaves_the_end_open() -> None:
    found = preview_array(
        a_world([], [a_pool()]), a_job("sweep", models=("X",)), 3, owned_usd=0.0, rented_usd=0.0
    )
    assert (found.finish_at, found.in_time) == (None, None)
