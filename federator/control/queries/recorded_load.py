"""The load that there was, and the world that there is, as simulations take them: what `policy replay` and `simulate --from-live` run on.

Run times are those of attempts that ended. Of a job that is not over, and of one that a cut of the time divides, what is expected of it is given,
by its user's estimate or by the past of its name. A job that never ran and never will – cancelled while it waited, held, or behind one that
failed – is no load, and only counted.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from msgspec.structs import replace

from federator.control.record.archived_jobs import ArchivedJobs
from federator.control.record.records import Records
from federator.control.reports.history import History
from federator.control.reports.inventory import Inventory
from federator.model.archive import ArchiveFilter
from federator.model.capacity import Pool
from federator.model.jobs import Job, JobSpec, JobStatus
from federator.model.sites import SiteStatus
from federator.planning.scheduling.forecast import RUNTIME_MARGIN, runtime_quantiles
from federator.settings import ProviderSettings
from federator.wire.recorded import (
    RecordedJob,
    RecordedJobs,
    RecordedOffer,
    RecordedPool,
    RecordedSite,
    RecordedWorld,
)

PORTION = 5000
"""Jobs looked at for one page: the loop that answers people also plans."""
OLDER = "archive:"
"""What a cursor begins with that is in the archive."""
BEYOND = 1.1
"""A job that has run for longer than was expected is expected to run for so many times what it has run."""


class Span(NamedTuple):
    """A time, in seconds since the epoch: jobs that could run in it are its load."""

    since_at: float
    until_at: float


class _Run(NamedTuple):
    """How long a job runs, at speed 1."""

    run_s: float
    ended: bool
    before_s: float = 0.0


class Recorded:
    """Reads records and reports; changes nothing."""

    def __init__(
        self,
        records: Records,
        inventory: Inventory,
        history: History,
        providers: dict[str, ProviderSettings],
        archived: ArchivedJobs,
    ) -> None:
        self._records = records
        self._archived = archived
        self._inventory = inventory
        self._history = history
        self._providers = providers

    # -- load ---------------------------------------------------------------------------------------------------------

    async def jobs(self, span: Span, *, after: str | None, limit: int, now: float) -> RecordedJobs:
        """The load of a time, newest first, and then what of it is in the archive; jobs that were there when it began are part of it. `after`: what the page before gave. A job that moves meanwhile may be in two pages."""
        if after is not None and after.startswith(OLDER):
            return await self._older(span, after.removeprefix(OLDER), limit, now)
        page = self._in_memory(span, after, limit, now)
        older = any(file.finished_until > span.since_at for file in self._archived.files())
        return replace(page, next_after=OLDER) if page.next_after is None and older else page

    async def _older(self, span: Span, before: str, limit: int, now: float) -> RecordedJobs:
        """What of it is in the archive, of ids before that."""
        where = ArchiveFilter(before=before, until_at=span.until_at, ended_since_at=span.since_at)
        jobs = (await self._archived.jobs(where, limit=limit))[::-1]
        found = [recorded for job in jobs if (recorded := self._job(job, span, now)) is not None]
        return RecordedJobs(
            jobs=tuple(found),
            left_out=len(jobs) - len(found),
            next_after=f"{OLDER}{jobs[-1].id}" if len(jobs) == limit else None,
        )

    def _in_memory(self, span: Span, after: str | None, limit: int, now: float) -> RecordedJobs:
        found: list[RecordedJob] = []
        left_out, last, looked = 0, None, 0
        ids = self._records.index.of_cells(lambda _cell: True).before(after)
        for name in islice(ids, PORTION):
            looked, last = looked + 1, name
            job = self._records.jobs[name]
            if not _touches(job, span):
                continue
            recorded = self._job(job, span, now)
            if recorded is None:
                left_out += 1
            else:
                found.append(recorded)
            if len(found) == limit:
                break
        more = len(found) == limit or looked == PORTION
        return RecordedJobs(jobs=tuple(found), left_out=left_out, next_after=last if more else None)

    def _job(self, job: Job, span: Span, now: float) -> RecordedJob | None:
        spec = self._records.spec(job.spec_hash)
        before = list(self._records.followed(job))
        waits = job.started_at is None  # what a job that ran has followed may be in the archive
        unmet = waits and any(not met for _, met in self._records.predecessors(job))
        run = self._run(job, spec, span, now)
        if spec.resources.gpus.share_milli:  # simulations know whole GPUs only
            return None
        if run is None or unmet:
            return None
        gpus, where = spec.resources.gpus, spec.placement
        return RecordedJob(
            id=job.id,
            name=job.name,
            queue=job.queue,
            owner=job.owner,
            ready_at=max(job.submitted_at, *(each.finished_at or 0.0 for each in before), 0.0),
            run_s=run.run_s,
            ended=run.ended,
            ran_before_s=run.before_s,
            estimate_s=spec.estimate_s,
            deadline_at=job.deadline_at,
            value_usd=job.value_usd,
            must=job.must,
            max_cost_usd=job.max_cost_usd,
            max_duration_s=job.max_duration_s,
            priority=job.priority,
            nodes=spec.nodes,
            gpus=gpus.count,
            cpus_milli=spec.resources.cpus_milli,
            memory_mib=spec.resources.memory_mib + spec.resources.shm_mib,
            gpu_memory_mib=gpus.memory_mib,
            models=gpus.models,
            speed=spec.speed,
            spot_policy=spec.spot_policy,
            kinds=where.kinds,
            sites=where.sites,
            not_sites=where.not_sites,
            site_labels=where.labels,
            labels=spec.labels,
            licenses=spec.licenses or {},
            inputs=spec.inputs or (),
        )

    def _run(self, job: Job, spec: JobSpec, span: Span, now: float) -> _Run | None:
        """None: it never ran, and never will."""
        placement = self._records.known_placement(job.placement)
        began_at = placement.started_at if placement is not None else None
        if placement is None or began_at is None:
            waits = not job.terminal and job.status is not JobStatus.HELD
            return _Run(self._expected_s(job, spec), ended=False) if waits else None
        pace = spec.pace(placement.form, placement.model)
        lasted_s = ((placement.ended_at or now) - began_at) * pace
        if spec.checkpoint is not None:
            # It has gone on from what it saved: all its attempts together are its run.
            lasted_s += job.saved_s
        run_s = lasted_s if job.terminal else max(self._expected_s(job, spec), lasted_s * BEYOND)
        before_s = min(run_s, max(0.0, (span.since_at - began_at) * pace))
        return _Run(max(1.0, run_s), job.terminal, before_s)

    def _expected_s(self, job: Job, spec: JobSpec) -> float:
        """What planning expects, without its margin."""
        runs = self._history.runs(job.queue, job.kin)
        return runtime_quantiles(spec.estimate_s, runs, limit_s=job.max_duration_s).run_s / RUNTIME_MARGIN

    # -- world --------------------------------------------------------------------------------------------------------

    def world(self, now: float) -> RecordedWorld:
        """Sites that are not gone, with what their agents have reported last, and the offers of all providers."""
        return RecordedWorld(
            taken_at=now,
            sites=tuple(self._sites()),
            offers=tuple(
                RecordedOffer(offer, self._providers[provider].site)
                for provider, offers in sorted(self._inventory.offers.items())
                for offer in offers
            ),
        )

    def _sites(self) -> Iterator[RecordedSite]:
        for site in sorted(self._records.sites.values(), key=lambda site: site.name):
            members = [
                member
                for member in self._records.members.values()
                if member.site == site.name
                and member.lease is None
                and member.status not in (SiteStatus.GONE, SiteStatus.LOST)
            ]
            if not members or site.status is SiteStatus.GONE:
                continue
            heard = [self._inventory.members.get(member.id) for member in members]
            reports = [each.report for each in heard if each is not None and each.report is not None]
            prices = [report.price_usd_gpu_h for report in reports if report.price_usd_gpu_h is not None]
            yield RecordedSite(
                name=site.name,
                kind=site.kind,
                region=site.region,
                labels=site.labels_with(*reports),
                price_usd_gpu_h=prices[0] if prices else site.price_usd_gpu_h,
                draining=site.draining,
                pools=tuple(
                    _together([pool for report in reports for pool in report.pools if not pool.shared])
                ),
            )


def _touches(job: Job, span: Span) -> bool:
    """Whether the job was there at some time of the span."""
    return job.submitted_at <= span.until_at and (job.finished_at is None or job.finished_at > span.since_at)


def _together(pools: list[Pool]) -> Iterator[RecordedPool]:
    """Pools of one name and make at several members are one; of one name and several makes, each has a name of its own."""
    nodes: dict[RecordedPool, int] = {}
    for pool in pools:
        make = _make(pool)
        nodes[make] = nodes.get(make, 0) + _lent_nodes(pool)
    names: dict[str, int] = {}
    for make, count in nodes.items():
        names[make.name] = names.get(make.name, 0) + 1
        name = make.name if names[make.name] == 1 else f"{make.name}-{names[make.name]}"
        yield RecordedPool(
            name=name,
            model=make.model,
            gpu_memory_mib=make.gpu_memory_mib,
            nodes=count,
            gpus_per_node=make.gpus_per_node,
            cpus_milli_per_node=make.cpus_milli_per_node,
            memory_mib_per_node=make.memory_mib_per_node,
        )


def _make(pool: Pool) -> RecordedPool:
    """One host of it: with what is lent of the one, where that is less than a whole host."""
    gpus = min(pool.gpus_per_node, pool.lent_gpus) if pool.lent_gpus else pool.gpus_per_node
    return RecordedPool(
        name=pool.name,
        model=pool.model,
        gpu_memory_mib=pool.gpu_memory_mib,
        gpus_per_node=gpus,
        cpus_milli_per_node=pool.cpus_milli_per_node,
        memory_mib_per_node=pool.memory_mib_per_node,
    )


def _lent_nodes(pool: Pool) -> int:
    """So many whole hosts are lent; all of those where nothing is lent at this hour, or nothing is said."""
    if not pool.lent_gpus or not pool.gpus_per_node:
        return pool.nodes
    return max(1, pool.lent_gpus // pool.gpus_per_node)
