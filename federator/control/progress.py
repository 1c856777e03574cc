"""Progress: what sites say of placements becomes the jobs' story.

An agent repeats every status until it is acknowledged, so everything here is idempotent: a report that says nothing new changes
nothing. What an agent says of a placement is believed; what it means for the job is decided here, by cause. A pair that the lifecycle tables do
not list is an anomaly from outside: it is counted and logged, and nothing changes.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from federator.control.billing import book_use
from federator.control.history import History
from federator.control.records import Changes, Records
from federator.control.scribe import Scribe
from federator.model.events import Event
from federator.model.jobs import Job, JobStatus, Outcome, TerminalReason
from federator.model.lifecycle import allows
from federator.model.placements import Cause, Order, Placement, PlacementReport, PlacementStatus

log = logging.getLogger(__name__)

EVENTS = {
    PlacementStatus.ACCEPTED: "accept",
    PlacementStatus.STARTING: "start",
    PlacementStatus.RUNNING: "run",
    PlacementStatus.SUCCEEDED: "succeed",
    PlacementStatus.FAILED: "fail",
    PlacementStatus.STOPPED: "stop",
    PlacementStatus.LOST: "lose",
    PlacementStatus.REFUSED: "refuse",
}
REASONS = {
    Cause.EXIT: TerminalReason.EXIT_CODE,
    Cause.SETUP: TerminalReason.SETUP_FAILED,
    Cause.STAGING: TerminalReason.STAGING_FAILED,
    Cause.IMAGE_PULL: TerminalReason.IMAGE_PULL_FAILED,
    Cause.MAX_DURATION: TerminalReason.MAX_DURATION,
    Cause.OUT_OF_MEMORY: TerminalReason.OUT_OF_MEMORY,
}
NEVER_AGAIN = frozenset({Cause.MAX_DURATION})
"""Endings that would only repeat themselves: `retry` does not apply."""
NOT_THE_NODE = frozenset({Cause.INTERRUPTED, Cause.CUT_OFF})
"""Losses that no job is suspected for."""
SUSPECT_LOSSES = 3
REFUSED_BACKOFF_S = 5.0
MAX_DETAIL = 1000
"""Characters that are kept of what an agent says of a placement."""


class _Told(NamedTuple):
    """A report with the rows it is about."""

    report: PlacementReport
    placement: Placement
    job: Job


class Progress:
    """Applies agents' statuses to records."""

    def __init__(self, records: Records, scribe: Scribe, history: History) -> None:
        self._records = records
        self._scribe = scribe
        self._history = history
        self.anomalies = 0
        self._stories = {
            PlacementStatus.ACCEPTED: self._accepted,
            PlacementStatus.STARTING: self._starting,
            PlacementStatus.RUNNING: self._running,
            PlacementStatus.FAILED: self._failed,
            PlacementStatus.STOPPED: self._stopped,
            PlacementStatus.LOST: self._lost,
            PlacementStatus.REFUSED: self._refused,
        }

    async def absorb(self, member: str, reports: tuple[PlacementReport, ...]) -> int:
        """Make these statuses durable; returns the highest number that may be acknowledged."""
        by_job: dict[str, list[PlacementReport]] = {}
        for report in reports:
            placement = self._records.placements.get(report.placement)
            by_job.setdefault(placement.job if placement else "", []).append(report)
        await asyncio.gather(*(self._absorb(member, group) for group in by_job.values()))
        return max((report.seq for report in reports), default=0)

    async def _absorb(self, member: str, reports: Sequence[PlacementReport]) -> None:
        """One job's statuses, in order."""
        for report in reports:
            changes = await self._records.transact(partial(self._changes, member, report))
            for row in changes.rows.values():
                if isinstance(row, Job):
                    self._history.learn(row)

    async def rebooted(self, member: str) -> None:
        """The member's host has booted anew. Its agent knows what ran before from its spool and reports each as LOST itself."""
        log.info("member %s has a new boot id", member)

    async def lose(
        self, placement_id: str, proof: str, *, acknowledged: bool, cause: Cause = Cause.NODE_LOST
    ) -> None:
        """A placement is proven over without a result. `acknowledged`: its member can never come back with it."""

        def compute() -> Changes:
            changes = Changes()
            placement = self._records.placements.get(placement_id)
            if placement is None or not allows(placement.status, "lose"):
                return changes
            job = self._records.jobs[placement.job]
            report = PlacementReport(
                placement=placement_id,
                epoch=placement.epoch,
                seq=0,
                status=PlacementStatus.LOST,
                at=self._scribe.clock.now(),
                cause=cause,
                detail=proof,
            )
            self._apply(
                changes, _Told(report, placement, job), order=Order.STOP, stop_acknowledged=acknowledged
            )
            return changes

        await self._records.transact(compute)

    def _changes(self, member: str, report: PlacementReport) -> Changes:
        changes = Changes()
        placement = self._records.placements.get(report.placement)
        if placement is None or member not in placement.members:
            self._anomaly(f"{member} reports {report.status} of {report.placement}, which it does not have")
            return changes
        if report.epoch != placement.epoch:
            self._anomaly(
                f"{member} reports epoch {report.epoch} of {placement.id}, which has {placement.epoch}"
            )
            return changes
        report = _credible(report, placement, self._scribe.clock.now())
        if report.status is placement.status or (
            placement.ended and placement.status is not PlacementStatus.LOST
        ):
            return self._acknowledge_stop(changes, placement, report)
        if not allows(placement.status, EVENTS.get(report.status, "")):
            if report.status not in (PlacementStatus.ACCEPTED, PlacementStatus.STARTING):
                self._anomaly(f"{report.placement} is {placement.status} and is reported {report.status}")
            return changes
        self._apply(changes, _Told(report, placement, self._records.jobs[placement.job]))
        return changes

    def _acknowledge_stop(self, changes: Changes, placement: Placement, report: PlacementReport) -> Changes:
        """A placement we had given up speaks: now its stop needs no repeating."""
        owed = placement.ended and not placement.stop_acknowledged and placement.order is Order.STOP
        if owed and report.status in _ENDINGS:
            changes.put(msgspec.structs.replace(placement, stop_acknowledged=True))
        return changes

    def _apply(self, changes: Changes, told: _Told, **fields: object) -> None:
        report, placement, job = told
        started_at = report.started_at if report.started_at is not None else placement.started_at
        ended = report.status in _ENDINGS
        moved = self._scribe.placement(
            changes,
            placement,
            EVENTS[report.status],
            cause=report.cause,
            detail=report.detail,
            exit_code=report.exit_code,
            started_at=started_at,
            ended_at=(report.ended_at or report.at) if ended else None,
            expected_end_at=_expected_end(placement, started_at),
            **{"stop_acknowledged": ended, **fields},
        )
        if ended:
            job = book_use(changes, self._scribe, moved, job)
        if job.terminal:
            changes.put(job)
        elif report.status is PlacementStatus.SUCCEEDED:
            self._succeed(changes, told, job)
        elif job.placement == placement.id:
            self._stories[report.status](changes, _Told(report, moved, job))
        else:
            changes.put(job)
        _locate(changes, moved)

    def _succeed(self, changes: Changes, told: _Told, job: Job) -> None:
        """Any attempt's success completes the job; a newer copy is told to stop, for nothing."""
        report = told.report
        at = report.ended_at or report.at
        self._scribe.job(
            changes,
            job,
            "succeed",
            f"done at {told.placement.site}",
            outcome=Outcome(TerminalReason.DONE, exit_code=0),
            at=at,
        )
        if job.placement != told.placement.id:
            newer = self._records.placements.get(job.placement or "")
            if newer is not None and not newer.ended:
                sent = self._records.may_be_sent(newer)
                self._scribe.stop(changes, newer, "an older attempt has already succeeded", sent=sent)

    def _starting(self, changes: Changes, told: _Told) -> None:
        if allows(told.job.status, "starting"):
            self._scribe.job(
                changes,
                told.job,
                "starting",
                f"being prepared at {told.placement.site}: {told.report.detail or 'staging'}",
            )

    def _running(self, changes: Changes, told: _Told) -> None:
        if allows(told.job.status, "running"):
            because = f"running at {told.placement.site}: {told.placement.because}"
            self._scribe.job(changes, told.job, "running", because, started_at=told.placement.started_at)

    def _accepted(self, changes: Changes, told: _Told) -> None:
        """The site has it; nothing to tell the user yet."""

    def _failed(self, changes: Changes, told: _Told) -> None:
        report, placement, job = told
        detail = report.detail or f"exit code {report.exit_code}"
        if job.status is JobStatus.CANCELLING:
            self._end_cancelled(changes, job)
            return
        retry = self._records.spec(job.spec_hash).retry
        reason = REASONS.get(report.cause or Cause.EXIT, TerminalReason.EXIT_CODE)
        event = "requeue"
        if job.status is JobStatus.SUSPENDING:
            event = "held" if job.pause_for == "hold" else "paused"
        may_retry = "error" in retry.on and report.cause not in NEVER_AGAIN and allows(job.status, event)
        if may_retry and job.errors < retry.max:
            errors = job.errors + 1
            backoff_s = retry.backoff_s * 2 ** (errors - 1)
            self._scribe.job(
                changes,
                job,
                event,
                f"failed at {placement.site} ({detail}); retry {errors} of {retry.max} in {backoff_s:g} s",
                errors=errors,
                placement=None,
                pause_for=None,
                not_before_at=self._scribe.clock.now() + backoff_s,
            )
            return
        if may_retry:
            reason, detail = TerminalReason.RETRIES_SPENT, f"{detail}, after {job.errors} retries"
        outcome = Outcome(reason, detail, report.exit_code)
        self._scribe.job(
            changes, job, "fail", f"failed at {placement.site}: {detail}", outcome=outcome, at=report.ended_at
        )

    def _stopped(self, changes: Changes, told: _Told) -> None:
        report, placement, job = told
        resume = job.resume_site
        saved = "after a checkpoint" if report.checkpointed else "without a checkpoint"
        if placement.lease is not None:
            saved = "without a checkpoint that outlives the rented machine"
        elif self._records.spec(job.spec_hash).checkpoint is not None and report.checkpointed:
            resume = placement.site
        fields: dict[str, Any] = {"placement": None, "pause_for": None, "resume_site": resume}
        if job.status is JobStatus.CANCELLING:
            self._end_cancelled(changes, job)
        elif job.status is JobStatus.SUSPENDING and job.pause_for == "hold":
            self._scribe.job(changes, job, "held", f"held; it stopped at {placement.site} {saved}", **fields)
        elif job.status is JobStatus.SUSPENDING and not self._may_go_on(job):
            self._scribe.job(
                changes,
                job,
                "fail",
                "preempted, and its retry.on does not list preemption",
                outcome=Outcome(TerminalReason.RETRIES_SPENT, placement.order_reason),
            )
        elif job.status is JobStatus.SUSPENDING:
            self._scribe.job(
                changes,
                job,
                "paused",
                f"stopped at {placement.site} {saved}: {placement.order_reason}",
                **fields,
            )
        elif allows(job.status, "requeue"):
            self._scribe.job(
                changes,
                job,
                "requeue",
                f"{placement.site} stopped it: {report.detail or placement.order_reason}",
                **fields,
            )

    def _may_go_on(self, job: Job) -> bool:
        return job.pause_for != "preemption" or "preemption" in self._records.spec(job.spec_hash).retry.on

    def _lost(self, changes: Changes, told: _Told) -> None:
        """Proof of loss: the attempt is over, so the job may start again at once, unless it is suspected itself."""
        report, placement, job = told
        losses = job.losses
        if report.cause not in NOT_THE_NODE:
            losses = tuple(dict.fromkeys((*job.losses, _lost_node(report, placement))))
        because = f"lost at {placement.site}: {report.detail or 'the machine is gone'}"
        fields: dict[str, Any] = {"losses": losses, "placement": None, "pause_for": None}
        if not report.seq and job.resume_site == placement.site:
            # Given up from here: its site, and the checkpoint there, cannot be reached.
            fields["resume_site"] = None
        if job.status is JobStatus.CANCELLING:
            self._end_cancelled(changes, job)
            return
        if job.status is JobStatus.SUSPENDING and job.pause_for == "hold":
            text = f"held; {because}"
            self._scribe.job(changes, job, "held", text, **fields)
            return
        if allows(job.status, "lose"):
            job = self._scribe.job(changes, job, "lose", because)
        if len(losses) >= SUSPECT_LOSSES and allows(job.status, "suspect"):
            text = f"suspected of killing nodes: lost on {', '.join(losses)}; release it when you know better"
            self._scribe.job(changes, job, "suspect", text, **fields)
        else:
            self._scribe.job(changes, job, "released", f"{because}; it waits for a new place", **fields)

    def _refused(self, changes: Changes, told: _Told) -> None:
        """An ordinary answer: the job waits again, a little, until the site's next report has corrected the shapes."""
        report, placement, job = told
        if job.status is JobStatus.CANCELLING:
            self._end_cancelled(changes, job)
        elif job.status is JobStatus.SUSPENDING:
            self._stopped(changes, told)
        elif allows(job.status, "requeue"):
            not_before_at = self._scribe.clock.now() + REFUSED_BACKOFF_S
            because = f"{placement.site} refused it: {report.detail}"
            self._scribe.job(changes, job, "requeue", because, placement=None, not_before_at=not_before_at)

    def _end_cancelled(self, changes: Changes, job: Job) -> None:
        outcome = Outcome(TerminalReason.CANCELLED, job.because)
        self._scribe.job(changes, job, "cancelled", job.because, outcome=outcome, placement=job.placement)

    def _anomaly(self, text: str) -> None:
        self.anomalies += 1
        log.warning("anomaly: %s", text)


