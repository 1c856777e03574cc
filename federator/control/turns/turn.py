"""One turn of the dispatcher: observe → decide → check → commit → act.

Ideally a turn sees the whole world at one instant, finds the best joint assignment, and makes it true at once. It departs from that in four ways:

1. The world moves while the solver thinks. The committer tests each action against the present; what no longer holds is stale, and the next turn
   sees it again. Events never void a plan.
2. The solver may be late, dead or wrong. Greedy's plan is always there; a plan that the checker rejects is kept for replay and not committed.
3. Interactive and short work does not wait for the solver: what greedy starts of it at once is committed first (the fast path), and the solver then
   plans the rest round it.
4. Agents' reports lag. What was committed and not yet reported is taken off the shapes by the observer; a site that still cannot says so.

Acting is not done here: desired sets and leases are projections of records, and the hub and the executor follow those.
"""

import asyncio
import contextlib
import logging
from typing import NamedTuple

import msgspec

from federator.control.leases.proposals import note_proposals
from federator.control.record.decisions import DecisionLog
from federator.control.record.event_writer import EventWriter
from federator.control.record.records import Records
from federator.control.turns.closings import close_places, next_stop_at
from federator.control.turns.committer import Committed, Committer, fatal_by_subject
from federator.control.turns.dependencies import settle_dependents
from federator.control.turns.first_forecasts import note_first_forecasts
from federator.control.turns.idle_work import end_idle_work
from federator.control.turns.observation import Observer
from federator.control.turns.set_aside import at_fault
from federator.control.turns.triggers import Occasion
from federator.kernel.clock import Clock
from federator.kernel.errors import Transient
from federator.kernel.ids import IdSource
from federator.model.plans import Place, Plan, Preempt, Waiting
from federator.model.reasons import GreedyAlone
from federator.model.snapshot import Problem
from federator.planning.checks import check_actions
from federator.planning.plans.greedy import plan_greedily, plan_quickly
from federator.planning.plans.resizes import next_changes_at
from federator.ports import Solver
from federator.settings import TurnSettings
from federator.telemetry import METRICS

log = logging.getLogger(__name__)

MOST_FAILED = 5
LONGEST_REST_S = 0.25
"""While events keep coming, planning rests for as long as it took, but not longer: jobs that start and end need the processor, too."""
FAST_RUN_S = 60.0
"""Work expected to be shorter than this does not wait for the solver."""


class Decision(NamedTuple):
    """What was seen, the plan as it was made, and what of that plan may be committed."""

    problem: Problem
    made: Plan
    plan: Plan


