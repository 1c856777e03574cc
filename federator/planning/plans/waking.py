"""When to plan again although nothing happens."""

from federator.model.snapshot import JobView
from federator.planning.plans.reclaim import claims_at
from federator.planning.plans.resizing import next_changes_at
from federator.planning.rules.openings import changes_at
from federator.planning.scheduling.objective import Scored
from federator.planning.world.problem import World


def wake_at(world: World, scored: Scored) -> float | None:
    """The earliest moment at which time alone changes the answer."""
    times = [case.rent_at for case in scored.later.values()]
    waiting = [job for job in world.jobs if job.id not in scored.starts]
    times += [job.not_before_at for job in waiting if job.not_before_at is not None]
    times += [until_at for job in waiting for _, until_at in job.refused]
    times += [
        view.avoid_until_at for view in world.snapshot.offers if waiting and view.avoid_until_at is not None
    ]
    if any(permit.after_wait_s is not None for permit in world.book.permits):
        times += [_threshold_at(world, job) for job in waiting]
    if waiting:
        times += [at for rule in world.book.openings if (at := changes_at(rule, world.now)) is not None]
    times += claims_at(world, scored)
    times += next_changes_at(world.snapshot)
    return min((at for at in times if at > world.now), default=None)


def _threshold_at(world: World, job: JobView) -> float:
    """When the job will have waited long enough for a threshold policy; 0 when none applies."""
    permits = (p for place in world.offers(job) for p in world.book.permits_for(job, world.places[place]))
    at = [job.submitted_at + p.after_wait_s for p in permits if p.after_wait_s is not None]
    return min((moment_at for moment_at in at if moment_at > world.now), default=0.0)
