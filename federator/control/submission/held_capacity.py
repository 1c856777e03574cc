"""What may not be changed of a job that holds capacity: caps were asked when it started, and nobody asks them again while it runs."""

from federator.control.accounts.money import outstanding_usd
from federator.control.accounts.selection import taken_by
from federator.control.record.records import Records
from federator.kernel.errors import Conflict, Invalid
from federator.model.jobs import Job, tidy
from federator.model.placements import Placement
from federator.model.rules import CapRow, CapUnit, in_scope, selects

COUNTED = (CapUnit.GPUS, CapUnit.JOBS)


def check_held(records: Records, placement: Placement, old: Job, new: Job) -> None:
    """Raise what is wrong with turning `old` into `new` while this placement runs."""
    if placement.lease is not None:
        _check_limit(records, placement, new)
        if new.max_cost_usd != old.max_cost_usd:
            _check_cost(records, placement, new)
    if new.queue != old.queue:
        _check_room(records, placement, old, new)


def _check_limit(records: Records, placement: Placement, new: Job) -> None:
    """On a rented machine a job runs no longer than budgets were asked for."""
    limit_s = records.spec(placement.spec_hash).limit_s(new.max_duration_s, placement.form)
    paid_s = placement.max_duration_s
    if limit_s is None or (paid_s is not None and limit_s > paid_s):
        raise Invalid(
            "it runs on a rented machine, whose cost is committed for the limit that it started with",
            field="$.max_duration",
            remedy="requeue it first, or let it end and submit it again with a longer limit",
        )


def _check_cost(records: Records, placement: Placement, new: Job) -> None:
    """What is spent and committed for it cannot be taken back while it runs."""
    leases = (records.leases.get(name) for name in placement.leases or (placement.lease or "",))
    bound_usd = new.spent_usd + sum(outstanding_usd(lease) for lease in leases if lease is not None)
    if new.max_cost_usd is not None and new.max_cost_usd < bound_usd:
        raise Invalid(
            f"it runs on a rented machine and may cost up to {bound_usd:.2f} USD already",
            field="$.max_cost",
            remedy="requeue or cancel it first, or give at least that",
        )


def _check_room(records: Records, placement: Placement, old: Job, new: Job) -> None:
    """It enters a queue only within that queue's limits, as if it started there now."""
    for row in records.policies.rules:
        if (
            not isinstance(row, CapRow)
            or row.unit not in COUNTED
            or not _counts(records, row, placement, new)
        ):
            continue
        if _counts(records, row, placement, old):
            continue
        use = [
            other.gpus if row.unit is CapUnit.GPUS else 1
            for other in records.open_placements.values()
            if not other.ended and _counts(records, row, other, records.jobs[other.job])
        ]
        adds = placement.gpus if row.unit is CapUnit.GPUS else 1
        if adds and tidy(sum(use) + adds) > row.limit:
            raise Conflict(
                f"limit of {row.limit:g} {row.unit} of policy {row.policy}: {tidy(sum(use))} in use, this adds {adds}",
                field="$.queue",
                remedy="requeue it first, so that it waits for room there",
            )


def _counts(records: Records, row: CapRow, placement: Placement, job: Job) -> bool:
    """Whether the cap counts this placement, were it the job's."""
    labels = records.spec(job.spec_hash).labels
    is_job = in_scope(row.scope, queue=job.queue, owner=job.owner, labels=labels)
    return is_job and selects(row.pools, taken_by(records, placement))
