"""Traces of jobs for OpenTelemetry, made from their records as these change: nothing is measured twice, and a turn does nothing for it.

A job's trace is its life: `submit`, then for each attempt `wait`, `turn` and `attempt` with `prepare` and `run` in it, and at the end `job` round all of them. What the
site did is told with the site's own times, so agents need no way to a collector. Each span is handed on once it is over.
"""

from federator.control.record.records import Changes, Records
from federator.kernel.clock import Clock
from federator.kernel.ids import made_at
from federator.model.jobs import Job, JobStatus
from federator.model.placements import Placement, PlacementStatus
from federator.model.spans import ROOT, RUN, Attribute, Span, sampled
from federator.planning.wording.told import because_of
from federator.ports import SpanTarget

ATTEMPT = "attempt"
Attributes = dict[str, Attribute]
FAULTY = frozenset({PlacementStatus.FAILED, PlacementStatus.LOST, PlacementStatus.REFUSED})


class JobTraces:
    """Hears of every change of a row, and tells a target of what is over."""

    def __init__(self, records: Records, clock: Clock, target: SpanTarget, *, share: float = 1.0) -> None:
        """`share` of all jobs are traced, 0 to 1."""
        self._clock = clock
        self._target = target
        self._share = share
        self._waits_since = {
            job.id: job.submitted_at
            for job in records.open_jobs.values()
            if job.placement is None and self._traced(job.id)
        }
        self._open_jobs = {job for job in records.open_jobs if self._traced(job)}
        self._open_placements = {
            each.id
            for each in records.open_placements.values()
            if not each.ended and each.job in self._open_jobs
        }

    def _traced(self, job: str) -> bool:
        return sampled(job, self._share)

    def note(self, changes: Changes) -> None:
        """Rows have changed. An attempt is told of before the job that ends with it."""
        for row in changes.rows.values():
            if isinstance(row, Placement) and self._traced(row.job):
                self._note_placement(row)
        for row in changes.rows.values():
            if isinstance(row, Job) and self._traced(row.id):
                self._note_job(row)

    def _note_job(self, job: Job) -> None:
        if job.id not in self._open_jobs:
            if job.terminal or job.epoch:
                return
            self._open_jobs.add(job.id)
            self._waits_since[job.id] = job.submitted_at
            self._tell(job.id, "submit", job.submitted_at, self._clock.now(), parent=ROOT)
        if not job.terminal:
            return
        self._open_jobs.discard(job.id)
        self._waits_since.pop(job.id, None)
        end_at = self._clock.now() if job.finished_at is None else job.finished_at
        failed = because_of(job, end_at) if job.status == JobStatus.FAILED else ""
        self._tell(job.id, ROOT, job.submitted_at, end_at, error=failed, attributes=_of_job(job))

    def _note_placement(self, placement: Placement) -> None:
        if placement.id not in self._open_placements:
            if placement.ended or placement.job not in self._open_jobs:
                return
            self._open_placements.add(placement.id)
            self._tell_start(placement)
        if not placement.ended:
            return
        self._open_placements.discard(placement.id)
        self._tell_attempt(placement)

    def _tell_start(self, placement: Placement) -> None:
        """What came before a placement: its job waited, and a turn found the place."""
        job, of, now = placement.job, placement.id, self._clock.now()
        decided_at = _decided_at(placement, now)
        since_at = self._waits_since.pop(job, decided_at)
        self._tell(job, "wait", since_at, decided_at, of=of, parent=ROOT)
        decided: Attributes = {"decision": placement.decision, "stage": placement.winner}
        self._tell(job, "turn", decided_at, now, of=of, parent=ROOT, attributes=decided)

    def _tell_attempt(self, placement: Placement) -> None:
        """An attempt is over."""
        job, of, began_at, started_at = (
            placement.job,
            placement.id,
            placement.assigned_at,
            placement.started_at,
        )
        end_at = self._clock.now() if placement.ended_at is None else placement.ended_at
        if job in self._open_jobs:
            self._waits_since[job] = end_at
        failed = _fault_of(placement)
        if started_at is None:
            self._tell(job, "prepare", began_at, end_at, of=of, parent=ATTEMPT, error=failed)
        else:
            self._tell(job, "prepare", began_at, started_at, of=of, parent=ATTEMPT)
            code = placement.exit_code
            ran: Attributes = {} if code is None else {"exit_code": code}
            self._tell(job, RUN, started_at, end_at, of=of, parent=ATTEMPT, error=failed, attributes=ran)
        told = _of_placement(placement)
        self._tell(job, ATTEMPT, began_at, end_at, of=of, parent=ROOT, error=failed, attributes=told)

    def _tell(  # noqa: PLR0913 - what a span has
        self,
        job: str,
        name: str,
        start_at: float,
        end_at: float,
        *,
        of: str = "",
        parent: str = "",
        error: str = "",
        attributes: Attributes | None = None,
    ) -> None:
        self._target.export(
            Span(
                job=job,
                name=name,
                of=of,
                parent=parent,
                # The clocks of two machines may differ: no span ends before it begins.
                start_at=min(start_at, end_at),
                end_at=end_at,
                error=error,
                attributes=attributes or {},
            )
        )


def _fault_of(placement: Placement) -> str:
    """Why an attempt failed; empty: it did not."""
    if placement.status not in FAULTY:
        return ""
    return placement.detail or str(placement.cause or placement.status)


def _decided_at(placement: Placement, now: float) -> float:
    """When the turn began that found its place: its decision's id says so. What a site reported by itself has no decision."""
    try:
        return min(made_at(placement.decision), now)
    except ValueError:
        return now


def _of_job(job: Job) -> Attributes:
    return {
        "name": job.label,
        "status": str(job.status),
        "queue": job.queue,
        "owner": job.owner,
        "team": job.team,
        "attempts": job.epoch,
        "gpu_seconds": job.gpu_s,
        "spent_usd": job.spent_usd,
    }


def _of_placement(placement: Placement) -> Attributes:
    return {
        "placement": placement.id,
        "number": placement.epoch,
        "site": placement.site,
        "pool": placement.pool,
        "market": str(placement.market),
        "gpus": placement.gpus,
        "gpu_model": placement.model,
        "nodes": placement.nodes,
        "status": str(placement.status),
        "cause": str(placement.cause or ""),
    }
