"""What `show` says of one job: where it is, what it asks for, what is expected of it, and what it came to."""

from collections.abc import Iterator

from rich.text import Text

from federator.cli.columns import labels
from federator.cli.output import expected, status
from federator.cli.phrases import counted, duration, energy_kwh, usd, when_exactly
from federator.cli.requested import asks_for, asks_for_any
from federator.kernel.quantities import format_duration, format_mib
from federator.model.jobs import FORECAST_SLACK_S, FORECAST_SLACK_USD, Job, JobSpec, JobStatus
from federator.model.placements import Used
from federator.wire.http import JobDetail
from federator.wire.widths import width_of, widths

IDLE_S = 60.0
NOT_HEARD = ("not heard", "its agent")
"""How it begins where the dispatcher says of a host that it is not heard."""


def job_facts(detail: JobDetail, now: float) -> list[tuple[str, str | Text]]:
    """Names and values; what is empty is left out."""
    job, spec, waiting = detail.job, detail.spec, detail.waiting
    where = " ".join(part for part in (detail.site, detail.pool, detail.market) if part)
    return [
        ("job", job.label),
        ("id", job.id),
        ("status", status(job.status)),
        ("because", waiting.because if waiting else job.because),
        ("outcome", _outcome(job)),
        ("owner", f"{job.owner}, queue {job.queue}, priority {job.priority}"),
        ("at", where),
        ("ranks", ", ".join(_ranks(detail))),
        ("asks for", asks_for_any(spec)),
        ("has", "" if detail.form is None or not spec.forms else asks_for(spec.as_form(detail.form))),
        ("width", widths(spec) if detail.form is None else width_of(spec, detail.form)),
        ("runs", _runs(spec)),
        ("submitted", when_exactly(job.submitted_at, now)),
        ("started", when_exactly(job.started_at, now)),
        ("finished", when_exactly(job.finished_at, now)),
        (
            "expected start",
            expected(detail.expected_start_at, detail.start_low_at, detail.start_high_at, now),
        ),
        (
            "expected finish",
            expected(detail.expected_finish_at, detail.finish_low_at, detail.finish_high_at, now),
        ),
        ("as planned", when_exactly(detail.planned_at, now)),
        ("finish at home", when_exactly(waiting.home_finish_at if waiting else None, now)),
        ("told first", _told_first(job, now)),
        ("then came", _then_came(job)),
        ("deadline", when_exactly(job.deadline_at, now)),
        ("limits", _limits(job)),
        ("spent", _spent(job)),
        ("really uses" if job.finished_at is None else "really used", _used(detail.used)),
        ("after", ", ".join(name if how == "ok" else f"{name} ({how})" for name, how in job.follows())),
        (
            "array",
            f"{job.array}{f', {job.at_once} tasks at once' if job.at_once else ''}" if job.array else "",
        ),
        ("series", detail.series),
        ("pipeline", job.name.rpartition(".")[0] if job.pipeline else ""),
        ("licences", ", ".join(f"{count} {name}" for name, count in (spec.licenses or {}).items())),
        ("labels", labels(spec.labels)),
        ("outputs", "collected: federator download " + job.id if detail.outputs else ""),
        ("decided by", _decided(detail)),
    ]


