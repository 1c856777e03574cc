"""What jobs are told of their starts and ends is looked at, and counted against what came."""

import pytest

from federator.simulation.running import simulate
from federator.simulation.schedule import Attempt, Schedule
from tests.lab.looks import FINISH, START, Look, Looking, judged
from tests.lab.schedulers import scheduler
from tests.unit.simulation.tiny import HOUR_S, job, world


def attempt(name: str, start_s: float | None, end_s: float | None, outcome: str = "succeeded") -> Attempt:
    return Attempt(
        job=name, attempt=1, nodes=1, gpus=1, submit_s=0.0, start_s=start_s, end_s=end_s, outcome=outcome
    )


def test_looks_are_counted_by_where_what_came_was() -> None:
    schedule = Schedule(
        attempts=(
            attempt("a", 100.0, 200.0),
            attempt("b", 1000.0, 5000.0),
            attempt("c", None, None, "waiting"),
        ),
        leases=(),
        end_s=9000.0,
    )
    looks = [
        Look("a", START, True, 0.0, 150.0, 300.0, 600.0),
        Look("b", START, True, 0.0, 150.0, 300.0, 1000.0),
        Look("c", START, True, 0.0, 150.0, 900.0, 1000.0),
        Look("b", FINISH, False, 1000.0, 4000.0, 6000.0, 9000.0),
    ]
    found = {(each.what, each.ahead): each for each in judged(looks, schedule)}
    near = found["start of what waits", "up to 10m"]
    assert (near.looks, near.before_share, near.between_share, near.after_share) == (2, 0.5, 0.5, 0.0)
    assert found["start of what waits", "10m to 1h"].after_share == 1.0, "it never came"
    assert found["start of what waits", "all"].looks == 3
    assert found["end of what runs", "1h to 4h"].between_share == 1.0
    assert found["end of what runs", "1h to 4h"].width == 1.0


def test_a_start_before_the_look_is_not_the_one_that_was_meant() -> None:
    schedule = Schedule(
        attempts=(attempt("a", 10.0, 20.0, "lost"), attempt("a", 500.0, 900.0)), leases=(), end_s=900.0
    )
    (near, _) = judged([Look("a", START, True, 100.0, 400.0, 500.0, 600.0)], schedule)
    assert near.between_share == 1.0


def test_in_a_simulation_jobs_are_looked_at_as_lists_show_them_and_nothing_becomes_of_it() -> None:
    jobs = [job(f"job{n}", 0.0, HOUR_S, gpus=4) for n in range(3)]
    looking = Looking(600.0)
    looked = simulate(world(), jobs, scheduler("ours"), beside=looking.beside)
    plain = simulate(world(), jobs, scheduler("ours"))
    assert looked.schedule == plain.schedule
    of = {(look.job, look.what) for look in looking.looks}
    assert {("job0", FINISH), ("job1", START), ("job2", START), ("job2", FINISH)} <= of
    assert all(look.low_s <= look.middle_s <= look.high_s for look in looking.looks)
    (first,) = (each for each in looking.looks if each[:2] == ("job2", START) and each.at_s == 600.0)
    assert first.middle_s == pytest.approx(2 * 1.35 * HOUR_S, rel=0.5)
