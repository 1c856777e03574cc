"""Stories: what becomes of a job when something has become of its placement, by cause.

Here and nowhere else it is decided whether an ending is the job's own, a loss that it is not to blame for, or a pause that was asked for.
"""

from typing import Any, NamedTuple

from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Changes, Records
from federator.control.reports.refusals import refused_again
from federator.model.jobs import Job, JobSpec, JobStatus, Outcome, TerminalReason
from federator.model.lifecycle import allows
from federator.model.placements import Cause, Placement, PlacementReport, PlacementStatus
from federator.model.reasons import Reason, Running
from federator.planning.wording.told import order_words

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
NOT_THE_NODE = frozenset({Cause.INTERRUPTED, Cause.CUT_OFF, Cause.EVICTED})
"""Losses that no job is suspected for."""
SUSPECT_LOSSES = 3
REFUSED_BACKOFF_S = 5.0


class StatusReport(NamedTuple):
    """A report with the rows it is about: the placement as it is now, the job as it was."""

    report: PlacementReport
    placement: Placement
    job: Job


class OutcomeHandler:
    """Adds to `Changes` what a report means for its job."""

    def __init__(self, records: Records, event_writer: EventWriter) -> None:
        self._records = records
        self._event_writer = event_writer
        self._handlers = {
            PlacementStatus.ACCEPTED: self._accepted,
            PlacementStatus.STARTING: self._starting,
            PlacementStatus.RUNNING: self._running,
            PlacementStatus.FAILED: self._failed,
            PlacementStatus.STOPPED: self._stopped,
            PlacementStatus.LOST: self._lost,
            PlacementStatus.REFUSED: self._refused,
        }

    def tell(self, changes: Changes, told: StatusReport) -> None:
        """The job's row, its event and its outcome. An attempt that is not the job's present one counts only if it succeeded."""
        report, placement, job = told
        if job.terminal:
            return
        if report.status is PlacementStatus.SUCCEEDED:
            self._succeed(changes, told)
        elif job.placement == placement.id:
            self._handlers[report.status](changes, told)

    def _succeed(self, changes: Changes, told: StatusReport) -> None:
        """Any attempt's success completes the job; a newer copy is told to stop, for nothing."""
        report, _, job = told
        at = report.ended_at or report.at
        self._event_writer.job(
            changes,
            job,
            "succeed",
            f"done at {told.placement.site}",
            outcome=Outcome(TerminalReason.DONE, exit_code=0),
            at=at,
            # Of a short job the end may be the first that is heard.
            started_at=told.placement.started_at or job.started_at,
        )
        if job.placement != told.placement.id:
            newer = self._records.placements.get(job.placement or "")
            if newer is not None and not newer.ended:
                sent = self._records.may_run(newer)
                self._event_writer.stop(changes, newer, "an older attempt has already succeeded", sent=sent)

    def _starting(self, changes: Changes, told: StatusReport) -> None:
        if allows(told.job.status, "starting"):
            self._event_writer.job(
                changes,
                told.job,
                "starting",
                f"being prepared at {told.placement.site}: {told.report.detail or 'staging'}",
            )

    def _running(self, changes: Changes, told: StatusReport) -> None:
        if allows(told.job.status, "running"):
            because = _running(told.placement)
            self._event_writer.job(
                changes, told.job, "running", because, started_at=told.placement.started_at
            )

    def _accepted(self, changes: Changes, told: StatusReport) -> None:
        """The site has it; nothing to tell the user yet."""

    def _failed(self, changes: Changes, told: StatusReport) -> None:
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
            self._event_writer.job(
                changes,
                job,
                event,
                f"failed at {placement.site} ({detail}); retry {errors} of {retry.max} in {backoff_s:g} s",
                errors=errors,
                placement=None,
                pause_for=None,
                not_before_at=self._event_writer.clock.now() + backoff_s,
            )
            return
        if may_retry:
            reason, detail = TerminalReason.RETRIES_SPENT, f"{detail}, after {job.errors} retries"
        outcome = Outcome(reason, detail, report.exit_code)
        self._event_writer.job(
            changes, job, "fail", f"failed at {placement.site}: {detail}", outcome=outcome, at=report.ended_at
        )

    def _stopped(self, changes: Changes, told: StatusReport) -> None:
        report, placement, job = told
        saved, kept = self._saved(told)
        fields: dict[str, Any] = {"placement": None, "pause_for": None, **kept}
        if job.status is JobStatus.CANCELLING:
            self._end_cancelled(changes, job)
        elif job.status is JobStatus.SUSPENDING and job.pause_for == "hold":
            self._event_writer.job(
                changes, job, "held", f"held; it stopped at {placement.site} {saved}", **fields
            )
        elif job.status is JobStatus.SUSPENDING and not self._may_go_on(job):
            self._event_writer.job(
                changes,
                job,
                "fail",
                "preempted, and its retry.on does not list preemption",
                outcome=Outcome(TerminalReason.RETRIES_SPENT, order_words(placement)),
            )
        elif job.status is JobStatus.SUSPENDING:
            self._event_writer.job(
                changes,
                job,
                "paused",
                f"stopped at {placement.site} {saved}: {order_words(placement)}",
                **fields,
            )
        elif allows(job.status, "requeue"):
            self._event_writer.job(
                changes,
                job,
                "requeue",
                f"{placement.site} stopped it: {report.detail or order_words(placement)}",
                **fields,
            )

    def _saved(self, told: StatusReport) -> tuple[str, dict[str, Any]]:
        """What has become of its checkpoint, in words; and what the job keeps of it: where it is, how much, and in which form it goes on."""
        report, placement, job = told
        spec = self._records.spec(job.spec_hash)
        checkpoint = spec.checkpoint
        if checkpoint is None or not report.checkpointed:
            return "without a checkpoint, so it starts from the beginning", {}
        kept: dict[str, Any] = {"saved_s": job.saved_s + ran_s(spec, placement)}
        if spec.forms and not spec.elastic:
            kept["form"] = placement.form
        if checkpoint.uri and not report.unkept:
            # Any site can bring it; one that has it on its disk is as good as another.
            text = f"after a checkpoint, which is kept at {checkpoint.uri}"
            return text, {**kept, "resume_site": None, "resume_members": ()}
        if placement.lease is not None:
            return "without a checkpoint that outlives the rented machine", {}
        where = {"resume_site": placement.site, "resume_members": placement.members}
        return "after a checkpoint", {**kept, **where}

    def _saved_by_rest(self, told: StatusReport) -> dict[str, Any]:
        """Of an elastic gang that has lost a part: what the others have saved when they were stopped for it. It goes on without what is lost, in whatever form there is room for."""
        _, placement, job = told
        spec = self._records.spec(job.spec_hash)
        rest = [part for part in placement.parts if part.checkpointed]
        if not spec.elastic or spec.checkpoint is None or not rest:
            return {}
        kept: dict[str, Any] = {"saved_s": job.saved_s + ran_s(spec, placement)}
        if spec.checkpoint.uri and not any(part.unkept for part in rest):
            return {**kept, "resume_site": None, "resume_members": ()}
        names = {part.member for part in rest}
        if placement.lease is not None or placement.members[0] not in names:
            return {}  # rank 0, which saves for all where no place is named, is gone with what it had
        members = tuple(member for member in placement.members if member in names)
        return {**kept, "resume_site": placement.site, "resume_members": members}

    def _may_go_on(self, job: Job) -> bool:
        return job.pause_for != "preemption" or "preemption" in self._records.spec(job.spec_hash).retry.on

    def _lost(self, changes: Changes, told: StatusReport) -> None:
        """Proof of loss: the attempt is over, so the job may start again at once, unless it is suspected itself."""
        report, placement, job = told
        losses = job.losses
        if report.cause not in NOT_THE_NODE:
            losses = tuple(dict.fromkeys((*job.losses, _lost_node(report, placement))))
        because = f"lost at {placement.site}: {report.detail or 'the machine is gone'}"
        fields: dict[str, Any] = {"losses": losses, "placement": None, "pause_for": None}
        if not report.seq and job.resume_site == placement.site:
            # Given up from here: its site, and the checkpoint there, cannot be reached.
            fields |= {"resume_site": None, "resume_members": (), "saved_s": 0.0, "form": None}
        fields |= self._saved_by_rest(told)
        if job.status is JobStatus.CANCELLING:
            self._end_cancelled(changes, job)
            return
        if job.status is JobStatus.SUSPENDING and job.pause_for == "hold":
            text = f"held; {because}"
            self._event_writer.job(changes, job, "held", text, **fields)
            return
        if allows(job.status, "lose"):
            job = self._event_writer.job(changes, job, "lose", because)
        if len(losses) >= SUSPECT_LOSSES and allows(job.status, "suspect"):
            text = f"suspected of crashing nodes: lost on {', '.join(losses)}; release it when you know that it is safe"
            self._event_writer.job(changes, job, "suspect", text, **fields)
        else:
            self._event_writer.job(changes, job, "released", f"{because}; it waits for a new place", **fields)

    def _refused(self, changes: Changes, told: StatusReport) -> None:
        """An ordinary answer: the job waits again, a little, until the site's next report has corrected the shapes.

        Of a gang, the shapes may never tell: so the job remembers who was to blame.
        """
        report, placement, job = told
        if job.status is JobStatus.CANCELLING:
            self._end_cancelled(changes, job)
        elif job.status is JobStatus.SUSPENDING:
            self._stopped(changes, told)
        elif allows(job.status, "requeue"):
            now = self._event_writer.clock.now()
            refusals = refused_again(job.refusals, placement, now)
            because = f"{placement.site} refused it: {report.detail}"
            self._event_writer.job(
                changes,
                job,
                "requeue",
                because,
                placement=None,
                not_before_at=now + REFUSED_BACKOFF_S,
                refusals=refusals,
            )

    def _end_cancelled(self, changes: Changes, job: Job) -> None:
        outcome = Outcome(TerminalReason.CANCELLED, job.because)
        self._event_writer.job(
            changes, job, "cancelled", job.because, outcome=outcome, placement=job.placement
        )


def ran_s(spec: JobSpec, placement: Placement) -> float:
    """What an attempt that is over has done of its job, in seconds of form 0 at speed 1."""
    if placement.started_at is None or placement.ended_at is None:
        return 0.0
    lasted_s = max(0.0, placement.ended_at - placement.started_at)
    return lasted_s * spec.pace(placement.form, placement.model)


def _lost_node(report: PlacementReport, placement: Placement) -> str:
    """The machine under the rank that was lost, as `member/node`: names of nodes are those of their site alone."""
    ranks = sorted(report.ranks, key=lambda rank: (rank.exit_code is not None, rank.rank))
    rank = ranks[0] if ranks else None
    member = placement.members[rank.rank if rank and rank.rank < len(placement.members) else 0]
    return f"{member}/{rank.node}" if rank and rank.node else member


def _running(placement: Placement) -> str | Reason:
    """That it runs, and why there."""
    if placement.reason is None:
        return f"running at {placement.site}: {placement.because}"
    return Running(site=placement.site, why=placement.reason)
