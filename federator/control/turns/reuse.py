"""Machines that are warm, for a gang that needs several: what is there already need not be rented.

To a plan each rented machine is a place of its own, so a gang that no single one holds is always rented for. When that is written down,
machines of the same offer that idle take the place of as many new ones: they boot no more, and cost no more than what the plan has counted.
"""

from collections.abc import Iterator

from federator.control.accounts.billing import placements_on
from federator.control.record.records import Changes, Records, row_key
from federator.model.capacity import Lease, LeaseStatus, Offer
from federator.model.jobs import Job
from federator.model.plans import Place, Plan, Rent
from federator.model.snapshot import PoolView, Snapshot

CENT_USD = 0.005


def warm_machines(
    records: Records, changes: Changes, plan: Plan, action: Rent, job: Job, snapshot: Snapshot
) -> list[Lease]:
    """At most as many as are to be rented, those that have idled for the shortest time first: the others are nearer to being given back."""
    if action.machines < 2:
        return []  # one machine is a place that the plan has weighed by itself
    spoken_for = {other.lease for other in plan.actions if isinstance(other, Place)}
    offer = offer_of(snapshot, action)
    empty = {pool.lease for pool in snapshot.pools if _is_empty(pool)}
    found = [
        lease
        for lease in _idle(records)
        if offer is not None
        and _suits(lease, offer, action, job)
        and lease.id in empty - spoken_for
        and row_key(lease) not in changes.rows
    ]
    found.sort(key=lambda lease: (-(lease.idle_since_at or 0.0), lease.id))
    return found[: action.machines]


def offer_of(snapshot: Snapshot, action: Rent) -> Offer | None:
    """What is to be rented, as it is offered now."""
    return next((view.offer for view in snapshot.offers if _is_of(view.offer, action)), None)


def _idle(records: Records) -> Iterator[Lease]:
    for lease in records.leases.values():
        if (
            lease.status is LeaseStatus.READY
            and lease.reclaim_at is None
            and not placements_on(records, lease)
        ):
            yield lease


def _suits(lease: Lease, offer: Offer, action: Rent, job: Job) -> bool:
    """Of the same make, for no more money, and counted by the same caps."""
    return (
        _is_of(lease.offer, action)
        and lease.site == action.site
        and lease.queue == job.queue
        and lease.policy == action.evidence.policy
        and max(lease.offer.price_usd_h, lease.pace_usd_h) <= offer.price_usd_h + CENT_USD
    )


def _is_of(offer: Offer, action: Rent) -> bool:
    return (offer.provider, offer.name) == (action.provider, action.offer)


def _is_empty(pool: PoolView) -> bool:
    """Whether it is open and all of it is free."""
    free = sum(shape.gpus * shape.count for shape in pool.free)
    return pool.open and pool.lease is not None and not pool.busy and free == pool.nodes * pool.gpus_per_node
