"""What people are shown: records, reports and the last plan, joined into rows.

Nothing here changes anything, and nothing here is stored: a waiting job's reason is that of the newest plan, read when somebody asks.
"""

from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from federator.control.administration.archive_search import ArchiveSearch
from federator.control.administration.visibility import ANOTHERS, Sight, Visibility
from federator.control.leases.stocks import learned_limits
from federator.control.queries.archive_pages import ArchivePages, one_list
from federator.control.queries.arrays import added_up, as_array, first_to_tell, tasks_by_status
from federator.control.queries.blockers import blocked_by
from federator.control.queries.burst_rows import burst_status
from federator.control.queries.expectations import Expectations
from federator.control.queries.explanations import Explainer
from federator.control.queries.job_lists import (
    EVERY_JOB,
    NEWEST_FIRST,
    JobLists,
    Meant,
    Sorting,
    Wanted,
    named,
    of_archived,
    selected,
)
from federator.control.queries.job_sorting import JobOrders, Key
from federator.control.queries.pipelines import pipeline_named, steps_of
from federator.control.queries.rows import budget_rows, gpu_rows, lease_row, offer_row, queue_rows, site_rows
from federator.control.queries.waits import Waits
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Records
from federator.control.reports.inventory import Inventory
from federator.control.submission.intake_checks import most_priority
from federator.control.submission.series import SeriesService
from federator.control.turns.observation import Observer
from federator.control.turns.turn import Turn
from federator.kernel.errors import NotFound
from federator.kernel.ids import earliest
from federator.model.archive import ArchiveFilter, FilePart
from federator.model.capacity import LEASE_ENDED
from federator.model.events import Event, LedgerEntry, LedgerKind
from federator.model.identity import Caller
from federator.model.jobs import Job, JobSpec, JobStatus
from federator.model.placements import Part, Placement
from federator.model.plans import Explanation, Waiting
from federator.model.rights import MAY_READ
from federator.model.sites import Site
from federator.planning.wording.told import told_event, told_line, winner_words
from federator.ports import every_item
from federator.wire.addresses import read_address
from federator.wire.administration import BurstStatus
from federator.wire.http import (
    ArrayDetail,
    BudgetRow,
    GpuCurve,
    GpuHolder,
    GpuPoint,
    GpuRow,
    JobDetail,
    JobPage,
    JobRow,
    LeaseRow,
    OfferRow,
    Overview,
    Preview,
    QueueRow,
    SiteRow,
    StatementRow,
)
from federator.wire.jobfile import JobRequest
from federator.wire.widths import width_of, widths

OVERVIEW_JOBS = 200
HIDDEN = "(hidden)"
"""Stands for the value of an environment variable of somebody else's job."""


