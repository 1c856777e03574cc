"""What would happen to an array that is not submitted yet: its tasks are put among the waiting jobs, and greedy decides.

So the price and the end of the whole are those of a plan, in which tasks stand in each other's way, and not those of one task many times over.
Of a very large array, or one of which only some run at once, some tasks are planned. The rest is taken to follow in their places, which is an estimate.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from msgspec.structs import replace

from federator.model.plans import ArrayPreview, Place, Rent
from federator.model.snapshot import JobView, Problem
from federator.planning.plans.greedy import plan_greedily

MOST_TASKS = 2000
"""Tasks of an array that are planned as one."""
RENTED_LATER = "not-yet"
"""The name of the situation of a job that is to be rented for, and need not be yet."""
HALVINGS = 60
"""Of a time, until it is known to far less than a second."""
SHORTEST_S = 1.0
"""A task is taken to last so long at least."""
ROUNDED = 1e-6
"""Of a task's run: so little is missing where only the numbers are not exact."""


class _Task(NamedTuple):
    """A task as it is planned."""

    start_at: float
    end_at: float
    rented: bool


class _Rest(NamedTuple):
    """What becomes of the tasks that are not planned."""

    finish_at: float
    in_time: int
    rented: int


def preview_array(
    problem: Problem,
    task: JobView,
    tasks: int,
    *,
    owned_usd: float,
    rented_usd: float,
    at_once: int | None = None,
) -> ArrayPreview:
    """The array as if it had just been submitted. `owned_usd`, `rented_usd`: what a task costs that is not rented for, and one that is to be, later. `at_once`: so many may run at the same time."""
    count = min(tasks, at_once or tasks, MOST_TASKS)
    views = {f"{task.id}-{number:06}" for number in range(count)}
    others = tuple(view for view in problem.snapshot.jobs if view.id != task.id)
    imagined = (*others, *(replace(task, id=name) for name in sorted(views)))
    plan = plan_greedily(replace(problem, snapshot=replace(problem.snapshot, jobs=imagined)))
    known, rents_usd = list[_Task](), list[float]()
    for action in plan.actions:
        if isinstance(action, Place | Rent) and action.job in views:
            rented = isinstance(action, Rent)
            known.append(_Task(action.expected_start_at, action.expected_end_at, rented))
            rents_usd += [action.evidence.cost_usd] if isinstance(action, Rent) else []
    for waiting in plan.waiting:
        if waiting.job in views:
            rented = waiting.reason == RENTED_LATER
            rents_usd += [rented_usd] if rented else []
            if waiting.expected_finish_at is not None:
                start_at = waiting.expected_start_at or problem.snapshot.taken_at
                known.append(_Task(start_at, waiting.expected_finish_at, rented))
    by_at = task.deadline_at
    in_time = sum(by_at is not None and each.end_at <= by_at for each in known)
    finish_at = max((each.end_at for each in known), default=0.0) if len(known) == count else None
    if finish_at is not None and count < tasks:
        rest = _rest(known, tasks - count, by_at, places=at_once)
        finish_at, in_time = max(finish_at, rest.finish_at), in_time + rest.in_time
        rents_usd += [rented_usd] * rest.rented
    return ArrayPreview(
        tasks=tasks,
        planned=count,
        finish_at=finish_at,
        in_time=None if by_at is None else in_time,
        rented=len(rents_usd),
        cost_usd=round(sum(rents_usd) + (tasks - len(rents_usd)) * owned_usd, 4),
    )


def _rest(known: Sequence[_Task], rest: int, by_at: float | None, *, places: int | None) -> _Rest:
    """The tasks that are not planned, one after the other in the places of those that are; with no limit on their `places` they need not wait for what is rented.

    Where all that are planned are in time, and some of them because something is rented for them, it is for what would be late, too.
    """
    owned = [each for each in known if not each.rented]
    rows = _rows(known if places is not None else owned or known)
    in_time = 0 if by_at is None else min(rest, _done(rows, by_at))
    all_in_time = by_at is not None and all(each.end_at <= by_at for each in known)
    if by_at is not None and all_in_time and places is None and len(owned) < len(known):
        return _Rest(by_at, in_time=rest, rented=rest - in_time if owned else rest)
    rented = sum(each.rented for each in rows) / len(rows)
    return _Rest(_when_done(rows, rest), in_time, round(rented * rest))


def _rows(known: Sequence[_Task]) -> list[_Task]:
    """The last task in each of their places: of as many as run at the same time at most, those that end last."""
    changes = sorted([(each.start_at, 1) for each in known] + [(each.end_at, -1) for each in known])
    most = max(accumulate(change for _, change in changes))
    return sorted(known, key=lambda each: each.end_at)[len(known) - most :]


def _done(rows: Sequence[_Task], by_at: float) -> int:
    """How many more are done by then."""
    lasts_s = [max(SHORTEST_S, each.end_at - each.start_at) for each in rows]
    return sum(
        max(0, int((by_at - each.end_at) / s + ROUNDED)) for each, s in zip(rows, lasts_s, strict=True)
    )


def _when_done(rows: Sequence[_Task], rest: int) -> float:
    """When so many more are done."""
    first = min(rows, key=lambda each: each.end_at)
    early_at, late_at = first.end_at, first.end_at + rest * max(SHORTEST_S, first.end_at - first.start_at)
    for _ in range(HALVINGS):
        middle_at = (early_at + late_at) / 2
        if _done(rows, middle_at) >= rest:
            late_at = middle_at
        else:
            early_at = middle_at
    return late_at
