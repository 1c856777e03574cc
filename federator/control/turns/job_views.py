"""Jobs reduced to what planning may see, kept while nothing that they are made of changes.

A turn sees the same few hundred jobs again and again, and most of them have not changed since; a view that is kept costs a comparison.
"""

import math
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET

from federator.control.accounts.money import job_limit
from federator.control.administration.authority import AuthorityInForce
from federator.control.record.records import Records
from federator.control.reports.history import History
from federator.control.turns.job_outputs import outputs_read
from federator.control.turns.set_aside import SetAside
from federator.model.jobs import Input, Job, JobSpec, JobStatus
from federator.model.snapshot import JobView, asked
from federator.planning.places.candidates import size
from federator.planning.rules.max_wait import bounded
from federator.planning.scheduling.forecast import (
    UNKNOWN,
    Leaning,
    RunForecast,
    in_words,
    outlasting,
    runtime_quantiles,
)
from federator.planning.scheduling.speeds import Speeds
from federator.planning.scheduling.speeds import in_words as speeds_in_words
from federator.wire.needs import needs_of

TELLING = -0.2
"""ln(run so far / estimate) from which on a job that still runs tells something about its namesakes,"""
STEP = 0.1
"""and how much further it must be to tell more: a view is not made anew for every second."""
OVERDUE_SHARE = 0.15
"""Of work that has outrun its forecast this share of what it has done is expected to be left: about the middle of what is, where runs err by e^±0.4."""


LOOKS_EVERY_S = 300.0
"""How often a site looks for a new checkpoint to bring where the job keeps it, unless the job says how often it saves itself."""


class _Kept(NamedTuple):
    """A view, and what it was made of."""

    job: Job
    revision: int
    """Of its row: a row that is written again as it was has a new one, and an action that names the old one is stale."""
    policies: int
    """Their version."""
    runs: int
    errors: Leaning
    speeds: Speeds
    view: JobView


