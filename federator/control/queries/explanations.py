"""Explanations: the newest plan's words for what waits, the recorded decision's for what was placed.

Filters and forecasts are asked again on the same problem, which needs no solver and takes milliseconds; so there is an answer even when the solver is
off or dead.
"""

import asyncio

import msgspec

from federator.control.queries.expectations import Expectations, with_expected
from federator.control.queries.silent_sites import unheard, unknown_then, with_unsure
from federator.control.record.decisions import DecisionLog
from federator.control.record.records import Records
from federator.control.reports.inventory import Inventory
from federator.control.submission.acceptance import Acceptance
from federator.control.turns.observation import Observer
from federator.control.turns.set_aside import KIND as SET_ASIDE
from federator.control.turns.turn import Turn
from federator.kernel.errors import NotFound
from federator.model.capacity import Market
from federator.model.identity import Caller
from federator.model.jobs import Job, JobSpec, JobStatus
from federator.model.placements import Placement
from federator.model.plans import Explanation, Plan, Waiting
from federator.model.reasons import Behind
from federator.model.snapshot import Problem
from federator.planning.explanations.explain import Aftermath, explain_waiting
from federator.planning.explanations.higher_priority import PriorityTrials, with_advice
from federator.planning.plans.array_preview import preview_array
from federator.planning.plans.preview import preview
from federator.planning.wording.told import because_of, told_waiting, winner_words
from federator.wire.http import Preview
from federator.wire.jobfile import JobRequest


