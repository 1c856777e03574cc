"""What would happen to an array that is not submitted yet: its tasks are put among the waiting jobs, and greedy decides.

So the price and the end of the whole are those of a plan, in which tasks stand in each other's way, and not those of one task many times over.
"""

from msgspec.structs import replace

from federator.model.plans import ArrayPreview, Place, Rent
from federator.model.snapshot import JobView, Problem
from federator.planning.plans.greedy import plan_greedily

MOST_TASKS = 2000
"""Tasks of an array that are planned as one."""
RENTED_LATER = "not-yet"
"""The name of the situation of a job that is to be rented for, and need not be yet."""


def preview_array(
    problem: Problem, task: JobView, tasks: int, *, owned_usd: float, rented_usd: float
) -> ArrayPreview:
    """The array as if it had just been submitted. `owned_usd`, `rented_usd`: what a task costs that is not rented for, and one that is to be, later."""
    views = {f"{task.id}-{number:06}" for number in range(tasks)}
    others = tuple(view for view in problem.snapshot.jobs if view.id != task.id)
    imagined = (*others, *(replace(task, id=name) for name in sorted(views)))
    plan = plan_greedily(replace(problem, snapshot=replace(problem.snapshot, jobs=imagined)))
    ends, rents_usd = dict[str, float | None](), list[float]()
    for action in plan.actions:
        if isinstance(action, Place | Rent) and action.job in views:
            ends[action.job] = action.expected_end_at
            rents_usd += [action.evidence.cost_usd] if isinstance(action, Rent) else []
    for waiting in plan.waiting:
        if waiting.job in views:
            ends[waiting.job] = waiting.expected_finish_at
            rents_usd += [rented_usd] if waiting.reason == RENTED_LATER else []
    known = [end_at for end_at in ends.values() if end_at is not None]
    by_at = task.deadline_at
    return ArrayPreview(
        tasks=tasks,
        finish_at=max(known) if len(known) == tasks else None,
        in_time=None if by_at is None else sum(end_at <= by_at for end_at in known),
        rented=len(rents_usd),
        cost_usd=round(sum(rents_usd) + (tasks - len(rents_usd)) * owned_usd, 4),
    )
