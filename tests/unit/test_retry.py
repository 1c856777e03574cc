"""Trying again: how long the pauses are, when it is given up, and that all of it passes on a loop's own time."""

import asyncio
import random
from itertools import pairwise

import pytest

from federator.kernel.errors import Invalid, NotLeading, TooMany, Unavailable
from federator.retry import SUPERVISION, Backoff, retried, supervise
from federator.simulation.virtual_time import run

FULL = Backoff(0.5, 15.0, spread=1.0)
EXACT = Backoff(1.0, 8.0, spread=0.0)


class Work:
    """Fails so often before it answers; `times` are those of its calls, by the loop."""

    def __init__(self, *failures: Exception) -> None:
        self._left = list(failures)
        self.times: list[float] = []

    async def __call__(self) -> str:
        self.times.append(asyncio.get_running_loop().time())
        if self._left:
            raise self._left.pop(0)
        return "done"


def test_pauses_of_many_lie_anywhere_below_a_bound_that_doubles_up_to_a_cap() -> None:
    fleet = [random.Random(seed) for seed in range(500)]
    bound_s = FULL.first_s
    for failures in range(1, 11):
        pauses = sorted(FULL.pause_s(failures, draw=chance.uniform) for chance in fleet)
        assert pauses[0] < 0.05 * bound_s
        assert 0.95 * bound_s < pauses[-1] <= bound_s
        assert 0.4 * bound_s < pauses[250] < 0.6 * bound_s, "they are spread evenly"
        bound_s = min(FULL.longest_s, 2 * bound_s)
    assert bound_s == FULL.longest_s


def test_what_the_other_side_asks_of_all_is_kept_and_spread() -> None:
    pauses = [FULL.pause_s(1, asked_s=10.0, draw=random.Random(seed).uniform) for seed in range(100)]
    assert min(pauses) >= 10.0
    assert max(pauses) - min(pauses) > 4.0


def test_a_million_failures_are_a_pause_like_others() -> None:
    assert EXACT.pause_s(10**6) == EXACT.longest_s


def test_attempts_follow_each_other_in_virtual_time_and_the_answer_is_that_of_the_last() -> None:
    work, told = Work(*(Unavailable(f"no {number}") for number in range(5))), list[str]()
    answer = run(lambda _: retried(work, EXACT, on=Unavailable, failed=lambda error: told.append(str(error))))
    assert answer == "done"
    assert work.times == [0.0, 1.0, 3.0, 7.0, 15.0, 23.0]
    assert told == [f"no {number}" for number in range(5)]


def test_patience_is_virtual_and_no_pause_begins_that_would_outlast_it() -> None:
    work, told = Work(*(Unavailable("no") for _ in range(99))), list[str]()
    with pytest.raises(Unavailable):
        run(lambda _: retried(work, EXACT, on=Unavailable, patience_s=10.0, failed=lambda _: told.append("")))
    assert work.times == [0.0, 1.0, 3.0, 7.0]
    assert len(told) == 3, "who gives up announces no other attempt"


def test_attempts_are_counted() -> None:
    work = Work(*(Unavailable("no") for _ in range(99)))
    with pytest.raises(Unavailable):
        run(lambda _: retried(work, EXACT, on=Unavailable, attempts=3))
    assert len(work.times) == 3


def test_any_other_error_is_raised_at_once() -> None:
    work = Work(Unavailable("no"), Invalid("wrong"))
    with pytest.raises(Invalid):
        run(lambda _: retried(work, EXACT, on=Unavailable))
    assert work.times == [0.0, 1.0]


def test_a_pause_that_an_error_asks_for_is_kept() -> None:
    work = Work(TooMany("busy", retry_after_s=60.0))
    run(lambda _: retried(work, EXACT, on=TooMany, asked_s=lambda _: 60.0))
    assert 60.0 <= work.times[1] <= 91.0


def test_a_cancelled_retry_ends() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100.0):
                await retried(Work(*(Unavailable("no") for _ in range(99))), EXACT, on=Exception)
        return asyncio.get_running_loop().time()

    assert run(lambda _: main()) == 100.0


def test_a_supervised_loop_starts_again_later_and_later_until_it_has_lasted() -> None:
    started: list[float] = []

    async def loop() -> None:
        started.append(asyncio.get_running_loop().time())
        if len(started) == 9:
            await asyncio.sleep(2 * SUPERVISION.longest_s)
        if len(started) == 11:
            raise NotLeading("another leads")
        raise Unavailable("no") if len(started) % 2 else ValueError("a bug")

    run(lambda _: supervise("the loop", loop))
    gaps = [later - earlier for earlier, later in pairwise(started)]
    assert gaps == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 20.2, 0.4])
