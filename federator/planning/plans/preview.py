"""What would happen if a job were submitted now: it is put among the waiting jobs, and greedy decides.

Nothing is written and no solver is asked. The answer has the same form as that of `explain`: where it would start or why it would
wait, its finish at home, and the price and finish of every offer with the policy that permits or stops it.
"""

from msgspec.structs import replace

from federator.model.plans import Explanation
from federator.model.snapshot import JobView, Problem
from federator.planning.explanations.explain import explain_waiting
from federator.planning.plans.greedy import plan_greedily
from federator.planning.scheduling.forecast import home_forecast_of

WOULD = {"placed": "would start now", "rented for": "would be rented for now", "waiting": "would wait"}


def preview(problem: Problem, job: JobView) -> Explanation:
    """Explain the job as if it had just been submitted. A waiting job of the same id is replaced, not doubled."""
    others = tuple(view for view in problem.snapshot.jobs if view.id != job.id)
    imagined = replace(problem, snapshot=replace(problem.snapshot, jobs=(*others, job)))
    found = explain_waiting(imagined, plan_greedily(imagined), job.id)
    home = home_forecast_of(imagined).get(job.id)
    return replace(
        found,
        status=WOULD.get(found.status, found.status),
        home_finish_at=home.finish_at if home else None,
    )
