"""All tasks of an array that is not submitted yet: when the last of them is done, and what they cost together."""

import pytest
from msgspec.structs import replace

from federator.planning.plans import array_preview
from federator.planning.plans.array_preview import preview_array
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, an_offer, bursting


def test_tasks_stand_in_each_others_way() -> None:
    home = a_world([], [a_pool(nodes=1)])
    task = a_job("sweep", gpus=1, deadline_at=NOW + 2.5 * HOUR)
    found = preview_array(home, task, 12, owned_usd=0.25, rented_usd=0.0)
    assert (found.tasks, found.planned, found.in_time, found.rented) == (12, 12, 8, 0)
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


def test_of_tasks_that_take_turns_the_rest_follows_in_the_places_of_the_first() -> None:
    home = a_world([], [a_pool(nodes=1)])
    task = a_job("sweep", gpus=1, deadline_at=NOW + 4.5 * HOUR)
    found = preview_array(home, task, 11, at_once=2, owned_usd=0.25, rented_usd=0.0)
    assert found.finish_at == pytest.approx(NOW + 6 * HOUR)
    assert (found.planned, found.in_time, found.cost_usd) == (2, 8, 11 * 0.25)
    wide = preview_array(home, task, 11, at_once=9, owned_usd=0.25, rented_usd=0.0)
    assert wide.planned == 9
    assert wide.finish_at == pytest.approx(NOW + 3 * HOUR), "only four fit"


@pytest.mark.parametrize("deadline_at", [None, NOW + 2.5 * HOUR])
def test_the_estimate_for_many_tasks_is_near_the_plan_of_all(
    deadline_at: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = a_world([], [a_pool(nodes=1)])
    task = a_job("sweep", gpus=1, deadline_at=deadline_at)
    whole = preview_array(home, task, 40, owned_usd=1.0, rented_usd=0.0)
    monkeypatch.setattr(array_preview, "MOST_TASKS", 8)
    found = preview_array(home, task, 40, owned_usd=1.0, rented_usd=0.0)
    assert found == replace(whole, planned=8, finish_at=pytest.approx(whole.finish_at))


def test_a_million_tasks_are_estimated_from_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_preview, "MOST_TASKS", 20)
    home = a_world([], [a_pool(nodes=1)])
    found = preview_array(home, a_job("sweep", gpus=1), 1_000_000, owned_usd=1.0, rented_usd=0.0)
    assert found.finish_at == pytest.approx(NOW + 250_000 * HOUR)
    assert (found.planned, found.cost_usd) == (20, 1_000_000)


def test_what_the_first_tasks_are_rented_for_the_rest_is_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Home has done two by the deadline; a machine is rented for each other one, as far as a plan of four of them shows."""
    monkeypatch.setattr(array_preview, "MOST_TASKS", 4)
    cloud = a_world([], [a_pool(nodes=1)], [an_offer()], [bursting()])
    task = a_job("sweep", gpus=4, deadline_at=NOW + 2.5 * HOUR, value_usd=50.0, max_cost_usd=50.0)
    found = preview_array(cloud, task, 10, owned_usd=1.0, rented_usd=12.0)
    assert (found.rented, found.in_time, found.finish_at) == (8, 10, NOW + 2.5 * HOUR)
    assert found.cost_usd == 8 * 12.0 + 2 * 1.0
    in_turn = preview_array(cloud, task, 10, at_once=1, owned_usd=1.0, rented_usd=12.0)
    assert (in_turn.planned, in_turn.rented, in_turn.in_time) == (1, 0, 2)