class Turn:
    """Plans whenever something has happened, and at the latest when the last plan asked to be looked at again."""

    def __init__(  # noqa: PLR0913 - what it is wired to, by name
        self,
        *,
        records: Records,
        observer: Observer,
        committer: Committer,
        event_writer: EventWriter,
        solver: Solver,
        decisions: DecisionLog,
        clock: Clock,
        ids: IdSource,
        settings: TurnSettings,
    ) -> None:
        self._records = records
        self.observer = observer
        self.committer = committer
        self.event_writer = event_writer
        self.solver = solver
        self._decisions = decisions
        self.clock = clock
        self._ids = ids
        self.settings = settings
        self.aside = observer.aside
        self.failed: list[Exception] = []
        """The errors of the last turns, if none has succeeded since; at most `MOST_FAILED`."""
        self.occasion = Occasion(records, observer.pools, observer.offers)
        self._warm_prices: dict[str, float] = {}
        self._seen: Problem | None = None
        """What this turn has seen."""
        self.last: tuple[Problem, Plan] | None = None
        """The newest problem and plan: what `explain`, lists and `preview` read."""
        self.turns = 0
        """So many have decided something."""
        self.waiting: dict[str, Waiting] = {}
        """What that plan says of each job that it did not start."""

    @property
    def plan(self) -> Plan | None:
        """The newest plan."""
        return self.last[1] if self.last else None

    def wake(self, *_: object) -> None:
        """A turn is due, whatever has happened."""
        self.occasion.wake()

    async def run(self) -> None:
        """Turn after turn, until cancelled."""
        time_s = asyncio.get_running_loop().time
        while True:
            began_s = time_s()
            self.occasion.begin()
            await self.once()
            self.occasion.end()
            gap_s = max(self.settings.minimum_gap_s, 2 * min(time_s() - began_s, LONGEST_REST_S))
            await self.wait(self.plan)
            rest_s = began_s + gap_s - time_s()
            if rest_s > 0:  # else it was idle, and begins at once
                await asyncio.sleep(max(rest_s, self.settings.coalesce_s))

    async def once(self) -> Plan | None:
        """One turn. None when nothing waits. One that fails because of certain jobs sets them aside, and the next one is without them."""
        try:
            plan = await self._phases()
        except Transient:
            raise
        except Exception as error:
            METRICS.count("federator_turn_failures_total")
            self.failed = [*self.failed[1 - MOST_FAILED :], error]
            if not await self._set_aside_at_fault():
                raise
            self.wake()
            return None
        self.failed = []
        METRICS.set("federator_last_turn_timestamp_seconds", self.clock.now())
        return plan

    async def _set_aside_at_fault(self) -> bool:
        """Set aside the jobs for which planning fails; whether there are any."""
        if self._seen is None:
            return False
        found = await asyncio.to_thread(at_fault, self._seen)
        for job, error in found:
            self.aside.add(job, error)
        await self.aside.tell()
        return bool(found)

    async def _phases(self) -> Plan | None:
        """The phases of a turn, in order."""
        self._seen = None
        began_s = asyncio.get_running_loop().time()
        await settle_dependents(self._records, self.event_writer)
        await close_places(self._records, self.event_writer)
        measured, authority = self.observer.measurements, self.observer.jobs.authority.now
        await end_idle_work(self._records, self.event_writer, measured, authority)
        self.observer.notice_silence()
        problem = await self.observe()
        started = await self._fast_path(problem)
        if started:
            problem = await self.observe()
        plan = await self._decided(problem)
        if started or plan is not None:
            self.turns += 1
            METRICS.observe("federator_turn_seconds", asyncio.get_running_loop().time() - began_s)
        return plan

    async def _decided(self, problem: Problem) -> Plan | None:
        """The phases from deciding on; None when nothing waits and nothing that runs is to change by now."""
        changes_at = min(next_changes_at(problem.snapshot), default=None)
        later = changes_at is None or changes_at > problem.snapshot.taken_at
        if not problem.snapshot.jobs and later:
            self._show(problem, msgspec.structs.replace(empty_plan(problem), wake_at=changes_at))
            return None
        decision = await self._check(await self._decide(problem))
        committed = await self.committer.commit(decision.plan)
        await self._remember(decision, committed)
        await note_proposals(self._records, self.event_writer, decision.plan)
        if self.settings.first_forecasts:
            now = self.clock.now()
            await note_first_forecasts(self._records, self.observer.jobs, decision.plan, now)
        return decision.plan

    async def observe(self) -> Problem:
        """1. The world now, as a value; of very many waiting jobs, a window."""
        snapshot = await self.observer.look()
        line, decision = self.observer.line, self._ids.new("dec")
        prices = line.prices if line.leads else self._warm_prices
        self._seen = Problem(
            snapshot=snapshot,
            warm_prices=prices,
            outside=line.outside,
            leads=line.leads,
            decision=decision,
        )
        return self._seen

    async def _fast_path(self, problem: Problem) -> bool:
        """Commit what greedy starts now of interactive and short work, if there is any; whether something was committed."""
        quick = {job.id for job in problem.snapshot.jobs if job.interactive or job.run_s <= FAST_RUN_S}
        if not quick or not self.settings.fast_path:
            return False
        made = await asyncio.to_thread(plan_quickly, problem)
        actions = tuple(
            action for action in made.actions if isinstance(action, Place) and action.job in quick
        )
        if not actions:
            return False
        because = GreedyAlone(situation="fast-path")
        plan = msgspec.structs.replace(made, actions=actions, winner_reason=because)
        decision = await self._check(Decision(problem, made, plan))
        committed = await self.committer.commit(decision.plan)
        await self._record(decision, committed)
        return bool(committed.done)

    async def _decide(self, problem: Problem) -> Decision:
        """2. The better of greedy's plan and the solver's; greedy's alone when the solver is off, late or dead."""
        began_s = asyncio.get_running_loop().time()
        waits = bool(problem.snapshot.jobs)
        plan = await self._solve(problem) if self.settings.solver and waits else None
        took_s = asyncio.get_running_loop().time() - began_s
        if self.settings.solver and waits:
            self.observer.line.pace(took_s / self.settings.solver_limit_s if plan is not None else 1.0)
        if plan is not None:
            return Decision(problem, plan, plan)
        made = await asyncio.to_thread(plan_greedily, problem)
        if not (self.settings.solver and waits):
            return Decision(problem, made, made)
        METRICS.count("federator_solver_failures_total")
        because = GreedyAlone(situation="solver-failed")
        return Decision(problem, made, msgspec.structs.replace(made, winner_reason=because))

    async def _solve(self, problem: Problem) -> Plan | None:
        """Ask the solver; interactive and short work that arrives meanwhile goes by the fast path."""
        settings, time_s = self.settings, asyncio.get_running_loop().time
        asked = asyncio.ensure_future(
            self.solver.decide(problem, stages=settings.stages, seed=0, limit_s=settings.solver_limit_s)
        )
        woken = False
        try:
            while not asked.done():
                waker = asyncio.ensure_future(self.occasion.stirred.wait())
                await asyncio.wait((asked, waker), return_when=asyncio.FIRST_COMPLETED)
                waker.cancel()
                if not asked.done():
                    woken = True
                    self.occasion.stirred.clear()
                    began_s = time_s()
                    await self._fast_path(await self.observe())
                    rest_s = max(settings.coalesce_s, min(time_s() - began_s, LONGEST_REST_S))
                    await asyncio.wait((asked,), timeout=rest_s)
            return await asked
        finally:
            asked.cancel()
            if woken:
                self.wake()

    async def _check(self, decision: Decision) -> Decision:
        """3. The checker proves the plan against its own snapshot; a fatal finding costs the solver the plan, and greedy the action."""
        faults = fatal_by_subject(check_actions(decision.problem, decision.plan))
        if faults and decision.plan.winner != "greedy":
            self._report_fault(decision.plan, faults)
            await self._decisions.record(decision.problem, decision.made, committed=0)
            problem = msgspec.structs.replace(decision.problem, decision=self._ids.new("dec"))
            made = await asyncio.to_thread(plan_greedily, problem)
            decision = Decision(problem, made, made)
            faults = fatal_by_subject(check_actions(problem, made))
        if faults:
            self._report_fault(decision.plan, faults)
            kept = tuple(action for action in decision.plan.actions if action.job not in faults)
            decision = decision._replace(plan=msgspec.structs.replace(decision.plan, actions=kept))
        return decision

    def _report_fault(self, plan: Plan, faults: dict[str, str]) -> None:
        METRICS.count("federator_findings_total", len(faults), severity="fatal")
        log.error("plan %s of %s is not valid: %s", plan.decision, plan.winner, "; ".join(faults.values()))

    async def _remember(self, decision: Decision, committed: Committed) -> None:
        """Keep what the next turn, explanations and replays need."""
        self._show(decision.problem, decision.plan)
        self._warm_prices = decision.plan.prices
        await self._record(decision, committed)

    async def _record(self, decision: Decision, committed: Committed) -> None:
        """Count what was done, and record it: the record holds the plan as it was made, so that it replays."""
        problem, made, plan = decision
        METRICS.count("federator_turns_total", winner=plan.winner)
        for action in committed.done:
            METRICS.count("federator_actions_total", kind=type(action).__name__.lower(), result="committed")
        for action, why in committed.stale:
            METRICS.count("federator_actions_total", kind=type(action).__name__.lower(), result="stale")
            log.info("stale: %s: %s", action.job, why)
        for action, error in committed.refused:
            METRICS.count("federator_actions_total", kind=type(action).__name__.lower(), result="refused")
            if not isinstance(action, Preempt):
                self.aside.add(action.job, error)
                self.wake()
        await self.aside.tell()
        if committed.stale:
            self.wake()
        if made.actions:
            done, stale = len(committed.done), len(committed.stale)
            await self._decisions.record(problem, made, committed=done, stale=stale)

    def _show(self, problem: Problem, plan: Plan) -> None:
        """From now on, people read this plan."""
        self.last = (problem, plan)
        self.waiting = {waiting.job: waiting for waiting in plan.waiting}

    async def wait(self, plan: Plan | None) -> None:
        """Until there is an occasion, the plan's own wake-up, something to stop because its place closes, or the heartbeat."""
        until_s, now = self.settings.heartbeat_s, self.clock.now()
        own_at = (next_stop_at(self._records, now), self.aside.next_at(now))
        for at in (plan.wake_at if plan else None, *own_at):
            if at is not None:
                until_s = min(until_s, max(0.0, at - now))
        delay_s = max(self.settings.minimum_gap_s, self.clock.real_delay_s(until_s))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self.occasion.come()


def empty_plan(problem: Problem) -> Plan:
    """The plan of a turn in which nothing waits."""
    return Plan(
        decision=problem.decision,
        taken_at=problem.snapshot.taken_at,
        seed=0,
        winner="greedy",
        winner_reason=GreedyAlone(situation="nothing-waits"),
        objective_usd=0.0,
    )
