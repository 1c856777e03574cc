"""What counts as a leak in a soak: a level that rises, and nothing that comes and goes."""

import asyncio
import random

import pytest

from tests.soak.counted import RememberedLoops
from tests.soak.growth import growth


def leaks(*values: float, measure: str) -> bool:
    """Whether a series of looks is called one."""
    (found,) = growth([{measure: value} for value in values])
    return found.leaks


@pytest.mark.parametrize(
    "measure", ["dispatcher MB", "edge descriptors", "edge threads", "dispatcher tasks", "event rows"]
)
def test_what_rises_all_the_time_leaks_and_what_swings_does_not(measure: str) -> None:
    chance = random.Random(1)
    assert leaks(*(100 + 5 * look for look in range(200)), measure=measure)
    assert not leaks(*(100 + chance.choice([-3, 0, 3]) for _ in range(200)), measure=measure)


def test_a_level_that_is_reached_in_the_first_quarter_is_none() -> None:
    assert not leaks(*(min(look * 20, 400) for look in range(100)), measure="job rows")


def test_what_is_kept_for_ever_may_grow() -> None:
    assert growth([{"lease rows": look * 1000.0} for look in range(20)]) == []


def test_too_few_looks_tell_nothing() -> None:
    with pytest.raises(ValueError, match="too few"):
        growth([{"x MB": 1.0}] * 8)


def test_tasks_of_each_loop_are_counted_until_they_are_done() -> None:
    policy = RememberedLoops()
    loops = policy.new_event_loop(), policy.new_event_loop()
    try:
        tasks = [loop.create_task(asyncio.sleep(0)) for loop in loops for _ in range(3)]
        assert policy.unfinished_tasks() == 6
        for task in tasks:
            task.get_loop().run_until_complete(task)
        assert policy.unfinished_tasks() == 0
    finally:
        for loop in loops:
            loop.close()