_ENDINGS = frozenset(
    {
        PlacementStatus.SUCCEEDED,
        PlacementStatus.FAILED,
        PlacementStatus.STOPPED,
        PlacementStatus.LOST,
        PlacementStatus.REFUSED,
    }
)


def _credible(report: PlacementReport, placement: Placement, now: float) -> PlacementReport:
    """The report with its times between assignment and now, whatever the agent's clock says, and its text cut to a length for people.

    A job that "ended" in 1970 would at once be older than its promise, and one that ends in a thousand years never.
    """

    def within(at: float) -> float:
        return min(max(at, placement.assigned_at), now)

    return msgspec.structs.replace(
        report,
        at=within(report.at),
        started_at=None if report.started_at is None else within(report.started_at),
        ended_at=None if report.ended_at is None else within(report.ended_at),
        detail=report.detail[:MAX_DETAIL],
    )


def _lost_node(report: PlacementReport, placement: Placement) -> str:
    """The machine under the rank that was lost, as `member/node`: names of nodes are those of their site alone."""
    ranks = sorted(report.ranks, key=lambda rank: (rank.exit_code is not None, rank.rank))
    rank = ranks[0] if ranks else None
    member = placement.members[rank.rank if rank and rank.rank < len(placement.members) else 0]
    return f"{member}/{rank.node}" if rank and rank.node else member


def _locate(changes: Changes, placement: Placement) -> None:
    """Whatever this change tells of happened to this placement, at its site."""
    for event in [row for row in changes.rows.values() if isinstance(row, Event)]:
        changes.put(msgspec.structs.replace(event, site=placement.site, placement=placement.id))


def _expected_end(placement: Placement, started_at: float | None) -> float | None:
    """The forecast end moves with the real start."""
    if placement.expected_end_at is None or started_at is None or placement.started_at is not None:
        return placement.expected_end_at
    return placement.expected_end_at + max(0.0, started_at - placement.assigned_at)
