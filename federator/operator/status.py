"""What a `FederatedJob` says of its job. Pure: the status before and what the dispatcher answered into the status after."""

from datetime import UTC, datetime
from typing import TypeVar

from msgspec.structs import replace

from federator.model.jobs import JobStatus
from federator.model.reasons import Reason
from federator.operator.objects import Condition, FederatedJob, Judged, Status
from federator.wire.http import ArrayDetail, JobDetail, JobRow

REFUSED = "Refused"
CHANGEABLE = ("priority", "deadline", "queue", "max_cost", "max_duration", "value")
"""Fields of the spec that a job may be changed in while it lives."""
REMOVABLE = ("deadline", "max_cost", "max_duration", "value")
PASSING = frozenset({"Placed", "Starting"})
"""Phases that are gone in a moment: no Event tells of them."""
LONGEST = 1000
LAST_AT = 253402300799.0
"""The last second of the year 9999."""
AnyStatus = TypeVar("AnyStatus", bound=Judged)


def instant(at: float | None) -> str:
    """As Kubernetes writes moments; empty for none, and for one that has no date of four figures."""
    if at is None or not 0 <= at <= LAST_AT:
        return ""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def conditioned(status: AnyStatus, now: float, *changed: Condition) -> AnyStatus:
    """With these conditions in place of those of the same type. A condition that stays keeps its time."""
    found = {each.type: each for each in status.conditions}
    for each in changed:
        before = found.get(each.type)
        since = (
            before.last_transition_time
            if before is not None and before.status == each.status
            else instant(now)
        )
        found[each.type] = replace(each, message=each.message[:LONGEST], last_transition_time=since)
    return replace(status, conditions=tuple(found.values()))


def refused(job: FederatedJob, reason: str, message: str, now: float) -> Status:
    """It cannot be submitted as it is."""
    said = Condition(type="Submitted", status="False", reason=reason, message=message)
    status = replace(
        job.status,
        phase=REFUSED,
        reason=reason,
        message=message[:LONGEST],
        observed_generation=job.metadata.generation,
    )
    return conditioned(status, now, said)


def submitted(job: FederatedJob, name: str, now: float, *, array: bool = False) -> Status:
    """The dispatcher has it as it is: `name` is the id of the job or of the array."""
    said = Condition(type="Submitted", status="True", reason="Submitted", message="the dispatcher has it")
    status = Status(
        phase=_phase(JobStatus.PENDING),
        job=name,
        array=array,
        submitted=instant(now),
        observed_generation=job.metadata.generation,
        applied=job.fields,
    )
    return conditioned(status, now, said)


def mirrored(status: Status, row: JobRow, now: float) -> Status:
    """What a line of the list says of a job that lives."""
    return _ended(
        replace(
            status,
            phase=_phase(row.status),
            site=row.site or status.site,
            market=row.market or status.market,
            reason=_kind(row.reason),
            message=row.because[:LONGEST],
            expected_start="" if row.started_at is not None else instant(row.expected_start_at),
            expected_finish=instant(row.expected_finish_at),
            finish_earliest=instant(row.finish_low_at),
            finish_latest=instant(row.finish_high_at),
            started=instant(row.started_at),
            finished=instant(row.finished_at),
            cost_usd=_usd(row.spent_usd),
        ),
        row.status,
        now,
    )


def mirrored_whole(status: Status, detail: JobDetail, now: float) -> Status:
    """What the record of a job says, also when it is over."""
    job = detail.job
    outcome = job.outcome
    last = detail.attempts[-1] if detail.attempts else None
    return _ended(
        replace(
            status,
            phase=_phase(job.status),
            site=detail.site or (last.site if last is not None else "") or status.site,
            market=detail.market or (last.market if last is not None else "") or status.market,
            reason=str(outcome.reason) if outcome is not None else _kind(detail.reason),
            message=job.because[:LONGEST],
            expected_start="" if job.started_at is not None else instant(detail.expected_start_at),
            expected_finish=instant(detail.expected_finish_at),
            finish_earliest=instant(detail.finish_low_at),
            finish_latest=instant(detail.finish_high_at),
            started=instant(job.started_at),
            finished=instant(job.finished_at),
            cost_usd=_usd(job.spent_usd),
        ),
        job.status,
        now,
    )


def mirrored_array(status: Status, detail: ArrayDetail, now: float) -> Status:
    """What its tasks add up to: it has succeeded when all have."""
    over = detail.finished_at is not None
    phase = JobStatus.RUNNING if detail.started_at is not None else JobStatus.PENDING
    if over:
        left = detail.tasks.keys() - {JobStatus.SUCCEEDED}
        phase = JobStatus.SUCCEEDED
        if left:
            phase = JobStatus.CANCELLED if left == {JobStatus.CANCELLED} else JobStatus.FAILED
    message = "; ".join(f"{indices}: {why}" for indices, why in detail.ended.items()) or detail.waits
    return _ended(
        replace(
            status,
            phase=_phase(phase),
            tasks=detail.tasks,
            site=",".join(sorted(detail.sites)) or status.site,
            message=message[:LONGEST],
            expected_finish="" if over else instant(detail.expected_finish_at),
            started=instant(detail.started_at),
            finished=instant(detail.finished_at),
            cost_usd=_usd(detail.spent_usd),
        ),
        phase,
        now,
    )


def forgotten(status: Status, now: float) -> Status:
    """The dispatcher has no record of it any more: it was over so long ago that its record was removed."""
    message = "the dispatcher has no record of it any more"
    said = Condition(type="Failed", status="True", reason="Forgotten", message=message)
    return conditioned(replace(status, phase="Unknown", reason="Forgotten", message=message), now, said)


def in_force(status: AnyStatus, generation: int, wrong: str, now: float) -> AnyStatus:
    """Whether the job or the site is as the spec says now. `wrong`: why not; empty: it is."""
    said = Condition(
        type="SpecInForce",
        status="False" if wrong else "True",
        reason="NotChanged" if wrong else "AsWritten",
        message=wrong,
    )
    return conditioned(replace(status, observed_generation=generation), now, said)


def differing(job: FederatedJob) -> tuple[str, ...]:
    """Fields of the spec that are not as the job was submitted with, or changed to."""
    now, then = job.fields, job.status.applied
    return tuple(sorted(name for name in now.keys() | then.keys() if now.get(name) != then.get(name)))


def only_forecast_moved(before: Status, after: Status) -> bool:
    """Whether what has changed can wait for a while: a forecast moves with each plan, and cost with each minute."""
    quiet = ("expected_start", "expected_finish", "finish_earliest", "finish_latest", "cost_usd", "message")
    return replace(before, **dict.fromkeys(quiet, "")) == replace(after, **dict.fromkeys(quiet, ""))


def _phase(status: str) -> str:
    return status.title()


def _kind(reason: Reason | None) -> str:
    return "" if reason is None else str(type(reason).__struct_config__.tag)


def _usd(amount: float) -> str:
    return f"{amount:.2f}" if amount else ""


def _ended(status: Status, now_is: str, now: float) -> Status:
    if now_is == JobStatus.SUCCEEDED:
        return conditioned(status, now, Condition(type="Complete", status="True", reason="Succeeded"))
    if now_is in (JobStatus.FAILED, JobStatus.CANCELLED):
        said = Condition(type="Failed", status="True", reason=_phase(now_is), message=status.message)
        return conditioned(status, now, said)
    return status
