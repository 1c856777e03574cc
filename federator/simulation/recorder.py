"""Writes down what becomes of jobs and leases, from the records that the dispatcher writes: nothing is asked of the simulated side.

It listens to every change that becomes durable, and keeps a few numbers of each row that has ended, for the dispatcher forgets them after a while.
"""

import asyncio
from collections.abc import Callable

from federator.control.accounts.billing import has_moved
from federator.control.record.records import Changes, Records
from federator.model.capacity import LEASE_ENDED, Lease
from federator.model.datasets import BYTES_PER_GB
from federator.model.events import LedgerEntry
from federator.model.jobs import Job
from federator.model.placements import Placement, PlacementStatus
from federator.planning.wording.told import because_of
from federator.simulation.schedule import NO_ATTEMPT, Attempt, LeaseRow, Schedule
from federator.simulation.work import TraceJob


class Recorder:
    """The rows of a schedule, as they come about."""

    def __init__(self, records: Records, origin_at: float) -> None:
        self._records = records
        self._origin_at = origin_at
        self._jobs: dict[str, TraceJob] = {}
        self._attempts: dict[str, Attempt] = {}
        self._leases: dict[str, LeaseRow] = {}
        self._changed = asyncio.Event()
        self.reasons: dict[str, str] = {}
        """Of each job that was placed, by its name in the trace, why it went where it went last."""
        self.moved_usd = 0.0
        """What the ledger says that moving data has cost."""
        self.finished = 0
        """Jobs that have ended."""
        self._open: set[str] = set()
        self._forget: Callable[[], None] = records.subscribe(self._note)

    def submitted(self, job_id: str, job: TraceJob) -> None:
        """A job of the trace has this id from now on."""
        self._jobs[job_id] = job
        self._open.add(job_id)

    def name_of(self, job_id: str) -> str:
        """What a job is called in the trace."""
        return self._jobs[job_id].name

    async def until_idle(self) -> None:
        """Return when no job that was submitted is open, and nothing is rented."""
        while self._open or self._renting():
            self._changed.clear()
            await self._changed.wait()

    @property
    def waiting(self) -> int:
        """Jobs that have been submitted and have not ended."""
        return len(self._open)

    def schedule(self, now_at: float) -> Schedule:
        """Everything up to now: what runs still is there without an end, and what never ran with a row of its own."""
        self._forget()
        rows = dict(self._attempts)
        for placement in self._records.open_placements.values():
            if placement.job in self._jobs and placement.id not in rows:
                rows[placement.id] = self._attempt(placement)
        tried = {row.job for row in rows.values()}
        never = [
            Attempt(
                job=job.name,
                attempt=0,
                nodes=job.nodes,
                gpus=job.gpus_total,
                submit_s=job.submit_s,
                deadline_s=job.deadline_s,
                outcome=NO_ATTEMPT,
            )
            for job in self._jobs.values()
            if job.name not in tried
        ]
        leases = dict(self._leases)
        for lease in self._records.leases.values():
            leases[lease.id] = self._lease(lease)
        return Schedule(
            attempts=tuple(
                sorted([*rows.values(), *never], key=lambda row: (row.submit_s, row.job, row.attempt))
            ),
            leases=tuple(sorted(leases.values(), key=lambda row: (row.requested_s, row.lease))),
            end_s=now_at - self._origin_at,
            ledger_moved_usd=self.moved_usd,
        )

    def _renting(self) -> bool:
        return any(lease.status not in LEASE_ENDED for lease in self._records.leases.values())

    def _note(self, changes: Changes) -> None:
        for row in changes.rows.values():
            if isinstance(row, Placement) and row.ended and row.job in self._jobs:
                self._attempts[row.id] = self._attempt(row)
                self.reasons[self._jobs[row.job].name] = because_of(row, row.assigned_at)
            elif isinstance(row, Lease) and row.status in LEASE_ENDED:
                self._leases[row.id] = self._lease(row)
                self._changed.set()
            elif isinstance(row, LedgerEntry) and row.egress_gib:
                self.moved_usd += row.usd
            elif isinstance(row, Job) and row.terminal and row.id in self._open:
                self._open.discard(row.id)
                self.finished += 1
                self._changed.set()

    def _attempt(self, placement: Placement) -> Attempt:
        job = self._jobs[placement.job]
        start_s, end_s = self._since(placement.started_at), self._since(placement.ended_at)
        moves = placement.moves if has_moved(placement) else None
        held_h = 0.0 if start_s is None or end_s is None else (end_s - start_s) / 3600.0
        return Attempt(
            job=job.name,
            attempt=placement.epoch,
            site=placement.site,
            pool=placement.pool,
            market=str(placement.market),
            nodes=placement.nodes,
            gpus=int(placement.gpus),
            submit_s=job.submit_s,
            start_s=start_s,
            end_s=end_s,
            outcome=_outcome(placement),
            deadline_s=job.deadline_s,
            price_usd=held_h * placement.gpus * placement.price_usd_gpu_h,
            egress_usd=moves.usd if moves else 0.0,
            moved_gb=moves.moved_bytes / BYTES_PER_GB if moves else 0.0,
        )

    def _lease(self, lease: Lease) -> LeaseRow:
        job = self._jobs.get(lease.evidence.job) if lease.evidence else None
        return LeaseRow(
            lease=lease.id,
            site=lease.site,
            offer=lease.offer.name,
            market=str(lease.offer.market),
            gpus=lease.offer.gpus,
            requested_s=lease.requested_at - self._origin_at,
            start_s=self._since(lease.launched_at),
            end_s=self._since(lease.ended_at),
            usd_per_h=lease.offer.price_usd_h,
            minimum_billing_s=lease.offer.minimum_billing_s,
            cost_usd=lease.billed_usd,
            outcome=str(lease.status).lower() + (f": {lease.failure}" if lease.failure else ""),
            job=job.name if job else "",
        )

    def _since(self, at: float | None) -> float | None:
        return None if at is None else at - self._origin_at


def _outcome(placement: Placement) -> str:
    if placement.status in (PlacementStatus.SUCCEEDED, PlacementStatus.RUNNING):
        return str(placement.status).lower()
    return str(placement.status).lower() + (f": {placement.cause}" if placement.cause else "")