class Explainer:
    """Answers "why is my job waiting, and why not there?"."""

    def __init__(
        self,
        records: Records,
        observer: Observer,
        turn: Turn,
        acceptance: Acceptance,
        decisions: DecisionLog,
        inventory: Inventory,
        expectations: Expectations,
    ) -> None:
        self._records = records
        self._inventory = inventory
        self._observer = observer
        self._turn = turn
        self._acceptance = acceptance
        self._decisions = decisions
        self.expectations = expectations
        self._now = expectations.now
        self._last: Aftermath | None = None
        self._trials: PriorityTrials | None = None

    def waiting(self, job_id: str) -> Waiting | None:
        """What the newest plan says of a job that it did not start, in words; of one that it did not see, what follows from it."""
        found = self.found(job_id)
        return None if found is None else told_waiting(found, self._now())

    def found(self, job_id: str) -> Waiting | None:
        """The same without the words, for whoever looks at very many; None for a task that is not expanded."""
        job = self._records.jobs.get(job_id)
        if job is None:
            return None
        aside = self._turn.aside.of(job)
        if aside is not None:
            return Waiting(job=job_id, kind=SET_ASIDE, because=aside.because, reason=SET_ASIDE)
        return self._turn.waiting.get(job_id) or self._outside(job_id)

    def before(self, job_id: str) -> int | None:
        """How many jobs that wait are to start before one that does, by the newest plan; None: nothing is known of when it starts."""
        mine = self.found(job_id)
        if mine is None or mine.expected_start_at is None:
            return None
        if isinstance(mine.why, Behind):
            return mine.why.jobs
        starts = (each.expected_start_at for each in self._turn.waiting.values())
        return sum(start is not None and start < mine.expected_start_at for start in starts)

    def reason_of(self, job: Job) -> str:
        """The kind of the reason why a job waits, or is as it is; of what it waits for beside capacity, the sort of that."""
        found = self.found(job.id) if job.status is JobStatus.PENDING else None
        reason = job.reason if found is None else found.why
        if reason is not None:
            return str(type(reason).__struct_config__.tag)
        return found.kind if found is not None else ""

    def why(self, job: Job, waiting: Waiting | None, placement: Placement | None) -> str:
        """Why it waits, or what became of it, and that this is not sure where its hosts are not heard."""
        if waiting is not None:
            return waiting.because
        return with_unsure(because_of(job, self._now()), placement, self._records, self._inventory)

    def _outside(self, job_id: str) -> Waiting | None:
        """Of a job outside the window: what keeps all that are like it; or else how many are before it."""
        standing, last = self._observer.line.standing(job_id), self._turn.last
        if standing is None or last is None or job_id in self._observer.window:
            return None
        alike = self._turn.waiting.get(standing.alike or "")
        if alike is not None and alike.kind != "capacity":
            return msgspec.structs.replace(alike, job=job_id)
        start_at = last[1].taken_at + standing.behind_s if standing.behind_s else None
        finish_at = start_at + self._observer.jobs.of(self._records.jobs[job_id]).run_s if start_at else None
        return Waiting(
            job=job_id,
            kind="capacity",
            why=Behind(jobs=standing.ahead),
            expected_start_at=start_at,
            expected_finish_at=finish_at,
            home_finish_at=finish_at,
        )

    def _beside(self, problem: Problem, plan: Plan, job: Job, waiting: Waiting) -> tuple[Problem, Plan]:
        """The problem and plan as if the job had been looked at, too."""
        view = self._observer.jobs.bounded(self._observer.jobs.of(job), problem.snapshot.taken_at)
        snapshot = msgspec.structs.replace(problem.snapshot, jobs=(*problem.snapshot.jobs, view))
        return (
            msgspec.structs.replace(problem, snapshot=snapshot),
            msgspec.structs.replace(plan, waiting=(*plan.waiting, waiting)),
        )

    async def explain(
        self,
        job: Job,
        waiting: Waiting | None,
        placement: Placement | None,
        *,
        most_priority: int | None = None,
        whole_array: bool = False,
    ) -> Explanation:
        """The whole answer for one job: of the newest plan while it waits, of the recorded decision once it was placed.

        A decision is named only where it was kept. Advice is for what waits; of one that has ended there are no forecasts either, but what was.
        `most_priority`: up to which priority is to be advised, the job or its `whole_array`; None: none.
        """
        found = await self._explain(job, waiting, placement)
        found = msgspec.structs.replace(found, decision=self.kept(found.decision))
        if job.status is JobStatus.PENDING:
            found = self._with_unheard(found)
            if most_priority is not None:
                found = await self._with_priority(found, job, most_priority, whole_array=whole_array)
        elif placement is not None and found.sites:
            named = [site.site for site in found.sites]
            then = unknown_then(self._records, placement.assigned_at, named)
            found = msgspec.structs.replace(found, sites=(*found.sites, *then))
        if not job.terminal:
            spec = self._records.spec(job.spec_hash)
            found = self._expected(found, job, waiting, placement)
            return msgspec.structs.replace(found, run_time=self._observer.jobs.run_time(job, spec))
        return msgspec.structs.replace(
            found,
            sites=tuple(msgspec.structs.replace(site, start_at=None, finish_at=None) for site in found.sites),
            expected_start_at=job.started_at,
            expected_finish_at=job.finished_at,
            home_finish_at=found.burst.home_finish_at if found.burst else None,
        )

    async def _with_priority(
        self, found: Explanation, job: Job, most: int, *, whole_array: bool
    ) -> Explanation:
        """With the lowest priority that would help, as of the newest plan; of a job that this plan has not looked at nothing is known, nor of the tasks of an array beyond those."""
        if self._turn.last is None or job.id not in self._turn.waiting:
            return found
        problem, jobs = self._turn.last[0], [job.id]
        if whole_array:
            known = self._records.jobs
            others = (view.id for view in problem.snapshot.jobs if view.id in self._turn.waiting)
            jobs += [
                id_ for id_ in others if id_ in known and known[id_].array == job.array and id_ != job.id
            ]
        if self._trials is None or self._trials.problem is not problem:
            self._trials = PriorityTrials(problem)
        advice = await asyncio.to_thread(self._trials.lowest, tuple(jobs), most)
        return found if advice is None else with_advice(found, advice)

    def _expected(
        self, found: Explanation, job: Job, waiting: Waiting | None, placement: Placement | None
    ) -> Explanation:
        """With what is expected now, as lists have it; of one that has a place, its start is known, or was planned."""
        expected = self.expectations.of(job, waiting, placement)
        if expected.expected_start_at is None:
            expected = expected._replace(expected_start_at=found.expected_start_at)
        return found if expected.expected_finish_at is None else with_expected(found, expected)

    def _with_unheard(self, found: Explanation) -> Explanation:
        """With the sites of which a plan sees nothing, because they have not reported."""
        named = [site.site for site in found.sites]
        silent = unheard(self._records, self._inventory, named)
        return msgspec.structs.replace(found, sites=(*found.sites, *silent))

    def kept(self, decision: str) -> str:
        """The decision's id if it can be shown, else nothing."""
        return decision if self._decisions.kept(decision) else ""

    async def _explain(self, job: Job, waiting: Waiting | None, placement: Placement | None) -> Explanation:
        if job.status is JobStatus.PENDING and self._turn.last is not None:
            problem, plan = self._turn.last
            if waiting is not None and job.id not in self._turn.waiting and self._observer.jobs.eligible(job):
                problem, plan = self._beside(problem, plan, job, waiting)
            set_aside = waiting is not None and waiting.kind == SET_ASIDE
            if not set_aside and any(view.id == job.id for view in problem.snapshot.jobs):
                return msgspec.structs.replace(self._after(problem, plan).explain(job.id), status=job.status)
        lease = self._records.leases.get(placement.lease or "") if placement else None
        evidence = lease.evidence if lease and lease.evidence and lease.evidence.job == job.id else None
        then = await self._decided(job, placement)
        return Explanation(
            job=job.id,
            status=job.status,
            because=waiting.because if waiting else self._because(job, placement),
            reason=waiting.why if waiting else job.reason,
            decision=placement.decision if placement else "",
            winner=f"{placement.winner}: {winner_words(placement, placement.assigned_at)}"
            if placement and placement.winner
            else "",
            sites=then.sites if then else (),
            expected_start_at=_start_at(placement, then) if placement else None,
            expected_finish_at=job.finished_at or (placement.expected_end_at if placement else None),
            home_finish_at=evidence.home_finish_at if evidence else (then.home_finish_at if then else None),
            deadline_at=job.deadline_at,
            burst=evidence,
            policies=(evidence.policy,) if evidence else (then.policies if then else ()),
        )

    def _after(self, problem: Problem, plan: Plan) -> Aftermath:
        """The world after a plan; the last one's is kept, since people ask about several jobs of one plan."""
        if self._last is None or self._last.problem is not problem or self._last.plan is not plan:
            self._last = Aftermath(problem, plan)
        return self._last

    async def _decided(self, job: Job, placement: Placement | None) -> Explanation | None:
        """What the recorded decision that placed it says of every site; None when the record is gone."""
        if placement is None or not placement.decision:
            return None
        try:
            problem, plan = await self._decisions.load(placement.decision)
        except NotFound:
            return None
        found = explain_waiting(problem, plan, job.id)
        sites = tuple(msgspec.structs.replace(site, change="") for site in found.sites)
        return msgspec.structs.replace(found, sites=sites)

    def _because(self, job: Job, placement: Placement | None) -> str:
        """What became of it, and why it went there."""
        because, there = because_of(job, self._now()), ""
        if placement is not None:
            there = because_of(placement, self._now())
        if placement is not None and there not in because:
            because = f"{because}; it went to {placement.site} because: {there}"
        return with_unsure(because, placement, self._records, self._inventory)

    async def preview(self, caller: Caller, request: JobRequest) -> Preview:
        """What would become of this request now; nothing is stored."""
        entry = self._acceptance.entry(caller, await self._acceptance.folders(request.spec.workdir))
        job = self._acceptance.prepare(entry, request)
        return await self._preview(job, request.spec, request.notes, tasks=len(request.array))

    async def preview_of(self, job: Job, spec: JobSpec) -> Preview:
        """What would become of a job that waits, if it were as given."""
        return await self._preview(job, spec)

    async def _preview(
        self, job: Job, spec: JobSpec, notes: tuple[str, ...] = (), *, tasks: int = 0
    ) -> Preview:
        view = self._observer.jobs.bounded(self._observer.jobs.imagined(job, spec), self._now())
        if not self._observer.window:
            await self._observer.look()
        seen = self._observer.snapshot(only=self._observer.window, imagined=view)
        problem = Problem(snapshot=seen)
        explanation = await asyncio.to_thread(preview, problem, view)
        array = None
        if tasks:
            curve = explanation.curve
            owned_usd = min((each.cost_usd for each in curve if each.market is Market.OWNED), default=0.0)
            rented_usd = min(
                (each.cost_usd for each in curve if each.market is not Market.OWNED), default=0.0
            )
            array = await asyncio.to_thread(
                preview_array,
                problem,
                view,
                tasks,
                at_once=job.at_once,
                owned_usd=owned_usd,
                rented_usd=rented_usd,
            )
        cost_usd = explanation.burst.cost_usd if explanation.burst else None
        run_time = self._observer.jobs.run_time(job, spec)
        explanation = msgspec.structs.replace(self._with_unheard(explanation), run_time=run_time)
        launch = spec.launch or ()
        return Preview(job.name, job.queue, explanation, cost_usd, notes, launch, array=array)


def _start_at(placement: Placement, then: Explanation | None) -> float:
    """When it started; else when it was expected to, which for a machine that boots is later than when it was placed."""
    if placement.started_at is not None:
        return placement.started_at
    return max(placement.assigned_at, (then.expected_start_at if then else None) or 0.0)
