"""Jobs reduced to what planning may see, kept while nothing that they are made of changes.

A turn sees the same few hundred jobs again and again, and most of them have not changed since; a view that is kept costs a comparison.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from federator.control.history import History
from federator.control.records import Records
from federator.model.jobs import Job, JobSpec, JobStatus
from federator.model.rules import QueueTerms
from federator.model.snapshot import JobView
from federator.planning.forecast import in_words, runtime_quantiles


class _Kept(NamedTuple):
    """A view, and what it was made of."""

    job: Job
    policies: int
    """Their version."""
    runs: int
    view: JobView


class JobViews:
    """Which jobs may start, and what a decision sees of each."""

    def __init__(self, records: Records, history: History) -> None:
        self._records = records
        self._history = history
        self._kept: dict[str, _Kept] = {}
        self._policies = -1
        self._interactive: frozenset[str] = frozenset()

    def seen(self, only: Collection[str] | None, behind_s: Mapping[str, float]) -> tuple[JobView, ...]:
        """The jobs that wait and may start, in order of submission; with `only`, of those just these. `behind_s` goes into their views."""
        jobs = self._records.open_jobs
        waiting = [jobs[name] for name in (jobs if only is None else sorted(only)) if name in jobs]
        version = self._records.policies.version
        kept = {
            job.id: self._view(job, version, behind_s.get(job.id, 0.0))
            for job in waiting
            if self.eligible(job)
        }
        if only is behind_s:
            # A whole window: what was in the last one and is not in this one is forgotten.
            self._kept = kept
        return tuple(entry.view for entry in kept.values())

    def eligible(self, job: Job) -> bool:
        """Whether a plan may start it: it waits, and all that it must follow has succeeded."""
        if job.status is not JobStatus.PENDING:
            return False
        return all(before.status is JobStatus.SUCCEEDED for before in self._records.followed(job))

    def of(self, job: Job) -> JobView:
        """A job on record."""
        return self.imagined(job, self._records.spec(job.spec_hash))

    def run_time(self, job: Job, spec: JobSpec) -> str:
        """How long it is planned to run, and how that is known."""
        runs = self._history.runs(job.queue, job.name)
        return in_words(
            runtime_quantiles(spec.estimate_s, runs, limit_s=job.max_duration_s), job.max_duration_s
        )

    def imagined(self, job: Job, spec: JobSpec) -> JobView:
        """A job that is not on record yet."""
        return view_of_job(
            job,
            spec,
            revision=self._records.revision_of(job),
            runs=self._history.runs(job.queue, job.name),
            interactive=job.queue in self._interactive_queues(),
            without_checkpoint=self._without_checkpoint(job),
        )

    def _without_checkpoint(self, job: Job) -> tuple[str, ...]:
        """The hosts of the site where it resumes that have nothing of what it saved."""
        if not job.resume_members:
            return ()
        members = self._records.members.values()
        return tuple(m.id for m in members if m.site == job.resume_site and m.id not in job.resume_members)

    def _view(self, job: Job, policies: int, behind_s: float) -> _Kept:
        runs = self._history.learned(job.queue, job.name)
        kept = self._kept.get(job.id)
        if kept is None or kept.job is not job or kept.policies != policies or kept.runs != runs:
            kept = _Kept(job, policies, runs, self.of(job))
        if kept.view.behind_s != behind_s:
            kept = kept._replace(view=msgspec.structs.replace(kept.view, behind_s=behind_s))
        return kept

    def _interactive_queues(self) -> frozenset[str]:
        policies = self._records.policies
        if self._policies != policies.version:
            self._policies = policies.version
            terms = (rule for rule in policies.rules if isinstance(rule, QueueTerms))
            self._interactive = frozenset(rule.queue for rule in terms if rule.interactive)
        return self._interactive


def view_of_job(
    job: Job,
    spec: JobSpec,
    *,
    revision: int,
    runs: tuple[float, ...],
    interactive: bool,
    without_checkpoint: tuple[str, ...] = (),
) -> JobView:
    """Join record and spec into what planning may see: no command, environment or secret among it."""
    forecast = runtime_quantiles(spec.estimate_s, runs, limit_s=job.max_duration_s)
    return JobView(
        id=job.id,
        revision=revision,
        name=job.name,
        queue=job.queue,
        owner=job.owner,
        submitted_at=job.submitted_at,
        priority=job.priority,
        nodes=spec.nodes,
        gpus=spec.resources.gpus.count,
        models=spec.resources.gpus.models,
        gpu_memory_mib=spec.resources.gpus.memory_mib,
        cpus_milli=spec.resources.cpus_milli,
        memory_mib=spec.resources.memory_mib + spec.resources.shm_mib,
        run_s=forecast.run_s,
        run_low_s=forecast.low_s,
        run_high_s=forecast.high_s,
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
        avoid_nodes=(*job.losses, *without_checkpoint, *(refusal.member for refusal in job.refusals)),
        refused=tuple((refusal.site, refusal.until_at) for refusal in job.refusals if refusal.until_at),
        needs_fencing=bool(spec.stop_within_s),
        inputs=spec.inputs or (),
    )