def _told_first(job: Job, now: float) -> str:
    """What was expected when anything was for the first time."""
    told = job.first_forecast
    if told is None:
        return ""
    cost = "" if told.spent_usd is None else f", {usd(told.spent_usd)}"
    after = format_duration(max(0.0, told.at - job.submitted_at) // 1)
    start = "start at once" if told.start_at - told.at < 1 else f"start {when_exactly(told.start_at, now)}"
    return f"{start}, done {when_exactly(told.finish_at, now)}{cost}; said {after} after the submission"


def _then_came(job: Job) -> str:
    """How that turned out, as far as it has."""
    told = job.first_forecast
    if told is None:
        return ""
    start = (
        "" if job.started_at is None else _came("start", job.started_at, told.start_at, told.start_high_at)
    )
    ended = job.finished_at if job.status is JobStatus.SUCCEEDED else None
    finish = "" if ended is None else _came("end", ended, told.finish_at, told.finish_high_at)
    more_usd = job.spent_usd - (told.spent_usd or 0.0)
    known = ended is not None and told.spent_usd is not None and abs(more_usd) > FORECAST_SLACK_USD
    cost = f"{usd(abs(more_usd))} {'more' if more_usd > 0 else 'less'}" if known else ""
    return ", ".join(part for part in (start, finish, cost) if part)


def _came(what: str, at: float, told_at: float, high_at: float) -> str:
    away_s = at - told_at
    if abs(away_s) < FORECAST_SLACK_S:
        return f"{what} as told"
    kept = "" if at <= high_at + FORECAST_SLACK_S else " (later than 90 of 100)"
    return f"{what} {duration(abs(away_s))} {'later' if away_s > 0 else 'sooner'}{kept}"


def _runs(spec: JobSpec) -> str:
    """Its command, or how its script begins: lines that are joined would read as one command."""
    first, *others = (spec.run or " ".join(spec.command or ())).strip().splitlines() or [""]
    with_launcher = (
        f" (by the launcher of {spec.framework.name}; -o yaml has what each rank runs)"
        if spec.framework
        else ""
    )
    more = f" … (and {counted(len(others), 'line')} more; -o yaml has all)" if others else ""
    return f"{first}{more}{with_launcher}"


def _ranks(detail: JobDetail) -> Iterator[str]:
    """Of a gang over several hosts, which ranks are where, and how far they are."""
    for part in detail.parts:
        ranks = [str(rank) for rank, member in enumerate(detail.members) if member == part.member]
        silent = not part.ended and part.detail.startswith(NOT_HEARD)
        said = f": {part.detail}, last known {part.status}" if silent else f" {part.status}"
        yield f"{'+'.join(ranks)} at {part.member}{said}"


def _decided(detail: JobDetail) -> str:
    """By whom, and in which decision if that was kept."""
    kept = f" in {detail.decision}" if detail.decision else ""
    return f"{detail.winner}{kept}: {detail.winner_because}" if detail.winner else ""


def _outcome(job: Job) -> str:
    if job.outcome is None:
        return ""
    code = "" if job.outcome.exit_code is None else f", exit code {job.outcome.exit_code}"
    late = ", deadline missed" if job.outcome.missed_deadline else ""
    detail = f": {job.outcome.detail}" if job.outcome.detail else ""
    return f"{job.outcome.reason}{code}{late}{detail}"


def _spent(job: Job) -> str:
    if not job.gpu_s and not job.spent_usd:
        return ""
    used = f"{job.gpu_s / 3600:.2f} GPU-hours" if job.gpu_s >= 360 else f"{job.gpu_s:.0f} GPU-seconds"
    energy = f", {energy_kwh(job.energy_kwh)}" if job.energy_kwh else ""
    return f"{usd(job.spent_usd)}, {used}{energy}"


def _used(used: Used | None) -> str:
    """What was sampled: of GPUs, processors, memory."""
    if used is None or used.cpus is None:
        return ""
    busy = (
        ""
        if used.gpus_busy is None
        else f"GPUs {used.gpus_busy:.0%} busy, {format_mib(used.gpu_memory_peak_mib)} of one at most; "
    )
    idle = f"; GPUs idle for {duration(used.idle_s)} now" if used.idle_s >= IDLE_S else ""
    energy = f"; {energy_kwh(used.energy_kwh)} by its GPUs" if used.power_sampled_s else ""
    return f"{busy}{used.cpus:.1f} CPUs, {format_mib(used.memory_peak_mib)} of memory at most{energy}{idle}"


def _limits(job: Job) -> str:
    parts = [
        f"at most {format_duration(job.max_duration_s)}" if job.max_duration_s else "",
        f"at most {usd(job.max_cost_usd)}" if job.max_cost_usd is not None else "",
        "the deadline must be met"
        if job.must
        else f"worth {usd(job.value_usd)}"
        if job.value_usd is not None
        else "",
    ]
    return ", ".join(part for part in parts if part)