class JobViews:
    """Which jobs may start, and what a decision sees of each."""

    def __init__(self, records: Records, history: History, aside: SetAside | None = None) -> None:
        """`aside`: the jobs that no plan sees, and whoever is told of one of which no view can be made."""
        self._records = records
        self._aside = aside
        self.history = history
        self.authority = AuthorityInForce(records)
        self._kept: dict[str, _Kept] = {}
        self._lasting: dict[tuple[str, str], float] = {}
        """By queue and name: how far a job that still runs is beyond its estimate, as ln(run / estimate)."""

    def seen(
        self, only: Collection[str] | None, behind_s: Mapping[str, float], now: float
    ) -> tuple[JobView, ...]:
        """The jobs that wait and may start, in order of submission; with `only`, of those just these. `behind_s` goes into their views."""
        jobs = self._records.open_jobs
        self._lasting = self._look_at_running(now) if self.history.corrects else {}
        waiting = [jobs[name] for name in (jobs if only is None else sorted(only)) if name in jobs]
        version = self._records.policies.version
        kept: dict[str, _Kept] = {}
        seen: list[JobView] = []
        for job in waiting:
            if self.eligible(job):
                try:
                    kept[job.id] = self._view(job, version, behind_s.get(job.id, 0.0))
                    seen.append(self.bounded(kept[job.id].view, now))
                except Exception as error:  # the others are planned without it
                    if self._aside is None:
                        raise
                    self._aside.add(job.id, error)
        if only is behind_s:
            # A whole window: what was in the last one and is not in this one is forgotten.
            self._kept = kept
        return tuple(seen)

    def bounded(self, view: JobView, now: float) -> JobView:
        """With the deadline that the longest wait of its queue comes to."""
        return bounded(view, self.authority.now.said(view.queue).max_wait_s, now)

    def eligible(self, job: Job) -> bool:
        """Whether a plan may start it: it waits, is not set aside, all that it must follow has come to what it must, and not too many tasks of its array run."""
        if job.status is not JobStatus.PENDING or (self._aside and self._aside.of(job)):
            return False
        if self._records.index.limits.keeps(job):
            return False
        return all(met for _, met in self._records.predecessors(job))

    def of(self, job: Job) -> JobView:
        """A job on record."""
        return self.imagined(job, self._records.spec(job.spec_hash))

    def run_time(self, job: Job, spec: JobSpec) -> str:
        """How long it is planned to run, and how that is known."""
        speeds = self._speeds(job, spec)
        runs, errors = self.history.runs(job.queue, job.kin, speeds), self._errors(job, spec)
        lasts = in_words(spec.estimate_s, runs, job.max_duration_s, errors)
        told = (lasts, speeds_in_words(speeds, spec.speed))
        return "; ".join(filter(None, told))

    def whole_run(self, job: Job, spec: JobSpec, model: str) -> RunForecast | None:
        """How long it is expected to run in all on that GPU model, by what is known now, in seconds of form 0 that its declared speed there makes of them; None where nothing is to be learned."""
        return self.forecast(job, spec, model) if self.history.corrects else None

    def forecast(self, job: Job, spec: JobSpec, model: str) -> RunForecast:
        """The same, where nothing is to be learned by what its user says."""
        speeds = self._speeds(job, spec)
        errors = self.history.leaning(job.queue, job.kin, job.owner, spec.speed)
        found = runtime_quantiles(
            spec.estimate_s, self.history.runs(job.queue, job.kin, speeds), errors=errors
        )
        off = spec.speed.get(model, 1.0) / speeds.on(model)
        return found._replace(run_s=off * found.run_s, low_s=off * found.low_s, high_s=off * found.high_s)

    def imagined(self, job: Job, spec: JobSpec) -> JobView:
        """A job that is not on record yet."""
        speeds, terms = self._speeds(job, spec), self.authority.now.said(job.queue)
        view = view_of_job(
            job,
            spec,
            revision=self._records.revision_of(job),
            runs=self.history.runs(job.queue, job.kin, speeds),
            errors=self._errors(job, spec),
            interactive=terms.interactive,
            without_checkpoint=self._without_checkpoint(job),
        )
        limit = job_limit(self._records, job, spec.labels)
        return msgspec.structs.replace(
            _kept_to(view, job.form),
            waits_since_at=self._waits_since_at(job),
            patience_s=(terms.patience_s or 0.0) if spec.patience_s is UNSET else spec.patience_s,
            max_cost_usd=limit.usd,
            cost_policy=limit.policy,
            speed=dict(speeds.factors),
            inputs=(*view.inputs, *outputs_read(self._records, job, spec)),
            saves=spec.checkpoint is not None,
            repeats_s=_repeats_s(spec),
            approved_usd=job.approved_usd,
            may_rent=job.may_rent,
            usable_queues=self.authority.now.usable_by_owner(job),
        )

    def _waits_since_at(self, job: Job) -> float | None:
        """When it began to wait, where that was after its submission."""
        ended = (before.finished_at or 0.0 for before in self._records.followed(job))
        since_at = max(job.displaced_at or 0.0, job.not_before_at or 0.0, *ended, 0.0)
        return since_at if since_at > job.submitted_at else None

    def _without_checkpoint(self, job: Job) -> tuple[str, ...]:
        """The hosts of the site where it resumes that have nothing of what it saved."""
        if not job.resume_members:
            return ()
        members = self._records.members.values()
        return tuple(m.id for m in members if m.site == job.resume_site and m.id not in job.resume_members)

    def _view(self, job: Job, policies: int, behind_s: float) -> _Kept:
        spec = self._records.spec(job.spec_hash)
        runs, errors = self.history.learned(job.queue, job.kin), self._errors(job, spec)
        made_of = (job, self._records.revision_of(job), policies, runs, errors, self._speeds(job, spec))
        kept = self._kept.get(job.id)
        if kept is None or kept.job is not job or kept[1:-1] != made_of[1:]:
            kept = _Kept(*made_of, self.of(job))
        if kept.view.behind_s != behind_s:
            kept = kept._replace(view=msgspec.structs.replace(kept.view, behind_s=behind_s))
        return kept

    def _speeds(self, job: Job, spec: JobSpec) -> Speeds:
        """How fast it goes on each GPU model, by what is known now."""
        return self.history.speeds(job.queue, job.kin, job.owner, spec.speed)

    def _errors(self, job: Job, spec: JobSpec) -> Leaning:
        """How estimates like this one turn out. While no namesake has ended, those that still run tell something, too."""
        known = self.history.leaning(job.queue, job.kin, job.owner, spec.speed)
        least = self._lasting.get((job.queue, job.kin))
        return known if least is None or known.runs else outlasting(known, least)

    def _look_at_running(self, now: float) -> dict[tuple[str, str], float]:
        """How much longer than their estimates jobs of each queue and name run by now."""
        found: dict[tuple[str, str], float] = {}
        for placement in self._records.open_placements.values():
            if placement.started_at is None or placement.ended or placement.started_at >= now:
                continue
            job = self._records.jobs[placement.job]
            spec = self._records.spec(placement.spec_hash)
            if not spec.estimate_s or job.epoch > 1:
                continue
            pace = spec.throughput(placement.form) * self._speeds(job, spec).on(placement.model)
            ran_s = (now - placement.started_at) * pace
            beyond = math.floor(math.log(ran_s / spec.estimate_s) / STEP) * STEP
            if beyond >= TELLING:
                key = (job.queue, job.kin)
                found[key] = max(beyond, found.get(key, beyond))
        return found


