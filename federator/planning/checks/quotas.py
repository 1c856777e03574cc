"""Promise 5, quotas hold: caps on GPUs, jobs and licences in use at once, and limits on borrowing."""

from collections.abc import Iterator

from federator.model.rules import CapUnit
from federator.model.snapshot import JobView
from federator.planning.checks.context import NO_CHANGES, TOLERANCE, Changes, CheckContext, Target


def check_quotas(
    context: CheckContext, job: JobView, target: Target, beside: Changes = NO_CHANGES
) -> Iterator[str]:
    """With what runs, earlier actions and these changes the job exceeds no cap on GPUs, jobs or licences that counts it there, and its queue may have so many owned GPUs."""
    for index in context.caps_on(job, target):
        cap = context.caps[index]
        uses = {
            CapUnit.GPUS: job.gpus_total,
            CapUnit.JOBS: 1.0,
            CapUnit.LICENSES: float(job.licenses.get(cap.license, 0)),
        }
        yield from over_cap(context, index, uses.get(cap.unit, 0.0), beside)
    for index in context.guarantees_on(job, target):
        yield from over_borrowing(context, index, job.gpus_total, beside)


def over_cap(context: CheckContext, index: int, more: float, beside: Changes) -> Iterator[str]:
    """What is wrong with so much more under a cap."""
    cap, use = context.caps[index], context.cap_use[index] + beside.caps.get(index, 0.0)
    if more > 0.0 and use + more > cap.limit + TOLERANCE:
        what = f"licences {cap.license}" if cap.license else cap.unit
        yield f"policy {cap.policy} caps {what} at {cap.limit:g}: {use:g} are in use, this adds {more:g}"


def over_borrowing(context: CheckContext, index: int, more: float, beside: Changes) -> Iterator[str]:
    """What is wrong with so many more owned GPUs of a guaranteed queue, which has its guarantee and what it may borrow."""
    row, use = context.guarantees[index], context.guarantee_use[index] + beside.guarantees.get(index, 0.0)
    if row.borrowing_limit is None or more <= 0.0:
        return
    if use + more > row.gpus + row.borrowing_limit + TOLERANCE:
        yield (
            f"queue {row.queue} may have {row.gpus} GPUs and borrow {row.borrowing_limit}: "
            f"it has {use:g}, this adds {more:g}"
        )