class Views:
    """Reads for people and programs."""

    def __init__(  # noqa: PLR0913 - what it joins, by name
        self,
        *,
        records: Records,
        inventory: Inventory,
        observer: Observer,
        turn: Turn,
        explainer: Explainer,
        expectations: Expectations,
        event_writer: EventWriter,
        series: SeriesService,
        visibility: Visibility,
        search: ArchiveSearch,
    ) -> None:
        self.search = search
        self._archive_pages = ArchivePages(search)
        self._records = records
        self._inventory = inventory
        self._observer = observer
        self._turn = turn
        self._explainer = explainer
        self._expectations = expectations
        self._event_writer = event_writer
        self._series = series
        self._visibility = visibility
        self.waits = Waits(records, turn, explainer, self._waiting, observer.pools)
        self._lists = JobLists(records, JobOrders(records, explainer, lambda: turn.plan))

    def find_job(self, caller: Caller, name: str) -> Job:
        """A job by id, the newest of that name, or a task as in `sweep[3]`: the caller's own first; of a series, the newest of its runs. Raises `NotFound`, also for one that they are not shown."""
        job = named(self._records, self._visibility.of(caller), caller.name, name)
        return job if job is not None else self._series.run_of(caller, name)

    async def find_any(self, caller: Caller, name: str) -> Job:
        """The same, of the archive too."""
        sight, lacking = self._visibility.of(caller), None
        try:
            job = named(self._records, sight, caller.name, name)
        except NotFound as error:
            job, lacking = None, error
        if job is None or (job.owner != caller.name and name != job.id):
            old = await self.search.named(sight, caller.name, name)
            job = old if job is None or (old is not None and old.owner == caller.name) else job
        if job is None and lacking is not None:
            raise lacking
        return job if job is not None else self._series.run_of(caller, name)

    def steps(self, caller: Caller, name: str) -> tuple[str, ...]:
        """Ids of the jobs and arrays that are the steps of the pipeline of that name or id; none where a job is called so, or nothing is."""
        pipeline = self.pipeline(caller, name)
        if not pipeline or named(self._records, self._visibility.of(caller), caller.name, name) is not None:
            return ()
        return tuple(steps_of(self._records, pipeline))

    def pipeline(self, caller: Caller, name: str) -> str:
        """The id of the newest pipeline of that name, the caller's own first, or of the one with that id; empty where there is none."""
        return pipeline_named(self._records, self._visibility.of(caller), caller.name, name)

    async def find_all(self, caller: Caller, name: str) -> Meant:
        """All that the name means, as `selected`, also of the archive; of a series, the newest of its runs. Raises `NotFound` and `Invalid`."""
        sight = self._visibility.of(caller)
        found = selected(self._records, sight, caller.name, name)
        if found is not None:
            return found
        first = await self.search.named(sight, caller.name, name)
        # A task that was cancelled before it was a job is not there by itself.
        first = first or await self.search.named(sight, caller.name, read_address(name).name)
        array = await self.search.array(first, name) if first is not None else None
        if array is not None:
            return of_archived(array, name)
        return Meant(
            await self.search.selected(sight, caller.name, name) or [self._series.run_of(caller, name)]
        )

    def detail(self, job: Job, *, seen_by: Caller | None = None) -> JobDetail:
        """Everything about one job; of what it runs only the names of its environment, for people who may not read its logs either."""
        placement, spec = self._last_placement(job), self._records.spec(job.spec_hash)
        _, plan = self._turn.last or (None, None)
        waiting = self._waiting(job)
        won, won_at = (
            placement or plan,
            placement.assigned_at if placement else (plan.taken_at if plan else 0.0),
        )
        return JobDetail(
            job=msgspec.structs.replace(job, because=self._explainer.why(job, None, placement)),
            reason=job.reason if waiting is None else waiting.why,
            spec=spec if self._may_read(seen_by, job) else _without_what_it_runs(spec),
            site=placement.site if placement else "",
            pool=placement.pool if placement else "",
            market=placement.market if placement else "",
            members=placement.members if placement else (),
            parts=_parts(placement, self._inventory),
            waiting=waiting,
            before=None if waiting is None else self._explainer.before(job.id),
            planned_at=None if waiting is None or plan is None else plan.taken_at,
            decision=self._explainer.kept(
                placement.decision if placement else (plan.decision if plan and waiting else "")
            ),
            winner=won.winner if won else "",
            winner_because=winner_words(won, won_at) if won else "",
            winner_reason=won.winner_reason if won else None,
            outputs=self._records.known_outputs(job.id) is not None,
            used=self._inventory.measurements.of(placement),
            form=placement.form if placement else None,
            **self._expectations.of(job, waiting, placement).fields(),
        )

    def _may_read(self, caller: Caller | None, job: Job) -> bool:
        """Whether what the job keeps to itself may be shown; None stands for its owner."""
        return caller is None or bool(self._visibility.authority.now.relations(caller, job) & MAY_READ)

    async def page(
        self,
        caller: Caller,
        wanted: Wanted = EVERY_JOB,
        *,
        sorting: Sorting = NEWEST_FIRST,
        after: Key | None = None,
        limit: int = 100,
    ) -> tuple[JobPage, Key | None]:
        """A page of jobs, and after which place the next one begins (None: there is none)."""
        sight = self._visibility.of(caller)
        keys, total = await self._lists.page(sight, wanted, sorting, after=after, limit=limit + 1)
        # At one moment, without a pause: what leaves memory later is not yet of the archive that is asked.
        rows, parts = {name: self._line(name) for _, name in keys[:limit]}, self._archive_pages.parts()
        older, more = await self._archive_pages.page(
            parts, sight, wanted, sorting, after=after, limit=limit + 1
        )
        keys = one_list((keys, older), sorting, limit + 1)
        past = [name for _, name in keys[:limit] if name not in rows]
        # Of an array that is not over all that matches may be there.
        rows |= {name: self._line(name) for name in past if name in self._records.arrays}
        rows |= await self._old_lines(
            [name for name in past if name not in rows], parts, collapse=wanted.collapse
        )
        shown = tuple(rows[name] for _, name in keys[:limit] if name in rows)
        return JobPage(shown, total=total + more), keys[limit - 1] if len(keys) > limit else None

    async def _old_lines(
        self, names: Sequence[str], parts: Sequence[FilePart], *, collapse: bool
    ) -> dict[str, JobRow]:
        """Jobs of the archive, or arrays, as lines."""
        if not names:
            return {}
        archived = self.search.archived
        arrays = await archived.arrays(names) if collapse else {}
        lines = {name: msgspec.json.decode(line, type=JobRow) for name, (line, _) in arrays.items()}
        ids = tuple(name for name in names if name not in lines)
        jobs = await archived.jobs(ArchiveFilter(ids=ids), limit=len(ids), parts=parts) if ids else []
        return lines | {job.id: self.row(job) for job in jobs}

    def _line(self, name: str) -> JobRow:
        """A job, or an array, as a line."""
        job = self._records.jobs.get(name)
        if job is not None:
            return self.row(job)
        shown = self.row(first_to_tell(self._records, name))
        return as_array(shown, self._records, name)

    async def array(self, caller: Caller, task: Job) -> ArrayDetail:
        """The tasks of an array, added up. Raises `NotFound` for a job that is of none."""
        if task.array is None:
            raise NotFound(f"{task.name} is not an array", remedy=f"federator show {task.name}")
        if task.array in self._records.arrays:
            found = self._added_up(task.array, task)
        else:
            _, added = (await self.search.archived.arrays([task.array]))[task.array]
            found = msgspec.json.decode(added, type=ArrayDetail)
        return (
            found if self._may_read(caller, task) else replace(found, spec=_without_what_it_runs(found.spec))
        )

    def _added_up(self, array: str, task: Job) -> ArrayDetail:
        tells = self.row(first_to_tell(self._records, array))
        return added_up(self._records, array, tells, self._records.spec(task.spec_hash))

    def summary(self, array: str) -> tuple[bytes, bytes]:
        """An array that is over as the archive keeps it: as a line, and added up."""
        task = next(iter(self._records.arrays[array].values()))
        return msgspec.json.encode(self._line(array)), msgspec.json.encode(self._added_up(array, task))

    def told_for_all(self, array: str) -> tuple[Job, dict[str, int]]:
        """The task whose reason is told for its array, and how many tasks are in each status."""
        return first_to_tell(self._records, array), tasks_by_status(self._records, array)

    def row(self, job: Job) -> JobRow:
        """A job as a line."""
        spec = self._records.spec(job.spec_hash)
        placement, waiting = self._last_placement(job), self._waiting(job)
        running = placement is not None and not placement.ended
        has = spec.as_form(placement.form) if running and placement else spec
        return JobRow(
            id=job.id,
            name=job.name,
            owner=job.owner,
            queue=job.queue,
            status=job.status,
            priority=job.priority,
            nodes=has.nodes,
            gpus=has.resources.gpus.total,
            models="|".join(has.resources.gpus.models if running and placement else _models(spec)),
            site=placement.site if placement else "",
            market=placement.market if placement else "",
            submitted_at=job.submitted_at,
            started_at=job.started_at,
            finished_at=job.finished_at,
            deadline_at=job.deadline_at,
            home_finish_at=self._home_finish_at(job, placement, waiting),
            **self._expectations.of(job, waiting, placement).fields(),
            spent_usd=job.spent_usd,
            because=self._explainer.why(job, waiting, placement),
            reason=job.reason if waiting is None else waiting.why,
            array=job.array,
            array_index=job.array_index,
            series=job.series,
            missed_deadline=job.outcome.missed_deadline if job.outcome else None,
            labels=spec.labels,
            used=self._inventory.measurements.of(placement),
            width=width_of(spec, placement.form) if running and placement else widths(spec),
            team=job.team,
        )

    async def explain(
        self, job: Job, seen_by: Caller | None = None, *, whole_array: bool = False
    ) -> Explanation:
        """Why it is where it is, or why it waits, and why not elsewhere; for somebody who may change it, with what a higher priority would do, for it or for its `whole_array`."""
        most = None if seen_by is None else most_priority(job, self._visibility.authority.now, seen_by)
        return await self._explainer.explain(
            job,
            self._waiting(job),
            self._last_placement(job),
            most_priority=most,
            whole_array=whole_array,
        )

    async def preview(self, caller: Caller, request: JobRequest) -> Preview:
        """What would become of this request, nothing being changed."""
        return await self._explainer.preview(caller, request)

    async def preview_of(self, job: Job, spec: JobSpec) -> Preview:
        """What would become of a job that waits, if it were as given; nothing is changed."""
        return await self._explainer.preview_of(job, spec)

    def sites(self, caller: Caller | None = None) -> list[SiteRow]:
        """All sites, by name; what has parts of GPUs by name where that caller is shown it (None: all)."""
        sites = sorted(self._records.sites.values(), key=lambda site: (site.kind, site.name))
        return self._shown(sites, caller)

    def site(self, name: str, caller: Caller | None = None) -> SiteRow:
        """One site. Raises `NotFound`."""
        site = self._records.sites.get(name)
        if site is None:
            raise NotFound(f"no site {name!r}", remedy="'federator sites' shows those that there are")
        row = self._shown([site], caller)[0]
        use = gpu_rows((host.name for host in row.hosts), self._records, self._inventory)
        return replace(
            row,
            gpu_use=use
            if caller is None
            else tuple(_unnamed(each, self._visibility.of(caller)) for each in use),
        )

    def gpu_curves(self, job: Job) -> list[GpuCurve]:
        """Use over time of each GPU of its newest attempt."""
        placement = self._last_placement(job)
        curves = self._inventory.gpu_uses.of(placement) if placement else []
        return [
            GpuCurve(member, gpu, tuple(GpuPoint(*point) for point in curve.points()))
            for member, gpu, curve in curves
        ]

    def _shown(self, sites: list[Site], caller: Caller | None) -> list[SiteRow]:
        rows = site_rows(sites, self._observer.pools(), self._records, self._inventory)
        return rows if caller is None else [_without_names(row, self._visibility.of(caller)) for row in rows]

    def queues(self, caller: Caller | None = None) -> list[QueueRow]:
        """All queues, by path, with what the caller may do there (None: without)."""
        return queue_rows(self._records, self._visibility.authority.now, caller)

    def offers(self) -> list[OfferRow]:
        """What could be rented, cheapest first."""
        seen = self._observer.interruptions
        learned = learned_limits(self._records.leases.values(), self._event_writer.clock.now())
        rows = [offer_row(view, seen, learned) for view in self._observer.offers()]
        return sorted(rows, key=lambda row: (row.price_usd_h / max(1, row.gpus), row.name))

    def leases(self) -> list[LeaseRow]:
        """All leases, newest first."""
        return [
            lease_row(lease)
            for lease in sorted(self._records.leases.values(), key=lambda lease: lease.id, reverse=True)
        ]

    def budgets(self) -> list[BudgetRow]:
        """Money under every cap."""
        return budget_rows(self._records, self._event_writer.clock.now())

    def burst(self, caller: Caller | None = None) -> BurstStatus:
        """Whether anything may be rented, by which policies, and what waits for a person, as far as that caller is shown it (None: all)."""
        status = burst_status(self._records, self._turn.plan, self._event_writer.clock.now())
        if caller is None:
            return status
        sight = self._visibility.of(caller)
        return replace(status, proposals=tuple(row for row in status.proposals if sight.named(row.job)))

    def overview(self, caller: Caller) -> Overview:
        """All at once, for a screen."""
        leases = self._records.leases.values()
        sight = self._visibility.of(caller)
        others = sight.at_their_site()
        here = [name for name in others if not self._records.jobs[name].terminal]
        jobs = sorted([*here, *self._records.index.oldest(OVERVIEW_JOBS, sight.cell)][:OVERVIEW_JOBS])
        _, plan = self._turn.last or (None, None)
        return Overview(
            now=self._event_writer.clock.now(),
            sites=tuple(self.sites(caller)),
            queues=tuple(self.queues(caller)),
            leases=tuple(self.leases()[:50]),
            jobs=tuple(self.row(self._records.jobs[job]) for job in jobs),
            spent_usd=sum(lease.billed_usd for lease in leases),
            committed_usd=sum(
                max(0.0, lease.committed_usd - lease.billed_usd)
                for lease in leases
                if lease.status not in LEASE_ENDED
            ),
            caps=tuple(self.budgets()),
            turn=f"{plan.winner}: {winner_words(plan, plan.taken_at)}" if plan else "",
            jobs_total=len(self._records.index.of_cells(sight.cell, others)) + self.search.count(sight),
        )

    async def events(self, job_id: str, after: str | None) -> list[Event]:
        """A job's timeline, from after that event on."""
        past = None if job_id in self._records.jobs else self._records.past.events.get(job_id)
        if past is not None:
            return [told_event(event) for event in past if after is None or event.id > after]
        prefix = f"event/{job_id}/"
        return [
            told_event(msgspec.json.decode(item.value, type=Event))
            async for item in every_item(self._records.store, prefix, after=prefix + after if after else None)
        ]

    async def ledger(
        self,
        *,
        after: str | None = None,
        limit: int = 1000,
        job: str = "",
        sites: tuple[str, ...] = (),
        since: float = 0.0,
    ) -> list[LedgerEntry]:
        """Lines of the ledger, oldest first; of all sites, or of these."""
        found: list[LedgerEntry] = []
        async for entry in self.ledger_lines(after, since=since):
            if (not job or entry.job == job) and (not sites or entry.site in sites):
                found.append(told_line(entry))
            if len(found) >= limit:
                break
        return found

    async def statement(self, site: str, since: float, until: float | None) -> list[StatementRow]:
        """What was used at a site, and what that cost, by owner, queue and GPU model; the most GPU time first."""
        self.site(site)
        used: dict[tuple[str, str, str], StatementRow] = {}
        async for entry in self.ledger_lines(since=since):
            if until is not None and entry.at >= until:
                continue
            if entry.site == site and entry.kind in (LedgerKind.USAGE, LedgerKind.MONEY):
                key = (entry.owner, entry.queue, entry.model)
                row = used.get(key) or StatementRow(owner=entry.owner, queue=entry.queue, model=entry.model)
                used[key] = StatementRow(
                    owner=row.owner,
                    queue=row.queue,
                    model=row.model,
                    attempts=row.attempts + (entry.kind is LedgerKind.USAGE),
                    gpu_s=row.gpu_s + entry.gpu_s,
                    usd=row.usd + entry.usd,
                )
        return sorted(used.values(), key=lambda row: (-row.gpu_s, row.owner, row.queue, row.model))

    async def ledger_lines(
        self, after: str | None = None, *, since: float = 0.0
    ) -> AsyncIterator[LedgerEntry]:
        """Lines from that moment on: ids are in the order of their time, so nothing before it is read."""
        after = max(after or "", earliest("le", since)) if since > 0 else after
        start = f"ledger/{after}" if after else None
        async for item in every_item(self._records.store, "ledger/", after=start):
            entry = msgspec.json.decode(item.value, type=LedgerEntry)
            if entry.at >= since:
                yield entry

    def _waiting(self, job: Job) -> Waiting | None:
        """What the newest plan says of a job that waits."""
        if job.status is not JobStatus.PENDING:
            return None
        if because := blocked_by(self._records, job):
            return Waiting(job=job.id, kind="later", because=because)
        if job.id not in self._records.jobs:
            return Waiting(job=job.id, kind="later", because=job.because)
        found = self._explainer.waiting(job.id)
        if found is not None and job.refusals:  # the plan knows that it was refused, and not why
            found = msgspec.structs.replace(
                found, because=f"{found.because} ({self._explainer.why(job, None, None)})"
            )
        return found

    def _home_finish_at(self, job: Job, placement: Placement | None, waiting: Waiting | None) -> float | None:
        """Forecast finish on owned capacity: of the plan while it waits, of the recorded counterfactual once it was rented for."""
        if waiting is not None:
            return waiting.home_finish_at
        lease = self._records.leases.get(placement.lease or "") if placement else None
        if lease is not None and lease.evidence is not None and lease.evidence.job == job.id:
            return lease.evidence.home_finish_at
        return placement.expected_end_at if placement and not placement.ended else None

    def _last_placement(self, job: Job) -> Placement | None:
        return self._records.known_placement(job.placement)