def view_of_job(
    job: Job,
    spec: JobSpec,
    *,
    revision: int,
    runs: tuple[float, ...],
    interactive: bool,
    errors: Leaning = UNKNOWN,
    without_checkpoint: tuple[str, ...] = (),
) -> JobView:
    """Join record and spec into what planning may see: no command, environment or secret among it."""
    return JobView(
        id=job.id,
        revision=revision,
        name=job.label,
        queue=job.queue,
        owner=job.owner,
        team=job.team,
        submitted_at=job.submitted_at,
        priority=job.priority,
        **asked(spec.nodes, spec.resources, spec.placement.together or ""),
        together=spec.placement.together or "",
        **_run_times(runtime_quantiles(spec.estimate_s, runs, job.max_duration_s, errors), job.saved_s),
        speed=spec.speed,
        max_duration_s=job.max_duration_s,
        grace_s=spec.grace_s,
        deadline_at=job.deadline_at,
        value_usd=job.value_usd,
        must=job.must,
        max_cost_usd=job.max_cost_usd,
        spent_usd=job.spent_usd,
        spot_policy=spec.spot_policy,
        kinds=spec.placement.kinds,
        sites=(job.resume_site,) if job.resume_site else spec.placement.sites,
        resumes_at=job.resume_site or "",
        not_sites=spec.placement.not_sites,
        site_labels=spec.placement.labels,
        labels=spec.labels,
        interactive=interactive,
        not_before_at=job.not_before_at,
        avoid_nodes=(*job.losses, *without_checkpoint, *filter(None, (r.member for r in job.refusals))),
        refused=tuple((refusal.site, refusal.until_at) for refusal in job.refusals if refusal.until_at),
        needs=needs_of(spec),
        needs_fencing=bool(spec.stop_within_s),
        inputs=_reads(job, spec),
        licenses=spec.licenses or {},
        forms=spec.forms or (),
        elastic=bool(spec.elastic),
        ordered=bool(spec.ordered),
    )


def _kept_to(view: JobView, form: int | None) -> JobView:
    """Of one that goes on in a certain form, that: it is planned as if it had no other, and worth what it was."""
    if form is None:
        return view
    kept = msgspec.structs.replace(view.as_form(form), forms=(), elastic=False, throughput=1.0, of=None)
    return msgspec.structs.replace(kept, priced_gpus=size(view), priced_run_s=view.run_s)


def _reads(job: Job, spec: JobSpec) -> tuple[Input, ...]:
    """What is brought to wherever it starts: its inputs, and of one that goes on from what it has kept elsewhere, that. Nobody knows how much it is."""
    kept = spec.checkpoint.uri if spec.checkpoint and job.epoch and not job.resume_site else None
    return (*(spec.inputs or ()), *((Input(kept),) if kept else ()))


def _run_times(forecast: RunForecast, saved_s: float) -> dict[str, Any]:
    """What is left of its run when it goes on from what it has saved."""
    times = {"run_s": forecast.run_s, "run_low_s": forecast.low_s, "run_high_s": forecast.high_s}
    return {name: left_s(time_s, saved_s) for name, time_s in times.items()}


def left_s(run_s: float, done_s: float) -> float:
    """What is left of a run of which so much is done: never nothing, as long as it has not ended."""
    return max(run_s - done_s, OVERDUE_SHARE * done_s)


def _repeats_s(spec: JobSpec) -> float | None:
    """What it does again after the loss of its machine: a checkpoint is written, and later looked for and brought away, once in such a time each."""
    if spec.checkpoint is None or not spec.checkpoint.uri:
        return None
    return 2 * (spec.checkpoint.every_s or LOOKS_EVERY_S)
