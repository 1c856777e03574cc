"""What capacity costs. Rent is written down as the provider says it: on the lease, on a job, and in the ledger; use of GPUs and data that is moved once per attempt.

The three of rent are one transaction, so that the sum of the ledger, of the jobs and of the leases is always the same.
"""

import msgspec

from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.kernel.quantities import format_bytes
from federator.model.capacity import Lease, Market
from federator.model.events import LedgerEntry, LedgerKind
from federator.model.jobs import Job, in_gpus
from federator.model.placements import PLACEMENT_BEGUN, Placement, PlacementStatus, Used


async def bill(records: Records, event_writer: EventWriter, lease_id: str, billed_usd: float) -> None:
    """Book the growth of a lease's bill to the job that the machine runs, or ran last, or was rented for."""

    def compute() -> Changes:
        changes = Changes()
        lease = records.leases[lease_id]
        delta_usd = billed_usd - lease.billed_usd
        if delta_usd <= 0:
            return changes
        job = _charged(records, lease)
        payer, now = job.id if job else "", event_writer.clock.now()
        since_at, pace = lease.billed_until_at, lease.pace_usd_h
        if since_at is not None and now > since_at:
            pace = delta_usd / (now - since_at) * 3600
        changes.put(
            msgspec.structs.replace(
                lease, billed_usd=billed_usd, billed_until_at=now, payer=payer, pace_usd_h=pace
            )
        )
        if job is not None:
            changes.put(msgspec.structs.replace(job, spent_usd=job.spent_usd + delta_usd))
        changes.put(
            event_writer.ledger(
                LedgerKind.MONEY,
                "dispatcher",
                f"rent of {lease.offer.name}",
                job=job.id if job else "",
                queue=lease.queue,
                owner=job.owner if job else "",
                team=job.team if job else "",
                site=lease.site,
                lease=lease.id,
                market=lease.offer.market,
                model=lease.offer.model,
                usd=delta_usd,
            )
        )
        return changes

    await records.transact(compute)


def book_use(changes: Changes, event_writer: EventWriter, placement: Placement, job: Job) -> Job:
    """GPU time by site, market and model, and energy, written once per attempt, when it is proven over."""
    if placement.started_at is None or placement.ended_at is None:
        return job
    gpu_s = max(0.0, placement.ended_at - placement.started_at) * placement.gpus
    owned_usd = gpu_s / 3600 * placement.price_usd_gpu_h if placement.market is Market.OWNED else 0.0
    text = f"{placement.nodes} × {in_gpus(placement.gpus_per_node, shared=placement.shared)} GPUs, {placement.status}"
    used = placement.used or Used()
    amounts = {
        "gpu_s": gpu_s,
        "usd": owned_usd,
        "energy_kwh": used.energy_kwh,
        "power_usd": used.power_usd,
        "co2_kg": used.co2_kg,
    }
    changes.put(_entry(event_writer, LedgerKind.USAGE, text, placement, job, **amounts))
    return msgspec.structs.replace(job, gpu_s=job.gpu_s + gpu_s, energy_kwh=job.energy_kwh + used.energy_kwh)


def _entry(
    event_writer: EventWriter, kind: LedgerKind, text: str, placement: Placement, job: Job, **amounts: float
) -> LedgerEntry:
    """What an attempt comes to, charged where it really ran, to its job, queue and owner."""
    return event_writer.ledger(
        kind,
        "dispatcher",
        text,
        job=job.id,
        queue=job.queue,
        owner=job.owner,
        team=job.team,
        site=placement.site,
        lease=placement.lease or "",
        market=placement.market,
        model=placement.model,
        **amounts,
    )


def has_moved(placement: Placement) -> bool:
    """Whether its data was brought: it has run, or has failed in its own preparation. A site that refuses, even late, has brought nothing."""
    begun = placement.status in PLACEMENT_BEGUN and placement.status is not PlacementStatus.STARTING
    return begun or placement.started_at is not None


def book_moves(
    changes: Changes, event_writer: EventWriter, before: Placement, placement: Placement, job: Job
) -> Job:
    """Data that its site has brought: once per attempt, as soon as that is known. The job pays for it."""
    moves = placement.moves
    if moves is None or has_moved(before) or not has_moved(placement):
        return job
    text, gib = f"{format_bytes(moves.moved_bytes)} of data from {moves.source}", moves.moved_bytes / 2**30
    changes.put(_entry(event_writer, LedgerKind.MONEY, text, placement, job, usd=moves.usd, egress_gib=gib))
    return msgspec.structs.replace(job, spent_usd=job.spent_usd + moves.usd)


def placements_on(records: Records, lease: Lease) -> list[Placement]:
    """The placements of a lease that have not ended; of a gang over several machines, not once its part on this one has."""
    return [p for p in records.open_placements.values() if p.uses(lease.id) and not _over_on(p, lease)]


def _over_on(placement: Placement, lease: Lease) -> bool:
    part = placement.part(lease.member)
    return placement.ended or (part is not None and part.ended)


def _charged(records: Records, lease: Lease) -> Job | None:
    """Who pays: of several jobs there, the one that has paid so far."""
    running = [placement.job for placement in placements_on(records, lease)]
    if lease.payer in records.jobs and (lease.payer in running or not running):
        return records.jobs[lease.payer]
    return records.jobs.get(running[0] if running else lease.evidence.job if lease.evidence else "")