def _without_names(row: SiteRow, sight: Sight) -> SiteRow:
    """Parts of GPUs stay, whoever has them: others need to know what is free."""
    if sight.everything or not any(pool.parts for pool in row.pools):
        return row
    return replace(
        row,
        pools=tuple(
            replace(
                pool,
                parts=tuple(
                    part if sight.named(part.job) else replace(part, job="", name=ANOTHERS)
                    for part in pool.parts
                ),
            )
            for pool in row.pools
        ),
    )


def _unnamed(row: GpuRow, sight: Sight) -> GpuRow:
    if sight.everything or all(sight.named(each.job) for each in row.jobs):
        return row
    hidden = GpuHolder("", ANOTHERS)
    return replace(row, jobs=tuple(each if sight.named(each.job) else hidden for each in row.jobs))


def _models(spec: JobSpec) -> tuple[str, ...]:
    """The models that it would take, in whatever form; empty where any would do."""
    forms = [spec.as_form(form).resources.gpus for form in range(1 + len(spec.forms or ()))]
    if any(gpus.count and not gpus.models for gpus in forms):
        return ()
    return tuple(dict.fromkeys(model for gpus in forms for model in gpus.models))


def _without_what_it_runs(spec: JobSpec) -> JobSpec:
    """What everybody may see: name, size and where it may go, and not what it runs, with what, and on which data."""
    return replace(
        spec,
        run=spec.run and HIDDEN,
        command=spec.command and (HIDDEN,),
        launch=(HIDDEN,) if spec.launch else UNSET,
        setup=spec.setup and HIDDEN,
        workdir=None,
        env=dict.fromkeys(spec.env, HIDDEN),
        outputs=(),
        inputs=tuple(replace(each, uri=HIDDEN) for each in spec.inputs) if spec.inputs else UNSET,
        inputs_from=tuple(replace(each, job=HIDDEN, name=HIDDEN, output="") for each in spec.inputs_from)
        if spec.inputs_from
        else UNSET,
        checkpoint=replace(spec.checkpoint, uri=HIDDEN if spec.checkpoint.uri else UNSET)
        if spec.checkpoint
        else None,
        secrets=UNSET,
    )


def _parts(placement: Placement | None, inventory: Inventory) -> tuple[Part, ...]:
    """How far each host of a gang is, and of which that is not sure, because nothing was heard of it since."""
    if placement is None or placement.ended:
        return placement.parts if placement else ()
    return tuple(
        part
        if part.ended
        else msgspec.structs.replace(part, detail=inventory.unseen(part.member) or part.detail)
        for part in placement.parts
    )
