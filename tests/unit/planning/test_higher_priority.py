"""What a higher priority is said to do for a job that waits: the lowest that helps, when it would start, and who starts later."""

import pytest

from federator.model.capacity import Shape
from federator.model.changes import AskFor, Delay, Remedy
from federator.model.snapshot import JobView, Problem
from federator.planning.explanations.changes import apply
from federator.planning.explanations.explain import explain_waiting
from federator.planning.explanations.higher_priority import MOST_JOBS, PriorityTrials, with_advice
from federator.planning.plans.greedy import plan_greedily
from federator.planning.scheduling.forecast import home_forecast_of
from tests.support.worlds import HOUR, NOW, a_job, a_pool, a_world, busy

HOST = a_pool(
    nodes=1,
    gpus_per_node=1,
    busy=(busy("p", "hog", gpus=1, cpus_milli=1000, memory_mib=1024, ends_at=NOW + HOUR),),
    free=(Shape(0, 63_000, 261_120),),
)
"""One GPU, free in an hour."""


def waiting(*jobs: JobView) -> Problem:
    return a_world(jobs, [HOST])


TWO = waiting(a_job("eval", submitted_at=NOW - 900, run_s=600.0), a_job("mine", submitted_at=NOW))


def asked(found: Remedy) -> int:
    """The priority that advice is about."""
    (change,) = found.changes
    assert isinstance(change, AskFor)
    assert isinstance(change.value, int)
    return change.value


def test_the_lowest_priority_that_helps_is_found_with_who_starts_later() -> None:
    found = PriorityTrials(TWO).lowest(("mine",), 100)
    assert found is not None
    (change,) = found.changes
    assert isinstance(change, AskFor)
    assert (change.job, change.field) == ("mine", "priority")
    assert found.start_at == NOW + HOUR
    assert found.delays == (Delay("eval", HOUR),)
    assert found.text == f"priority {change.value}: it would start at 23:13 UTC, and eval (eval) 1h later"
    assert not found.certain
    for priority, helps in ((change.value, True), (int(str(change.value)) - 1, False)):
        then = home_forecast_of(apply(TWO, [AskFor("mine", "priority", priority)]))
        assert (then["mine"].start_at < home_forecast_of(TWO)["mine"].start_at) is helps, priority


def test_of_many_who_start_later_the_first_are_named_and_the_rest_counted() -> None:
    others = [a_job(f"job-{number}", submitted_at=NOW - 900 - number) for number in range(6)]
    found = PriorityTrials(waiting(*others, a_job("mine"))).lowest(("mine",), 100)
    assert found is not None
    assert found.text.endswith("job-2 (job-2) 1h later and 3 more jobs later"), found.text
    assert len(found.delays) == 3


def test_of_tasks_of_an_array_it_is_asked_when_all_have_started() -> None:
    host = a_pool(nodes=1, gpus_per_node=1, cpus_milli_per_node=8000)
    tasks = [a_job(f"mine-{number}", submitted_at=NOW, run_s=HOUR) for number in range(2)]
    problem = a_world([a_job("eval", submitted_at=NOW - 900, run_s=2 * HOUR), *tasks], [host])
    found = PriorityTrials(problem).lowest(("mine-0", "mine-1"), 100)
    assert found is not None
    assert found.text.startswith(f"priority {asked(found)}: the last of its next 2 tasks would start at ")
    assert found.delays == (Delay("eval", 2 * HOUR),), "none of the array's own tasks is among them"
    now = home_forecast_of(problem)["mine-1"].start_at
    assert found.start_at == now - 2 * HOUR


def test_where_nobody_is_before_it_no_priority_is_advised() -> None:
    assert PriorityTrials(waiting(a_job("mine"))).lowest(("mine",), 100) is None


def test_no_priority_above_what_may_be_asked_for_is_advised() -> None:
    trials = PriorityTrials(TWO)
    found = trials.lowest(("mine",), 100)
    assert found is not None
    least = asked(found)
    assert trials.lowest(("mine",), least) == found
    assert trials.lowest(("mine",), least - 1) is None
    assert trials.lowest(("mine",), 50) is None, "it has that already"


def test_where_very_many_wait_none_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("federator.planning.explanations.higher_priority.MOST_JOBS", 1)
    assert MOST_JOBS > 1
    assert PriorityTrials(TWO).lowest(("mine",), 100) is None


def test_a_few_forecasts_find_it_and_asking_again_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(problem: Problem) -> object:
        made.append(problem)
        return home_forecast_of(problem)

    monkeypatch.setattr("federator.planning.explanations.higher_priority.home_forecast_of", counted)
    trials = PriorityTrials(TWO)
    assert trials.lowest(("mine",), 100) == trials.lowest(("mine",), 100)
    assert len(made) <= 8


def test_it_is_the_last_advice_and_numbered_like_the_others() -> None:
    more = PriorityTrials(TWO).lowest(("mine",), 100)
    assert more is not None
    told = explain_waiting(TWO, plan_greedily(TWO), "mine")
    found = with_advice(told, more)
    assert found.remedies == (*told.remedies, more)
    assert len(found.changes) == len(found.remedies)
    assert found.changes[-1] == f"{more.text} (an estimate)"
