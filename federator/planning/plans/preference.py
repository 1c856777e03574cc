"""Lists in order: a job that could start by an earlier entry does, whatever the price says.

The schedule keeps that at each job's turn. Solvers choose by price; so their plans are looked through once more, at the end.
"""

from federator.model.snapshot import JobView
from federator.planning.scheduling.objective import Evaluator, Scored
from federator.planning.world.problem import OPTION

TRIALS = 64
"""Starts tried in one decision: each costs one schedule."""


def keep_order(evaluator: Evaluator, scored: Scored) -> Scored:
    """The decision, with each start on capacity that is there by the earliest entry of its list that leaves all other starts as they are."""
    trials = 0
    for job in evaluator.world.jobs:
        place = scored.starts.get(job.id)
        if not job.ordered or place is None or job.id in scored.rents:
            continue
        for choice in _earlier(evaluator, job, place):
            if trials >= TRIALS:
                return scored
            trials += 1
            trial = evaluator.score({**scored.starts, job.id: choice})
            if trial.starts == {**scored.starts, job.id: choice}:
                scored = trial
                break
    return scored


def _earlier(evaluator: Evaluator, job: JobView, place: int) -> list[int]:
    """Choices by earlier entries, in their order."""
    world = evaluator.world
    option = world.precedence(job, place)[0] // OPTION
    open_to = (*world.home(job), *(p for p in world.leases(job) if evaluator.bursting.may_use_lease(job, p)))
    ranked = sorted((world.precedence(job, choice)[0], choice) for choice in open_to)
    return [choice for first, choice in ranked if first // OPTION < option]
