"""Promise 5, quotas hold: caps on GPUs and jobs in use at once, and limits on borrowing."""

from collections.abc import Iterator

from federator.model.rules import CapUnit
from federator.model.snapshot import JobView
from federator.planning.checks.ground import TOLERANCE, Fault, Ground, Target


def check_in_use(ground: Ground, job: JobView, target: Target) -> Iterator[Fault]:
    """No cap on GPUs or jobs that counts this job there is exceeded by what runs, earlier actions and this one."""
    for index in ground.caps_on(job, target):
        cap = ground.caps[index]
        if cap.unit not in (CapUnit.GPUS, CapUnit.JOBS):
            continue
        more = job.gpus_total if cap.unit is CapUnit.GPUS else 1
        if more and ground.cap_use[index] + more > cap.limit + TOLERANCE:
            yield Fault(
                5,
                f"policy {cap.policy} caps {cap.unit} at {cap.limit:g}: {ground.cap_use[index]:g} are in use, this adds {more:g}",
            )


def check_borrowing(ground: Ground, job: JobView, target: Target) -> Iterator[Fault]:
    """No queue has more owned GPUs than its guarantee and what it may borrow."""
    for index in ground.guarantees_on(job, target):
        row = ground.guarantees[index]
        if row.borrowing_limit is None or not job.gpus_total:
            continue
        most = row.gpus + row.borrowing_limit
        if ground.guarantee_use[index] + job.gpus_total > most + TOLERANCE:
            yield Fault(
                5,
                f"queue {row.queue} may have {row.gpus} GPUs and borrow {row.borrowing_limit}: "
                f"it has {ground.guarantee_use[index]:g}, this adds {job.gpus_total:g}",
            )
